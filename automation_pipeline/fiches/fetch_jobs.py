"""Fetch jobs: a job fetches the sales lists of a range of days in the background, and calls a webhook."""

import asyncio
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from automation_pipeline.core.access import Reach
from automation_pipeline.core.addresses import check_url
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.events import WorkflowLogEntry
from automation_pipeline.core.retry import Backoff
from automation_pipeline.core.scheduling.zones import wall_time
from automation_pipeline.core.webhooks import DeliveryPolicy, WebhookAnswer, WebhookSender, body_of
from automation_pipeline.fiches.mirror import revalidate_days
from automation_pipeline.fiches.models.days import DayFailed, Days, SalesDay, requested_days
from automation_pipeline.fiches.models.fetch_jobs import (
    CREATED,
    DueWebhook,
    FetchJob,
    JobWebhook,
    count_day,
    event_name,
    fail_job,
    is_webhook_due,
    job_event,
    start_job,
    webhook_body,
    webhook_headers,
)
from automation_pipeline.fiches.models.fiches import FicheSource
from automation_pipeline.fiches.queries.fetch_jobs import (
    add_job,
    add_webhook_delivery,
    claim_due_webhooks,
    find_recent_job,
    get_job,
    is_webhook_delivery_due,
    record_webhook_delivery,
    save_job,
)
from automation_pipeline.fiches.queries.mirror import revalidated_since, volumes_of
from automation_pipeline.fiches.rules import stale_days
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.deliveries import DeliveryQueue, deliver_waiting
from automation_pipeline.storage.history import write_notes
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests
from automation_pipeline.storage.statements import advisory_lock

JOB = "sales_range_fetch"
REUSE_JOB_FOR = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class RangeRequest:
    """A request for the sales lists of a range. With `refresh`, every day is fetched again. The caller of `reach`
    may see the job later."""

    start: date
    end: date
    reach: Reach
    refresh: bool = False
    webhook: JobWebhook | None = None


@dataclass(frozen=True)
class RangeStatus:
    """The requested days up to today. Each is either `known` or `missing`, which means without a list or with an
    outdated one. `job` fetches the missing days, or all days if the request said `refresh`."""

    days: Days
    known: Days
    missing: Days
    job: FetchJob | None


def request_range(
    request: RangeRequest,
    *,
    database: Database,
    clock: Clock,
    zone: ZoneInfo,
    allowed_origins: Collection[str] = (),
) -> RangeStatus:
    """Return the status of the range, and file a job for the missing days.

    A caller who requests the same range again within `REUSE_JOB_FOR` gets the same job, unless the
    request says `refresh`.
    """
    if request.webhook is not None:
        check_url(request.webhook.url, allowed_origins)
    now = clock.now()
    days = requested_days(request.start, request.end, wall_time(now, zone).date())
    revalidated = database.read(revalidated_since, days[0]) if days else {}
    missing = stale_days(days, revalidated, now)
    known = tuple(day for day in days if day not in set(missing))
    to_fetch = days if request.refresh else missing
    if not to_fetch:
        return RangeStatus(days, known, missing, None)
    with database.transaction() as session:
        # Concurrent requests for one range share a job.
        caller = request.reach.caller
        advisory_lock(session, f"progressive-fetch:{caller}:{days[0]}:{days[-1]}")
        since, job = now - REUSE_JOB_FOR, None
        if not request.refresh:
            job = find_recent_job(session, days, caller, since, request.webhook)
        job = job or _file_job(session, request, days, to_fetch, now)
    return RangeStatus(days, known, missing, job)


def _file_job(
    session: Session, request: RangeRequest, days: Days, to_fetch: Days, now: datetime
) -> FetchJob:
    fetched = tuple(day for day in days if day not in set(to_fetch))
    job = FetchJob(
        id=str(uuid.uuid4()),
        start=days[0],
        end=days[-1],
        fetched=fetched,
        remaining=to_fetch,
        total_fiches=sum(volumes_of(session, fetched)) if request.reach.is_whole else None,
        created_by=request.reach.caller,
        webhook=request.webhook,
    )
    add_job(session, job, now)
    enqueue(session, [job_event(job, CREATED, now)])
    tags = {"automation/trace_id": job.id}
    config = {"job_id": job.id, "refresh": request.refresh}
    file_requests(session, [NewRunRequest(job.id, JOB, config, tags)], now)
    return job


def record_job(
    session: Session, job: FetchJob, now: datetime, *, latest: date | None = None, every: int = 1
) -> None:
    """Store the job and publish its state. A delivery to the webhook is added after every `every` days and at
    the end."""
    save_job(session, job, now)
    enqueue(session, [job_event(job, event_name(job), now, latest)])
    if job.webhook is not None and is_webhook_due(job, every):
        add_webhook_delivery(session, job.id, job.webhook.url, webhook_body(job, now, latest), now)


async def fetch_range(  # noqa: PLR0913  the collaborators and options, by name
    job_id: str,
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    semaphore: Semaphore,
    refresh: bool = False,
    webhook_every: int = 5,
) -> FetchJob:
    """Fetch the remaining days of the job, and return the job. Concurrent and repeated calls are safe.

    Raises NotFoundError if the job does not exist.
    """

    def start() -> FetchJob:
        with database.transaction() as session:
            job = get_job(session, job_id, lock=True)
            if not job.is_over:
                job = start_job(job)
                save_job(session, job, clock.now())
        return job

    async def fetch_day(day: date) -> None:
        [outcome] = await revalidate_days(
            [day], database=database, source=source, clock=clock, semaphore=semaphore, force=refresh
        )
        await asyncio.to_thread(_record_day, job_id, outcome, webhook_every, database, clock)

    job = await asyncio.to_thread(start)
    await asyncio.gather(*map(fetch_day, () if job.is_over else job.remaining))
    return database.read(get_job, job_id)


def _record_day(
    job_id: str, outcome: SalesDay | DayFailed, webhook_every: int, database: Database, clock: Clock
) -> None:
    with database.transaction() as session:
        job = get_job(session, job_id, lock=True)
        counted = count_day(job, outcome)
        if counted is job:
            return
        record_job(session, counted, clock.now(), latest=outcome.day, every=webhook_every)
        if isinstance(outcome, DayFailed):
            message = f"The sales list of {outcome.day} could not be fetched: {outcome.error}"
            entry = WorkflowLogEntry("fiche", "fetch_job", job_id, job_id, message, level="warning")
            write_notes(session, entry)


def fail_range(job_id: str, reason: str, *, database: Database, clock: Clock) -> bool:
    """End the job as failed. Return False if it has already ended or does not exist."""
    with database.transaction() as session:
        try:
            job = get_job(session, job_id, lock=True)
        except NotFoundError:
            return False
        if job.is_over:
            return False
        record_job(session, fail_job(job, reason), clock.now())
    return True


DELIVERIES_AT_ONCE = 10
DELIVERY_POLICY = DeliveryPolicy(
    attempts=3, backoff=Backoff(base_seconds=2, cap_seconds=30), retries_refusals=True
)


async def deliver_job_webhooks(
    sender: WebhookSender, *, database: Database, hold_seconds: float
) -> int:
    """Send the oldest due webhooks, and return the number of attempts."""

    async def send(due: DueWebhook, now: datetime) -> WebhookAnswer:
        body = body_of(due.payload)
        return await sender.send(due.url, body, webhook_headers(due, body, now))

    queue = DeliveryQueue(
        is_webhook_delivery_due,
        partial(claim_due_webhooks, limit=DELIVERIES_AT_ONCE, hold_seconds=hold_seconds),
        record_webhook_delivery,
    )
    return await deliver_waiting(queue, send, policy=DELIVERY_POLICY, database=database)
