"""What becomes of a schedule's due times: run, not run and why, or left for later. Zones: core/schedule_times.py."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from automation_pipeline.automation.domain.at_work import NOTHING, AtWork, Standing, standing_of
from automation_pipeline.automation.domain.schedule import CatchUp
from automation_pipeline.core.cron import Cron
from automation_pipeline.core.schedule_times import latest_occurrence, occurrences_of

MISSED = "missed while the scheduler was down"
SKIPPED = "skipped by an operator"
SUPERSEDED = "a later occurrence is run in its place"
OVER_LIMIT = "beyond the catch-up limit"
NOT_RUN_BESIDE = {
    Standing.BUSY: "the previous run is still at work",
    Standing.OUTLASTING: "the previous run is still at work: longer than the stale threshold, but its heart beats",
}
AND_ALL_BEFORE = ", and so is every earlier one that is not listed"

MOST_LISTED = 20


@dataclass(frozen=True)
class DueRules:
    """A due time older than `window` was missed. A run older than `stale_after` is stale unless its heart beats."""

    window: timedelta
    stale_after: timedelta
    lost_after_seconds: float


@dataclass(frozen=True, kw_only=True)
class DueSchedule:
    """What the decision needs to know of a schedule. Whatever was due until `decided_until` is settled. Of what was due
    before `created_at` only the newest can be run, within the window, and nothing is told."""

    id: int
    name: str
    crons: tuple[Cron, ...]
    zone: ZoneInfo
    decided_until: datetime
    created_at: datetime | None = None
    at_work: AtWork = NOTHING
    is_active: bool = True
    skip_due_at: datetime | None = None
    catch_up: CatchUp = CatchUp.SKIP
    catch_up_limit: int = 10
    jitter_seconds: int = 0

    def starts_at(self, due_at: datetime) -> datetime:
        """Delayed by a share of the jitter that is always the same for the same due time."""
        digest = sha256(f"{self.id}:{due_at.timestamp():.0f}".encode()).digest()
        return due_at + timedelta(seconds=int.from_bytes(digest[:8]) % (self.jitter_seconds + 1))


@dataclass(frozen=True)
class NotRun:
    due_at: datetime
    because: str


@dataclass(frozen=True)
class Decision:
    """`to_run`, oldest first, is run one at a time: all but the first wait undecided, as does what comes after them.
    `not_run` comes before. `reconcile`: what is marked as running is not, and has to be ended first. `unheeded`: due
    before there was a schedule."""

    to_run: tuple[datetime, ...] = ()
    not_run: tuple[NotRun, ...] = ()
    reconcile: bool = False
    unheeded: tuple[datetime, ...] = ()

    def decided_until(self, before: datetime) -> datetime:
        return max([before, *self.unheeded, *(entry.due_at for entry in self.not_run), *self.to_run[:1]])


def decide(schedule: DueSchedule, now: datetime, rules: DueRules) -> Decision:
    standing = standing_of(schedule.at_work, now, rules.stale_after)
    in_time = now.replace(second=0, microsecond=0) - rules.window
    ripe = _ripe(schedule, now) if schedule.is_active else []
    heeded = [due for due in ripe if not _is_too_early(schedule, due, ripe[-1], in_time)]
    skip_until = schedule.skip_due_at
    skipped = [due for due in heeded if skip_until is not None and due <= skip_until]
    plan = _plan(schedule, heeded[len(skipped) :], standing, in_time)
    not_run = [*(NotRun(due, SKIPPED) for due in skipped), *plan.not_run]
    told = [entry for entry in not_run if not _is_before(schedule, entry.due_at)]
    untold = (entry.due_at for entry in not_run if _is_before(schedule, entry.due_at))
    unheeded = (*(due for due in ripe if due not in heeded), *untold)
    return Decision(plan.to_run, tuple(_listed(told)), standing is Standing.STALE, unheeded)


def next_due(schedule: DueSchedule, decided_until: datetime, now: datetime) -> datetime:
    """The first due time that is still to be decided upon."""
    latest, coming = _around(schedule.crons, schedule.zone, now)
    if latest <= decided_until <= now:
        return coming
    return next(occurrences_of(schedule.crons, schedule.zone, decided_until))


def _ripe(schedule: DueSchedule, now: datetime) -> list[datetime]:
    """What is undecided and may start, oldest first: the newest, and one more than are listed. One that waits for its
    jitter holds up those after it."""
    newest_first = takewhile(lambda due: due > schedule.decided_until, _backwards(schedule, now))
    kept = schedule.catch_up_limit if schedule.catch_up is CatchUp.ALL else 1
    undecided = list(islice(newest_first, kept + MOST_LISTED + 1))[::-1]
    return list(takewhile(lambda due: schedule.starts_at(due) <= now, undecided))


def _is_before(schedule: DueSchedule, due: datetime) -> bool:
    return schedule.created_at is not None and due < schedule.created_at


def _is_too_early(schedule: DueSchedule, due: datetime, newest: datetime, in_time: datetime) -> bool:
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


def _plan(schedule: DueSchedule, ripe: Sequence[datetime], standing: Standing, in_time: datetime) -> Decision:
    missed = list(takewhile(lambda due: schedule.starts_at(due) < in_time, ripe))
    beside = NOT_RUN_BESIDE.get(standing)
    match schedule.catch_up:
        case CatchUp.ALL:
            kept = ripe[-schedule.catch_up_limit :]
            over = tuple(NotRun(due, OVER_LIMIT) for due in ripe[: -schedule.catch_up_limit])
            return Decision(() if beside else tuple(kept), over)
        case CatchUp.LATEST if ripe:
            return Decision() if beside else _newest(ripe, ())
        case CatchUp.SKIP if len(missed) < len(ripe):
            return _newest(ripe, missed, beside)
        case _:
            return Decision(not_run=tuple(NotRun(due, MISSED) for due in ripe))


def _newest(ripe: Sequence[datetime], missed: Sequence[datetime], beside: str | None = None) -> Decision:
    """The newest is run, unless a run at work keeps it from it."""
    too_late = [NotRun(due, MISSED) for due in missed]
    in_time = ripe[len(missed) :]
    if beside:
        return Decision(not_run=(*too_late, *(NotRun(due, beside) for due in in_time)))
    return Decision((in_time[-1],), (*too_late, *(NotRun(due, SUPERSEDED) for due in in_time[:-1])))


def _listed(not_run: Sequence[NotRun]) -> Sequence[NotRun]:
    """The newest each for itself; those before them in one."""
    if len(not_run) <= MOST_LISTED:
        return not_run
    first, *rest = not_run[-MOST_LISTED:]
    return (NotRun(first.due_at, first.because + AND_ALL_BEFORE), *rest)
