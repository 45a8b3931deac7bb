"""Turns an error's verdict into Dagster's: transient asks for another try of the step, permanent ends the run."""

from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg

from automation_pipeline.core.errors import PermanentError, TransientError

STEP_RETRIES = 3
STEP_RETRY_SECONDS = 5.0

# For a step process that dies: a run is retried by Dagster only when its worker does.
CRASH_RETRIES = dg.RetryPolicy(max_retries=STEP_RETRIES, delay=1)


@contextmanager
def verdicts() -> Generator[None]:
    try:
        yield
    except TransientError as error:
        wait = error.retry_after_seconds or STEP_RETRY_SECONDS
        raise dg.RetryRequested(max_retries=STEP_RETRIES, seconds_to_wait=wait) from error
    except PermanentError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
