"""Workers that Dagster was asked for: which runs still have one coming, which places are theirs, and which job one of
them is there for."""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Text, and_, cast, exists, func, literal, or_, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.keys import request_key
from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.store.readiness import has_open_place, is_free, is_waiting
from automation_pipeline.org_jobs.tables import JobRow, JobRunRow
from automation_pipeline.storage.run_requests import RunRequestRow

Run = JobRunRow

# A worker that was asked for comes within this time, if Dagster has the room.
STARTS_WITHIN = timedelta(minutes=5)
# One that Dagster knows of may stand in its queue for so long.
STANDS_IN_QUEUE = timedelta(hours=1)


def newest_request() -> ColumnElement[str]:
    """The key of the last worker that was asked for: `keys.request_key`, in SQL."""
    return literal("org-job-") + cast(Run.id, Text) + literal("-") + cast(Run.requests, Text)


def was_asked_for_lately(now: datetime) -> ColumnElement[bool]:
    return _was_asked_for(Run.requested_at > now - STARTS_WITHIN)


def has_worker_coming(now: datetime) -> ColumnElement[bool]:
    """Also later, when Dagster has launched it and it was not refused: it waits there for its turn."""
    is_offered = and_(RunRequestRow.state == "waiting", RunRequestRow.offered_at.is_not(None))
    is_known = or_(RunRequestRow.state == "taken", is_offered)
    in_dagster = exists().where(RunRequestRow.request_key == newest_request(), is_known).correlate(Run)
    stands_there = and_(Run.requested_at > now - STANDS_IN_QUEUE, in_dagster)
    return _was_asked_for(or_(Run.requested_at > now - STARTS_WITHIN, stands_there))


def _was_asked_for(so: ColumnElement[bool]) -> ColumnElement[bool]:
    # Never NULL: it is negated, too.
    return and_(Run.status == RunState.PENDING, Run.requested_at.is_not(None), so)


def reserved_places(session: Session, org_id: str, now: datetime) -> int:
    """Of workers that were asked for a moment ago, and have not begun."""
    its = Run.org_id == org_id, Run.performer == Performer.SERVICE, was_asked_for_lately(now), is_free()
    return session.scalar(select(func.count(Run.id)).where(*its)) or 0


def waits_before(session: Session, org_id: str, run_id: int, now: datetime) -> bool:
    """Whether something that only this system can do is more urgent than this run, and nothing is reserved for it."""
    this = aliased(JobRunRow)
    is_before = or_(Run.priority < this.priority, and_(Run.priority == this.priority, Run.id < this.id))
    query = (
        select(Run.id)
        .join(JobRow, JobRow.id == Run.job_id)
        .join(this, and_(this.id == run_id, this.org_id == Run.org_id))
        .where(Run.org_id == org_id, Run.performer == Performer.SERVICE, is_before)
        .where(is_waiting(now), has_open_place(now), ~was_asked_for_lately(now))
        .limit(1)
    )
    return session.scalar(query) is not None


def job_of_worker(session: Session, run_id: int, request: str | None, dagster_run_ids: Collection[str]) -> int | None:
    """None where there is no such run, another worker is at it, or before one is, another was asked for since. Without
    a request somebody has launched it by hand. `dagster_run_ids`: its own, and that of which it is a retry."""
    query = select(Run.job_id, Run.status, Run.requests, Run.dagster_run_id).where(Run.id == run_id)
    found = session.execute(query).tuples().one_or_none()
    if found is None:
        return None
    job_id, status, requests, at_work = found
    is_there = request in {None, request_key(run_id, requests)}
    if status == RunState.RUNNING:
        is_there = at_work in dagster_run_ids
    return job_id if is_there else None
