"""Validation of schedules and requested jobs, and rules of changes and manual runs."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.json_model import parse, text_fault
from automation_pipeline.core.scheduling.plan import OverlapPolicy, overlap_start
from automation_pipeline.core.scheduling.timing import (
    ExecutionWindow,
    Planned,
    Timing,
    is_never_due,
    next_planned,
    read_timing,
)
from automation_pipeline.org_jobs.models.job_types import NO_OWN_TYPES, checked_payload, job_type
from automation_pipeline.org_jobs.models.jobs import JobInput, JobType, Performer
from automation_pipeline.org_jobs.models.schedules import (
    OrgSchedule,
    OrgScheduleDefinition,
    OrgScheduleFields,
    input_document,
    timing_fields,
)
from automation_pipeline.org_jobs.models.states import ScheduleState

INVALID_SCHEDULE = "Invalid schedule data"
INVALID_JOB = "Invalid job data"
NEVER_NULL = "cannot be null: omit it to keep it"
NULLABLE = frozenset(
    {"description", "serverInstanceId", "executionWindowStart", "executionWindowEnd"}
    | {"retryPolicy", "startAt", "endAt", "excludedOn"}
)

Fault = tuple[str, str]


def read_schedule(
    given: Mapping[str, object],
    *,
    call_origins: Collection[str] | None = (),
    own_types: Mapping[str, JobType] = NO_OWN_TYPES,
) -> OrgScheduleDefinition:
    """Parse a schedule, with the canonical name of its job type and the defaults of its payload.
    InvalidInputError names every faulty field: single fields first, then combinations of fields.
    `call_origins`: see `checked_payload`. `own_types`: the types of the organisation."""
    read = parse(OrgScheduleDefinition, given, INVALID_SCHEDULE)
    faults = list(_timing_faults(read))
    payload: dict[str, object] = {}
    name = read.job_type
    try:
        type_ = job_type(name, own_types)
        payload, name = checked_payload(type_, read.payload, call_origins=call_origins), type_.name
        faults += _server_faults(read.server_instance_id, type_.performer)
    except InvalidInputError as error:
        faults += error.fields
    if faults:
        raise InvalidInputError(INVALID_SCHEDULE, tuple(faults))
    return read.model_copy(update={"job_type": name, "payload": payload})


def read_job(
    given: Mapping[str, object],
    *,
    call_origins: Collection[str] = (),
    own_types: Mapping[str, JobType] = NO_OWN_TYPES,
) -> JobInput:
    """Parse a requested job, as `read_schedule` parses a schedule."""
    read = parse(JobInput, given, INVALID_JOB)
    try:
        type_ = job_type(read.type, own_types)
    except InvalidInputError as error:
        faults = tuple(("type", why) for _, why in error.fields)
        raise InvalidInputError(INVALID_JOB, faults) from None
    faults = tuple(_server_faults(read.server_instance_id, type_.performer))
    payload: dict[str, object] = {}
    try:
        payload = checked_payload(type_, read.payload, call_origins=call_origins)
    except InvalidInputError as error:
        faults += error.fields
    if faults:
        raise InvalidInputError(INVALID_JOB, faults)
    return read.model_copy(update={"type": type_.name, "payload": payload})


def _server_faults(server_id: int | None, performer: Performer) -> Iterator[Fault]:
    if performer is Performer.AGENT and server_id is None:
        yield "serverInstanceId", "is required: an agent runs this type of job on a server"
    if performer is Performer.SERVICE and server_id is not None:
        yield "serverInstanceId", "must be omitted: this type of job has no server"


def _timing_faults(schedule: OrgScheduleFields) -> Iterator[Fault]:
    start, end = schedule.start_at, schedule.end_at
    window_fault = _window_fault(schedule)
    if window_fault is not None:
        yield window_fault
    if start is not None and end is not None and end <= start:
        yield "endAt", "must be later than startAt"
    elif window_fault is None and is_never_due(read_timing(timing_fields(schedule, ""))):
        yield (
            "windowPolicy",
            "excludes every due time of the cron: use CLAMP, or another window or cron",
        )


def _window_fault(schedule: OrgScheduleFields) -> Fault | None:
    start, end = schedule.execution_window_start, schedule.execution_window_end
    cutoff = schedule.latest_start_cutoff_min
    if start is None and end is None:
        return ("latestStartCutoffMin", "needs an execution window") if cutoff else None
    if start is None or end is None:
        missing, there = ("Start", "End") if start is None else ("End", "Start")
        why = f"is required with executionWindow{there}: give both, or neither"
        return f"executionWindow{missing}", why
    if start == end:
        return "executionWindowEnd", "must differ from executionWindowStart"
    window = ExecutionWindow.parse(start, end)
    if window is not None and not window.allows_cutoff(cutoff):
        return "latestStartCutoffMin", "must be shorter than the execution window"
    return None


def refuse_never_due(schedule: OrgScheduleFields, now: datetime) -> None:
    """Refuse a new schedule that has no due time left."""
    if schedule.end_at is not None and schedule.end_at < now:
        raise InvalidInputError(INVALID_SCHEDULE, (("endAt", "is in the past"),))
    if next_planned(read_timing(timing_fields(schedule, "")), now) is None:
        raise _never_due(schedule)


def _never_due(schedule: OrgScheduleFields) -> InvalidInputError:
    """Name the field that is the most likely cause."""
    fields = (("endAt", schedule.end_at), ("excludedOn", schedule.excluded_on))
    field = next((name for name, value in fields if value), "cronExpression")
    return InvalidInputError(INVALID_SCHEDULE, ((field, "leaves no due time"),))


@dataclass(frozen=True)
class NextState:
    """`planned` is the next due time of an ACTIVE schedule; others have none."""

    state: ScheduleState
    planned: Planned | None = None


def changed_schedule(
    stored: OrgSchedule,
    patch: Mapping[str, object],
    *,
    call_origins: Collection[str] = (),
    own_types: Mapping[str, JobType] = NO_OWN_TYPES,
) -> OrgScheduleDefinition:
    """Apply a patch: fields that it does not name stay, null clears a field, payload and retry
    policy are replaced whole.

    The address of a call is checked only if the patch names it, so that a schedule whose origin is
    no longer listed can still be disabled or renamed.
    """
    names_address = bool(patch.keys() & {"payload", "jobType"})
    try:
        return read_schedule(
            {**input_document(stored), **patch},
            call_origins=call_origins if names_address else None,
            own_types=own_types,
        )
    except InvalidInputError as error:
        nulls = {name for name in patch if patch[name] is None} - NULLABLE
        faults = tuple((name, NEVER_NULL if name in nulls else why) for name, why in error.fields)
        raise InvalidInputError(INVALID_SCHEDULE, faults) from None


def state_after(
    stored: OrgSchedule, changed: OrgScheduleDefinition, now: datetime
) -> NextState | None:
    """The state after a change, planned from now on. None: the change affects neither the due times
    nor `enabled`. InvalidInputError: the schedule would never be due again, and has no end."""
    has_same_times = timing_fields(stored, "") == timing_fields(changed, "")
    is_as_before = has_same_times and stored.enabled == changed.enabled
    if is_as_before and stored.state is not ScheduleState.INVALID_CRON:
        return None
    if not changed.enabled or (stored.is_suspended and stored.state is ScheduleState.PAUSED):
        return NextState(ScheduleState.PAUSED)
    timing = read_timing(timing_fields(changed, stored.id))
    planned = next_after(timing, now, stored.last_scheduled_for)
    if planned is not None:
        return NextState(ScheduleState.ACTIVE, planned)
    if is_as_before:
        return None
    if changed.end_at is None:
        raise _never_due(changed)
    return NextState(ScheduleState.COMPLETED)


def next_after(
    timing: Timing, now: datetime, last_scheduled_for: datetime | None
) -> Planned | None:
    """The next due time from now, but none that is already decided: the clock may have been set back."""
    return next_planned(timing, now if last_scheduled_for is None else max(now, last_scheduled_for))


def refuse_pause(state: ScheduleState) -> None:
    if state is ScheduleState.COMPLETED:
        raise ConflictError("The schedule has ended: there is nothing to pause.")
    if state is ScheduleState.INVALID_CRON:
        raise ConflictError(
            "The schedule is never due again: correct its cron or time zone, or delete it."
        )


LONGEST_KEY = 200
_ANY_MINUTE = "* * * * *"


def check_client_key(key: str | None) -> None:
    if key is None:
        return
    fault = text_fault(key)
    if not 0 < len(key) <= LONGEST_KEY:
        fault = f"must have 1 to {LONGEST_KEY} characters"
    if fault is not None:
        raise InvalidInputError("Invalid key", (("clientKey", fault),))


def window_timing(schedule: OrgSchedule, *, ignore_window: bool = False) -> Timing:
    """The timing of a manual run: only the window counts, so a schedule with an invalid cron can be
    run. ConflictError: the time zone of the window is not valid."""
    fields = timing_fields(schedule, schedule.id)
    if ignore_window or schedule.execution_window_start is None:
        fields = replace(fields, window_start=None, window_end=None, timezone="UTC")
    try:
        return read_timing(replace(fields, cron_expression=_ANY_MINUTE))
    except InvalidInputError as error:
        raise ConflictError(
            f"Schedule {schedule.id} cannot be run in its execution window: {error}"
        ) from None


def refuse_closed(schedule: OrgSchedule, timing: Timing, now: datetime) -> None:
    if timing.window is None or timing.is_open(now):
        return
    opens_at = iso(timing.window.clamp(now, timing.zone))
    raise ConflictError(
        f"The execution window of schedule {schedule.id} opens at {opens_at}: wait for it, or ignore the window."
    )


def refuse_overlap(schedule: OrgSchedule, at_work: list[int], waiting: list[int]) -> None:
    """`at_work` and `waiting` are ids of unfinished jobs, oldest first."""
    if overlap_start(schedule.overlap_policy, len(at_work), len(waiting)) is not None:
        return
    if schedule.overlap_policy is OverlapPolicy.BUFFER_ONE:
        raise ConflictError(
            f"Job {waiting[0]} of schedule {schedule.id} already waits for the running job: wait, or cancel it."
        )
    raise ConflictError(
        f"Job {[*at_work, *waiting][0]} of schedule {schedule.id} is not over: wait for its end, or cancel it."
    )
