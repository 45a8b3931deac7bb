"""Jobs as they are asked for: one open job a SIREN, and those who wait for it."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.correlation import CORRELATION_TAG
from automation_pipeline.enrichment.domain.identifiers import Identifiers
from automation_pipeline.enrichment.domain.vocabulary import JobState, Trigger
from automation_pipeline.enrichment.store.requests import Asking
from automation_pipeline.enrichment.tables import AttachmentRow, CompanyRequestRow, JobRow
from automation_pipeline.storage.bulk import insert_into
from automation_pipeline.storage.run_requests import RunWish, file_requests

JOB = "company_enrichment"
REQUEST_KEY = "enrichment-job-"
OPEN = (JobState.PENDING, JobState.RUNNING)


def open_job(session: Session, siren: str) -> JobRow | None:
    """Of a SIREN whose enrichment is locked."""
    return session.scalar(select(JobRow).where(JobRow.company_siren == siren, JobRow.state.in_(OPEN)))


def add_job(
    session: Session, identifiers: Identifiers, trigger: Trigger, asking: Asking, now: datetime, *, priority: int = 5
) -> JobRow:
    """Of a SIREN whose enrichment is locked, and that has none. A worker is asked for."""
    [row] = add_jobs(session, [identifiers], trigger, asking, now, priority=priority)
    return row


def add_jobs(
    session: Session,
    wanted: Sequence[Identifiers],
    trigger: Trigger,
    asking: Asking,
    now: datetime,
    *,
    priority: int = 5,
) -> list[JobRow]:
    """As `add_job`, of many."""
    rows = [
        JobRow(
            company_siren=one.siren,
            company_siret=one.siret,
            trigger=trigger,
            state=JobState.PENDING,
            priority=priority,
            requests=0,
            requested_by_tenant=asking.tenant_id,
            correlation_id=asking.correlation_id,
            created_at=now,
        )
        for one in wanted
    ]
    session.add_all(rows)
    session.flush()
    ask_for_workers(session, rows, now)
    return rows


def ask_for_workers(session: Session, jobs: Sequence[JobRow], now: datetime) -> None:
    """A number is never used twice, so that Dagster does not take the request for an old one. The run works under the
    id of whoever wanted the job, also when it is the sweep that asks."""
    wishes: list[RunWish] = []
    for job in jobs:
        job.requests, job.requested_at = job.requests + 1, now
        tags = {
            "enrichment/job_id": str(job.id),
            "enrichment/siren": job.company_siren,
            "enrichment/trigger": job.trigger,
            "dagster/priority": str(job.priority),
            CORRELATION_TAG: job.correlation_id,
        }
        wishes.append(RunWish(request_key(job.id, job.requests), JOB, {"job_id": job.id}, tags))
    file_requests(session, wishes, now)


def request_key(job_id: int, number: int) -> str:
    return f"{REQUEST_KEY}{job_id}-{number}"


def attach(session: Session, job: JobRow, request: CompanyRequestRow, asking: Asking, now: datetime) -> None:
    """Once each."""
    row = {
        "job_id": job.id, "request_id": request.id, "tenant_id": request.tenant_id,
        "correlation_id": asking.correlation_id, "attached_at": now,
    }  # fmt: skip
    insert = insert_into(session, AttachmentRow).values(**row)
    session.execute(insert.on_conflict_do_nothing(index_elements=["job_id", "request_id"]))
