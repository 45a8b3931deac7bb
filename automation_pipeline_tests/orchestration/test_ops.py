"""Shared parts of ops: the resource, run configs, and errors as Dagster failures and retries."""

import asyncio
import threading
from contextlib import nullcontext
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from automation_pipeline.automation.models.schedules import (
    SelectionInput,
    SelectionMode,
    parse_selection,
)
from automation_pipeline.core.errors import (
    AutomationError,
    InvalidInputError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.core.logs import CORRELATION_TAG, correlation_id
from automation_pipeline.orchestration.ops import (
    CRASH_RETRIES,
    STEP_RETRY_SECONDS,
    SelectionConfig,
    ServicesResource,
    check_ids,
    dagster_errors,
    id_in,
    wait_for_other_worker,
)
from automation_pipeline_tests.cases import every_case


@every_case("given", [None, 1, LARGEST_ID])
def test_an_id_within_bounds_or_none_is_accepted(given: int | None) -> None:
    check_ids(run_id=given)


@every_case("given", [0, -1, LARGEST_ID + 1, 10**30])
def test_every_field_with_an_invalid_id_is_named(given: int) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_ids(run_id=given, rule_id=None, other=given)
    assert [name for name, _ in refused.value.fields] == ["run_id", "other"]


@every_case(
    ("given", "found"),
    [(7, 7), ("7", 7), (str(LARGEST_ID), LARGEST_ID), (LARGEST_ID + 1, None), (0, None), ("", None), ("x", None),
     (None, None), ("٧", None), (True, None)],
)  # fmt: skip
def test_an_invalid_id_is_none(given: object, found: int | None) -> None:
    assert id_in(given) == found


def raised_for(error: Exception) -> BaseException:
    with pytest.raises(BaseException) as caught, dagster_errors():  # noqa: PT011  the test checks the type
        raise error
    return caught.value


@every_case(("asked", "waits"), [(None, STEP_RETRY_SECONDS), (42.0, 42.0)])
def test_a_transient_error_requests_a_retry_of_the_step(asked: float | None, waits: float) -> None:
    retry = raised_for(TransientError("later", retry_after_seconds=asked))
    assert isinstance(retry, dg.RetryRequested)
    assert retry.seconds_to_wait == waits


def test_a_permanent_error_fails_the_step_with_its_message() -> None:
    failure = raised_for(PermanentError("Schedule 9 not found"))
    assert isinstance(failure, dg.Failure)
    assert failure.description == "Schedule 9 not found"
    assert failure.allow_retries is False


def test_the_failure_message_contains_every_invalid_field() -> None:
    failure = raised_for(
        InvalidInputError("Invalid fiche selection data", (("mode", "is required"),))
    )
    assert isinstance(failure, dg.Failure)
    assert failure.description == "Invalid fiche selection data: mode: is required"


def test_in_process_steps_have_no_crash_retry_policy() -> None:
    assert CRASH_RETRIES is None


@every_case("bug", [ZeroDivisionError(), AutomationError("no verdict")])
def test_an_unexpected_error_is_raised_unchanged(bug: Exception) -> None:
    assert raised_for(bug) is bug


def ids_in_a_run(**tags: str) -> tuple[dg.ExecuteInProcessResult, list[str | None]]:
    seen: list[str | None] = []

    @dg.op
    def first_op(services: ServicesResource) -> None:
        async def loop() -> None:
            seen.append(correlation_id())
            seen.append(await asyncio.to_thread(correlation_id))

        services.get().run(loop())
        thread = threading.Thread(
            target=copy_context().run, args=(lambda: seen.append(correlation_id()),)
        )
        thread.start()
        thread.join()

    @dg.op(ins={"before": dg.In(dg.Nothing)})
    def second_op(services: ServicesResource) -> None:
        seen.append(correlation_id())

    @dg.job(resource_defs={"services": ServicesResource()})
    def job() -> None:
        second_op(before=first_op())

    return job.execute_in_process(tags=tags), seen


def test_the_correlation_id_comes_from_the_tag_and_is_reset_after_the_run() -> None:
    _, seen = ids_in_a_run(**{CORRELATION_TAG: "request-7"})
    assert seen == ["request-7"] * 4
    assert correlation_id() is None


@every_case("tags", [{}, {CORRELATION_TAG: ""}, {CORRELATION_TAG: "a b\r\nX-Admin: 1"}])
def test_without_a_valid_tag_the_run_id_is_the_correlation_id(tags: dict[str, str]) -> None:
    result, seen = ids_in_a_run(**tags)
    assert seen == [result.run_id] * 4


def test_a_sensor_has_no_correlation_id() -> None:
    with dg.build_sensor_context(resources={"services": ServicesResource()}) as context:
        assert isinstance(context.resources.services, ServicesResource)
        assert correlation_id() is None


def config_from_launchpad(**given: object) -> dict[str, object]:
    """The config as an op receives it, with Dagster's defaults."""
    received: list[dict[str, object]] = []

    @dg.op
    def read_config(config: SelectionConfig) -> None:
        received.append(config.given())

    @dg.job
    def launchpad() -> None:
        read_config()

    launchpad.execute_in_process({"ops": {"read_config": {"config": given}}})
    return received[0]


def test_the_selection_config_has_every_field_with_a_description() -> None:
    fields = SelectionConfig.model_fields.values()
    assert [field.alias for field in fields] == [
        field.alias for field in SelectionInput.model_fields.values()
    ]
    assert all(field.description for field in fields)


@every_case(
    "given",
    [
        {"mode": "manual", "ficheIds": ["1", "2"]},
        {"mode": "filter", "dateRange": "yesterday", "groupes": ["NORD"], "onlyWithRecordings": True},
        {"mode": "date_range", "dateRange": "custom", "customStartDate": "2026-02-03", "customEndDate": "2026-02-04",
         "onlyUnaudited": True, "useRlm": True, "maxFiches": 5, "maxRecordingsPerFiche": 2},
    ],
)  # fmt: skip
def test_only_the_given_selection_fields_are_passed_on(given: dict[str, object]) -> None:
    assert config_from_launchpad(**given) == given


@every_case("mode", SelectionMode)
def test_omitted_selection_fields_have_the_defaults_of_a_schedule(mode: SelectionMode) -> None:
    given = {"mode": mode.value, "dateRange": "yesterday"}
    assert parse_selection(config_from_launchpad(**given)) == parse_selection(given)


@every_case("wrong", [{}, {"mode": "all"}, {"mode": "manual", "fiche_ids": ["1"]}])
def test_an_invalid_selection_config_is_rejected_at_launch(wrong: dict[str, object]) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError):
        config_from_launchpad(**wrong)


class BusyError(TransientError):
    pass


@pytest.mark.parametrize(("retry", "is_retried"), [(0, True), (2, True), (3, False)])
def test_a_step_waits_for_the_claim_of_another_worker_and_then_gives_up(
    retry: int, is_retried: bool
) -> None:
    lines: list[str] = []
    context: Any = SimpleNamespace(retry_number=retry, log=SimpleNamespace(info=lines.append))
    expected = pytest.raises(BusyError) if is_retried else nullcontext()
    with expected, wait_for_other_worker(context, BusyError):
        raise BusyError("Run 7 is busy.")
    assert lines == ([] if is_retried else ["Run 7 is busy. A second worker has nothing to do."])
    with pytest.raises(TransientError), wait_for_other_worker(context, BusyError):
        raise TransientError("another error")
