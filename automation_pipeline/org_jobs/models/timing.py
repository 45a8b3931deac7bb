"""When a schedule is due: its cron under its execution window, its dates and its jitter."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from hashlib import sha256
from zoneinfo import ZoneInfo

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.cron import Cron
from automation_pipeline.core.scheduling.execution_window import (
    ExecutionWindow,
    WindowPolicy,
    never_fires,
    next_fire,
)
from automation_pipeline.core.scheduling.zones import wall_time, zone

# A day a time is excluded, at most: beyond that nothing is due any more.
_MOST_PASSED_OVER = 2000
# The calendar ends some years later: until there it can be reckoned with every cron, zone and
# window.
_END = datetime(9990, 1, 1, tzinfo=UTC)
_DAY_MINUTES = 24 * 60


@dataclass(frozen=True)
class Planned:
    """`scheduled_for` is what the cron says; `effective_for` is when the window and the jitter let
    it start."""

    scheduled_for: datetime
    effective_for: datetime


@dataclass(frozen=True, kw_only=True)
class Timing:
    """`seed` spreads the jitter: the same due time of the same schedule is always put off by as
    much."""

    cron: Cron
    zone: ZoneInfo
    seed: str
    window: ExecutionWindow | None = None
    window_policy: WindowPolicy = WindowPolicy.CLAMP
    jitter_seconds: int = 0
    start_at: datetime | None = None
    end_at: datetime | None = None
    excluded_on: frozenset[date] = frozenset()

    def is_open(self, instant: datetime) -> bool:
        return self.window is None or self.window.is_open(instant, self.zone)

    def is_excluded(self, instant: datetime) -> bool:
        return wall_time(instant, self.zone).date() in self.excluded_on

    def spread(
        self, scheduled_for: datetime, effective_for: datetime, before: datetime | None = None
    ) -> datetime:
        """Put off by its share of the jitter, but not to the next one, nor out of its window or its
        days."""
        seconds = self.jitter_seconds + 1
        if before is not None:
            seconds = max(min(seconds, int((before - effective_for).total_seconds())), 1)
        digest = sha256(f"{self.seed}:{scheduled_for.timestamp():.0f}".encode()).digest()
        later = effective_for + timedelta(seconds=int.from_bytes(digest[:8]) % seconds)
        return later if self.is_open(later) and not self.is_excluded(later) else effective_for


@dataclass(frozen=True, kw_only=True)
class TimingFields:
    """What a schedule says about when it is due, as it is stored."""

    seed: str
    cron_expression: str
    timezone: str
    window_start: str | None = None
    window_end: str | None = None
    window_policy: str = WindowPolicy.CLAMP
    cutoff_minutes: int = 0
    jitter_seconds: int = 0
    start_at: datetime | None = None
    end_at: datetime | None = None
    excluded_on: tuple[str, ...] = ()


def read_timing(fields: TimingFields) -> Timing:
    """InvalidInputError: its cron or its time zone means nothing, or not any more."""
    window = ExecutionWindow.parse(fields.window_start, fields.window_end)
    return Timing(
        cron=_cron(fields.cron_expression),
        zone=zone(fields.timezone),
        seed=fields.seed,
        window=window and shortened(window, fields.cutoff_minutes),
        window_policy=WindowPolicy(fields.window_policy),
        jitter_seconds=fields.jitter_seconds,
        start_at=fields.start_at,
        end_at=fields.end_at,
        excluded_on=frozenset(map(date.fromisoformat, fields.excluded_on)),
    )


@lru_cache(maxsize=4096)  # thousands of schedules share a few hundred expressions
def _cron(text: str) -> Cron:
    return Cron.parse(text)


def next_planned(timing: Timing, after: datetime) -> Planned | None:
    """The first that is due strictly after `after`; None: none ever is. Both ends of its dates are
    included."""
    return next(planned_after(timing, after), None)


def planned_after(timing: Timing, after: datetime) -> Iterator[Planned]:
    """All that are due after it, in order."""
    if timing.start_at is not None and timing.start_at > after:
        after = timing.start_at - timedelta(microseconds=1)
    passed_over = 0
    while passed_over < _MOST_PASSED_OVER and after < _END:
        fire = next_fire(timing.cron, timing.zone, after, timing.window, timing.window_policy)
        if fire is None or (timing.end_at is not None and fire.scheduled_for > timing.end_at):
            return
        after = max(fire.scheduled_for, fire.effective_for)
        if timing.is_excluded(fire.effective_for):
            passed_over += 1
            continue
        passed_over = 0
        yield Planned(
            fire.scheduled_for,
            timing.spread(fire.scheduled_for, fire.effective_for, _next(timing, after)),
        )


def _next(timing: Timing, after: datetime) -> datetime | None:
    """What jitter must stay before; not looked for where there is none."""
    if not timing.jitter_seconds or after >= _END:
        return None
    following = next_fire(timing.cron, timing.zone, after, timing.window, timing.window_policy)
    return None if following is None else following.effective_for


def next_opening(timing: Timing, instant: datetime) -> datetime | None:
    """The instant itself where its window is open, or the next start of it, on a day that is not
    left out. None: its last time is over by then."""
    window = timing.window
    opens_at = instant if window is None else window.clamp(instant, timing.zone)
    for _ in range(_MOST_PASSED_OVER):
        if timing.end_at is not None and opens_at > timing.end_at:
            return None
        if not timing.is_excluded(opens_at):
            return opens_at
        if window is None:
            return None
        opens_at = window.clamp(opens_at + window_length(window), timing.zone)
    return None


def window_length(window: ExecutionWindow) -> timedelta:
    """Its last minute is inside."""
    return timedelta(minutes=_minutes(window) + 1)


def is_never_due(timing: Timing) -> bool:
    """The window drops whatever the cron says."""
    return never_fires(timing.cron, timing.window, timing.window_policy)


def shortened(window: ExecutionWindow, cutoff_minutes: int) -> ExecutionWindow:
    """Without its last minutes, in which nothing may begin any more. InvalidInputError: nothing is
    left of it."""
    if cutoff_minutes >= _minutes(window):
        raise InvalidInputError("The cutoff must be shorter than the execution window.")
    end = (window.end.hour * 60 + window.end.minute - cutoff_minutes) % _DAY_MINUTES
    return ExecutionWindow(window.start, time(end // 60, end % 60))


def _minutes(window: ExecutionWindow) -> int:
    start, end = (at.hour * 60 + at.minute for at in (window.start, window.end))
    return (end - start) % _DAY_MINUTES
