"""Decides due times: which one runs, how it starts, and why the others do not run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from itertools import takewhile

from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.timing import (
    Planned,
    Timing,
    WindowPolicy,
    next_opening,
    next_planned,
    planned_after,
    planned_from,
)

# A due time that starts within this time is not late.
IN_TIME = timedelta(minutes=1)
_SPANS = tuple(timedelta(hours=hours) for hours in (3, 30, 24 * 15, 24 * 370))


class NotRun(Enum):
    """Why a due time does not run. If several reasons apply, the first of this list is given."""

    EXCLUDED = auto()
    OPERATOR = auto()
    MISSED = auto()
    SUPERSEDED = auto()
    OVER_LIMIT = auto()
    DISABLED = auto()
    MAINTENANCE = auto()
    OUTSIDE_WINDOW = auto()
    HOST_OFFLINE = auto()
    OVERLAP = auto()


class Start(Enum):
    """How a due time starts: NOW; IN_LINE, after the unfinished work; or IN_PLACE of the unfinished
    work, which is ended."""

    NOW = auto()
    IN_LINE = auto()
    IN_PLACE = auto()


@dataclass(frozen=True, kw_only=True)
class Policies:
    """The misfire policy says whether late due times are dropped, and how many of the others run:
    the newest ones, oldest first."""

    drops_late: bool = False
    keeps: int = 1
    overlap: OverlapPolicy = OverlapPolicy.SKIP


@dataclass(frozen=True, kw_only=True)
class DueFacts:
    """Due times that start before `late_before` are late, except those in `waited`, which waited for
    earlier work. `all_late`: the others are late too. `at_work` and `waiting` count the unfinished
    work of the schedule: started, and not started. `skip_until` and `skips_next`: an operator skips
    the due times up to that instant, or the next one that would run. `obstacles` prevent every due
    time from running."""

    now: datetime
    late_before: datetime
    all_late: bool = False
    waited: frozenset[datetime] = frozenset()
    at_work: int = 0
    waiting: int = 0
    skip_until: datetime | None = None
    skips_next: bool = False
    obstacles: tuple[NotRun, ...] = ()


@dataclass(frozen=True)
class DueSkip:
    due: Planned
    reason: NotRun


@dataclass(frozen=True)
class Plan:
    """The due times in `line` run one at a time: the first now, as `start` says. The others are
    decided later. `postponed` is a due time that waits for the next start of its window."""

    skips: tuple[DueSkip, ...] = ()
    line: tuple[Planned, ...] = ()
    start: Start | None = None
    postponed: Planned | None = None


@dataclass(frozen=True)
class Backlog:
    """The due times to decide, oldest first. `is_cut`: earlier ones are left out."""

    times: Sequence[Planned]
    is_cut: bool = False


def backlog(
    timing: Timing,
    since: datetime,
    now: datetime,
    *,
    enough: int,
    first: Planned | None = None,
    with_excluded: bool = False,
) -> Backlog:
    """The due times after `since` until now, or from `first` on. After a long outage only as much of
    the recent past is computed as has `enough` due times."""

    def due_by_now(times: Iterable[Planned]) -> list[Planned]:
        return list(takewhile(lambda time: time.effective_for <= now, times))

    for span in _SPANS:
        if since >= now - span:
            break
        recent = due_by_now(planned_after(timing, now - span, with_excluded=with_excluded))
        if len(recent) >= enough:
            return Backlog(recent, is_cut=True)
    if first is None:
        return Backlog(due_by_now(planned_after(timing, since, with_excluded=with_excluded)))
    return Backlog(due_by_now(planned_from(timing, first, with_excluded=with_excluded)))


def plan(timing: Timing, due: Sequence[Planned], policies: Policies, facts: DueFacts) -> Plan:
    """Decide the due times, which come oldest first. At most one of them starts."""
    skips, candidates = _choose(timing, due, policies, facts)
    left_out = max(len(candidates) - policies.keeps, 0)
    reason = NotRun.SUPERSEDED if policies.keeps == 1 else NotRun.OVER_LIMIT
    skips += [DueSkip(candidate, reason) for candidate in candidates[:left_out]]
    candidates = candidates[left_out:]
    result = Plan(tuple(skips))
    if not candidates:
        return result
    chosen = candidates[0]
    may_start = _may_start(timing, chosen, facts.now)
    if not may_start and timing.window_policy is WindowPolicy.CLAMP:
        return _postpone(timing, chosen, facts.now, result)
    start = overlap_start(policies.overlap, facts.at_work, facts.waiting)
    if policies.keeps > 1 and facts.now - chosen.effective_for > IN_TIME and start is not Start.NOW:
        # A missed due time queues behind the unfinished work whatever the overlap policy.
        start = Start.IN_LINE
    conditions = (
        (facts.skips_next, NotRun.OPERATOR),
        (not may_start, NotRun.OUTSIDE_WINDOW),
        (start is None, NotRun.OVERLAP),
    )
    reasons = [*facts.obstacles, *(reason for holds, reason in conditions if holds)]
    if reasons:
        first = min(reasons, key=lambda reason: reason.value)
        return replace(result, skips=(*result.skips, DueSkip(chosen, first)))
    return replace(result, line=tuple(candidates), start=start)


def overlap_start(policy: OverlapPolicy, at_work: int, waiting: int) -> Start | None:
    """How new work of a schedule starts while other work is unfinished. None: it does not start."""
    if not at_work + waiting:
        return Start.NOW
    match policy:
        case OverlapPolicy.SKIP:
            return None
        case OverlapPolicy.BUFFER_ONE:
            return None if waiting and at_work + waiting > 1 else Start.IN_LINE
        case OverlapPolicy.BUFFER_ALL:
            return Start.IN_LINE
        case OverlapPolicy.ALLOW_ALL:
            return Start.NOW
        case OverlapPolicy.CANCEL_OTHER | OverlapPolicy.TERMINATE_OTHER:
            return Start.IN_PLACE


def _choose(
    timing: Timing, due: Sequence[Planned], policies: Policies, facts: DueFacts
) -> tuple[list[DueSkip], list[Planned]]:
    """Separate the due times that cannot run in any case from the candidates."""
    skips: list[DueSkip] = []
    candidates: list[Planned] = []
    for time in due:
        is_late = time.effective_for < facts.late_before and time.scheduled_for not in facts.waited
        if timing.is_excluded(timing.opens_at(time.scheduled_for)):
            skips.append(DueSkip(time, NotRun.EXCLUDED))
        elif facts.skip_until is not None and time.scheduled_for <= facts.skip_until:
            skips.append(DueSkip(time, NotRun.OPERATOR))
        elif policies.drops_late and (is_late or facts.all_late):
            skips.append(DueSkip(time, NotRun.MISSED))
        else:
            candidates.append(time)
    return skips, candidates


def _may_start(timing: Timing, chosen: Planned, now: datetime) -> bool:
    """Whether the window is open. If the clock skips its start, it opens after the gap, for its length."""
    if timing.window is None or timing.is_open(now):
        return True
    has_moved = not timing.is_open(chosen.effective_for)
    return has_moved and now - chosen.effective_for < timing.window.length


def _postpone(timing: Timing, chosen: Planned, now: datetime, result: Plan) -> Plan:
    """Move the due time to the next start of the window unless a later due time starts there."""
    opens_at = next_opening(timing, now)
    following = next_planned(timing, timing.opens_at(chosen.scheduled_for))
    if opens_at is None or (following is not None and following.scheduled_for <= opens_at):
        return replace(result, skips=(*result.skips, DueSkip(chosen, NotRun.OUTSIDE_WINDOW)))
    later = timing.delayed(chosen.scheduled_for, opens_at)
    return replace(result, postponed=Planned(chosen.scheduled_for, later))
