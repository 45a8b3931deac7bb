"""What a change of a schedule comes to: the schedule as it will be, its state, and when it is due next."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.org_jobs.domain.org_schedule import (
    OrgSchedule,
    ScheduleFields,
    ScheduleInput,
    input_document,
    is_as_shown,
    timing_fields,
)
from automation_pipeline.org_jobs.domain.schedule_rules import INVALID_SCHEDULE, never_due, read_schedule
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.domain.timing import Planned, Timing, next_planned, read_timing

NEVER_NULL = "cannot be null: leave it out to keep it"
NULLABLE = frozenset(
    {"description", "serverInstanceId", "executionWindowStart", "executionWindowEnd"}
    | {"retryPolicy", "startAt", "endAt", "excludedOn"}
)


@dataclass(frozen=True)
class Standing:
    """`planned` of an ACTIVE one, and of no other."""

    state: ScheduleState
    planned: Planned | None = None


def changed_schedule(
    stored: OrgSchedule, patch: Mapping[str, object], *, call_origins: Collection[str] = ()
) -> ScheduleInput:
    """What the patch does not name stays, null clears; payload and retry policy are replaced whole.

    The address of a call is checked if the patch names it: a schedule whose origin is not listed any more can still be
    disabled or renamed.
    """
    names_address = bool(patch.keys() & {"payload", "jobType"})
    try:
        return read_schedule({**input_document(stored), **patch}, call_origins=call_origins if names_address else None)
    except InvalidInputError as error:
        nulls = {name for name in patch if patch[name] is None} - NULLABLE
        faults = tuple((name, NEVER_NULL if name in nulls else why) for name, why in error.fields)
        raise InvalidInputError(INVALID_SCHEDULE, faults) from None


def is_expected(stored: OrgSchedule, expected: int | datetime | None) -> bool:
    """Whether the caller has seen it as it is, by its version or by when it was last changed."""
    if expected is None:
        return True
    if isinstance(expected, datetime):
        return is_as_shown(expected, stored.updated_at)
    return expected == stored.version


def standing_after(stored: OrgSchedule, changed: ScheduleInput, now: datetime) -> Standing | None:
    """None: neither when it is due nor whether it is wanted has changed. What is due from now on counts.

    InvalidInputError: it would never be due again, and no end says so.
    """
    is_as_before = _timing(stored) == _timing(changed) and stored.enabled == changed.enabled
    if is_as_before and stored.state is not ScheduleState.INVALID_CRON:
        return None
    if not changed.enabled or (stored.is_suspended and stored.state is ScheduleState.PAUSED):
        return Standing(ScheduleState.PAUSED)
    planned = next_after(read_timing(timing_fields(changed, stored.id)), now, stored.last_scheduled_for)
    if planned is not None:
        return Standing(ScheduleState.ACTIVE, planned)
    if is_as_before:
        return None
    if changed.end_at is None:
        raise never_due(changed)
    return Standing(ScheduleState.COMPLETED)


def next_after(timing: Timing, now: datetime, last_scheduled_for: datetime | None) -> Planned | None:
    """From now on, but never again what was decided upon: the clock may have been set back."""
    return next_planned(timing, now if last_scheduled_for is None else max(now, last_scheduled_for))


def refuse_pause(state: ScheduleState) -> None:
    if state is ScheduleState.COMPLETED:
        raise ConflictError("The schedule has come to its end: there is nothing to pause.")
    if state is ScheduleState.INVALID_CRON:
        raise ConflictError("The schedule is not due any more: correct when it is due, or delete it.")


def _timing(schedule: ScheduleFields) -> object:
    return timing_fields(schedule, "")
