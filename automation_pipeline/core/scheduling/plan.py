"""What happens to due times: which one runs, how it starts, and why the others do not run."""

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

# A due time that starts within this was not missed.
IN_TIME = timedelta(minutes=1)
_SPANS = tuple(timedelta(hours=hours) for hours in (3, 30, 24 * 15, 24 * 370))


class NotRun(Enum):
    """Why a due time does not run. Where several reasons hold, the first of this list counts."""

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
    """How the due time starts that runs: at once, behind the work in front of it, or in its
    place."""

    NOW = auto()
    IN_LINE = auto()
    IN_PLACE = auto()


@dataclass(frozen=True, kw_only=True)
class Policies:
    """A misfire policy is two answers: whether due times that are late are dropped, and how many of
    the others run, the newest ones, oldest first."""

    drops_late: bool = False
    keeps: int = 1
    overlap: OverlapPolicy = OverlapPolicy.SKIP


@dataclass(frozen=True, kw_only=True)
class DueFacts:
    """What else decides. Due times that start before `late_before` are late, except those in
    `waited`, which waited for earlier work. `all_late`: the others are late too. `at_work` and
    `waiting` count the unfinished work of the schedule, started and not started. An operator skips
    the due times up to `skip_until`, or the next one that would run. `obstacles` keep any due time
    from running."""

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
    """`line` runs one at a time: the first now, as `start` says, the others are decided later.
    `postponed`: a due time waits for the next start of its window."""

    skips: tuple[DueSkip, ...] = ()
    line: tuple[Planned, ...] = ()
    start: Start | None = None
    postponed: Planned | None = None


@dataclass(frozen=True)
class Backlog:
    """The due times that are to be decided, oldest first. `is_cut`: there are earlier ones."""

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
    """What is due after `since`, or with `first` from that one on, until now. After a long outage
    only the recent past is computed, as soon as it has enough due times."""

    def due_by_now(times: Iterable[Planned]) -> list[Planned]:
        return list(takewhile(lambda one: one.effective_for <= now, times))

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
    """Decide the due times, oldest first. At most one of them starts."""
    skips, candidates = _choose(timing, due, policies, facts)
    left_out = len(candidates) - policies.keeps
    if left_out > 0:
        reason = NotRun.SUPERSEDED if policies.keeps == 1 else NotRun.OVER_LIMIT
        skips += [DueSkip(one, reason) for one in candidates[:left_out]]
        candidates = candidates[left_out:]
    made = Plan(tuple(skips))
    if not candidates:
        return made
    chosen = candidates[0]
    may_begin = _may_begin(timing, chosen, facts.now)
    if not may_begin and timing.window_policy is WindowPolicy.CLAMP:
        return _postpone(timing, chosen, facts.now, made)
    start = overlap_start(policies.overlap, facts.at_work, facts.waiting)
    if policies.keeps > 1 and facts.now - chosen.effective_for > IN_TIME and start is not Start.NOW:
        # What was missed waits in line: it does not compete with the work that it follows.
        start = Start.IN_LINE
    conditions = (
        (facts.skips_next, NotRun.OPERATOR),
        (not may_begin, NotRun.OUTSIDE_WINDOW),
        (start is None, NotRun.OVERLAP),
    )
    reasons = [*facts.obstacles, *(reason for holds, reason in conditions if holds)]
    if reasons:
        reason = min(reasons, key=lambda one: one.value)
        return replace(made, skips=(*made.skips, DueSkip(chosen, reason)))
    return replace(made, line=tuple(candidates), start=start)


def overlap_start(policy: OverlapPolicy, at_work: int, waiting: int) -> Start | None:
    """How new work of the schedule starts next to its unfinished work. None: it does not start."""
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
    """The due times that cannot run whatever else is the case, and the others."""
    skips: list[DueSkip] = []
    others: list[Planned] = []
    for one in due:
        is_late = one.effective_for < facts.late_before and one.scheduled_for not in facts.waited
        if timing.is_excluded(timing.opens_at(one.scheduled_for)):
            skips.append(DueSkip(one, NotRun.EXCLUDED))
        elif facts.skip_until is not None and one.scheduled_for <= facts.skip_until:
            skips.append(DueSkip(one, NotRun.OPERATOR))
        elif policies.drops_late and (is_late or facts.all_late):
            skips.append(DueSkip(one, NotRun.MISSED))
        else:
            others.append(one)
    return skips, others


def _may_begin(timing: Timing, chosen: Planned, now: datetime) -> bool:
    """A window that the clock skips starts after the gap and keeps its length."""
    if timing.window is None or timing.is_open(now):
        return True
    has_moved = not timing.is_open(chosen.effective_for)
    return has_moved and now - chosen.effective_for < timing.window.length


def _postpone(timing: Timing, chosen: Planned, now: datetime, made: Plan) -> Plan:
    """Move the due time to the next start of the window, unless another one starts there anyway."""
    opens_at = next_opening(timing, now)
    following = next_planned(timing, timing.opens_at(chosen.scheduled_for))
    if opens_at is None or (following is not None and following.scheduled_for <= opens_at):
        return replace(made, skips=(*made.skips, DueSkip(chosen, NotRun.OUTSIDE_WINDOW)))
    later = timing.delayed(chosen.scheduled_for, opens_at)
    return replace(made, postponed=Planned(chosen.scheduled_for, later))
