"""What schedules and requested jobs must be, and what a change or a manual run may do."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.json_model import parse, text_fault
from automation_pipeline.core.scheduling.plan import OverlapPolicy
from automation_pipeline.core.scheduling.timing import (
    ExecutionWindow,
    Planned,
    Timing,
    is_never_due,
    next_planned,
    read_timing,
)
from automation_pipeline.org_jobs.models.job_types import (
    NO_OWN_TYPES,
    checked_payload,
    job_type,
)
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

Fault = tuple[str, str]


def read_schedule(
    given: Mapping[str, object],
    *,
    call_origins: Collection[str] | None = (),
    own_types: Mapping[str, JobType] = NO_OWN_TYPES,
) -> OrgScheduleDefinition:
    """With the type's own name and all that its payload holds. InvalidInputError names every field
    at fault, of those that fail by themselves or else of the whole. `call_origins`: see
    `checked_payload`; `own_types`: those of the organisation."""
    wanted = parse(OrgScheduleDefinition, given, INVALID_SCHEDULE)
    faults = [*timing_faults(wanted), *_type_faults(wanted, call_origins, own_types)]
    if faults:
        raise InvalidInputError(INVALID_SCHEDULE, tuple(faults))
    type_ = job_type(wanted.job_type, own_types)
    payload = checked_payload(type_, wanted.payload, call_origins=call_origins)
    return wanted.model_copy(update={"job_type": type_.name, "payload": payload})


def timing_faults(schedule: OrgScheduleFields) -> list[Fault]:
    """Of one whose single fields are well."""
    faults = [*_window_faults(schedule), *_date_faults(schedule)]
    if not faults and is_never_due(read_timing(timing_fields(schedule, ""))):
        faults.append(
            (
                "windowPolicy",
                "leaves out whatever the cron says: use CLAMP, or another window or cron",
            )
        )
    return faults


def refuse_never_due(schedule: OrgScheduleFields, now: datetime) -> None:
    """Of a new one, which must have at least one time before it."""
    if schedule.end_at is not None and schedule.end_at < now:
        raise InvalidInputError(INVALID_SCHEDULE, (("endAt", "lies behind already"),))
    if next_planned(read_timing(timing_fields(schedule, "")), now) is None:
        raise never_due(schedule)


def never_due(schedule: OrgScheduleFields) -> InvalidInputError:
    """Of a schedule with no time before it: the field that most likely is why."""
    fields = (("endAt", schedule.end_at), ("excludedOn", schedule.excluded_on))
    field = next((name for name, value in fields if value), "cronExpression")
    return InvalidInputError(INVALID_SCHEDULE, ((field, "leaves no time at which it is due"),))


def _window_faults(schedule: OrgScheduleFields) -> Iterator[Fault]:
    start, end, cutoff = (
        schedule.execution_window_start,
        schedule.execution_window_end,
        schedule.latest_start_cutoff_min,
    )
    if start is None and end is None:
        if cutoff:
            yield "latestStartCutoffMin", "needs an execution window"
    elif start is None or end is None:
        missing, there = ("Start", "End") if start is None else ("End", "Start")
        yield (
            f"executionWindow{missing}",
            f"is required beside executionWindow{there}: give both, or neither",
        )
    elif start == end:
        yield "executionWindowEnd", "must differ from executionWindowStart"
    elif _is_too_long(start, end, cutoff):
        yield "latestStartCutoffMin", "must be shorter than the execution window"


def _is_too_long(start: str, end: str, cutoff: int) -> bool:
    window = ExecutionWindow.parse(start, end)
    try:
        return window is None or not window.shortened(cutoff)
    except InvalidInputError:
        return True


def _date_faults(schedule: OrgScheduleFields) -> Iterator[Fault]:
    start, end = schedule.start_at, schedule.end_at
    if start is not None and end is not None and end <= start:
        yield "endAt", "must be later than startAt"


def _type_faults(
    schedule: OrgScheduleFields,
    call_origins: Collection[str] | None,
    own_types: Mapping[str, JobType],
) -> Iterator[Fault]:
    try:
        type_ = job_type(schedule.job_type, own_types)
        checked_payload(type_, schedule.payload, call_origins=call_origins)
    except InvalidInputError as error:
        yield from error.fields
        return
    yield from server_faults(schedule.server_instance_id, type_.performer)


def server_faults(server_id: int | None, performer: Performer) -> Iterator[Fault]:
    if performer is Performer.AGENT and server_id is None:
        yield "serverInstanceId", "is required: an agent does this type of job, on a server"
    if performer is Performer.SERVICE and server_id is not None:
        yield "serverInstanceId", "must be left out: this type of job is about no server"


INVALID_JOB = "Invalid job data"


def read_wish(
    given: Mapping[str, object],
    *,
    call_origins: Collection[str] = (),
    own_types: Mapping[str, JobType] = NO_OWN_TYPES,
) -> JobInput:
    """With the type's own name and all that its payload holds. InvalidInputError names every field
    at fault. `own_types` are those of the organisation."""
    wish = parse(JobInput, given, INVALID_JOB)
    try:
        type_ = job_type(wish.type, own_types)
    except InvalidInputError as error:
        raise InvalidInputError(
            INVALID_JOB, tuple(("type", why) for _, why in error.fields)
        ) from None
    faults = list(server_faults(wish.server_instance_id, type_.performer))
    payload: dict[str, object] = {}
    try:
        payload = checked_payload(type_, wish.payload, call_origins=call_origins)
    except InvalidInputError as error:
        faults += error.fields
    if faults:
        raise InvalidInputError(INVALID_JOB, tuple(faults))
    return wish.model_copy(update={"type": type_.name, "payload": payload})


NEVER_NULL = "cannot be null: leave it out to keep it"
NULLABLE = frozenset(
    {"description", "serverInstanceId", "executionWindowStart", "executionWindowEnd"}
    | {"retryPolicy", "startAt", "endAt", "excludedOn"}
)


@dataclass(frozen=True)
class NextState:
    """`planned` of an ACTIVE one, and of no other."""

    state: ScheduleState
    planned: Planned | None = None


def changed_schedule(
    stored: OrgSchedule,
    patch: Mapping[str, object],
    *,
    call_origins: Collection[str] = (),
    own_types: Mapping[str, JobType] = NO_OWN_TYPES,
) -> OrgScheduleDefinition:
    """What the patch does not name stays, null clears; payload and retry policy are replaced whole.

    The address of a call is checked if the patch names it: a schedule whose origin is not listed
    any more can still be disabled or renamed.
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
    """None: neither when it is due nor whether it is wanted has changed. What is due from now on
    counts.

    InvalidInputError: it would never be due again, and no end says so.
    """
    is_as_before = _timing(stored) == _timing(changed) and stored.enabled == changed.enabled
    if is_as_before and stored.state is not ScheduleState.INVALID_CRON:
        return None
    if not changed.enabled or (stored.is_suspended and stored.state is ScheduleState.PAUSED):
        return NextState(ScheduleState.PAUSED)
    planned = next_after(
        read_timing(timing_fields(changed, stored.id)), now, stored.last_scheduled_for
    )
    if planned is not None:
        return NextState(ScheduleState.ACTIVE, planned)
    if is_as_before:
        return None
    if changed.end_at is None:
        raise never_due(changed)
    return NextState(ScheduleState.COMPLETED)


def next_after(
    timing: Timing, now: datetime, last_scheduled_for: datetime | None
) -> Planned | None:
    """From now on, but never again what was decided upon: the clock may have been set back."""
    return next_planned(timing, now if last_scheduled_for is None else max(now, last_scheduled_for))


def refuse_pause(state: ScheduleState) -> None:
    if state is ScheduleState.COMPLETED:
        raise ConflictError("The schedule has come to its end: there is nothing to pause.")
    if state is ScheduleState.INVALID_CRON:
        raise ConflictError(
            "The schedule is not due any more: correct when it is due, or delete it."
        )


def _timing(schedule: OrgScheduleFields) -> object:
    return timing_fields(schedule, "")


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
    """Only its window counts: one whose cron means nothing any more can be run. ConflictError: nor
    does its zone."""
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
    """Both are jobs, oldest first."""
    active = [*at_work, *waiting]
    if schedule.overlap_policy is OverlapPolicy.SKIP and active:
        raise ConflictError(
            f"Job {active[0]} of schedule {schedule.id} is not over: wait for its end, or cancel it."
        )
    if schedule.overlap_policy is OverlapPolicy.BUFFER_ONE and waiting and len(active) > 1:
        raise ConflictError(
            f"Job {waiting[0]} of schedule {schedule.id} waits already behind the one at work: wait, or cancel it."
        )
