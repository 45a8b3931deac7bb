"""The due times and the jobs of a span of time, counted in the database: as many queries whatever there is."""

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.day import Day, DayFires, DayJobs
from automation_pipeline.org_jobs.domain.states import FireOutcome, FireTrigger, RunState, ScheduleState
from automation_pipeline.org_jobs.store.gauges import due_schedules
from automation_pipeline.org_jobs.tables import FireRow, JobRow, ScheduleRow
from automation_pipeline.storage.instants import epoch


def day_of_jobs(session: Session, since: datetime, until: datetime, now: datetime) -> Day:
    """Fires by when they were decided upon, jobs by when they ended. `until` is not part of the span."""
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
    key = JobRow.org_id, JobRow.status, JobRow.type
    ended = JobRow.finished_at >= since, JobRow.finished_at < until
    query = select(*key, func.count()).where(*ended).group_by(*key).order_by(*key)
    return [
        DayJobs(org_id=org, status=RunState(status), type=type_, count=count)
        for org, status, type_, count in session.execute(query).tuples()
    ]


def _unreadable(session: Session) -> list[str]:
    is_unreadable = ScheduleRow.state == ScheduleState.INVALID_CRON, ScheduleRow.deleted_at.is_(None)
    return list(session.scalars(select(ScheduleRow.id).where(*is_unreadable).order_by(ScheduleRow.id)))
