"""Validation of schedules and requested jobs, rules of changes and manual runs, and previews."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

from pydantic import Field

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.json_model import Instant, JsonModel, parse, text_fault
from automation_pipeline.core.scheduling.cron import MACROS, OverlapPolicy
from automation_pipeline.core.scheduling.plan import overlap_start
from automation_pipeline.core.scheduling.timing import (
    ExecutionWindow,
    Planned,
    Timing,
    is_never_due,
    next_planned,
    planned_after,
    planned_from,
    read_timing,
)
from automation_pipeline.core.scheduling.zones import overlap, wall_time
from automation_pipeline.org_jobs.models.job_types import NO_OWN_TYPES, checked_payload, job_type
from automation_pipeline.org_jobs.models.jobs import JobInput, JobType, Performer, ScheduleState
from automation_pipeline.org_jobs.models.schedules import (
    OrgSchedule,
    OrgScheduleDefinition,
    OrgScheduleFields,
    input_document,
    timing_fields,
)

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
    Raises InvalidInputError, which names every faulty field: single fields first, then combinations of fields.
    `call_origins`: see `checked_payload`. `own_types`: the types of the organisation."""
    read = parse(OrgScheduleDefinition, given, INVALID_SCHEDULE)
    name, payload, faults = _checked_type(
        read.job_type, read.payload, read.server_instance_id, call_origins, own_types
    )
    faults = [*_timing_faults(read), *faults]
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
    name, payload, faults = _checked_type(
        read.type, read.payload, read.server_instance_id, call_origins, own_types
    )
    if faults:
        fields = (("type" if field == "jobType" else field, why) for field, why in faults)
        raise InvalidInputError(INVALID_JOB, tuple(fields))
    return read.model_copy(update={"type": name, "payload": payload})


def _checked_type(
    name: str,
    given: Mapping[str, object],
    server_id: int | None,
    call_origins: Collection[str] | None,
    own_types: Mapping[str, JobType],
) -> tuple[str, dict[str, object], list[Fault]]:
    """The canonical name of the type, the payload with its defaults, and the invalid fields."""
    faults: list[Fault] = []
    try:
        type_ = job_type(name, own_types)
        name = type_.name
        if type_.performer is Performer.AGENT and server_id is None:
            why = "is required: an agent runs this type of job on a server"
            faults.append(("serverInstanceId", why))
        if type_.performer is Performer.SERVICE and server_id is not None:
            faults.append(("serverInstanceId", "must be omitted: this type of job has no server"))
        return name, checked_payload(type_, given, call_origins=call_origins), faults
    except InvalidInputError as error:
        return name, {}, [*faults, *error.fields]


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
    nor `enabled`. Raises InvalidInputError if the schedule would never be due again, and has no end."""
    has_same_times = timing_fields(stored, "") == timing_fields(changed, "")
    is_as_before = has_same_times and stored.enabled == changed.enabled
    if is_as_before and stored.state is not ScheduleState.INVALID_CRON:
        return None
    if stored.is_suspended or not changed.enabled:
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
    run. Raises ConflictError if the time zone of the window is not valid."""
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


_WEEKDAYS = (
    *("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_WEEKDAY_NUMBERS = {name[:3].upper(): number for number, name in enumerate(_WEEKDAYS[:7])}
_MONTH_NUMBERS = {name[:3].upper(): number for number, name in enumerate(_MONTHS, 1)}
_NUMBERS = re.compile(r"[0-9]{1,2}(,[0-9]{1,2})*")
_EVERY = re.compile(r"\*/([0-9]{1,2})")
_MOST_TIMES = 6


def describe_cron(expression: str) -> str:
    """The cron in plain words, or the expression itself if it has no simple description."""
    fields = MACROS.get(expression.strip().lower(), expression).upper().split()
    if len(fields) != 5:
        return expression
    minute, hour, day, month, weekday = fields
    times, days = _times_in_words(minute, hour), _days_in_words(day, month, weekday)
    if times is None or days is None:
        return expression
    is_by_the_hour = hour == "*" or hour.startswith("*/")
    every_day = "" if is_by_the_hour else " every day"
    return f"{times}{f' {days}' if days else every_day}"


def _times_in_words(minute: str, hour: str) -> str | None:
    every_minutes, every_hours = _even_step(minute, 60), _even_step(hour, 24)
    if hour == "*" and minute in {"*", "*/1"}:
        return "Every minute"
    if hour == "*" and every_minutes is not None:
        return f"Every {every_minutes} minutes"
    if not minute.isdecimal():
        return None
    past = f" at {int(minute)} minutes past" if int(minute) else ""
    if hour == "*":
        return f"Every hour{past}"
    if every_hours is not None:
        return f"Every {every_hours} hours{past}, from midnight on"
    hours = sorted(set(map(int, hour.split(",")))) if _NUMBERS.fullmatch(hour) else []
    times = [f"{one:02}:{int(minute):02}" for one in hours]
    return f"At {_enumerated(times)}" if 0 < len(times) <= _MOST_TIMES else None


def _even_step(text: str, size: int) -> int | None:
    """The step of `*/step`, if it divides the size."""
    found = _EVERY.fullmatch(text)
    step = int(found[1]) if found else 0
    return step if step > 1 and size % step == 0 else None


def _days_in_words(day: str, month: str, weekday: str) -> str | None:
    """Empty for every day. A cron with a day of month and a weekday is due when either matches."""
    days = _month_days(day)
    weekdays = _named(weekday, _WEEKDAYS, _WEEKDAY_NUMBERS, "on")
    months = _named(month, ("", *_MONTHS), _MONTH_NUMBERS, "in")
    if days is None or weekdays is None or months is None:
        return None
    either = " or ".join(part for part in (days, weekdays) if part)
    if months:
        return f"{either or 'every day'} {months}"
    return f"{either} of every month" if days and not weekdays else either


def _month_days(text: str) -> str | None:
    if text == "*":
        return ""
    if text == "L":
        return "on the last day"
    if not _NUMBERS.fullmatch(text):
        return None
    numbers = [str(number) for number in sorted(set(map(int, text.split(","))))]
    return f"on day{'s' if len(numbers) > 1 else ''} {_enumerated(numbers)}"


def _named(
    text: str, names: tuple[str, ...], numbers: Mapping[str, int], preposition: str
) -> str | None:
    """A range or a list of weekdays or months. Sunday is 0 and 7, and comes last in a list."""
    if text == "*":
        return ""

    def number_of(entry: str) -> int | None:
        return int(entry) if entry.isdecimal() else numbers.get(entry)

    first, _, last = text.partition("-")
    low, high = number_of(first), number_of(last)
    if low is not None and high is not None and low < high:
        return f"from {names[low]} to {names[high]}"
    entries = [number_of(entry) for entry in text.split(",")]
    known = sorted({entry or 7 for entry in entries if entry is not None})
    return None if None in entries else f"{preposition} {_enumerated([names[n] for n in known])}"


def _enumerated(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


DEFAULT_COUNT = 10
MOST_RUNS = 100
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


class ComingRun(JsonModel):
    """`local_time` is when it may start, on the wall clock of the schedule."""

    scheduled_for: Instant
    effective_for: Instant
    local_time: str = Field(examples=["Mon 2026-05-04 02:00 +0200"])
    note: str | None = Field(default=None, description="The reasons for the delay.")
    is_skipped: bool = Field(default=False, description="An operator skips it.")


class SchedulePreview(JsonModel):
    """`note` says why there are no runs, or from when they count."""

    in_words: str = Field(description="The cron in plain words.", examples=["At 02:00 every day"])
    timezone: str
    note: str | None = None
    runs: Annotated[tuple[ComingRun, ...], Field(description="In order.")]


def check_count(count: int) -> None:
    if not 1 <= count <= MOST_RUNS:
        raise InvalidInputError(
            "Invalid preview data", (("count", f"must lie between 1 and {MOST_RUNS}"),)
        )


def preview(
    timing: Timing, after: datetime, count: int, *, max_jitter_seconds: int = 0
) -> SchedulePreview:
    """The due times after `after`. `max_jitter_seconds` is the limit of the delay, for a schedule that is
    not stored yet and has no fixed delay."""
    return _preview(timing, planned_after(timing, max(after, _EARLIEST)), count, max_jitter_seconds)


def _preview(
    timing: Timing, planned: Iterable[Planned], count: int, max_jitter_seconds: int = 0
) -> SchedulePreview:
    runs = tuple(_coming_run(timing, one, max_jitter_seconds) for one in islice(planned, count))
    return SchedulePreview(
        in_words=describe_cron(timing.crons[0].text),
        timezone=timing.zone.key,
        runs=runs,
        note=None if runs else "It is never due after that.",
    )


def _coming_run(timing: Timing, one: Planned, max_jitter_seconds: int) -> ComingRun:
    notes = [note for note in (_clock_note(timing, one), *_delay_notes(timing, one)) if note]
    if max_jitter_seconds:
        notes.append(
            f"It is delayed by up to {max_jitter_seconds} s, so that not all jobs start at once."
        )
    return ComingRun(
        scheduled_for=one.scheduled_for,
        effective_for=one.effective_for,
        local_time=f"{one.effective_for.astimezone(timing.zone):%a %Y-%m-%d %H:%M %z}",
        note=" ".join(notes) or None,
    )


def _clock_note(timing: Timing, one: Planned) -> str | None:
    cron, wall = timing.crons[0], wall_time(one.scheduled_for, timing.zone)
    if wall.hour not in cron.hours or wall.minute not in cron.minutes:
        return (
            f"The clock goes forward: the time of the cron does not exist, so it is {wall:%H:%M}."
        )
    if overlap(wall, timing.zone).total_seconds() <= 0:
        return None
    which = "both times" if cron.wildcard_hour else "the second time"
    return f"The clock goes back: {wall:%H:%M} comes twice, and it is due {which}."


def _delay_notes(timing: Timing, one: Planned) -> Iterable[str]:
    opens_at = timing.opens_at(one.scheduled_for)
    if opens_at != one.scheduled_for:
        closed, opens = (wall_time(at, timing.zone) for at in (one.scheduled_for, opens_at))
        yield f"The execution window is closed at {closed:%H:%M}: it waits until {opens:%H:%M}."
    seconds = round((one.effective_for - opens_at).total_seconds())
    if seconds > 0:
        yield f"It is delayed by {seconds} s, so that not all jobs start at once."


def plan_of(
    schedule: OrgSchedule, now: datetime, count: int, after: datetime | None
) -> SchedulePreview:
    """The coming runs of the schedule from now. With an instant from the caller: the due times by
    its fields, in any state."""
    try:
        timing = read_timing(timing_fields(schedule, schedule.id))
    except InvalidInputError as error:
        return _empty(schedule, str(error))
    is_active = schedule.state is ScheduleState.ACTIVE
    if after is not None:
        shown = preview(timing, after, count)
        note = shown.note if is_active else _why_inactive(schedule)
    elif is_active and schedule.planned is not None:
        shown = _preview(timing, planned_from(timing, schedule.planned), count)
        note = shown.note
    elif is_active:
        shown = preview(timing, now, count)
        note = shown.note
    elif schedule.state is ScheduleState.PAUSED and schedule.paused_until is not None:
        shown = preview(timing, max(now, schedule.paused_until), count)
        note = "It is paused until then."
    else:
        return _empty(schedule, _why_inactive(schedule))
    runs = tuple(_marked(schedule, run) for run in shown.runs)
    return shown.model_copy(update={"note": note, "runs": runs})


def _marked(schedule: OrgSchedule, run: ComingRun) -> ComingRun:
    if not schedule.skip_next_run or run.scheduled_for != schedule.next_scheduled_for:
        return run
    reason = schedule.skip_next_run_reason
    skipped = f"It is skipped: {reason}" if reason else "It is skipped."
    note = f"{run.note} {skipped}" if run.note else skipped
    return run.model_copy(update={"is_skipped": True, "note": note})


def _empty(schedule: OrgSchedule, why: str) -> SchedulePreview:
    words = describe_cron(schedule.cron_expression)
    return SchedulePreview(in_words=words, timezone=schedule.timezone, runs=(), note=why)


def _why_inactive(schedule: OrgSchedule) -> str:
    match schedule.state:
        case ScheduleState.COMPLETED:
            return "The schedule has ended."
        case ScheduleState.INVALID_CRON:
            return "It is never due again: correct its cron or time zone."
        case _ if schedule.pause_reason:
            return f"It is paused: {schedule.pause_reason}"
        case _:
            return "It is paused."
