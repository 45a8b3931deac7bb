"""Settling the fetch: which fiches end there, which continue, and when the run stops."""

from typing import Any

import pytest

from automation_pipeline.automation.queries.runs import StaleAttemptError
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.errors import TransientError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.bench import Bench
from automation_pipeline_tests.conftest import StandingClock

FETCHED = "Fiche detail fetch complete (distributed)"
STOPPED = "continueOnError=false and details are missing: transcription and audits are skipped"


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    made = Bench(database, clock)
    made.offer("called")
    made.offer("silent", calls=0)
    made.crm.fail_always("broken", TransientError("The CRM answered 503."))
    return made


WHOLE, HURT = ("called", "silent"), ("called", "silent", "broken")
ON = {"runTranscription": True, "runAudits": True}


@pytest.mark.parametrize(
    ("fiches", "fields", "statuses", "batches"),
    [
        (WHOLE, ON, ["pending", "successful"], [0]),
        (WHOLE, ON | {"runAudits": False}, ["pending", "successful"], [0]),
        (WHOLE, ON | {"runTranscription": False}, ["pending", "successful"], [0]),
        (WHOLE, {"runTranscription": False, "runAudits": False}, ["successful", "successful"], []),
        (HURT, ON | {"continueOnError": True}, ["pending", "successful", "failed"], [0]),
        (HURT, ON | {"continueOnError": False}, ["successful", "successful", "failed"], []),
        (WHOLE, ON | {"continueOnError": False}, ["pending", "successful"], [0]),
        (("called", "unknown"), ON | {"continueOnError": False}, ["pending", "ignored"], [0]),
        (("broken",), ON, ["failed"], []),
    ],
)
def test_settling_decides_which_fiches_continue(
    fiches: tuple[str, ...],
    fields: dict[str, Any],
    statuses: list[str],
    batches: list[int],
    bench: Bench,
) -> None:
    ticket = bench.until_work(*fiches, **fields)
    assert bench.statuses(ticket) == statuses
    assert bench.settle(ticket) == batches
    with bench.database.reading() as session:
        row = session.get_one(RunRow, ticket.run_id)
        stopped = "broken" in fiches and not fields.get("continueOnError", True)
        assert (row.fetched_at, row.stopped_after_fetch) == (bench.clock.now(), stopped)
    assert bench.logs(ticket).count(FETCHED) == 1
    assert bench.logs(ticket).count(STOPPED) == stopped


def test_a_stopped_run_neither_transcribes_nor_audits(bench: Bench) -> None:
    run = bench.run(*HURT, continueOnError=False)
    assert (run.status, run.transcriptions_run, run.audits_run) == ("partial", 0, 0)
    assert (bench.speech.asked, bench.model.asked) == ([], [])


@pytest.mark.parametrize(("go_on", "batches"), [(True, [0]), (False, [])])
def test_a_later_attempt_settles_like_the_first(
    go_on: bool, batches: list[int], bench: Bench
) -> None:
    ticket = bench.until_work(*HURT, continueOnError=go_on)
    before = bench.statuses(ticket)
    later = bench.take_over(ticket)
    assert bench.settle(later) == batches
    assert bench.statuses(later) == before
    assert bench.logs(ticket).count(FETCHED) == 1
    with pytest.raises(StaleAttemptError):
        bench.settle(ticket)


def test_a_transcription_failure_does_not_count_as_a_fetch_failure(bench: Bench) -> None:
    """A run broken off while it worked goes on with the others: its gate was passed before."""
    bench.offer("deaf")
    bench.speech.fail_always(bench.url("deaf"), TransientError("status=429"))
    ticket = bench.until_work("called", "deaf", continueOnError=False, runAudits=False)
    bench.carry_out_work(ticket)
    assert bench.statuses(ticket) == ["successful", "failed"]
    later = bench.take_over(ticket)
    assert bench.settle(later) == []
    with bench.database.reading() as session:
        assert not session.get_one(RunRow, ticket.run_id).stopped_after_fetch


def test_settling_a_finished_run_returns_no_batches(bench: Bench) -> None:
    ticket = bench.until_work("silent")
    bench.finalise(ticket)
    assert bench.settle(ticket) == []
