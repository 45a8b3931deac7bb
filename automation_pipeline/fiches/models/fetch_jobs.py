"""Values of fetch jobs, which fetch the sales lists of a range of days in the background."""

from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum

from automation_pipeline.core.state_machine import StateMachine
from automation_pipeline.fiches.models.days import DayFailed, Days, SalesDay

NOTHING_FETCHED = "No sales list of the range could be fetched"


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
    """The webhook that a job notifies. With a secret, its requests are signed."""

    url: str
    secret: str | None = None


@dataclass(frozen=True, kw_only=True)
class FetchJob:
    """Each day is fetched, remaining or failed. `fetched` includes the days whose list was known before.

    `total_fiches` counts the fiches of the fetched days. It is None where the requester may not see
    all of them.
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
        """The percentage of days that are processed."""
        return 100 * self.processed // self.total_days if self.total_days else 100

    @property
    def is_over(self) -> bool:
        return self.status in FETCH_JOB.terminal


def start_job(job: FetchJob) -> FetchJob:
    """A job that resumes after a crash stays unchanged."""
    if job.status is JobStatus.PROCESSING:
        return job
    return replace(job, status=FETCH_JOB.move(job.status, JobStatus.PROCESSING))


def count_day(job: FetchJob, outcome: SalesDay | DayFailed) -> FetchJob:
    """Count the day's outcome. Returns the job itself when it is over or the day is counted already, so
    that two workers count a day once."""
    if job.is_over or outcome.day not in job.remaining:
        return job
    remaining = tuple(day for day in job.remaining if day != outcome.day)
    if isinstance(outcome, DayFailed):
        counted = replace(job, remaining=remaining, failed=_with(job.failed, outcome.day))
    else:
        fiches = None if job.total_fiches is None else job.total_fiches + outcome.fiches
        counted = replace(
            job, remaining=remaining, fetched=_with(job.fetched, outcome.day), total_fiches=fiches
        )
    return counted if remaining else _ended(counted, outcome)


def fail_job(job: FetchJob, reason: str) -> FetchJob:
    """End the job as failed. The remaining days stay remaining."""
    return replace(job, status=FETCH_JOB.move(job.status, JobStatus.FAILED), error=reason)


def _ended(job: FetchJob, last: SalesDay | DayFailed) -> FetchJob:
    """A job fails only when no list could be fetched."""
    if job.fetched:
        return replace(job, status=FETCH_JOB.move(job.status, JobStatus.COMPLETE))
    why = f"{NOTHING_FETCHED}: {last.error}" if isinstance(last, DayFailed) else NOTHING_FETCHED
    return replace(job, status=FETCH_JOB.move(job.status, JobStatus.FAILED), error=why)


def _with(days: Days, day: date) -> Days:
    return tuple(sorted((*days, day)))
