"""Realtime events and webhooks of fetch jobs. They hold ids and counts, but no personal data."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import Event
from automation_pipeline.core.webhooks import mac_of, mac_of_moment
from automation_pipeline.fiches.models.days import Days, FetchJob, JobStatus

PRODUCER = "fiches"
TENANT = "main"
CREATED, PROGRESS = "created", "progress"
USER_AGENT = "automation-pipeline-webhook/1.0"


@dataclass(frozen=True, kw_only=True)
class DueWebhook:
    """A claimed webhook delivery. `attempt` counts from 1."""

    id: int
    job_id: str
    event: str
    url: str
    payload: Mapping[str, object]
    attempt: int
    secret: str | None


def event_name(job: FetchJob) -> str:
    """The event for the job's current state: progress, complete or failed."""
    return job.status.value if job.is_over else PROGRESS


def job_event(job: FetchJob, name: str, at: datetime, latest: date | None = None) -> Event:
    key = f"progressive-fetch-{job.id}:{name}" + (f":{job.processed}" if name == PROGRESS else "")
    payload: dict[str, object] = {"jobId": job.id, **job_state_document(job)}
    if latest is not None:
        payload["latestDate"] = latest.isoformat()
    return Event(TENANT, key, f"fiches.progressive_fetch.{name}", PRODUCER, job.id, at, payload)


def job_state_document(job: FetchJob) -> dict[str, object]:
    return {
        "status": job.status.value,
        "startDate": job.start.isoformat(),
        "endDate": job.end.isoformat(),
        "progress": job.progress,
        "completedDays": len(job.fetched),
        "totalDays": job.total_days,
        **_total(job, "totalFiches"),
        "datesCompleted": day_texts(job.fetched),
        "datesRemaining": day_texts(job.remaining),
        "datesFailed": day_texts(job.failed),
        "error": job.error,
    }


def job_progress_document(job: FetchJob) -> dict[str, object]:
    """The state without the range: what webhooks and polling clients receive."""
    state = job_state_document(job)
    return {name: state[name] for name in state if name not in {"startDate", "endDate"}}


def _total(job: FetchJob, name: str) -> dict[str, object]:
    """Without the total if the requester may not know it."""
    return {} if job.total_fiches is None else {name: job.total_fiches}


def day_texts(days: Days) -> list[str]:
    return [day.isoformat() for day in days]


def data_url(job: FetchJob) -> str:
    """The path of the range's fiches in the API."""
    return f"/api/fiches/status/by-date-range?startDate={job.start.isoformat()}&endDate={job.end.isoformat()}"


def is_webhook_due(job: FetchJob, every: int) -> bool:
    """A webhook is called after every `every` days, and at the end."""
    return job.is_over or (job.status is JobStatus.PROCESSING and job.processed % every == 0)


def webhook_body(job: FetchJob, at: datetime, latest: date | None = None) -> dict[str, object]:
    data = job_progress_document(job)
    if latest is not None:
        data["latestDate"] = latest.isoformat()
    data |= {**_total(job, "currentFichesCount"), "dataUrl": data_url(job)}
    return {"event": event_name(job), "jobId": job.id, "timestamp": iso(at), "data": data}


def webhook_headers(delivery: DueWebhook, body: bytes, at: datetime) -> Mapping[str, str]:
    """`X-Webhook-Timestamp` is in seconds since 1970. The second signature covers the timestamp, a
    dot, and the body."""
    timestamp = str(int(at.timestamp()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "X-Webhook-Event": delivery.event,
        "X-Webhook-Job-Id": delivery.job_id,
        "X-Webhook-Delivery-Id": str(delivery.id),
        "X-Webhook-Attempt": str(delivery.attempt),
        "X-Webhook-Timestamp": timestamp,
    }
    if delivery.secret:
        headers["X-Webhook-Signature"] = f"sha256={mac_of(delivery.secret, body)}"
        headers["X-Webhook-Signature-V2"] = (
            f"sha256={mac_of_moment(delivery.secret, body, timestamp)}"
        )
    return headers
