"""The coming runs of a schedule, each with why it is not quite when the cron says it."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Annotated

from pydantic import Field

from automation_pipeline.core.cron import Cron
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.execution_window import WindowPolicy
from automation_pipeline.core.json_model import Instant, JsonModel
from automation_pipeline.core.wall_clock import overlap, wall_time
from automation_pipeline.org_jobs.domain.cron_words import in_words
from automation_pipeline.org_jobs.domain.timing import Planned, Timing, planned_after

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
        raise InvalidInputError("Invalid preview data", (("count", f"must lie between 1 and {MOST_RUNS}"),))


def preview(timing: Timing, after: datetime, count: int, *, most_jitter: int = 0) -> SchedulePreview:
    """All that is due after it. `most_jitter`: of a schedule whose own share of it is not known yet."""
    planned = planned_after(timing, max(after, _EARLIEST))
    runs = [_run(timing, one, most_jitter) for one in islice(planned, count)]
    note = None if runs else "It is never due after that."
    return SchedulePreview(in_words=in_words(timing.cron.text), timezone=timing.zone.key, runs=tuple(runs), note=note)


def following(timing: Timing, first: Planned) -> Iterator[Planned]:
    """The one that is planned, and all after it. What waits for the same start of the window is that one."""
    return chain([first], planned_after(timing, _begins(timing, first.scheduled_for)))


def coming(timing: Timing, planned: Iterable[Planned], count: int) -> tuple[ComingRun, ...]:
    return tuple(_run(timing, one) for one in islice(planned, count))


def _run(timing: Timing, one: Planned, most_jitter: int = 0) -> ComingRun:
    notes = [note for note in (_clock_note(timing, one), _window_note(timing, one), _jitter_note(timing, one)) if note]
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
    if not _is_said(timing.cron, wall):
        return f"The clock goes forward: the time that the cron says does not come, so it is {wall:%H:%M}."
    if overlap(wall, timing.zone) <= timedelta(0):
        return None
    if timing.cron.wildcard_hour:
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
