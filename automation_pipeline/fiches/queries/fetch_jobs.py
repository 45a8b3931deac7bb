"""Queries about fetch jobs, their documents, and the deliveries to their webhooks."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime

from sqlalchemy import ColumnElement, exists, func, select, true, update
from sqlalchemy.orm import Session, aliased

from automation_pipeline.core.access import Reach
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.webhooks import Delivery, DeliveryStatus
from automation_pipeline.fiches.models.days import Days
from automation_pipeline.fiches.models.fetch_jobs import (
    FETCH_JOB,
    DueWebhook,
    FetchJob,
    JobStatus,
    JobWebhook,
    data_url,
    day_texts,
    event_name,
    job_progress_document,
    job_state_document,
)
from automation_pipeline.fiches.queries.fiches import (
    Document,
    FichePage,
    fiches_by_day,
    fiches_in_short,
)
from automation_pipeline.fiches.tables import FetchDeliveryRow, FetchJobRow
from automation_pipeline.storage.deliveries import claim_oldest, is_any_due, record_attempt
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import among, database_now
from automation_pipeline.storage.types import JsonObject


def _within(reach: Reach) -> ColumnElement[bool]:
    """A condition on `FetchJobRow`: callers see their own jobs, and callers with full reach see all jobs."""
    return true() if reach.is_whole else FetchJobRow.created_by == reach.caller


def is_job_visible(session: Session, reach: Reach, job_id: str) -> bool:
    """Whether the caller may see the job. False if it does not exist."""
    return (
        session.scalar(select(FetchJobRow.id).where(FetchJobRow.id == job_id, _within(reach)))
        is not None
    )


def find_recent_job(
    session: Session, days: Days, caller: str, since: datetime, webhook: JobWebhook | None
) -> FetchJob | None:
    """Return the caller's newest job of this range since then. A job with another webhook does not count, because it
    would not call this one."""
    newest = (
        select(FetchJobRow)
        .where(
            FetchJobRow.start_date == days[0],
            FetchJobRow.end_date == days[-1],
            FetchJobRow.created_by == caller,
            FetchJobRow.created_at > since,
        )
        .order_by(FetchJobRow.created_at.desc(), FetchJobRow.id)
    )
    jobs = map(_job_of, session.scalars(newest))
    return next((job for job in jobs if webhook in {None, job.webhook}), None)


def add_job(session: Session, job: FetchJob, now: datetime) -> None:
    webhook = job.webhook
    session.add(
        FetchJobRow(
            id=job.id,
            start_date=job.start,
            end_date=job.end,
            total_days=job.total_days,
            webhook_url=webhook and webhook.url,
            webhook_secret=webhook and webhook.secret,
            created_by=job.created_by,
            created_at=now,
            updated_at=now,
            **_state_columns(job),
        )
    )
    session.flush()


def get_job(session: Session, job_id: str, *, lock: bool = False) -> FetchJob:
    """Return the job. With `lock`, its row is locked until the transaction ends. Raises NotFoundError."""
    query = (
        select(FetchJobRow)
        .where(FetchJobRow.id == job_id)
        .execution_options(populate_existing=True)
    )
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotFoundError(f"Job {job_id} not found")
    return _job_of(row)


def save_job(session: Session, job: FetchJob, now: datetime) -> None:
    session.execute(
        update(FetchJobRow)
        .where(FetchJobRow.id == job.id)
        .values(**_state_columns(job), updated_at=now, completed_at=now if job.is_over else None)
        .execution_options(synchronize_session=False)
    )


def silent_jobs(session: Session, before: datetime, *, limit: int) -> list[str]:
    """Return the unfinished jobs that were not updated since `before` and do not wait for Dagster."""
    unfinished = [status.value for status in JobStatus if status not in FETCH_JOB.terminal]
    query = (
        select(FetchJobRow.id)
        .outerjoin(RunRequestRow, RunRequestRow.request_key == FetchJobRow.id)
        .where(
            FetchJobRow.status.in_(unfinished),
            FetchJobRow.updated_at < before,
            func.coalesce(RunRequestRow.state, "refused") != "waiting",
        )
    )
    return list(
        session.scalars(query.order_by(FetchJobRow.updated_at, FetchJobRow.id).limit(limit))
    )


def _state_columns(job: FetchJob) -> dict[str, object]:
    return {
        "status": job.status.value,
        "dates_already_fetched": day_texts(job.fetched),
        "dates_remaining": day_texts(job.remaining),
        "dates_failed": day_texts(job.failed),
        "total_fiches": job.total_fiches,
        "error": job.error,
    }


def _job_of(row: FetchJobRow) -> FetchJob:
    return FetchJob(
        id=row.id,
        start=row.start_date,
        end=row.end_date,
        status=JobStatus(row.status),
        fetched=tuple(map(date.fromisoformat, row.dates_already_fetched)),
        remaining=tuple(map(date.fromisoformat, row.dates_remaining)),
        failed=tuple(map(date.fromisoformat, row.dates_failed)),
        total_fiches=row.total_fiches,
        error=row.error,
        created_by=row.created_by,
        webhook=JobWebhook(row.webhook_url, row.webhook_secret) if row.webhook_url else None,
    )


MAX_DELIVERIES = 10
MAX_FICHES = 1000


def job_document(session: Session, job_id: str, reach: Reach) -> Document:
    """Return a job with the last deliveries to its webhook, newest first. The secret is never shown."""
    row = _row(session, job_id, reach)
    newest = (
        select(FetchDeliveryRow)
        .where(FetchDeliveryRow.job_id == job_id)
        .order_by(FetchDeliveryRow.id.desc())
    )
    deliveries = session.scalars(newest.limit(MAX_DELIVERIES))
    [document] = _documents(session, [row], reach)
    return {
        **document,
        "webhookDeliveries": [_delivery_document(delivery) for delivery in deliveries],
    }


def list_jobs(
    session: Session, reach: Reach, page: FichePage, status: JobStatus | None = None
) -> list[Document]:
    """Return a page of the visible jobs, newest first."""
    query = select(FetchJobRow).where(_within(reach))
    if status is not None:
        query = query.where(FetchJobRow.status == status.value)
    rows = session.scalars(
        query.order_by(FetchJobRow.created_at.desc(), FetchJobRow.id)
        .limit(page.limit)
        .offset(page.offset)
    ).all()
    return _documents(session, rows, reach)


def poll_document(session: Session, job_id: str, reach: Reach) -> Document:
    """Return the payload of the job's webhook, with the first fetched fiches in reach."""
    row = _row(session, job_id, reach)
    [job] = _with_visible_totals(session, [row], reach)
    fiches, count = fiches_in_short(session, job.fetched, reach, FichePage(MAX_FICHES))
    return {
        "jobId": job.id,
        "event": event_name(job),
        "timestamp": iso(row.updated_at),
        "data": {
            **job_progress_document(job),
            "currentFichesCount": count,
            "partialData": fiches,
            "dataUrl": data_url(job),
        },
    }


def _row(session: Session, job_id: str, reach: Reach) -> FetchJobRow:
    row = session.scalars(
        select(FetchJobRow).where(FetchJobRow.id == job_id, _within(reach))
    ).one_or_none()
    if row is None:
        raise NotFoundError(f"Job {job_id} not found")
    return row


def _with_visible_totals(
    session: Session, rows: Sequence[FetchJobRow], reach: Reach
) -> list[FetchJob]:
    """The jobs with the number of fiches in reach. For full reach, a stored total is not counted again."""
    jobs = [_job_of(row) for row in rows]
    uncounted = [job for job in jobs if job.total_fiches is None or not reach.is_whole]
    counts = fiches_by_day(session, {day for job in uncounted for day in job.fetched}, reach)
    totals = {job.id: sum(counts.get(day, 0) for day in job.fetched) for job in uncounted}
    return [replace(job, total_fiches=totals.get(job.id, job.total_fiches)) for job in jobs]


def _documents(session: Session, rows: Sequence[FetchJobRow], reach: Reach) -> list[Document]:
    return [
        {
            "jobId": row.id,
            **job_state_document(job),
            "webhookUrl": row.webhook_url,
            "createdBy": row.created_by,
            "createdAt": iso(row.created_at),
            "updatedAt": iso(row.updated_at),
            "completedAt": row.completed_at and iso(row.completed_at),
        }
        for row, job in zip(rows, _with_visible_totals(session, rows, reach), strict=True)
    ]


def _delivery_document(row: FetchDeliveryRow) -> Document:
    return {
        "id": str(row.id),
        "event": row.event,
        "status": row.status,
        "statusCode": row.status_code,
        "responseBody": row.response_body,
        "lastError": row.last_error,
        "attempt": row.attempts,
        "nextRetryAt": iso(row.next_retry_at) if row.status == "pending" else None,
        "createdAt": iso(row.created_at),
        "sentAt": row.sent_at and iso(row.sent_at),
    }


def add_webhook_delivery(
    session: Session, job_id: str, url: str, body: JsonObject, now: datetime
) -> None:
    session.add(
        FetchDeliveryRow(
            job_id=job_id,
            event=str(body["event"]),
            url=url,
            payload=body,
            status=DeliveryStatus.PENDING.value,
            attempts=0,
            next_retry_at=database_now(),
            created_at=now,
        )
    )
    session.flush()


def is_webhook_delivery_due(session: Session) -> bool:
    return is_any_due(session, FetchDeliveryRow, _is_first_of_job())


def claim_due_webhooks(session: Session, *, limit: int, hold_seconds: float) -> list[DueWebhook]:
    claimed = claim_oldest(
        session, FetchDeliveryRow, _is_first_of_job(), limit=limit, hold_seconds=hold_seconds
    )
    query = select(FetchJobRow.id, FetchJobRow.webhook_secret).where(
        among(session, FetchJobRow.id, {row.job_id for row in claimed})
    )
    secrets = dict(session.execute(query).tuples().all())
    return [
        DueWebhook(
            id=row.id,
            job_id=row.job_id,
            event=row.event,
            url=row.url,
            payload=row.payload,
            attempt=row.attempts,
            secret=secrets.get(row.job_id),
        )
        for row in claimed
    ]


def record_webhook_delivery(session: Session, due: DueWebhook, delivery: Delivery) -> None:
    record_attempt(
        session,
        FetchDeliveryRow,
        due.id,
        due.attempt,
        delivery,
        response_body=delivery.response_body,
    )


def _is_first_of_job() -> ColumnElement[bool]:
    """A condition on `FetchDeliveryRow`: no older delivery of the same job is pending."""
    older = aliased(FetchDeliveryRow)
    return ~exists(
        select(older.id).where(
            older.job_id == FetchDeliveryRow.job_id,
            older.id < FetchDeliveryRow.id,
            older.status == DeliveryStatus.PENDING,
        )
    )
