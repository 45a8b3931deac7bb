"""What becomes of a due schedule: what is dispatched, what is skipped and why, and when it is due
next."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, takewhile

from automation_pipeline.core.scheduling.execution_window import WindowPolicy
from automation_pipeline.org_jobs.models.states import (
    MOST_CAUGHT_UP,
    FireTrigger,
    MisfirePolicy,
    OverlapPolicy,
    SkipReason,
)
from automation_pipeline.org_jobs.models.timing import (
    Planned,
    Timing,
    next_opening,
    next_planned,
    planned_after,
    window_length,
)

# What is begun within this was not missed.
IN_TIME = timedelta(minutes=1)
_SPANS = tuple(timedelta(hours=hours) for hours in (3, 30, 24 * 15, 24 * 370))


@dataclass(frozen=True)
class ScheduleFacts:
    """What else decides: `at_work` jobs of the schedule have begun, `waiting` ones have not."""

    at_work: int = 0
    waiting: int = 0
    is_disabled: bool = False
    is_in_maintenance: bool = False
    is_host_offline: bool = False


@dataclass(frozen=True, kw_only=True)
class DueOrgSchedule:
    """`due` is what it is due for: its `effective_for` lies before now."""

    timing: Timing
    due: Planned
    misfire_policy: MisfirePolicy = MisfirePolicy.FIRE_ONCE
    grace_seconds: int = 3600
    overlap_policy: OverlapPolicy = OverlapPolicy.SKIP
    skips_next: bool = False
    around: ScheduleFacts = ScheduleFacts()


@dataclass(frozen=True)
class PlannedFire:
    """Without a reason to skip it, it is dispatched."""

    scheduled_for: datetime
    effective_for: datetime
    trigger: FireTrigger = FireTrigger.CRON
    skip: SkipReason | None = None


@dataclass(frozen=True, kw_only=True)
class FireDecision:
    """`fires` are in order; at most one is dispatched. `next` None: it is never due again.
    `ends_others`: the jobs at work give way to the new one, by its overlap policy. `is_cut`: more
    was missed before the first of the fires."""

    fires: tuple[PlannedFire, ...]
    next: Planned | None
    clears_skip: bool = False
    ends_others: bool = False
    is_cut: bool = False

    @property
    def dispatched(self) -> PlannedFire | None:
        return next((fire for fire in self.fires if fire.skip is None), None)


def decide(schedule: DueOrgSchedule, now: datetime) -> FireDecision:
    """Whatever it decides, the schedule goes on: `next` is later than all that was decided upon."""
    missed, is_cut = _missed(schedule, now)
    is_late = now - schedule.due.effective_for > timedelta(seconds=schedule.grace_seconds)
    left_out, chosen = _chosen(schedule.misfire_policy, missed, is_late=is_late)
    trigger = FireTrigger.CATCHUP if is_late else FireTrigger.CRON
    skipped = tuple(
        PlannedFire(one.scheduled_for, one.effective_for, trigger, SkipReason.MISFIRE)
        for one in left_out
    )
    if chosen is None:
        return FireDecision(
            fires=skipped, next=_next_after(schedule.timing, missed[-1]), is_cut=is_cut
        )
    if _waits_for_window(schedule.timing, chosen, now):
        return _postponed(
            schedule.timing, chosen, now, FireDecision(fires=skipped, next=None, is_cut=is_cut)
        )
    is_caught_up = now - chosen.effective_for > IN_TIME
    reason = _reason(schedule, chosen, now, is_caught_up=is_caught_up)
    trigger = FireTrigger.CATCHUP if is_late or is_caught_up else FireTrigger.CRON
    return FireDecision(
        fires=(*skipped, PlannedFire(chosen.scheduled_for, chosen.effective_for, trigger, reason)),
        next=_next_after(schedule.timing, chosen),
        clears_skip=reason is SkipReason.OPERATOR,
        ends_others=reason is None and _ends_others(schedule, is_caught_up=is_caught_up),
        is_cut=is_cut,
    )


def _missed(schedule: DueOrgSchedule, now: datetime) -> tuple[Sequence[Planned], bool]:
    """What is due by now, oldest first, and whether there is more before it: an outage of months is
    not gone through minute by minute."""
    for span in _SPANS:
        if schedule.due.scheduled_for >= now - span:
            break
        found = _due_by(now, planned_after(schedule.timing, now - span))
        if len(found) >= MOST_CAUGHT_UP:
            return found, True
    every = chain(
        [schedule.due], planned_after(schedule.timing, _base(schedule.timing, schedule.due))
    )
    return _due_by(now, every), False


def _due_by(now: datetime, planned: Iterable[Planned]) -> Sequence[Planned]:
    return list(takewhile(lambda one: one.effective_for <= now, planned))


def _chosen(
    policy: MisfirePolicy, missed: Sequence[Planned], *, is_late: bool
) -> tuple[Sequence[Planned], Planned | None]:
    """What is left out, and what may be run of the rest."""
    if policy is MisfirePolicy.FIRE_ALL:
        return missed[:-MOST_CAUGHT_UP], missed[-MOST_CAUGHT_UP:][0]
    if policy is MisfirePolicy.SKIP and is_late:
        return missed, None
    return missed[:-1], missed[-1]


def _waits_for_window(timing: Timing, chosen: Planned, now: datetime) -> bool:
    """It is late, and its window is over: under CLAMP it waits for the next one."""
    return timing.window_policy is WindowPolicy.CLAMP and not _may_begin(timing, chosen, now)


def _may_begin(timing: Timing, chosen: Planned, now: datetime) -> bool:
    """A window that the clock skips has begun after the gap: then it is as long as ever."""
    if timing.window is None or timing.is_open(now):
        return True
    has_moved = not timing.is_open(chosen.effective_for)
    return has_moved and now - chosen.effective_for < window_length(timing.window)


def _postponed(
    timing: Timing, chosen: Planned, now: datetime, so_far: FireDecision
) -> FireDecision:
    """What is due at the next start of the window anyway stands for it too."""
    opens_at, following = next_opening(timing, now), _next_after(timing, chosen)
    if opens_at is not None and (following is None or following.scheduled_for > opens_at):
        again = Planned(chosen.scheduled_for, timing.spread(chosen.scheduled_for, opens_at))
        return replace(so_far, next=again)
    missed = PlannedFire(
        chosen.scheduled_for, chosen.effective_for, FireTrigger.CATCHUP, SkipReason.OUTSIDE_WINDOW
    )
    return replace(so_far, fires=(*so_far.fires, missed), next=following)


def _reason(
    schedule: DueOrgSchedule, chosen: Planned, now: datetime, *, is_caught_up: bool
) -> SkipReason | None:
    """Why the one that is chosen is not run; the first that holds."""
    around = schedule.around
    reasons = (
        (schedule.skips_next, SkipReason.OPERATOR),
        (around.is_disabled, SkipReason.DISABLED),
        (around.is_in_maintenance, SkipReason.MAINTENANCE),
        (not _may_begin(schedule.timing, chosen, now), SkipReason.OUTSIDE_WINDOW),
        (around.is_host_offline, SkipReason.HOST_OFFLINE),
        (_overlaps(schedule, is_caught_up=is_caught_up), SkipReason.OVERLAP),
    )
    return next((reason for holds, reason in reasons if holds), None)


def _overlaps(schedule: DueOrgSchedule, *, is_caught_up: bool) -> bool:
    """What FIRE_ALL catches up waits in line."""
    around, policy = schedule.around, schedule.overlap_policy
    if is_caught_up and schedule.misfire_policy is MisfirePolicy.FIRE_ALL:
        return False
    if policy is OverlapPolicy.SKIP:
        return around.at_work + around.waiting > 0
    return (
        policy is OverlapPolicy.BUFFER_ONE
        and around.waiting > 0
        and around.at_work + around.waiting > 1
    )


def _ends_others(schedule: DueOrgSchedule, *, is_caught_up: bool) -> bool:
    """What FIRE_ALL catches up does not push away what it has just made."""
    if is_caught_up and schedule.misfire_policy is MisfirePolicy.FIRE_ALL:
        return False
    gives_way = schedule.overlap_policy in {
        OverlapPolicy.CANCEL_OTHER,
        OverlapPolicy.TERMINATE_OTHER,
    }
    return gives_way and schedule.around.at_work + schedule.around.waiting > 0


def _next_after(timing: Timing, handled: Planned) -> Planned | None:
    return next_planned(timing, _base(timing, handled))


def _base(timing: Timing, one: Planned) -> datetime:
    """From where its schedule goes on: what waits for the same start of the window is that one
    too."""
    if timing.window is None or timing.window_policy is not WindowPolicy.CLAMP:
        return one.scheduled_for
    return timing.window.clamp(one.scheduled_for, timing.zone)
