"""Jobs over days as people read them: one with its last webhooks, a list, and what whoever polls is told. Fiches are
counted as far as they are in reach."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.access import Reach
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.instants import iso
from automation_pipeline.fiches.domain.fetch_events import data_url, standing_of, word_of
from automation_pipeline.fiches.domain.fetch_job import FetchJob, JobStatus
from automation_pipeline.fiches.domain.fiche_status import Document
from automation_pipeline.fiches.store.jobs import job_of_row, within_jobs
from automation_pipeline.fiches.store.status import Page, fiches_by_day, fiches_in_short
from automation_pipeline.fiches.tables import FetchDeliveryRow, FetchJobRow

LAST_DELIVERIES = 10
MOST_FICHES = 1000


def job_document(session: Session, job_id: str, reach: Reach) -> Document:
    """With the last deliveries of its webhook, the newest first. The secret is never shown."""
    row = _row(session, job_id, reach)
    newest = select(FetchDeliveryRow).where(FetchDeliveryRow.job_id == job_id).order_by(FetchDeliveryRow.id.desc())
    deliveries = session.scalars(newest.limit(LAST_DELIVERIES))
    [document] = _documents(session, [row], reach)
    return {**document, "webhookDeliveries": [_delivery(each) for each in deliveries]}


def list_jobs(session: Session, reach: Reach, page: Page, status: JobStatus | None = None) -> list[Document]:
    """Newest first."""
    query = select(FetchJobRow).where(within_jobs(reach))
    if status is not None:
        query = query.where(FetchJobRow.status == status.value)
    newest = query.order_by(FetchJobRow.created_at.desc(), FetchJobRow.id)
    rows = session.scalars(newest.limit(page.limit).offset(page.offset)).all()
    return _documents(session, rows, reach)


def poll_document(session: Session, job_id: str, reach: Reach) -> Document:
    """What the webhook is told, and the first of the fiches that are there by now, as far as they are in reach."""
    row = _row(session, job_id, reach)
    [job] = _seen(session, [row], reach)
    fiches, count = fiches_in_short(session, job.fetched, reach, Page(MOST_FICHES))
    standing = {name: told for name, told in standing_of(job).items() if name not in {"startDate", "endDate"}}
    return {
        "jobId": job.id,
        "event": word_of(job),
        "timestamp": iso(row.updated_at),
        "data": {**standing, "currentFichesCount": count, "partialData": fiches, "dataUrl": data_url(job)},
    }


def _row(session: Session, job_id: str, reach: Reach) -> FetchJobRow:
    row = session.scalars(select(FetchJobRow).where(FetchJobRow.id == job_id, within_jobs(reach))).one_or_none()
    if row is None:
        raise NotFoundError(f"Job {job_id} not found")
    return row


def _seen(session: Session, rows: Sequence[FetchJobRow], reach: Reach) -> list[FetchJob]:
    """Who may see everything is told what was counted on the way, if it was."""
    jobs = [job_of_row(row) for row in rows]
    uncounted = [job for job in jobs if job.total_fiches is None or not reach.is_whole]
    counts = fiches_by_day(session, {day for job in uncounted for day in job.fetched}, reach)
    totals = {job.id: sum(counts.get(day, 0) for day in job.fetched) for job in uncounted}
    return [replace(job, total_fiches=totals.get(job.id, job.total_fiches)) for job in jobs]


def _documents(session: Session, rows: Sequence[FetchJobRow], reach: Reach) -> list[Document]:
    return [_document(row, job) for row, job in zip(rows, _seen(session, rows, reach), strict=True)]


def _document(row: FetchJobRow, job: FetchJob) -> Document:
    return {
        "jobId": row.id,
        **standing_of(job),
        "webhookUrl": row.webhook_url,
        "createdBy": row.created_by,
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at),
        "completedAt": _iso(row.completed_at),
    }


def _delivery(row: FetchDeliveryRow) -> Document:
    return {
        "id": str(row.id),
        "event": row.event,
        "status": row.status,
        "statusCode": row.status_code,
        "responseBody": row.response_body,
        "lastError": row.last_error,
        "attempt": row.attempt,
        "nextRetryAt": iso(row.next_retry_at) if row.status == "pending" else None,
        "createdAt": iso(row.created_at),
        "sentAt": _iso(row.sent_at),
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else iso(at)
