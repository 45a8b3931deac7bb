"""Whether a schedule's runs keep its next occurrence from starting, or are stale and have to be ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

REASON = "The schedule was still marked as running after the stale threshold, and nobody worked on the run"

# The default of AUTOMATION_LOST_AFTER_SECONDS, for callers without settings.
LOST_AFTER_SECONDS = 25.0


@dataclass(frozen=True)
class UnendedRun:
    """`alive`: its heart has beaten a moment ago, by the database's clock. Attempt 0: it waits, no one has begun it."""

    id: int
    attempt: int
    started_at: datetime
    alive: bool

    @property
    def waits(self) -> bool:
        return self.attempt == 0


@dataclass(frozen=True)
class AtWork:
    """What is known of a schedule's work: the mark on the schedule, and the runs that have not ended."""

    marked_running: bool = False
    last_run_at: datetime | None = None
    runs: tuple[UnendedRun, ...] = ()


NOTHING = AtWork()


class Standing(Enum):
    IDLE = auto()
    BUSY = auto()
    OUTLASTING = auto()
    STALE = auto()


@dataclass(frozen=True)
class StaleMark:
    """What is written on a run that is ended for being stale."""

    message: str
    details: Mapping[str, object]


def standing_of(at_work: AtWork, now: datetime, stale_after: timedelta) -> Standing:
    """A mark without a run is believed until the threshold, and not at all if it does not say since when. A run that
    waits has no heart to beat: however long Dagster takes to begin it, it is not stale."""
    before = now - stale_after
    if any(run.waits or run.started_at > before for run in at_work.runs):
        return Standing.BUSY
    if at_work.runs:
        return Standing.OUTLASTING if any(run.alive for run in at_work.runs) else Standing.STALE
    if not at_work.marked_running:
        return Standing.IDLE
    believed = at_work.last_run_at is not None and at_work.last_run_at > before
    return Standing.BUSY if believed else Standing.STALE


def stale_mark(started_at: datetime, now: datetime, stale_after: timedelta) -> StaleMark:
    age, threshold = (length // timedelta(minutes=1) for length in (now - started_at, stale_after))
    return StaleMark(
        f"Marked stale by scheduler after {age}m (threshold {threshold}m)",
        {
            "marked_stale": True,
            "reason": REASON,
            "stale_before": (now - stale_after).isoformat(),
            "marked_at": now.isoformat(),
        },
    )
