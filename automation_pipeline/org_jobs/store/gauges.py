"""How schedules and jobs of all organisations stand: numbers for graphs, each by one query."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.states import ACTIVE_RUN_STATES, RunState, ScheduleState
from automation_pipeline.org_jobs.store.watched import is_active
from automation_pipeline.org_jobs.tables import JobRunRow, ScheduleRow


@dataclass(frozen=True)
class DueStanding:
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


def due_schedules(session: Session, now: datetime) -> DueStanding:
    query = select(func.count(), func.min(ScheduleRow.next_run_at)).where(*is_active(), ScheduleRow.next_run_at <= now)
    count, oldest = session.execute(query).tuples().one()
    return DueStanding(count, 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds()))


def schedules_by_state(session: Session) -> Mapping[ScheduleState, int]:
    query = select(ScheduleRow.state, func.count()).where(ScheduleRow.deleted_at.is_(None)).group_by(ScheduleRow.state)
    return {ScheduleState(state): count for state, count in session.execute(query).tuples()}


def active_runs(session: Session) -> list[ActiveRuns]:
    """Those that have any."""
    status, key = JobRunRow.status, (JobRunRow.org_id, JobRunRow.performer)
    query = (
        select(*key, func.count().filter(status == RunState.PENDING), func.count().filter(status == RunState.RUNNING))
        .where(status.in_(ACTIVE_RUN_STATES))
        .group_by(*key)
        .order_by(*key)
    )
    return [ActiveRuns(*row) for row in session.execute(query).tuples()]
