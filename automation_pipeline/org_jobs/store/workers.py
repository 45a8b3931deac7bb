"""Which job a worker that Dagster was asked for is there for."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.keys import request_key
from automation_pipeline.org_jobs.tables import JobRunRow


def job_of_worker(session: Session, run_id: int, request: str | None) -> int | None:
    """None where there is no such run, or another worker was asked for since. Without a request somebody has launched
    it by hand."""
    query = select(JobRunRow.job_id, JobRunRow.requests).where(JobRunRow.id == run_id)
    found = session.execute(query).tuples().one_or_none()
    if found is None:
        return None
    job_id, requests = found
    return job_id if request in {None, request_key(run_id, requests)} else None
