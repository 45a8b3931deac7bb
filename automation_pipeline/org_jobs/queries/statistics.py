"""Counts of schedules, fires and runs, for metrics and for the daily asset."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.models.states import (
    ACTIVE_RUN_STATES,
    FireOutcome,
    FireTrigger,
    OrgJobsRunState,
    ScheduleState,
)
from automation_pipeline.org_jobs.queries.alerts import is_active
from automation_pipeline.org_jobs.rules.days import Day, DayFires, DayJobs
from automation_pipeline.org_jobs.tables import FireRow, JobRunRow, OrgJobRow, OrgScheduleRow
from automation_pipeline.storage.clock import epoch


@dataclass(frozen=True)
class DueScheduleCounts:
    """`age_seconds` is how long the oldest has been due, 0 when none is."""

    count: int
    age_seconds: float


@dataclass(frozen=True)
class ActiveRuns:
    """Of one organisation and performer."""

    org_id: str
    performer: str
    waiting: int
    running: int


def due_schedules(session: Session, now: datetime) -> DueScheduleCounts:
    query = select(func.count(), func.min(OrgScheduleRow.next_run_at)).where(
        *is_active(), OrgScheduleRow.next_run_at <= now
    )
    count, oldest = session.execute(query).tuples().one()
    return DueScheduleCounts(
        count, 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds())
    )


def schedules_by_state(session: Session) -> Mapping[ScheduleState, int]:
    query = (
        select(OrgScheduleRow.state, func.count())
        .where(OrgScheduleRow.deleted_at.is_(None))
        .group_by(OrgScheduleRow.state)
    )
    return {ScheduleState(state): count for state, count in session.execute(query).tuples()}


def active_runs(session: Session) -> list[ActiveRuns]:
    """Those that have any."""
    status, key = JobRunRow.status, (JobRunRow.org_id, JobRunRow.performer)
    query = (
        select(
            *key,
            func.count().filter(status == OrgJobsRunState.PENDING),
            func.count().filter(status == OrgJobsRunState.RUNNING),
        )
        .where(status.in_(ACTIVE_RUN_STATES))
        .group_by(*key)
        .order_by(*key)
    )
    return [ActiveRuns(*row) for row in session.execute(query).tuples()]


def day_of_jobs(session: Session, since: datetime, until: datetime, now: datetime) -> Day:
    """Fires by when they were decided upon, jobs by when they ended. `until` is not part of the
    span."""
    return Day(
        fires=_fires(session, since, until),
        jobs=_jobs(session, since, until),
        oldest_due_seconds=due_schedules(session, now).age_seconds,
        unreadable=_unreadable(session),
    )


def _fires(session: Session, since: datetime, until: datetime) -> list[DayFires]:
    is_timed = (FireRow.trigger == FireTrigger.CRON) & (FireRow.outcome == FireOutcome.DISPATCHED)
    latency = func.avg(epoch(FireRow.fired_at) - epoch(FireRow.effective_for)).filter(is_timed)
    key = FireRow.org_id, FireRow.outcome, FireRow.skip_reason
    query = (
        select(*key, func.count(), func.count().filter(is_timed), latency)
        .where(FireRow.fired_at >= since, FireRow.fired_at < until)
        .group_by(*key)
        .order_by(*key)
    )
    return [
        DayFires(
            org_id=org,
            outcome=FireOutcome(outcome),
            skip_reason=reason,
            count=count,
            timed=timed,
            latency_seconds=float(seconds or 0.0),
        )
        for org, outcome, reason, count, timed, seconds in session.execute(query).tuples()
    ]


def _jobs(session: Session, since: datetime, until: datetime) -> list[DayJobs]:
    key = OrgJobRow.org_id, OrgJobRow.status, OrgJobRow.type
    ended = OrgJobRow.finished_at >= since, OrgJobRow.finished_at < until
    query = select(*key, func.count()).where(*ended).group_by(*key).order_by(*key)
    return [
        DayJobs(org_id=org, status=OrgJobsRunState(status), type=type_, count=count)
        for org, status, type_, count in session.execute(query).tuples()
    ]


def _unreadable(session: Session) -> list[str]:
    is_unreadable = (
        OrgScheduleRow.state == ScheduleState.INVALID_CRON,
        OrgScheduleRow.deleted_at.is_(None),
    )
    return list(
        session.scalars(select(OrgScheduleRow.id).where(*is_unreadable).order_by(OrgScheduleRow.id))
    )
