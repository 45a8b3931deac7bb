"""When a schedule is due: occurrences, whether its runs are active or stale, and what becomes of
each due time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from functools import lru_cache
from hashlib import sha256
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from automation_pipeline.automation.models.schedules import (
    CatchUp,
    Schedule,
    ScheduleFields,
    crons_of,
)
from automation_pipeline.core.scheduling.cron import Cron, latest_occurrence, occurrences_of
from automation_pipeline.core.scheduling.zones import zone

STALE_REASON = "The schedule was still marked as running after the stale threshold, and nobody worked on the run"

# The default of AUTOMATION_LOST_AFTER_SECONDS, for callers without settings.
LOST_AFTER_SECONDS = 25.0


@dataclass(frozen=True)
class UnendedRun:
    """`alive`: its heart has beaten a moment ago, by the database's clock. Attempt 0: it waits, no
    one has begun it."""

    id: int
    attempt: int
    started_at: datetime
    alive: bool

    @property
    def waits(self) -> bool:
        return self.attempt == 0


@dataclass(frozen=True)
class ScheduleWork:
    """What is known of a schedule's work: the mark on the schedule, and the runs that have not
    ended."""

    marked_running: bool = False
    last_run_at: datetime | None = None
    runs: tuple[UnendedRun, ...] = ()


NO_WORK = ScheduleWork()


class ScheduleLoad(Enum):
    IDLE = auto()
    BUSY = auto()
    OUTLASTING = auto()
    STALE = auto()


@dataclass(frozen=True)
class StaleMark:
    """What is written on a run that is ended for being stale."""

    message: str
    details: Mapping[str, object]


def schedule_load(at_work: ScheduleWork, now: datetime, stale_after: timedelta) -> ScheduleLoad:
    """A mark without a run is believed until the threshold, and not at all if it does not say since
    when. A run that waits has no heart to beat: however long Dagster takes to begin it, it is not
    stale."""
    before = now - stale_after
    if any(run.waits or run.started_at > before for run in at_work.runs):
        return ScheduleLoad.BUSY
    if at_work.runs:
        return (
            ScheduleLoad.OUTLASTING
            if any(run.alive for run in at_work.runs)
            else ScheduleLoad.STALE
        )
    if not at_work.marked_running:
        return ScheduleLoad.IDLE
    believed = at_work.last_run_at is not None and at_work.last_run_at > before
    return ScheduleLoad.BUSY if believed else ScheduleLoad.STALE


def stale_mark(started_at: datetime, now: datetime, stale_after: timedelta) -> StaleMark:
    age, threshold = (length // timedelta(minutes=1) for length in (now - started_at, stale_after))
    return StaleMark(
        f"Marked stale by scheduler after {age}m (threshold {threshold}m)",
        {
            "marked_stale": True,
            "reason": STALE_REASON,
            "stale_before": (now - stale_after).isoformat(),
            "marked_at": now.isoformat(),
        },
    )


MISSED = "missed while the scheduler was down"
SKIPPED = "skipped by an operator"
SUPERSEDED = "a later occurrence is run in its place"
OVER_LIMIT = "beyond the catch-up limit"
OVERLAP_REASONS = {
    ScheduleLoad.BUSY: "the previous run is still at work",
    ScheduleLoad.OUTLASTING: "the previous run is still at work: longer than the stale threshold, but its heart beats",
}
AND_EARLIER_ONES = ", and so is every earlier one that is not listed"

MAX_LISTED = 20


@dataclass(frozen=True)
class DuePolicy:
    """A due time older than `window` was missed. A run older than `stale_after` is stale unless its
    heart beats."""

    window: timedelta
    stale_after: timedelta
    lost_after_seconds: float


@dataclass(frozen=True, kw_only=True)
class DueSchedule:
    """What the decision needs to know of a schedule. Whatever was due until `decided_until` is
    settled. Of what was due before `created_at` only the newest can be run, within the window, and
    nothing is told."""

    id: int
    name: str
    crons: tuple[Cron, ...]
    zone: ZoneInfo
    decided_until: datetime
    created_at: datetime | None = None
    at_work: ScheduleWork = NO_WORK
    is_active: bool = True
    skip_due_at: datetime | None = None
    catch_up: CatchUp = CatchUp.SKIP
    catch_up_limit: int
    jitter_seconds: int = 0

    def starts_at(self, due_at: datetime) -> datetime:
        """Delayed by a share of the jitter that is always the same for the same due time."""
        digest = sha256(f"{self.id}:{due_at.timestamp():.0f}".encode()).digest()
        return due_at + timedelta(seconds=int.from_bytes(digest[:8]) % (self.jitter_seconds + 1))


@dataclass(frozen=True)
class SkippedOccurrence:
    due_at: datetime
    because: str


@dataclass(frozen=True)
class DueDecision:
    """`to_run`, oldest first, is run one at a time: all but the first wait undecided, as does what
    comes after them. `not_run` comes before. `reconcile`: what is marked as running is not, and has
    to be ended first. `unheeded`: due before there was a schedule."""

    to_run: tuple[datetime, ...] = ()
    not_run: tuple[SkippedOccurrence, ...] = ()
    reconcile: bool = False
    unheeded: tuple[datetime, ...] = ()

    def decided_until(self, before: datetime) -> datetime:
        return max(
            [before, *self.unheeded, *(entry.due_at for entry in self.not_run), *self.to_run[:1]]
        )


def decide_due(schedule: DueSchedule, now: datetime, rules: DuePolicy) -> DueDecision:
    standing = schedule_load(schedule.at_work, now, rules.stale_after)
    in_time = now.replace(second=0, microsecond=0) - rules.window
    ripe = _undecided(schedule, now) if schedule.is_active else []
    heeded = [due for due in ripe if not _is_too_early(schedule, due, ripe[-1], in_time)]
    skip_until = schedule.skip_due_at
    skipped = [due for due in heeded if skip_until is not None and due <= skip_until]
    plan = _plan(schedule, heeded[len(skipped) :], standing, in_time)
    not_run = [*(SkippedOccurrence(due, SKIPPED) for due in skipped), *plan.not_run]
    told = [entry for entry in not_run if not _is_before(schedule, entry.due_at)]
    untold = (entry.due_at for entry in not_run if _is_before(schedule, entry.due_at))
    unheeded = (*(due for due in ripe if due not in heeded), *untold)
    return DueDecision(plan.to_run, tuple(_listed(told)), standing is ScheduleLoad.STALE, unheeded)


def next_undecided(schedule: DueSchedule, decided_until: datetime, now: datetime) -> datetime:
    """The first due time that is still to be decided upon."""
    latest, coming = _around(schedule.crons, schedule.zone, now)
    if latest <= decided_until <= now:
        return coming
    return next(occurrences_of(schedule.crons, schedule.zone, decided_until))


def _undecided(schedule: DueSchedule, now: datetime) -> list[datetime]:
    """What is undecided and may start, oldest first: the newest, and one more than are listed. One
    that waits for its jitter holds up those after it."""
    newest_first = takewhile(lambda due: due > schedule.decided_until, _backwards(schedule, now))
    kept = schedule.catch_up_limit if schedule.catch_up is CatchUp.ALL else 1
    undecided = list(islice(newest_first, kept + MAX_LISTED + 1))[::-1]
    return list(takewhile(lambda due: schedule.starts_at(due) <= now, undecided))


def _is_before(schedule: DueSchedule, due: datetime) -> bool:
    return schedule.created_at is not None and due < schedule.created_at


def _is_too_early(
    schedule: DueSchedule, due: datetime, newest: datetime, in_time: datetime
) -> bool:
    return _is_before(schedule, due) and (due != newest or schedule.starts_at(due) < in_time)


def _backwards(schedule: DueSchedule, now: datetime) -> Iterator[datetime]:
    if not schedule.crons:
        return
    due, _ = _around(schedule.crons, schedule.zone, now)
    while True:
        yield due
        due = _latest(schedule.crons, schedule.zone, due - timedelta(microseconds=1))


@lru_cache(maxsize=4096)  # thousands of schedules share a few hundred timings
def _around(crons: tuple[Cron, ...], zone: ZoneInfo, now: datetime) -> tuple[datetime, datetime]:
    """The occurrences next to an instant: at or before it, and after it."""
    return _latest(crons, zone, now), next(occurrences_of(crons, zone, now))


@lru_cache(maxsize=4096)  # the same: whoever is due is also asked what was due before
def _latest(crons: tuple[Cron, ...], zone: ZoneInfo, until: datetime) -> datetime:
    return max(latest_occurrence(cron, zone, until) for cron in crons)


def _plan(
    schedule: DueSchedule, ripe: Sequence[datetime], standing: ScheduleLoad, in_time: datetime
) -> DueDecision:
    missed = list(takewhile(lambda due: schedule.starts_at(due) < in_time, ripe))
    beside = OVERLAP_REASONS.get(standing)
    match schedule.catch_up:
        case CatchUp.ALL:
            kept = ripe[-schedule.catch_up_limit :]
            over = tuple(
                SkippedOccurrence(due, OVER_LIMIT) for due in ripe[: -schedule.catch_up_limit]
            )
            return DueDecision(() if beside else tuple(kept), over)
        case CatchUp.LATEST if ripe:
            return DueDecision() if beside else _newest(ripe, ())
        case CatchUp.SKIP if len(missed) < len(ripe):
            return _newest(ripe, missed, beside)
        case _:
            return DueDecision(not_run=tuple(SkippedOccurrence(due, MISSED) for due in ripe))


def _newest(
    ripe: Sequence[datetime], missed: Sequence[datetime], beside: str | None = None
) -> DueDecision:
    """The newest is run, unless a run at work keeps it from it."""
    too_late = [SkippedOccurrence(due, MISSED) for due in missed]
    in_time = ripe[len(missed) :]
    if beside:
        return DueDecision(
            not_run=(*too_late, *(SkippedOccurrence(due, beside) for due in in_time))
        )
    return DueDecision(
        (in_time[-1],), (*too_late, *(SkippedOccurrence(due, SUPERSEDED) for due in in_time[:-1]))
    )


def _listed(not_run: Sequence[SkippedOccurrence]) -> Sequence[SkippedOccurrence]:
    """The newest each for itself; those before them in one."""
    if len(not_run) <= MAX_LISTED:
        return not_run
    first, *rest = not_run[-MAX_LISTED:]
    return (SkippedOccurrence(first.due_at, first.because + AND_EARLIER_ONES), *rest)


MAX_NAMED = 10


@dataclass(frozen=True)
class StartedRun:
    schedule_id: int
    name: str
    due_at: datetime
    run_id: int


@dataclass(frozen=True)
class DueReport:
    """`checked`: the active schedules that have times. The others go by schedule id; `broken`
    cannot be read."""

    checked: int
    triggered: tuple[StartedRun, ...] = ()
    not_run: tuple[tuple[int, SkippedOccurrence], ...] = ()
    reconciled: tuple[int, ...] = ()
    broken: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        done = [
            *(f"Ended what was stale of schedule {id_}" for id_ in self.reconciled),
            *(
                f"Started schedule {one.schedule_id}, due {_at(one.due_at)}, as run {one.run_id}"
                for one in self.triggered
            ),
            *(
                f"Schedule {id_}, due {_at(one.due_at)}, is not run: {one.because}"
                for id_, one in self.not_run
            ),
            *(f"Schedule {id_} cannot be read: {reason}" for id_, reason in self.broken),
        ]
        if not done:
            return f"{self.checked} schedules checked, none is due."
        more = [f"and {len(done) - MAX_NAMED} more"] if len(done) > MAX_NAMED else []
        return "; ".join([f"{self.checked} schedules checked", *done[:MAX_NAMED], *more]) + "."


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"


FIRST_YEAR, LAST_YEAR = 1970, 2999
SCHEDULER_INTERVAL = timedelta(minutes=1)


def occurrences_after(schedule: ScheduleFields, after: datetime) -> Iterator[datetime]:
    """Strictly after that, until the calendar ends; none for a schedule that is started by hand
    only."""
    return occurrences_of(crons_of(schedule), zone(schedule.timezone), after)


def parse_start(given: datetime) -> datetime:
    """From where somebody wants to see occurrences: without a zone it is UTC. ValueError for
    distant years."""
    if not FIRST_YEAR <= given.year <= LAST_YEAR:
        raise ValueError(f"must lie between the years {FIRST_YEAR} and {LAST_YEAR}")
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def next_due(schedule: Schedule, now: datetime) -> datetime | None:
    """When it is next run by itself: all up to `skip_due_at` are left out. None for one paused or
    MANUAL."""
    return _first_after(schedule, now, schedule.skip_due_at)


def next_to_skip(schedule: Schedule, now: datetime) -> datetime | None:
    """The first occurrence that is neither decided upon nor left out already. It may have come a
    moment ago: then it waits for the scheduler to look, or for its jitter."""
    waiting_since = now - timedelta(seconds=schedule.jitter_seconds) - SCHEDULER_INTERVAL
    return _first_after(schedule, waiting_since, schedule.last_due_at, schedule.skip_due_at)


def _first_after(schedule: Schedule, *instants: datetime | None) -> datetime | None:
    if not schedule.is_active:
        return None
    return next(occurrences_after(schedule, max(filter(None, instants))), None)
