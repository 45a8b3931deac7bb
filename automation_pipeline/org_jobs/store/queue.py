"""Runs that want a worker of this system: whose turn it is, and that Dagster is asked for one."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.keys import JOB, request_key
from automation_pipeline.org_jobs.domain.states import ACTIVE_RUN_STATES, RunState
from automation_pipeline.org_jobs.store.readiness import has_open_place, is_at_work, is_free, is_open, is_waiting
from automation_pipeline.org_jobs.store.workers import has_worker_coming, newest_request
from automation_pipeline.org_jobs.tables import FireRow, JobRow, JobRunRow, OrganisationRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.run_requests import RunRequestRow, RunWish, file_requests

Run = JobRunRow

_TOO_LATE = "It did not begin in time: another worker was asked for."


def whose_turn(session: Session, limit: int, now: datetime) -> Sequence[int]:
    """So many that `limit` runs of this system are at work or asked for, at most, and of each organisation no more than
    it may have. What is followed has no worker: it takes a place of its organisation, and none of `limit`. Who has
    least at work comes first; within an organisation, what is most urgent. One statement: what another copy of this
    asks for meanwhile is either counted, or chosen here too and found out when it is locked."""
    has_worker = and_(Run.performer == Performer.SERVICE, Run.following.is_(None))
    busy = (
        select(
            Run.org_id,
            func.count(Run.id).label("count"),
            func.count(Run.id).filter(has_worker).label("of_ours"),
        )
        .where(Run.status.in_(ACTIVE_RUN_STATES), or_(is_at_work(), has_worker_coming(now)))
        .group_by(Run.org_id)
        .subquery()
    )
    mine = func.coalesce(busy.c.count, 0)
    rank = mine + func.row_number().over(partition_by=Run.org_id, order_by=(Run.priority, Run.id))
    ranked = (
        select(Run.id, OrganisationRow.max_running, rank.label("rank"))
        .join(JobRow, JobRow.id == Run.job_id)
        .join(OrganisationRow, OrganisationRow.id == Run.org_id)
        .outerjoin(busy, busy.c.org_id == Run.org_id)
        .where(*_wants_worker(now), is_waiting(now), is_open(now), has_open_place(now))
        .subquery()
    )
    place = func.row_number().over(order_by=(ranked.c.rank, ranked.c.id)).label("place")
    placed = select(ranked.c.id, place).where(ranked.c.rank <= ranked.c.max_running).subquery()
    at_work = select(func.coalesce(func.sum(busy.c.of_ours), 0)).scalar_subquery()
    chosen = select(placed.c.id).where(placed.c.place <= limit - at_work).order_by(placed.c.place)
    return session.scalars(chosen).all()


def ask_for_workers(session: Session, run_ids: Collection[int], now: datetime) -> list[int]:
    """Those of them for which nobody else has asked meanwhile. The worker that each was to have before, and that has
    not come, is not launched any more."""
    query = (
        select(Run, JobRow.server_instance_id, FireRow.trigger)
        .join(JobRow, JobRow.id == Run.job_id)
        .outerjoin(FireRow, FireRow.id == JobRow.schedule_fire_id)
        .where(among(session, Run.id, run_ids), *_wants_worker(now))
        .order_by(Run.id)
        .with_for_update(of=Run, skip_locked=True)
        .execution_options(populate_existing=True)
    )
    rows = session.execute(query).tuples().all()
    _refuse_waiting(session, [request_key(run.id, run.requests) for run, _, _ in rows])
    session.execute(
        update(Run)
        .where(among(session, Run.id, [run.id for run, _, _ in rows]))
        .values(requests=Run.requests + 1, requested_at=now)
        .execution_options(synchronize_session=False)
    )
    file_requests(session, [_wish(run, server_id, trigger) for run, server_id, trigger in rows], now)
    return [run.id for run, _, _ in rows]


def forget_request(session: Session, run_id: int) -> None:
    """Its worker came, and could not begin: when it may, another one is asked for."""
    session.execute(
        update(Run)
        .where(Run.id == run_id, Run.status == RunState.PENDING, is_free())
        .values(requested_at=None)
        .execution_options(synchronize_session=False)
    )


def put_off(session: Session, run_id: int, request: str, until: datetime, reason: str) -> bool:
    """False where this worker is not the one that was asked for to begin it, or it waits for longer already."""
    waits_less = or_(Run.next_attempt_at.is_(None), Run.next_attempt_at < until)
    found = session.scalar(
        update(Run)
        .where(Run.id == run_id, Run.status == RunState.PENDING, Run.performer == Performer.SERVICE)
        .where(is_free(), waits_less, Run.requested_at.is_not(None), newest_request() == request)
        .values(next_attempt_at=until, requested_at=None, error=reason)
        .returning(Run.id)
        .execution_options(synchronize_session=False)
    )
    return found is not None


def _wants_worker(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return Run.performer == Performer.SERVICE, Run.status == RunState.PENDING, is_free(), ~has_worker_coming(now)


def _refuse_waiting(session: Session, keys: Collection[str]) -> None:
    session.execute(
        update(RunRequestRow)
        .where(among(session, RunRequestRow.request_key, keys), RunRequestRow.state == "waiting")
        .values(state="refused", reason=_TOO_LATE)
        .execution_options(synchronize_session=False)
    )


def _wish(run: JobRunRow, server_id: int | None, trigger: str | None) -> RunWish:
    said = {
        "org_id": run.org_id,
        "job_id": run.job_id,
        "job_run_id": run.id,
        "schedule_id": run.schedule_id,
        "server_instance_id": server_id,
        "trigger": trigger,
    }
    return RunWish(
        key=request_key(run.id, run.requests + 1),
        job=JOB,
        config={"job_run_id": run.id},
        tags={f"org_jobs/{name}": str(value) for name, value in said.items() if value is not None},
    )
