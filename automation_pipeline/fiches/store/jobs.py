"""Jobs over days as rows: filed once, moved under a lock, ended once. Their webhooks are in `job_deliveries`."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import ColumnElement, func, select, true, update
from sqlalchemy.orm import Session

from automation_pipeline.core.access import Reach
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.domain.day_range import Days
from automation_pipeline.fiches.domain.fetch_job import FETCH_JOB, FetchJob, JobStatus, Webhook
from automation_pipeline.fiches.tables import FetchJobRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.turns import take_turn


@dataclass(frozen=True)
class Lately:
    """Which job would do as well: of this range and caller, no older than `since`."""

    start: date
    end: date
    caller: str
    since: datetime


def within_jobs(reach: Reach) -> ColumnElement[bool]:
    """A condition on rows of `FetchJobRow`: a job is seen by whoever asked for it, or may see everything."""
    return true() if reach.is_whole else FetchJobRow.created_by == reach.caller


def is_job_visible(session: Session, reach: Reach, job_id: str) -> bool:
    """False for one that is missing too."""
    return session.scalar(select(FetchJobRow.id).where(FetchJobRow.id == job_id, within_jobs(reach))) is not None


def one_asker_at_a_time(session: Session, lately: Lately) -> None:
    """To the end of the transaction: two who ask for the same range at once find each other's job."""
    take_turn(session, f"progressive-fetch:{lately.caller}:{lately.start}:{lately.end}")


def find_lately(session: Session, lately: Lately, webhook: Webhook | None) -> FetchJob | None:
    """One that tells somebody else would leave this webhook without its news."""
    newest = (
        select(FetchJobRow)
        .where(
            FetchJobRow.start_date == lately.start,
            FetchJobRow.end_date == lately.end,
            FetchJobRow.created_by == lately.caller,
            FetchJobRow.created_at > lately.since,
        )
        .order_by(FetchJobRow.created_at.desc(), FetchJobRow.id)
    )
    jobs = map(job_of_row, session.scalars(newest))
    return next((job for job in jobs if webhook in {None, job.webhook}), None)


def add_job(session: Session, job: FetchJob, now: datetime) -> None:
    told = job.webhook
    session.add(
        FetchJobRow(
            id=job.id,
            start_date=job.start,
            end_date=job.end,
            total_days=job.total_days,
            webhook_url=told and told.url,
            webhook_secret=told and told.secret,
            created_by=job.created_by,
            created_at=now,
            updated_at=now,
            **_standing(job),
        )
    )
    session.flush()


def get_job(session: Session, job_id: str, *, lock: bool = False) -> FetchJob:
    """Locked, it stays as it is to the end of the transaction."""
    query = select(FetchJobRow).where(FetchJobRow.id == job_id).execution_options(populate_existing=True)
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotFoundError(f"Job {job_id} not found")
    return job_of_row(row)


def save_job(session: Session, job: FetchJob, now: datetime) -> None:
    session.execute(
        update(FetchJobRow)
        .where(FetchJobRow.id == job.id)
        .values(**_standing(job), updated_at=now, completed_at=now if job.is_over else None)
        .execution_options(synchronize_session=False)
    )


def silent_jobs(session: Session, before: datetime, *, limit: int) -> list[str]:
    """Jobs that are not over, of which nothing was heard since then, and that do not wait for Dagster either."""
    working = [status.value for status in JobStatus if status not in FETCH_JOB.terminal]
    query = (
        select(FetchJobRow.id)
        .outerjoin(RunRequestRow, RunRequestRow.request_key == FetchJobRow.id)
        .where(
            FetchJobRow.status.in_(working),
            FetchJobRow.updated_at < before,
            func.coalesce(RunRequestRow.state, "refused") != "waiting",
        )
    )
    return list(session.scalars(query.order_by(FetchJobRow.updated_at, FetchJobRow.id).limit(limit)))


def _standing(job: FetchJob) -> dict[str, object]:
    return {
        "status": job.status.value,
        "dates_already_fetched": _texts(job.fetched),
        "dates_remaining": _texts(job.remaining),
        "dates_failed": _texts(job.failed),
        "total_fiches": job.total_fiches,
        "error": job.error,
    }


def job_of_row(row: FetchJobRow) -> FetchJob:
    return FetchJob(
        id=row.id,
        start=row.start_date,
        end=row.end_date,
        status=JobStatus(row.status),
        fetched=_days(row.dates_already_fetched),
        remaining=_days(row.dates_remaining),
        failed=_days(row.dates_failed),
        total_fiches=row.total_fiches,
        error=row.error,
        created_by=row.created_by,
        webhook=Webhook(row.webhook_url, row.webhook_secret) if row.webhook_url else None,
    )


def _texts(days: Days) -> list[str]:
    return [day.isoformat() for day in days]


def _days(texts: Iterable[str]) -> Days:
    return tuple(map(date.fromisoformat, texts))
