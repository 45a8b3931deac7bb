"""Run requests: how a Dagster run takes or refuses the one that it was launched for."""

from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import (
    InfrastructureError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.storage.run_requests import mark_refused, mark_taken

REQUEST_TAG = "automation/request_key"
# Counts the Dagster runs of one request, from 1.
LAUNCH_TAG = "automation/launch"


def take_request(context: dg.OpExecutionContext, services: Services) -> None:
    key = context.run.tags.get(REQUEST_TAG)
    if key:
        with services.database.transaction() as session:
            mark_taken(session, key, context.run_id)


def refuse_request(run: dg.DagsterRun, reason: str, services: Services) -> bool:
    """False when the run was not launched for a request."""
    key = run.tags.get(REQUEST_TAG)
    if key:
        with services.database.transaction() as session:
            mark_refused(session, key, reason)
    return bool(key)


@contextmanager
def recorded_refusal(
    context: dg.OpExecutionContext, services: Services, *, last_try: bool
) -> Generator[None]:
    """Work that cannot be begun refuses its request with the reason, without waiting for a sensor.
    On the last try a transient error does so too, and fails the step with its own words instead of
    a count of retries."""
    try:
        yield
    except PermanentError as error:
        refuse_request(context.run, sentence_of(error), services)
        raise
    except TransientError as error:
        if not last_try:
            raise
        if not isinstance(error, InfrastructureError):
            refuse_request(context.run, sentence_of(error), services)
        raise PermanentError(sentence_of(error)) from error
