"""Schedule use cases with default arguments for tests."""

from typing import Any

from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.schedules import Dispatched, OrgSchedule
from automation_pipeline.org_jobs.schedules import (
    create_schedule,
    pause_schedule,
    resume_schedule,
    run_schedule_now,
    update_schedule,
)
from automation_pipeline_tests.org_jobs.data import ORG, OrgJobsData

ORG_SCOPE = OrgScope(ORG)


def create(
    data: OrgJobsData, org_id: str = ORG, within: OrgScope = ORG_SCOPE, **fields: Any
) -> OrgSchedule:
    """Create a schedule of an HTTPS call at 02:00. `fields` override the input."""
    data.organisation(org_id)
    call = {"url": "https://example.com/"}
    given = {
        "name": "Nightly",
        "cronExpression": "0 2 * * *",
        "jobType": "HTTPS_CALL",
        "payload": call,
    } | fields
    return create_schedule(given, org_id=org_id, **data.context(within))


def update(
    data: OrgJobsData,
    schedule_id: str,
    *,
    within: OrgScope = ORG_SCOPE,
    **patch: Any,
) -> OrgSchedule:
    return update_schedule(schedule_id, patch, **data.context(within))


def pause(data: OrgJobsData, schedule_id: str, **given: Any) -> OrgSchedule:
    return pause_schedule(schedule_id, **given, **data.context(ORG_SCOPE))


def resume(data: OrgJobsData, schedule_id: str) -> OrgSchedule:
    return resume_schedule(schedule_id, **data.context(ORG_SCOPE))


def run_now(data: OrgJobsData, schedule_id: str, **given: Any) -> Dispatched:
    return run_schedule_now(schedule_id, **given, **data.context(ORG_SCOPE))


def log_of(data: OrgJobsData, schedule_id: str) -> list[str]:
    return [entry.action for entry in data.audit(schedule_id)]
