"""A job at work: begun under a lease, its sources one by one, and its end; each guarded by the lease's token."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.coordination import Claim
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.enrichment.domain import events
from automation_pipeline.enrichment.domain.events import JobFacts
from automation_pipeline.enrichment.domain.record import (
    CompanyFields,
    SourceError,
    SourceOutcome,
    SourceRecord,
)
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.domain.vocabulary import (
    REQUIRED_SOURCES,
    CallStatus,
    ErrorCode,
    JobState,
    SourceApi,
)
from automation_pipeline.enrichment.store.requests import locked_enrichment, mirror, move_enrichment
from automation_pipeline.enrichment.tables import (
    AttachmentRow,
    CompanyRequestRow,
    CompanyRow,
    EnrichmentRow,
    JobRow,
    JobSourceRow,
)
from automation_pipeline.storage.bulk import upsert
from automation_pipeline.storage.outbox import enqueue

WORKER = "worker"


class LostJobError(Exception):
    """Somebody else has the job by now, or it is over: nothing more is written."""


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A job under a lease. `attempt` may be beyond what is allowed: then it only has to be ended."""

    facts: JobFacts
    siret: str | None
    token: int
    called: frozenset[SourceApi]
    put_offs: int = 0


def siren_of(session: Session, job_id: int) -> str:
    siren = session.scalar(select(JobRow.company_siren).where(JobRow.id == job_id))
    if siren is None:
        raise NotFoundError(f"Enrichment job {job_id} does not exist.")
    return siren


def begin(session: Session, job_id: int, claim: Claim, max_attempts: int, now: datetime) -> Begun | None:
    """None: it is over, it waits for a source, or a later holder has begun it. Each lease begins a job once."""
    row = locked_enrichment(session, siren_of(session, job_id), now)
    job = _locked(session, job_id)
    is_waiting = job.not_before is not None and job.not_before > now
    if is_waiting or job.state == JobState.DONE or job.lock_token >= claim.token:
        return None
    job.attempt, job.lock_token, job.lock_owner = job.attempt + 1, claim.token, claim.owner
    job.state, job.heartbeat_at = JobState.RUNNING, now
    job.started_at, job.not_before = job.started_at or now, None
    facts = facts_of(job)
    if row.status != EnrichmentStatus.RUNNING:
        move_enrichment(session, row, EnrichmentStatus.RUNNING, WORKER, now)
    row.running_job_id = job.id
    mirror(session, row, now)
    if job.attempt <= max_attempts:
        enqueue(session, [events.started(facts, now)])
    called = _not_to_call(session, job_id)
    return Begun(facts=facts, siret=job.company_siret, token=claim.token, called=called, put_offs=job.put_offs)


def _not_to_call(session: Session, job_id: int) -> frozenset[SourceApi]:
    """What an earlier attempt has heard; all of them, where it heard that there is no such company."""
    outcomes = outcomes_of(session, job_id)
    errors = (outcomes[source].error for source in REQUIRED_SOURCES if source in outcomes)
    is_unknown = any(error is not None and error.error_code is ErrorCode.NOT_FOUND for error in errors)
    return frozenset(SourceApi if is_unknown else outcomes)


def beat(session: Session, begun: Begun, now: datetime) -> None:
    session.execute(
        update(JobRow)
        .where(JobRow.id == begun.facts.job_id, JobRow.lock_token == begun.token, JobRow.state == JobState.RUNNING)
        .values(heartbeat_at=now)
        .execution_options(synchronize_session=False)
    )


def note_visit(session: Session, job_id: int, now: datetime) -> None:
    """A worker came and could not begin: the lease of an earlier job is held."""
    session.execute(
        update(JobRow)
        .where(JobRow.id == job_id, JobRow.state == JobState.PENDING)
        .values(heartbeat_at=now)
        .execution_options(synchronize_session=False)
    )


def keep_outcome(session: Session, begun: Begun, outcome: SourceOutcome, now: datetime) -> None:
    """LostJobError: it is not ours to say any more."""
    held(session, begun)
    row = {"job_id": begun.facts.job_id, "fetched_at": now, **_columns(outcome)}
    upsert(session, JobSourceRow, [row], key=("job_id", "source_api"))
    if outcome.was_called:
        enqueue(session, [events.source_fetched(begun.facts, outcome, now)])


def put_off(session: Session, begun: Begun, outcome: SourceOutcome, until: datetime, now: datetime) -> None:
    """The required source asks to wait: the job is PENDING again until then, and the attempt does not count."""
    row, job = held_with_enrichment(session, begun, now)
    has_snapshot = session.get(CompanyRow, row.siren) is not None
    reason = outcome.error.message if outcome.error else ""
    status = EnrichmentStatus.STALE if has_snapshot else EnrichmentStatus.PENDING
    move_enrichment(
        session, row, status, WORKER, now, f"{outcome.source} asks to wait until {until:%H:%M} UTC. {reason}"
    )
    row.running_job_id = None
    job.state, job.attempt, job.not_before = JobState.PENDING, job.attempt - 1, until
    job.put_offs += outcome.was_called
    mirror(session, row, now)


def held(session: Session, begun: Begun) -> JobRow:
    job = _locked(session, begun.facts.job_id)
    if job.lock_token != begun.token or job.state != JobState.RUNNING:
        raise LostJobError
    return job


def held_with_enrichment(session: Session, begun: Begun, now: datetime) -> tuple[EnrichmentRow, JobRow]:
    row = locked_enrichment(session, begun.facts.siren, now)
    return row, held(session, begun)


def outcomes_of(session: Session, job_id: int) -> dict[SourceApi, SourceOutcome]:
    """In the order of the calls."""
    rows = session.scalars(select(JobSourceRow).where(JobSourceRow.job_id == job_id))
    known = {SourceApi(row.source_api): _outcome(row) for row in rows}
    return {source: known[source] for source in SourceApi if source in known}


def other_establishments(session: Session, begun: Begun) -> frozenset[str]:
    """What requests that wait for the job asked for, besides its own; none, if the company itself was not found."""
    outcomes = outcomes_of(session, begun.facts.job_id)
    if any(source not in outcomes or outcomes[source].record is None for source in REQUIRED_SOURCES):
        return frozenset()
    attached = select(AttachmentRow.request_id).where(AttachmentRow.job_id == begun.facts.job_id)
    sirets = session.scalars(select(CompanyRequestRow.siret).where(CompanyRequestRow.id.in_(attached)))
    return frozenset(siret for siret in sirets if siret and siret != begun.siret)


def facts_of(job: JobRow) -> JobFacts:
    return JobFacts(
        job_id=job.id,
        siren=job.company_siren,
        attempt=job.attempt,
        tenant_id=job.requested_by_tenant,
        correlation_id=job.correlation_id,
    )


def fields_from(said: Mapping[str, object]) -> CompanyFields:
    known: dict[str, Any] = dict(said)  # Any: a field is a text or a day
    if known.get("creation_date"):
        known["creation_date"] = date.fromisoformat(known["creation_date"])
    return CompanyFields(**known)


def _locked(session: Session, job_id: int) -> JobRow:
    query = select(JobRow).where(JobRow.id == job_id).with_for_update().execution_options(populate_existing=True)
    return session.scalars(query).one()


def _columns(outcome: SourceOutcome) -> dict[str, object]:
    error, record = outcome.error, outcome.record
    said = None if record is None else {k: v for k, v in asdict(record.said).items() if v is not None}
    if said and "creation_date" in said:
        said["creation_date"] = said["creation_date"].isoformat()
    return {
        "source_api": outcome.source,
        "status": outcome.status,
        "http_status": error.http_status if error else 200,
        "error_code": error.error_code if error else None,
        "error_message": error.message if error else None,
        "is_retryable": bool(error and error.retryable),
        "attempts": outcome.attempts,
        "duration_ms": outcome.duration_ms,
        "said": said,
        "document": None if record is None else record.document,
        "is_masked": bool(record and record.is_masked),
        "warnings": list(record.warnings) if record else [],
    }


def _outcome(row: JobSourceRow) -> SourceOutcome:
    source, error, record = SourceApi(row.source_api), None, None
    if row.status == CallStatus.SUCCESS:
        record = SourceRecord(
            siren="",
            said=fields_from(row.said or {}),
            document=row.document or {},
            is_masked=row.is_masked,
            warnings=tuple(row.warnings),
        )
    else:
        error = SourceError(
            error_code=ErrorCode(row.error_code or ErrorCode.INTERNAL_ERROR),
            http_status=row.http_status,
            message=row.error_message or "",
            retryable=row.is_retryable,
        )
    return SourceOutcome(source=source, duration_ms=row.duration_ms, attempts=row.attempts, record=record, error=error)
