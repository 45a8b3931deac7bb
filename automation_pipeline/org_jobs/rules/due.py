"""Decisions about due times: which job of a schedule is dispatched or skipped, and which due times
a backfill repeats."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.plan import (
    IN_TIME,
    DueFacts,
    DueSkip,
    NotRun,
    Policies,
    Start,
    backlog,
    plan,
)
from automation_pipeline.core.scheduling.timing import (
    Planned,
    Timing,
    WindowPolicy,
    next_planned,
    planned_after,
)
from automation_pipeline.org_jobs.models.jobs import (
    ACTIVE_RUN_STATES,
    MOST_CAUGHT_UP,
    BatchState,
    FireTrigger,
    MisfirePolicy,
    OrgJobsRunState,
    SkipReason,
)
from automation_pipeline.org_jobs.models.organisations import Flag, Whole, ZonedInstant

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
    """The other facts of a decision. `at_work` jobs of the schedule have started, `waiting` jobs have not."""

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
    misfire_policy: MisfirePolicy
    grace_seconds: int
    overlap_policy: OverlapPolicy
    skips_next: bool
    facts: ScheduleFacts


@dataclass(frozen=True)
class PlannedFire:
    """A due time with its outcome: dispatched unless it has a reason to skip it."""

    scheduled_for: datetime
    effective_for: datetime
    trigger: FireTrigger = FireTrigger.CRON
    skip: SkipReason | None = None


@dataclass(frozen=True, kw_only=True)
class FireDecision:
    """`fires` are in order, at most one is dispatched. `next` None: the schedule is never due
    again. `ends_others`: the unfinished jobs are cancelled for the new one. `is_cut`: more due
    times were missed before the first of the fires."""

    fires: tuple[PlannedFire, ...]
    next: Planned | None
    clears_skip: bool
    ends_others: bool
    is_cut: bool

    @property
    def dispatched(self) -> PlannedFire | None:
        return next((fire for fire in self.fires if fire.skip is None), None)


def decide(schedule: DueOrgSchedule, now: datetime) -> FireDecision:
    """`next` is later than every decided due time."""
    timing, due, known = schedule.timing, schedule.due, schedule.facts
    found = backlog(timing, due.scheduled_for, now, enough=MOST_CAUGHT_UP, first=due)
    late_before = now - timedelta(seconds=schedule.grace_seconds)
    is_late = due.effective_for < late_before
    facts = DueFacts(
        now=now,
        late_before=late_before,
        all_late=is_late,
        at_work=known.at_work,
        waiting=known.waiting,
        skips_next=schedule.skips_next,
        obstacles=known.obstacles,
    )
    policies = replace(_POLICIES[schedule.misfire_policy], overlap=schedule.overlap_policy)
    decided = plan(timing, found.times, policies, facts)
    fires = [_skipped(one, timing, now, is_late=is_late) for one in decided.skips]
    for one in decided.line[:1]:
        is_caught_up = is_late or now - one.effective_for > IN_TIME
        trigger = FireTrigger.CATCHUP if is_caught_up else FireTrigger.CRON
        fires.append(PlannedFire(one.scheduled_for, one.effective_for, trigger))
    following = decided.postponed or next_planned(timing, timing.opens_at(fires[-1].scheduled_for))
    return FireDecision(
        fires=tuple(fires),
        next=following,
        clears_skip=bool(fires) and fires[-1].skip is SkipReason.OPERATOR,
        ends_others=decided.start is Start.IN_PLACE,
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


INVALID_BACKFILL = "Invalid backfill"
BACKFILL = "backfill"
MOST_AT_ONCE = 500
LEAST_URGENT = 9
# A period with more due times is refused.
MOST_LOOKED_AT = 5000

_FIRST_YEAR = 1970


class Behaviour(StrEnum):
    """Which due times are repeated. NONE: only those without a job. FAILED: also those whose job
    failed. COMPLETED: all."""

    NONE = "none"
    FAILED = "failed"
    COMPLETED = "completed"


class OrgJobsLeftOut(StrEnum):
    """Why a backfill omits a due time. DISPATCHED: it has a job that the behaviour does not repeat.
    AT_WORK: its job has not ended. STILL_DUE: its schedule is about to decide it."""

    DISPATCHED = "dispatched"
    AT_WORK = "at_work"
    STILL_DUE = "still_due"


class BackfillInput(JsonModel):
    """A period, which includes both ends."""

    from_at: ZonedInstant = Field(alias="from", examples=["2026-05-01T00:00:00Z"])
    until_at: ZonedInstant = Field(alias="until", examples=["2026-05-03T23:59:59Z"])
    behaviour: Behaviour = Field(
        default=Behaviour.NONE,
        description="The due times that are repeated: those without a job, also those whose job failed, or "
        "also completed ones.",
    )
    dry_run: Flag = Field(
        default=False, description="Only list the due times that would be repeated."
    )
    limit: Annotated[Whole, Field(ge=1, le=MOST_AT_ONCE)] = Field(
        default=MOST_AT_ONCE, description="A backfill with more jobs than this is refused."
    )

    @field_validator("from_at")
    @classmethod
    def _is_after_1970(cls, from_at: datetime) -> datetime:
        if from_at.year < _FIRST_YEAR:
            raise ValueError(f"must not lie before {_FIRST_YEAR}")
        return from_at

    @field_validator("until_at")
    @classmethod
    def _is_not_before_from(cls, until_at: datetime, info: ValidationInfo) -> datetime:
        from_at: datetime | None = info.data.get("from_at")
        if from_at is not None and until_at < from_at:
            raise ValueError("must not be earlier than from")
        return until_at


class BackfillTime(JsonModel):
    """A due time of the period. It gets a job unless `left_out` has a reason."""

    scheduled_for: Instant
    effective_for: Instant
    left_out: OrgJobsLeftOut | None = None


class Backfill(JsonModel):
    """A dry run has no `id` and no `status`, and lists the `times` of its period. `total` counts the
    jobs, `pending` to `cancelled` those in each state."""

    id: Id | None
    org_id: str
    schedule_id: str
    status: BatchState | None
    behaviour: Behaviour
    from_at: Instant = Field(alias="from")
    until_at: Instant = Field(alias="until")
    dry_run: bool = False
    total: int
    pending: int = 0
    running: int = 0
    success: int = 0
    failed: int = 0
    cancelled: int = 0
    created_by: str
    created_at: Instant
    finished_at: Instant | None = None
    times: tuple[BackfillTime, ...] = ()


def due_times(timing: Timing, request: BackfillInput, now: datetime) -> Sequence[Planned]:
    """Return the past due times of the period. Raises InvalidInputError if there are too many."""
    end = min(request.until_at, now)
    coming = planned_after(timing, request.from_at - datetime.resolution)
    period = takewhile(lambda one: one.scheduled_for <= end, coming)
    found = list(islice(period, MOST_LOOKED_AT + 1))
    if len(found) > MOST_LOOKED_AT:
        why = f"the period has more than {MOST_LOOKED_AT} due times: choose a shorter one"
        raise InvalidInputError(INVALID_BACKFILL, (("until", why),))
    return [one for one in found if one.effective_for <= now]


def chosen_times(
    planned: Iterable[Planned],
    done: Mapping[datetime, Sequence[OrgJobsRunState]],
    behaviour: Behaviour,
    due: Planned | None,
) -> tuple[BackfillTime, ...]:
    """`done`: the states of the jobs of a due time, oldest first. `due`: the next due time of an
    active schedule; the dispatcher decides it and later ones."""

    def reason(one: Planned) -> OrgJobsLeftOut | None:
        states = done.get(one.scheduled_for, ())
        if due is not None and one.scheduled_for >= due.scheduled_for:
            return OrgJobsLeftOut.STILL_DUE
        if not states:
            return None
        if not ACTIVE_RUN_STATES.isdisjoint(states):
            return OrgJobsLeftOut.AT_WORK
        repeats = {
            Behaviour.COMPLETED: True,
            Behaviour.FAILED: states[-1] is OrgJobsRunState.FAILED,
        }
        return None if repeats.get(behaviour, False) else OrgJobsLeftOut.DISPATCHED

    return tuple(
        BackfillTime(
            scheduled_for=one.scheduled_for, effective_for=one.effective_for, left_out=reason(one)
        )
        for one in planned
    )


def check_backfill_count(count: int, limit: int) -> None:
    if count > limit:
        why = f"there are {count} due times to repeat: choose a shorter period, or split it"
        raise InvalidInputError(INVALID_BACKFILL, (("limit", why),))


def less_urgent(priority: int) -> int:
    """The priority of a backfill's job, below that of due jobs. 1 is the most urgent."""
    return min(priority + 1, LEAST_URGENT)
