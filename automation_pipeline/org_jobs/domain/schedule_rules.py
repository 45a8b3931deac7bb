"""What a schedule must be as a whole: window, dates, type of job. Single fields: schedule_fields.py."""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.execution_window import ExecutionWindow
from automation_pipeline.core.json_model import parse
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.job_types import checked_payload, job_type
from automation_pipeline.org_jobs.domain.org_schedule import ScheduleFields, ScheduleInput, timing_fields
from automation_pipeline.org_jobs.domain.timing import is_never_due, next_planned, read_timing, shortened

INVALID_SCHEDULE = "Invalid schedule data"

Fault = tuple[str, str]


def read_schedule(given: Mapping[str, object], *, call_origins: Collection[str] | None = ()) -> ScheduleInput:
    """With the type's own name and all that its payload holds. InvalidInputError names every field at fault, of those
    that fail by themselves or else of the whole. `call_origins`: see `checked_payload`."""
    wanted = parse(ScheduleInput, given, INVALID_SCHEDULE)
    faults = [*timing_faults(wanted), *_type_faults(wanted, call_origins)]
    if faults:
        raise InvalidInputError(INVALID_SCHEDULE, tuple(faults))
    type_ = job_type(wanted.job_type)
    payload = checked_payload(type_, wanted.payload, call_origins=call_origins)
    return wanted.model_copy(update={"job_type": type_.name, "payload": payload})


def timing_faults(schedule: ScheduleFields) -> list[Fault]:
    """Of one whose single fields are well."""
    faults = [*_window_faults(schedule), *_date_faults(schedule)]
    if not faults and is_never_due(read_timing(timing_fields(schedule, ""))):
        faults.append(("windowPolicy", "leaves out whatever the cron says: use CLAMP, or another window or cron"))
    return faults


def refuse_never_due(schedule: ScheduleFields, now: datetime) -> None:
    """Of a new one, which must have at least one time before it."""
    if schedule.end_at is not None and schedule.end_at < now:
        raise InvalidInputError(INVALID_SCHEDULE, (("endAt", "lies behind already"),))
    if next_planned(read_timing(timing_fields(schedule, "")), now) is None:
        raise never_due(schedule)


def never_due(schedule: ScheduleFields) -> InvalidInputError:
    """Of a schedule with no time before it: the field that most likely is why."""
    fields = (("endAt", schedule.end_at), ("excludedOn", schedule.excluded_on))
    field = next((name for name, value in fields if value), "cronExpression")
    return InvalidInputError(INVALID_SCHEDULE, ((field, "leaves no time at which it is due"),))


def _window_faults(schedule: ScheduleFields) -> Iterator[Fault]:
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
        yield f"executionWindow{missing}", f"is required beside executionWindow{there}: give both, or neither"
    elif start == end:
        yield "executionWindowEnd", "must differ from executionWindowStart"
    elif _is_too_long(start, end, cutoff):
        yield "latestStartCutoffMin", "must be shorter than the execution window"


def _is_too_long(start: str, end: str, cutoff: int) -> bool:
    window = ExecutionWindow.parse(start, end)
    try:
        return window is None or not shortened(window, cutoff)
    except InvalidInputError:
        return True


def _date_faults(schedule: ScheduleFields) -> Iterator[Fault]:
    start, end = schedule.start_at, schedule.end_at
    if start is not None and end is not None and end <= start:
        yield "endAt", "must be later than startAt"


def _type_faults(schedule: ScheduleFields, call_origins: Collection[str] | None) -> Iterator[Fault]:
    try:
        type_ = job_type(schedule.job_type)
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
