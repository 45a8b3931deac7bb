"""The coming runs of a schedule, each with the reason for a shifted time, and crons in words."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Annotated

from pydantic import Field

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Instant, JsonModel
from automation_pipeline.core.scheduling.cron import MACROS, Cron
from automation_pipeline.core.scheduling.timing import (
    Planned,
    Timing,
    WindowPolicy,
    planned_after,
    read_timing,
)
from automation_pipeline.core.scheduling.zones import overlap, wall_time
from automation_pipeline.org_jobs.models.schedules import OrgSchedule, timing_fields
from automation_pipeline.org_jobs.models.states import ScheduleState

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_DAY_NAMES = {name[:3].upper(): number for number, name in enumerate(_DAYS[:7])}
_MONTH_NAMES = {name[:3].upper(): number for number, name in enumerate(_MONTHS, 1)}
_NUMBERS = re.compile(r"[0-9]{1,2}(,[0-9]{1,2})*")
_EVERY = re.compile(r"\*/([0-9]{1,2})")
_MOST_TIMES = 6


def describe_cron(expression: str) -> str:
    """Of one that can be read."""
    fields = MACROS.get(expression.strip().lower(), expression).upper().split()
    if len(fields) != 5:
        return expression
    minute, hour, day, month, weekday = fields
    when, days = _when(minute, hour), _days(day, month, weekday)
    if when is None or days is None:
        return expression
    is_by_the_hour = hour == "*" or hour.startswith("*/")
    every_day = "" if is_by_the_hour else " every day"
    return f"{when}{f' {days}' if days else every_day}"


def _when(minute: str, hour: str) -> str | None:
    if hour == "*" and minute in {"*", "*/1"}:
        return "Every minute"
    every_minutes, every_hours = _step(minute, 60), _step(hour, 24)
    if hour == "*" and every_minutes is not None:
        return f"Every {every_minutes} minutes"
    if not minute.isdecimal():
        return None
    past = f" at {int(minute)} minutes past" if int(minute) else ""
    if hour == "*":
        return f"Every hour{past}"
    if every_hours is not None:
        return f"Every {every_hours} hours{past}, from midnight on"
    return _at(minute, hour)


def _step(text: str, size: int) -> int | None:
    """None: it does not come round evenly."""
    found = _EVERY.fullmatch(text)
    step = int(found[1]) if found else 0
    return step if step > 1 and size % step == 0 else None


def _at(minute: str, hours: str) -> str | None:
    if not _NUMBERS.fullmatch(hours):
        return None
    times = [f"{hour:02}:{int(minute):02}" for hour in sorted(set(map(int, hours.split(","))))]
    return f"At {_listed(times)}" if len(times) <= _MOST_TIMES else None


def _days(day: str, month: str, weekday: str) -> str | None:
    """Empty: on all of them."""
    days, weekdays, months = _month_days(day), _weekdays(weekday), _months(month)
    if days is None or weekdays is None or months is None:
        return None
    # Either suffices where both are said.
    either = " or ".join(part for part in (days, weekdays) if part)
    if not either and months:
        return f"every day {months}"
    if months:
        return f"{either} {months}"
    return f"{either} of every month" if days and not weekdays else either


def _month_days(text: str) -> str | None:
    if text == "*":
        return ""
    if text == "L":
        return "on the last day"
    if not _NUMBERS.fullmatch(text):
        return None
    numbers = sorted(set(map(int, text.split(","))))
    return (
        f"on day {numbers[0]}"
        if len(numbers) == 1
        else f"on days {_listed(list(map(str, numbers)))}"
    )


def _weekdays(text: str) -> str | None:
    if text == "*":
        return ""
    numbers = _span(text, _DAY_NAMES)
    if numbers is not None:
        first, last = numbers
        return f"from {_DAYS[first]} to {_DAYS[last]}"
    entries = [_number(entry, _DAY_NAMES) for entry in text.split(",")]
    known = sorted({(entry - 1) % 7 for entry in entries if entry is not None})
    return None if None in entries else f"on {_listed([_DAYS[number + 1] for number in known])}"


def _months(text: str) -> str | None:
    if text == "*":
        return ""
    numbers = _span(text, _MONTH_NAMES)
    if numbers is not None:
        return f"from {_MONTHS[numbers[0] - 1]} to {_MONTHS[numbers[1] - 1]}"
    entries = [_number(entry, _MONTH_NAMES) for entry in text.split(",")]
    known = sorted({entry for entry in entries if entry is not None})
    return None if None in entries else f"in {_listed([_MONTHS[number - 1] for number in known])}"


def _span(text: str, names: dict[str, int]) -> tuple[int, int] | None:
    first, _, last = text.partition("-")
    low, high = _number(first, names), _number(last, names)
    return None if low is None or high is None or low >= high else (low, high)


def _number(text: str, names: dict[str, int]) -> int | None:
    return int(text) if text.isdecimal() else names.get(text)


def _listed(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


DEFAULT_COUNT = 10
MOST_RUNS = 100
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


class ComingRun(JsonModel):
    """`local_time` is when it may begin, on the wall clock of the schedule."""

    scheduled_for: Instant
    effective_for: Instant
    local_time: str = Field(examples=["Mon 2026-05-04 02:00 +0200"])
    note: str | None = Field(default=None, description="What moved it.")
    is_skipped: bool = Field(default=False, description="Somebody wants it left out.")


class SchedulePreview(JsonModel):
    """`note` is why there are none, or when they begin to count."""

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
    timing: Timing, after: datetime, count: int, *, most_jitter: int = 0
) -> SchedulePreview:
    """All that is due after it. `most_jitter`: of a schedule whose own share of it is not known
    yet."""
    planned = planned_after(timing, max(after, _EARLIEST))
    runs = [_run(timing, one, most_jitter) for one in islice(planned, count)]
    note = None if runs else "It is never due after that."
    return SchedulePreview(
        in_words=describe_cron(timing.crons[0].text),
        timezone=timing.zone.key,
        runs=tuple(runs),
        note=note,
    )


def following(timing: Timing, first: Planned) -> Iterator[Planned]:
    """The one that is planned, and all after it. What waits for the same start of the window is
    that one."""
    return chain([first], planned_after(timing, _begins(timing, first.scheduled_for)))


def coming(timing: Timing, planned: Iterable[Planned], count: int) -> tuple[ComingRun, ...]:
    return tuple(_run(timing, one) for one in islice(planned, count))


def _run(timing: Timing, one: Planned, most_jitter: int = 0) -> ComingRun:
    notes = [
        note
        for note in (_clock_note(timing, one), _window_note(timing, one), _jitter_note(timing, one))
        if note
    ]
    if most_jitter:
        notes.append(f"It is put off by up to {most_jitter} s, so that not all begin at once.")
    return ComingRun(
        scheduled_for=one.scheduled_for,
        effective_for=one.effective_for,
        local_time=f"{one.effective_for.astimezone(timing.zone):%a %Y-%m-%d %H:%M %z}",
        note=" ".join(notes) or None,
    )


def _clock_note(timing: Timing, one: Planned) -> str | None:
    wall = wall_time(one.scheduled_for, timing.zone)
    if not _is_said(timing.crons[0], wall):
        return f"The clock goes forward: the time that the cron says does not come, so it is {wall:%H:%M}."
    if overlap(wall, timing.zone) <= timedelta(0):
        return None
    if timing.crons[0].wildcard_hour:
        return f"The clock goes back: {wall:%H:%M} comes twice, and it is due both times."
    return f"The clock goes back: {wall:%H:%M} comes twice, and it is due the second time."


def _is_said(cron: Cron, wall: datetime) -> bool:
    return wall.hour in cron.hours and wall.minute in cron.minutes


def _window_note(timing: Timing, one: Planned) -> str | None:
    begins = _begins(timing, one.scheduled_for)
    if begins == one.scheduled_for:
        return None
    said, opens = (wall_time(at, timing.zone) for at in (one.scheduled_for, begins))
    return f"The execution window is closed at {said:%H:%M}: it waits until {opens:%H:%M}."


def _jitter_note(timing: Timing, one: Planned) -> str | None:
    seconds = round((one.effective_for - _begins(timing, one.scheduled_for)).total_seconds())
    return f"It is put off by {seconds} s, so that not all begin at once." if seconds > 0 else None


def _begins(timing: Timing, scheduled_for: datetime) -> datetime:
    """Before its jitter."""
    if timing.window is None or timing.window_policy is not WindowPolicy.CLAMP:
        return scheduled_for
    return timing.window.clamp(scheduled_for, timing.zone)


def plan_of(
    schedule: OrgSchedule, now: datetime, count: int, after: datetime | None
) -> SchedulePreview:
    """From now on what it will do; after an instant that somebody names, what its fields say,
    whatever its state."""
    try:
        timing = read_timing(timing_fields(schedule, schedule.id))
    except InvalidInputError as error:
        return _none(schedule, str(error))
    if after is not None:
        return _said(schedule, timing, count, after)
    if schedule.state is ScheduleState.ACTIVE:
        return _of_active(schedule, timing, now, count)
    if schedule.state is ScheduleState.PAUSED and schedule.paused_until is not None:
        return preview(timing, max(now, schedule.paused_until), count).model_copy(
            update={"note": "It is paused until then."}
        )
    return _none(schedule, _why(schedule))


def _said(schedule: OrgSchedule, timing: Timing, count: int, after: datetime) -> SchedulePreview:
    shown = preview(timing, after, count)
    note = shown.note if schedule.state is ScheduleState.ACTIVE else _why(schedule)
    return shown.model_copy(
        update={"note": note, "runs": tuple(_marked(schedule, run) for run in shown.runs)}
    )


def _of_active(schedule: OrgSchedule, timing: Timing, now: datetime, count: int) -> SchedulePreview:
    planned = _next(schedule)
    if planned is None:
        return preview(timing, now, count)
    runs = tuple(
        _marked(schedule, run) for run in coming(timing, following(timing, planned), count)
    )
    return SchedulePreview(
        in_words=describe_cron(timing.crons[0].text), timezone=schedule.timezone, runs=runs
    )


def _next(schedule: OrgSchedule) -> Planned | None:
    if schedule.next_scheduled_for is None or schedule.next_run_at is None:
        return None
    return Planned(schedule.next_scheduled_for, schedule.next_run_at)


def _marked(schedule: OrgSchedule, run: ComingRun) -> ComingRun:
    if not schedule.skip_next_run or run.scheduled_for != schedule.next_scheduled_for:
        return run
    reason = schedule.skip_next_run_reason
    skipped = f"It is left out: {reason}" if reason else "It is left out."
    return run.model_copy(
        update={"is_skipped": True, "note": f"{run.note} {skipped}" if run.note else skipped}
    )


def _none(schedule: OrgSchedule, why: str) -> SchedulePreview:
    return SchedulePreview(
        in_words=describe_cron(schedule.cron_expression),
        timezone=schedule.timezone,
        runs=(),
        note=why,
    )


def _why(schedule: OrgSchedule) -> str:
    match schedule.state:
        case ScheduleState.COMPLETED:
            return "It has come to its end."
        case ScheduleState.INVALID_CRON:
            return "It is not due any more: correct when it is due."
        case _:
            return (
                f"It is paused: {schedule.pause_reason}"
                if schedule.pause_reason
                else "It is paused."
            )
