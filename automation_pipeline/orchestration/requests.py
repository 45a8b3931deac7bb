"""The request that a Dagster run was launched for: taken when it begins, refused when it cannot."""

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.storage.run_requests import mark_refused, mark_taken

REQUEST_TAG = "automation/request_key"


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
