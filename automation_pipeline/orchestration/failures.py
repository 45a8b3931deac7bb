"""Turns an error's verdict into Dagster's: transient asks for another try of the step, permanent
ends the run."""

from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg

from automation_pipeline.core.errors import (
    AutomationError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.core.settings import load_settings

STEP_RETRIES = 3
STEP_RETRY_SECONDS = 5.0

# Of assets, whose process may die: the runs of jobs are requested again instead. Steps inside the
# run's own process must have none: a retry policy also catches the interrupt by which a run is
# terminated, and goes on.
CRASH_RETRIES = (
    dg.RetryPolicy(max_retries=STEP_RETRIES, delay=1)
    if load_settings().automation_executor in {"multiprocess", "k8s"}
    else None
)


@contextmanager
def verdicts() -> Generator[None]:
    try:
        yield
    except TransientError as error:
        wait = error.retry_after_seconds or STEP_RETRY_SECONDS
        raise dg.RetryRequested(max_retries=STEP_RETRIES, seconds_to_wait=wait) from error
    except PermanentError as error:
        raise dg.Failure(sentence_of(error), allow_retries=False) from None


@contextmanager
def others_at_it(context: dg.OpExecutionContext, busy: type[TransientError]) -> Generator[None]:
    """A worker that was killed is waited for until its hold ends; beside one that is well there is
    nothing to do."""
    try:
        yield
    except busy as error:
        if context.retry_number < STEP_RETRIES:
            raise
        context.log.info(f"{error} There is nothing left for a second worker.")


def words_of(error: BaseException | None) -> str:
    """What a step's exception says, for a person. A request for a retry says nothing itself: its
    cause does."""
    if isinstance(error, dg.Failure) and error.description:
        return error.description
    if isinstance(error, dg.RetryRequested) and error.__cause__ is not None:
        return words_of(error.__cause__)
    if isinstance(error, AutomationError):
        return sentence_of(error)
    return f"{type(error).__name__}: {error}" if error else "The step failed"
