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
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, Bench

MINE = OrgScope(ORG)


def world(bench: Bench, within: OrgScope = MINE) -> dict[str, Any]:
    return {"within": within, "database": bench.database, "clock": bench.clock, "actor": ACTOR}


def created(bench: Bench, org_id: str = ORG, within: OrgScope = MINE, **fields: Any) -> OrgSchedule:
    """Create a schedule of an HTTPS call at 02:00. `fields` override the input."""
    bench.organisation(org_id)
    call = {"url": "https://example.com/"}
    given = {
        "name": "Nightly",
        "cronExpression": "0 2 * * *",
        "jobType": "HTTPS_CALL",
        "payload": call,
    } | fields
    return create_schedule(given, org_id=org_id, **world(bench, within))


def updated(
    bench: Bench,
    schedule_id: str,
    *,
    within: OrgScope = MINE,
    **patch: Any,
) -> OrgSchedule:
    return update_schedule(schedule_id, patch, **world(bench, within))


def paused(bench: Bench, schedule_id: str, **given: Any) -> OrgSchedule:
    return pause_schedule(schedule_id, **given, **world(bench))


def resumed(bench: Bench, schedule_id: str) -> OrgSchedule:
    return resume_schedule(schedule_id, **world(bench))


def run_now(bench: Bench, schedule_id: str, **given: Any) -> Dispatched:
    return run_schedule_now(schedule_id, **given, **world(bench))


def log_of(bench: Bench, schedule_id: str) -> list[str]:
    return [entry.action for entry in bench.audit(schedule_id)]
