"""Schedules, occurrences and runs as JSON: the same for the HTTP API and the command line."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from automation_pipeline.automation.domain.occurrences import next_due
from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.instants import iso
from automation_pipeline.core.json_model import Instant, as_document


class ScheduleShown(Schedule):
    """A schedule, and when it is run next. The key of the CRM is never shown, only that there is one."""

    external_api_key: Literal["**********"] | None = None  # pyright: ignore[reportIncompatibleVariableOverride]  as it is written
    next_due_at: Instant | None


def schedule_document(schedule: Schedule, now: datetime) -> Mapping[str, object]:
    due_at = next_due_or_never(schedule, now)
    return {**as_document(schedule), "nextDueAt": due_at and iso(due_at)}


def next_due_or_never(schedule: Schedule, now: datetime) -> datetime | None:
    """Also None for one that went wrong since it was stored."""
    try:
        return next_due(schedule, now)
    except InvalidInputError:
        return None
