"""What a change of a schedule comes to: the schedule as it will be, and what that does to its memory of due times."""

from collections.abc import Mapping
from datetime import datetime

from automation_pipeline.automation.domain.schedule import Schedule, ScheduleFields, ScheduleInput, ScheduleType
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import parse

INVALID_UPDATE = "Invalid automation schedule update data"
# A type's own fields may be null, but not while the schedule has that type.
SCHEDULE_REQUIRES = " schedule requires "
NEVER_NULL = "cannot be null: leave it out to keep it"
_TIMING = {
    "schedule_type",
    "cron_expression",
    "timezone",
    "time_of_day",
    "day_of_week",
    "day_of_month",
    "short_months",
}


def changed_by(stored: Schedule, patch: Mapping[str, object]) -> ScheduleInput:
    """What the patch does not name stays, null clears, a selection is replaced whole. The rules hold for the result."""
    said = stored.model_dump(by_alias=True, include=set(ScheduleInput.model_fields))
    try:
        return parse(ScheduleInput, {**said, **patch}, INVALID_UPDATE)
    except InvalidInputError as error:
        nulls = {field for field in said if patch.get(field, said) is None}
        faults = tuple(
            (field, NEVER_NULL if field in nulls and SCHEDULE_REQUIRES not in why else why)
            for field, why in error.fields
        )
        raise InvalidInputError(INVALID_UPDATE, faults) from None


def consequences(before: ScheduleFields, after: ScheduleFields, now: datetime) -> dict[str, object]:
    """The columns that change along: neither new times nor the end of a pause fire for what lies behind."""
    resumed = resumption(now) if after.is_active and not before.is_active else {}
    retimed = {"last_due_at": now, "skip_due_at": None} if _timing(before) != _timing(after) else {}
    return {**resumed, **retimed}


def resumption(now: datetime) -> dict[str, object]:
    return {"is_active": True, "paused_reason": None, "failures_in_a_row": 0, "last_due_at": now}


def _timing(schedule: ScheduleFields) -> Mapping[str, object]:
    counting = _TIMING if schedule.schedule_type is ScheduleType.CRON else _TIMING - {"cron_expression"}
    return schedule.model_dump(include=counting)
