"""Steps read their ticket from the tags of the run: without files, and only that of their attempt."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.orchestration.automation_runs import (
    ATTEMPT_TAG,
    RUN_ID_TAG,
    Tickets,
    batch_key,
)

SEEN: list[object] = []


@dg.op
def opening(context: dg.OpExecutionContext) -> RunAttempt:
    context.instance.add_run_tags(context.run_id, {RUN_ID_TAG: "7", ATTEMPT_TAG: "2"})
    return RunAttempt(7, 2)


@dg.op(out=dg.DynamicOut(tuple))
def cut(ticket: RunAttempt) -> Iterator[dg.DynamicOutput]:
    for number in (0, 12):
        yield dg.DynamicOutput((ticket, number), mapping_key=batch_key(number))


@dg.op
def record(work: tuple) -> None:
    SEEN.append(work)


@dg.op
def unopened() -> RunAttempt:
    return RunAttempt(7, 2)


@dg.op
def payload() -> str:
    return "a transcript"


@dg.op
def consume(given: object) -> None:
    """Accepts any input."""


@dg.job(resource_defs={"io_manager": Tickets()})
def in_batches() -> None:
    cut(opening()).map(record)


@dg.job(resource_defs={"io_manager": Tickets()})
def without_attempt() -> None:
    consume(unopened())


@dg.job(resource_defs={"io_manager": Tickets()})
def with_payload() -> None:
    consume(payload())


def test_every_batch_gets_its_ticket_and_number_without_files(tmp_path: Path) -> None:
    SEEN.clear()
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        assert in_batches.execute_in_process(instance=instance).success
    assert sorted(SEEN, key=str) == [(RunAttempt(7, 2), 0), (RunAttempt(7, 2), 12)]
    assert not [file for file in tmp_path.rglob("*result*") if file.is_file()]


def test_a_run_without_an_opened_attempt_has_no_ticket() -> None:
    with pytest.raises(dg.DagsterInvariantViolationError, match="execute it from open_run"):
        without_attempt.execute_in_process()


def test_re_executing_from_failure_asks_to_execute_all_steps() -> None:
    """Dagster's "re-execute from failure" gives the first step outputs of the parent run."""
    parent_output = SimpleNamespace(run_id="d-1", mapping_key=None)
    context = SimpleNamespace(
        upstream_output=parent_output, step_context=SimpleNamespace(run_id="d-2")
    )
    with pytest.raises(dg.Failure) as caught:
        Tickets().load_input(context)  # type: ignore[arg-type]
    assert "Re-execute all steps" in (caught.value.description or "")
    assert caught.value.allow_retries is False


def test_an_output_that_is_not_a_ticket_is_rejected() -> None:
    with pytest.raises(dg.DagsterInvariantViolationError, match="payload returns str"):
        with_payload.execute_in_process()
