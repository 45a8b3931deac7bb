"""Requested and stored schedules for tests of rules."""

from datetime import UTC, datetime
from typing import Any

from automation_pipeline.org_jobs.models.jobs import ScheduleState
from automation_pipeline.org_jobs.models.schedules import OrgSchedule
from automation_pipeline.org_jobs.rules.schedules import read_schedule

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


def schedule_input(**fields: Any) -> dict[str, object]:
    """An HTTPS call at 02:00."""
    call = {"url": "https://example.com/"}
    return {
        "name": "Nightly",
        "cronExpression": "0 2 * * *",
        "jobType": "HTTPS_CALL",
        "payload": call,
    } | fields


def stored(fields: dict[str, object] | None = None, **known: Any) -> OrgSchedule:
    rest: dict[str, Any] = {
        name: None for name, field in OrgSchedule.model_fields.items() if field.is_required()
    }
    flags = {"is_suspended": False, "skip_next_run": False}
    counts = {"run_count": 0, "failure_count": 0, "consecutive_failures": 0, "version": 1}
    texts = {"id": "s1", "org_id": "acme", "created_by": "user:1", "state": ScheduleState.ACTIVE}
    times = {"created_at": NOW, "updated_at": NOW}
    written = dict(read_schedule(schedule_input(**(fields or {}))))
    return OrgSchedule.model_validate(
        {**rest, **flags, **counts, **texts, **times, **written, **known}
    )
