"""Jobs as they are asked for: one open job a SIREN, and those who wait for it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from automation_pipeline.core.correlation import CORRELATION_TAG
from automation_pipeline.enrichment.domain.identifiers import Identifiers
from automation_pipeline.enrichment.domain.vocabulary import JobState, Trigger
from automation_pipeline.enrichment.store.requests import Asking
from automation_pipeline.enrichment.tables import AttachmentRow, CompanyRequestRow, JobRow
from automation_pipeline.storage.bulk import among, insert_into
from automation_pipeline.storage.run_requests import RunWish, file_requests

JOB = "company_enrichment"
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
    keys = _keys(session, [one.siren for one in wanted], trigger, now)
    rows = [
        JobRow(
            key=keys[one.siren],
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
        key = job.key if job.requests == 1 else f"{job.key}-retry-{job.requests - 1}"
        job.request_key = key
        tags = {
            "enrichment/job_id": str(job.id),
            "enrichment/siren": job.company_siren,
            "enrichment/trigger": job.trigger,
            "dagster/priority": str(job.priority),
            CORRELATION_TAG: job.correlation_id,
        }
        wishes.append(RunWish(key, JOB, {"job_id": job.id}, tags))
    file_requests(session, wishes, now)


def _keys(session: Session, sirens: Sequence[str], trigger: Trigger, now: datetime) -> Mapping[str, str]:
    """{siren}:{trigger}:{date}, with a number from the second job of the day on. The SIRENs are locked."""
    today = now.astimezone(UTC).date()
    midnight = datetime.combine(today, datetime.min.time(), tzinfo=UTC)
    its = among(session, JobRow.company_siren, sirens), JobRow.trigger == trigger, JobRow.created_at >= midnight
    counted = select(JobRow.company_siren, func.count()).where(*its).group_by(JobRow.company_siren)
    earlier = dict(session.execute(counted).tuples().all())
    keys = {siren: f"{siren}:{trigger}:{today}" for siren in sirens}
    return {siren: f"{key}:{earlier[siren] + 1}" if siren in earlier else key for siren, key in keys.items()}


def first_request_key(session: Session, job_id: int) -> str:
    return session.scalars(select(JobRow.key).where(JobRow.id == job_id)).one()


def attach(session: Session, job: JobRow, request: CompanyRequestRow, asking: Asking, now: datetime) -> None:
    """Once each."""
    row = {
        "job_id": job.id, "request_id": request.id, "tenant_id": request.tenant_id,
        "correlation_id": asking.correlation_id, "attached_at": now,
    }  # fmt: skip
    insert = insert_into(session, AttachmentRow).values(**row)
    session.execute(insert.on_conflict_do_nothing(index_elements=["job_id", "request_id"]))
