"""Jobs that are done again, and jobs that somebody asks for: what is looked up and written for them."""

from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.domain.expiry import expires_at
from automation_pipeline.org_jobs.domain.job_wishes import INVALID_JOB
from automation_pipeline.org_jobs.domain.states import BatchState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.endings import lock_schedules_of
from automation_pipeline.org_jobs.store.holds import locked_run
from automation_pipeline.org_jobs.store.job_views import no_such_job
from automation_pipeline.org_jobs.store.new_jobs import run_columns
from automation_pipeline.org_jobs.tables import BatchRow, JobRow, JobRunRow, ServerRow


def newest_run(session: Session, job_id: int, within: Within) -> JobRunRow:
    """Held, with its schedule, so that it may be ended or followed by another. NotFoundError: there is no such job."""
    run_id = _newest_id(session, job_id, within)
    while True:
        lock_schedules_of(session, [run_id])
        run = locked_run(session, run_id, within)
        newest_id = _newest_id(session, job_id, within)
        if newest_id == run_id:
            return run
        run_id = newest_id


def add_run(session: Session, run: JobRunRow, actor: str, now: datetime) -> None:
    """After one that has ended, and is held. The batch of the job is at work again."""
    its = JobRow.id == run.job_id, JobRow.org_id == run.org_id
    job = session.scalars(select(JobRow).where(*its)).one()
    again = JobRunRow(**run_columns(job, actor, now, like=run))
    session.add(again)
    job.status, job.finished_at = again.status, None
    job.expires_at = expires_at(now, has_window=job.start_window is not None)
    session.flush()
    if job.batch_id is not None:
        session.execute(
            update(BatchRow)
            .where(BatchRow.id == job.batch_id, BatchRow.org_id == run.org_id)
            .values(status=BatchState.RUNNING, finished_at=None)
            .execution_options(synchronize_session=False)
        )


def host_of_server(session: Session, server_id: int | None, org_id: str) -> int | None:
    """InvalidInputError: the organisation has no such server. It stays until the transaction ends."""
    if server_id is None:
        return None
    query = select(ServerRow).where(ServerRow.id == server_id, ServerRow.org_id == org_id)
    server = session.scalar(query.with_for_update(read=True, key_share=True))
    if server is None:
        fault = ("serverInstanceId", f"is not a server of organisation '{org_id}'")
        raise InvalidInputError(INVALID_JOB, (fault,))
    return server.host_id


def _newest_id(session: Session, job_id: int, within: Within) -> int:
    query = select(JobRunRow.id).where(JobRunRow.job_id == job_id).order_by(JobRunRow.id.desc()).limit(1)
    if within.org_id is not None:
        query = query.where(JobRunRow.org_id == within.org_id)
    run_id = session.scalar(query)
    if run_id is None:
        raise no_such_job(job_id)
    return run_id
