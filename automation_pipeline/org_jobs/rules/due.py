"""What happens to a due schedule: which job is dispatched, what is skipped and why, and when the
schedule is due next."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from automation_pipeline.core.scheduling.plan import (
    IN_TIME,
    DueFacts,
    DueSkip,
    NotRun,
    OverlapPolicy,
    Policies,
    Start,
    backlog,
    plan,
)
from automation_pipeline.core.scheduling.timing import Planned, Timing, WindowPolicy, next_planned
from automation_pipeline.org_jobs.models.states import (
    MOST_CAUGHT_UP,
    FireTrigger,
    MisfirePolicy,
    SkipReason,
)

_POLICIES = {
    MisfirePolicy.SKIP: Policies(drops_late=True),
    MisfirePolicy.FIRE_ONCE: Policies(),
    MisfirePolicy.FIRE_ALL: Policies(keeps=MOST_CAUGHT_UP),
}
_REASONS = {
    NotRun.MISSED: SkipReason.MISFIRE,
    NotRun.SUPERSEDED: SkipReason.MISFIRE,
    NotRun.OVER_LIMIT: SkipReason.MISFIRE,
    NotRun.OPERATOR: SkipReason.OPERATOR,
    NotRun.DISABLED: SkipReason.DISABLED,
    NotRun.MAINTENANCE: SkipReason.MAINTENANCE,
    NotRun.OUTSIDE_WINDOW: SkipReason.OUTSIDE_WINDOW,
    NotRun.HOST_OFFLINE: SkipReason.HOST_OFFLINE,
    NotRun.OVERLAP: SkipReason.OVERLAP,
}


@dataclass(frozen=True)
class ScheduleFacts:
    """What else decides. `at_work` jobs of the schedule have started, `waiting` ones have not."""

    at_work: int = 0
    waiting: int = 0
    is_disabled: bool = False
    is_in_maintenance: bool = False
    is_host_offline: bool = False

    @property
    def obstacles(self) -> tuple[NotRun, ...]:
        known = (
            (self.is_disabled, NotRun.DISABLED),
            (self.is_in_maintenance, NotRun.MAINTENANCE),
            (self.is_host_offline, NotRun.HOST_OFFLINE),
        )
        return tuple(reason for holds, reason in known if holds)


@dataclass(frozen=True, kw_only=True)
class DueOrgSchedule:
    """`due` is the due time to decide first: its `effective_for` is not after now."""

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
    """`fires` are in order, at most one is dispatched. `next` None: the schedule is never due
    again. `ends_others`: the unfinished jobs make room for the new one. `is_cut`: more due times
    were missed before the first of the fires."""

    fires: tuple[PlannedFire, ...]
    next: Planned | None
    clears_skip: bool = False
    ends_others: bool = False
    is_cut: bool = False

    @property
    def dispatched(self) -> PlannedFire | None:
        return next((fire for fire in self.fires if fire.skip is None), None)


def decide(schedule: DueOrgSchedule, now: datetime) -> FireDecision:
    """`next` is later than everything that is decided, whatever the decision."""
    timing, due, around = schedule.timing, schedule.due, schedule.around
    found = backlog(timing, due.scheduled_for, now, enough=MOST_CAUGHT_UP, first=due)
    late_before = now - timedelta(seconds=schedule.grace_seconds)
    is_late = due.effective_for < late_before
    facts = DueFacts(
        now=now,
        late_before=late_before,
        all_late=is_late,
        at_work=around.at_work,
        waiting=around.waiting,
        skips_next=schedule.skips_next,
        obstacles=around.obstacles,
    )
    policies = replace(_POLICIES[schedule.misfire_policy], overlap=schedule.overlap_policy)
    made = plan(timing, found.times, policies, facts)
    fires = [_skipped(one, timing, now, is_late=is_late) for one in made.skips]
    for one in made.line[:1]:
        is_caught_up = is_late or now - one.effective_for > IN_TIME
        trigger = FireTrigger.CATCHUP if is_caught_up else FireTrigger.CRON
        fires.append(PlannedFire(one.scheduled_for, one.effective_for, trigger))
    following = made.postponed or next_planned(timing, timing.opens_at(fires[-1].scheduled_for))
    return FireDecision(
        fires=tuple(fires),
        next=following,
        clears_skip=bool(fires) and fires[-1].skip is SkipReason.OPERATOR,
        ends_others=made.start is Start.IN_PLACE,
        is_cut=found.is_cut,
    )


def _skipped(one: DueSkip, timing: Timing, now: datetime, *, is_late: bool) -> PlannedFire:
    reason = _REASONS[one.reason]
    is_caught_up = is_late
    if reason is not SkipReason.MISFIRE:
        missed_its_window = (
            reason is SkipReason.OUTSIDE_WINDOW and timing.window_policy is WindowPolicy.CLAMP
        )
        is_caught_up |= missed_its_window or now - one.due.effective_for > IN_TIME
    trigger = FireTrigger.CATCHUP if is_caught_up else FireTrigger.CRON
    return PlannedFire(one.due.scheduled_for, one.due.effective_for, trigger, reason)
