"""What hosts and servers are in use for. Whoever asks holds the host or the server."""

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.domain.organisation import complaint
from automation_pipeline.org_jobs.domain.states import ACTIVE_RUN_STATES, RunState
from automation_pipeline.org_jobs.store.readiness import is_free
from automation_pipeline.org_jobs.tables import HostRow, JobRow, JobRunRow, ScheduleRow, ServerRow
from automation_pipeline.storage.bulk import among


def check_host(session: Session, host_id: int | None, org_id: str) -> None:
    """It stays until the transaction ends."""
    if host_id is None:
        return
    query = select(HostRow.id).where(HostRow.id == host_id, HostRow.org_id == org_id)
    if session.scalar(query.with_for_update(read=True, key_share=True)) is None:
        raise InvalidInputError(complaint("server"), (("hostId", f"is not a host of organisation '{org_id}'"),))


def count_servers_of(session: Session, host_id: int) -> int:
    return session.scalar(select(func.count(ServerRow.id)).where(ServerRow.host_id == host_id)) or 0


def active_jobs_of_host(session: Session, host_id: int) -> int:
    its = JobRunRow.host_id == host_id, JobRunRow.status.in_(ACTIVE_RUN_STATES)
    return session.scalar(select(func.count(JobRunRow.id)).where(*its)) or 0


def leave_host(session: Session, host_id: int) -> None:
    """Runs that have ended on it are of no host any more."""
    session.execute(
        update(JobRunRow)
        .where(JobRunRow.host_id == host_id)
        .values(host_id=None)
        .execution_options(synchronize_session=False)
    )


def move_waiting_jobs(session: Session, server_id: int, host_id: int | None) -> None:
    """What nobody has begun or taken. In the order of ids, as everybody locks runs."""
    of_server = select(JobRow.id).where(JobRow.server_instance_id == server_id)
    waiting = (
        select(JobRunRow.id)
        .where(JobRunRow.job_id.in_(of_server), JobRunRow.status == RunState.PENDING, is_free())
        .order_by(JobRunRow.id)
        .with_for_update()
    )
    run_ids = session.scalars(waiting).all()
    session.execute(
        update(JobRunRow)
        .where(among(session, JobRunRow.id, run_ids))
        .values(host_id=host_id)
        .execution_options(synchronize_session=False)
    )


def count_schedules_of(session: Session, server_id: int) -> int:
    """Without deleted ones."""
    its = ScheduleRow.server_instance_id == server_id, ScheduleRow.deleted_at.is_(None)
    return session.scalar(select(func.count(ScheduleRow.id)).where(*its)) or 0


def count_jobs_of(session: Session, server_id: int) -> int:
    return session.scalar(select(func.count(JobRow.id)).where(JobRow.server_instance_id == server_id)) or 0


def leave_server(session: Session, server_id: int) -> None:
    """Deleted schedules are of no server any more."""
    session.execute(
        update(ScheduleRow)
        .where(ScheduleRow.server_instance_id == server_id, ScheduleRow.deleted_at.is_not(None))
        .values(server_instance_id=None)
        .execution_options(synchronize_session=False)
    )
