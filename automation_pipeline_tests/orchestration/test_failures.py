"""Verdicts of errors, in Dagster's words."""

import dagster as dg
import pytest

from automation_pipeline.core.errors import (
    AutomationError,
    InvalidInputError,
    PermanentError,
    TransientError,
)
from automation_pipeline.orchestration.ops import CRASH_RETRIES, STEP_RETRY_SECONDS, verdicts
from automation_pipeline_tests.tables import every_case


def raised_for(error: Exception) -> BaseException:
    with pytest.raises(BaseException) as caught, verdicts():  # noqa: PT011  the kind is what is asked
        raise error
    return caught.value


@every_case(("asked", "waits"), [(None, STEP_RETRY_SECONDS), (42.0, 42.0)])
def test_a_transient_error_asks_for_the_step_again(asked: float | None, waits: float) -> None:
    retry = raised_for(TransientError("later", retry_after_seconds=asked))
    assert isinstance(retry, dg.RetryRequested)
    assert retry.seconds_to_wait == waits


def test_a_permanent_error_ends_the_step_in_its_own_words() -> None:
    failure = raised_for(PermanentError("Schedule 9 not found"))
    assert isinstance(failure, dg.Failure)
    assert failure.description == "Schedule 9 not found"
    assert failure.allow_retries is False


def test_every_field_at_fault_is_in_the_words() -> None:
    failure = raised_for(
        InvalidInputError("Invalid fiche selection data", (("mode", "is required"),))
    )
    assert isinstance(failure, dg.Failure)
    assert failure.description == "Invalid fiche selection data: mode: is required"


def test_steps_in_one_process_have_no_policy_that_could_catch_an_interrupt() -> None:
    assert CRASH_RETRIES is None


@every_case("bug", [ZeroDivisionError(), AutomationError("no verdict")])
def test_a_bug_stays_a_bug(bug: Exception) -> None:
    assert raised_for(bug) is bug
