"""Values of fetch jobs, which fetch the sales lists of a range of days: their states, events and webhooks. Events
and webhooks contain ids and counts, but no personal data."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum

from automation_pipeline.core.clock import iso
from automation_pipeline.core.events import Event
from automation_pipeline.core.state_machine import StateMachine
from automation_pipeline.core.webhooks import mac_of, mac_with_time
from automation_pipeline.fiches.models.days import DayFailed, Days, SalesDay


class JobStatus(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETE = "complete"
    FAILED = "failed"


FETCH_JOB = StateMachine(
    "fetch job",
    {
        JobStatus.PENDING: frozenset({JobStatus.PROCESSING, JobStatus.FAILED}),
        JobStatus.PROCESSING: frozenset({JobStatus.COMPLETE, JobStatus.FAILED}),
        JobStatus.COMPLETE: frozenset(),
        JobStatus.FAILED: frozenset(),
    },
)


@dataclass(frozen=True)
class JobWebhook:
    """The webhook that a job calls. With a secret, its requests are signed."""

    url: str
    secret: str | None = None


@dataclass(frozen=True, kw_only=True)
class FetchJob:
    """Each day is fetched, remaining or failed. `fetched` includes the days whose list was stored before.

    `total_fiches` counts the fiches of the fetched days. It is None if the requester may not see all
    of them.
    """

    id: str
    start: date
    end: date
    status: JobStatus = JobStatus.PENDING
    fetched: Days
    remaining: Days
    failed: Days = ()
    total_fiches: int | None = 0
    error: str | None = None
    created_by: str
    webhook: JobWebhook | None = None

    @property
    def processed(self) -> int:
        return len(self.fetched) + len(self.failed)

    @property
    def total_days(self) -> int:
        return self.processed + len(self.remaining)

    @property
    def progress(self) -> int:
        """The percentage of processed days."""
        return 100 * self.processed // self.total_days if self.total_days else 100

    @property
    def is_over(self) -> bool:
        return self.status in FETCH_JOB.terminal


def start_job(job: FetchJob) -> FetchJob:
    """Return the started job. A job that resumes after a crash stays unchanged."""
    if job.status is JobStatus.PROCESSING:
        return job
    return replace(job, status=FETCH_JOB.move(job.status, JobStatus.PROCESSING))


def count_day(job: FetchJob, outcome: SalesDay | DayFailed) -> FetchJob:
    """Count the day's outcome, and end the job after its last day. The job fails only if no list could be fetched.

    Returns the same object if the job is over or the day is already counted, so that two workers count a
    day once.
    """
    if job.is_over or outcome.day not in job.remaining:
        return job
    remaining = tuple(day for day in job.remaining if day != outcome.day)
    if isinstance(outcome, DayFailed):
        failed = tuple(sorted((*job.failed, outcome.day)))
        counted = replace(job, remaining=remaining, failed=failed)
        if not remaining and not job.fetched:
            reason = f"No sales list of the range could be fetched: {outcome.error}"
            return fail_job(counted, reason)
    else:
        fetched = tuple(sorted((*job.fetched, outcome.day)))
        fiches = None if job.total_fiches is None else job.total_fiches + outcome.fiches
        counted = replace(job, remaining=remaining, fetched=fetched, total_fiches=fiches)
    if remaining:
        return counted
    return replace(counted, status=FETCH_JOB.move(job.status, JobStatus.COMPLETE))


def fail_job(job: FetchJob, reason: str) -> FetchJob:
    """End the job as failed. The remaining days stay remaining."""
    return replace(job, status=FETCH_JOB.move(job.status, JobStatus.FAILED), error=reason)


CREATED, PROGRESS = "created", "progress"


@dataclass(frozen=True, kw_only=True)
class DueWebhook:
    """A webhook delivery that this process has claimed. `attempt` counts from 1."""

    id: int
    job_id: str
    event: str
    url: str
    payload: Mapping[str, object]
    attempt: int
    secret: str | None


def event_name(job: FetchJob) -> str:
    """The event of the job's current state: progress, complete or failed."""
    return job.status.value if job.is_over else PROGRESS


def job_event(job: FetchJob, name: str, at: datetime, latest: date | None = None) -> Event:
    key = f"progressive-fetch-{job.id}:{name}" + (f":{job.processed}" if name == PROGRESS else "")
    payload: dict[str, object] = {"jobId": job.id, **job_state_document(job)}
    if latest is not None:
        payload["latestDate"] = latest.isoformat()
    return Event("main", key, f"fiches.progressive_fetch.{name}", "fiches", job.id, at, payload)


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
    """The state without the range, which webhooks and polling clients receive."""
    state = job_state_document(job)
    return {name: state[name] for name in state if name not in {"startDate", "endDate"}}


def _total(job: FetchJob, name: str) -> dict[str, object]:
    """The total under this name; empty if the requester may not know it."""
    return {} if job.total_fiches is None else {name: job.total_fiches}


def day_texts(days: Days) -> list[str]:
    return [day.isoformat() for day in days]


def data_url(job: FetchJob) -> str:
    """The API path of the fiches of the range."""
    return f"/api/fiches/status/by-date-range?startDate={job.start.isoformat()}&endDate={job.end.isoformat()}"


def is_webhook_due(job: FetchJob, every: int) -> bool:
    """Whether the webhook is called now: after every `every` days, and at the end."""
    return job.is_over or (job.status is JobStatus.PROCESSING and job.processed % every == 0)


def webhook_body(job: FetchJob, at: datetime, latest: date | None = None) -> dict[str, object]:
    data = job_progress_document(job)
    if latest is not None:
        data["latestDate"] = latest.isoformat()
    data |= {**_total(job, "currentFichesCount"), "dataUrl": data_url(job)}
    return {"event": event_name(job), "jobId": job.id, "timestamp": iso(at), "data": data}


def webhook_headers(delivery: DueWebhook, body: bytes, at: datetime) -> Mapping[str, str]:
    """The headers of a delivery. `X-Webhook-Timestamp` is in seconds since 1970. The second signature covers the
    timestamp, a dot, and the body."""
    timestamp = str(int(at.timestamp()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "automation-pipeline-webhook/1.0",
        "X-Webhook-Event": delivery.event,
        "X-Webhook-Job-Id": delivery.job_id,
        "X-Webhook-Delivery-Id": str(delivery.id),
        "X-Webhook-Attempt": str(delivery.attempt),
        "X-Webhook-Timestamp": timestamp,
    }
    if delivery.secret:
        headers["X-Webhook-Signature"] = f"sha256={mac_of(delivery.secret, body)}"
        headers["X-Webhook-Signature-V2"] = (
            f"sha256={mac_with_time(delivery.secret, body, timestamp)}"
        )
    return headers
