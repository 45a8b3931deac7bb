"""Jobs of organisations that are closed: as long as nothing of theirs may begin, their time does not run out."""

from datetime import datetime, timedelta

from sqlalchemy import case, literal, select, update
from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.expiry import expires_at
from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.store.readiness import is_free, is_of_open
from automation_pipeline.org_jobs.tables import JobRow, JobRunRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.types import UtcDateTime

# So often, at most, is a job written to while its organisation is closed.
_EVERY = timedelta(hours=1)


def lengthen_closed(session: Session, now: datetime, limit: int) -> None:
    """Once it opens again, they have nearly all their time."""
    plain, in_window = (expires_at(now, has_window=has_window) for has_window in (False, True))
    until = case(
        (JobRow.start_window.is_(None), literal(plain, UtcDateTime())), else_=literal(in_window, UtcDateTime())
    )
    is_short = case(
        (JobRow.start_window.is_(None), JobRow.expires_at < plain - _EVERY),
        else_=JobRow.expires_at < in_window - _EVERY,
    )
    held = (
        select(JobRunRow.job_id)
        .join(JobRow, JobRow.id == JobRunRow.job_id)
        .where(JobRunRow.status == RunState.PENDING, is_free(), ~is_of_open(now), is_short)
        .order_by(JobRunRow.id)
        .limit(limit)
        .with_for_update(of=JobRunRow, skip_locked=True)
    )
    job_ids = session.scalars(held).all()
    if job_ids:
        session.execute(
            update(JobRow)
            .where(among(session, JobRow.id, job_ids))
            .values(expires_at=until)
            .execution_options(synchronize_session=False)
        )
