"""Queries about jobs: add them for requests, start and update them under a claim, and finish them in one
transaction."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import exists, func, select, update
from sqlalchemy.orm import Session, defer

from automation_pipeline.core.coordination import Claim
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.logs import CORRELATION_TAG
from automation_pipeline.enrichment import events
from automation_pipeline.enrichment.events import EnrichmentFacts
from automation_pipeline.enrichment.models import (
    DOCUMENT_TYPES,
    FIELDS,
    GOOD_STATUSES,
    REQUIRED_SOURCES,
    CallStatus,
    CompanyFields,
    EnrichmentJobShown,
    EnrichmentOptions,
    EnrichmentStatus,
    EnrichmentTrigger,
    ErrorCode,
    Identifiers,
    JobSourceShown,
    JobState,
    Requester,
    Snapshot,
    SourceApi,
    SourceError,
    SourceOutcome,
    SourceRecord,
)
from automation_pipeline.enrichment.queries.requests import (
    add_warnings,
    copy_status_to_requests,
    locked_enrichment,
    move_enrichment,
    not_looked_up,
    request_of,
)
from automation_pipeline.enrichment.rules.evaluation import (
    Evaluation,
    changed_fields,
    document_checksum,
    due_at,
    evaluate_job,
    has_core_identity,
    is_retried_soon,
    merge_records,
    value_hash,
)
from automation_pipeline.enrichment.tables import (
    AttachmentRow,
    CompanyDocumentRow,
    CompanyRequestRow,
    CompanyRow,
    EnrichmentJobRow,
    EnrichmentJobSourceRow,
    EnrichmentRow,
    FieldSourceRow,
    RetrievalRow,
)
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests
from automation_pipeline.storage.statements import among, insert_into, upsert

JOB = "company_enrichment"
WORKER = "worker"


class LostJobError(Exception):
    """Another worker has claimed the job, or it has ended: this worker must write nothing."""


@dataclass(frozen=True, kw_only=True)
class StartedJob:
    """A job under a claim. `called` are the sources that need no further call. If `facts.attempt`
    exceeds the limit, the caller finishes the job at once."""

    id: int
    facts: EnrichmentFacts
    siret: str | None
    token: int
    called: frozenset[SourceApi]
    postponements: int = 0


def add_jobs(
    session: Session,
    wanted: Sequence[Identifiers],
    trigger: EnrichmentTrigger,
    requester: Requester,
    now: datetime,
    *,
    priority: int = 5,
) -> list[EnrichmentJobRow]:
    """Add jobs with run requests for locked SIRENs without an open job. The key of a SIREN's second job of a
    day, and of later ones, ends with a number."""
    midnight = _midnight(now)
    earlier_jobs = (
        select(EnrichmentJobRow.company_siren, func.count())
        .where(
            among(session, EnrichmentJobRow.company_siren, [one.siren for one in wanted]),
            EnrichmentJobRow.trigger == trigger,
            EnrichmentJobRow.created_at >= midnight,
        )
        .group_by(EnrichmentJobRow.company_siren)
    )
    earlier = dict(session.execute(earlier_jobs).tuples().all())
    rows = [
        EnrichmentJobRow(
            key=f"{one.siren}:{trigger}:{midnight.date()}"
            + (f":{earlier[one.siren] + 1}" if one.siren in earlier else ""),
            company_siren=one.siren,
            company_siret=one.siret,
            trigger=trigger,
            state=JobState.PENDING,
            priority=priority,
            requests=0,
            requested_by_tenant=requester.tenant_id,
            correlation_id=requester.correlation_id,
            created_at=now,
        )
        for one in wanted
    ]
    session.add_all(rows)
    session.flush()
    request_workers(session, rows, now)
    return rows


def _midnight(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def request_workers(session: Session, jobs: Sequence[EnrichmentJobRow], now: datetime) -> None:
    """File a run request per job. Each has a new key, because Dagster ignores a key that it knows. The
    run has the correlation id of the job's first requester."""
    requests: list[NewRunRequest] = []
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
        requests.append(NewRunRequest(key, JOB, {"job_id": job.id}, tags))
    file_requests(session, requests, now)


def first_request_key(session: Session, job_id: int) -> str:
    return session.scalars(select(EnrichmentJobRow.key).where(EnrichmentJobRow.id == job_id)).one()


def attach(
    session: Session,
    job: EnrichmentJobRow,
    request: CompanyRequestRow,
    correlation_id: str,
    now: datetime,
) -> None:
    """Attach the request to the job that it waits for. Repeated calls change nothing."""
    insert = insert_into(session, AttachmentRow).values(
        job_id=job.id,
        request_id=request.id,
        tenant_id=request.tenant_id,
        correlation_id=correlation_id,
        attached_at=now,
    )
    session.execute(insert.on_conflict_do_nothing(index_elements=["job_id", "request_id"]))


def was_opened_today(session: Session, siren: str, now: datetime) -> bool:
    """Whether opening the company has created a job since midnight (UTC)."""
    jobs_of_today = exists().where(
        EnrichmentJobRow.company_siren == siren,
        EnrichmentJobRow.trigger == EnrichmentTrigger.REQUEST_OPENED,
        EnrichmentJobRow.created_at >= _midnight(now),
    )
    return session.scalars(select(jobs_of_today)).one()


def siren_of(session: Session, job_id: int) -> str:
    siren = session.scalar(
        select(EnrichmentJobRow.company_siren).where(EnrichmentJobRow.id == job_id)
    )
    if siren is None:
        raise NotFoundError(f"Enrichment job {job_id} not found")
    return siren


def start_job(
    session: Session, job_id: int, claim: Claim, max_attempts: int, now: datetime
) -> StartedJob | None:
    """Start the next attempt of the job. Return None if the job has ended, waits for a source, or was
    started under this claim or a later one."""
    row = locked_enrichment(session, siren_of(session, job_id), now)
    job = _locked_job(session, job_id)
    is_waiting = job.not_before is not None and job.not_before > now
    if is_waiting or job.state == JobState.DONE or job.lock_token >= claim.token:
        return None
    job.attempt, job.lock_token, job.lock_owner = job.attempt + 1, claim.token, claim.owner
    job.state, job.heartbeat_at = JobState.RUNNING, now
    job.started_at, job.not_before = job.started_at or now, None
    if row.status != EnrichmentStatus.RUNNING:
        move_enrichment(session, row, EnrichmentStatus.RUNNING, WORKER, now)
    row.running_job_id = job.id
    copy_status_to_requests(session, row, now)
    facts = _facts(job)
    if job.attempt <= max_attempts:
        enqueue(session, [events.enrichment_started(facts, now)])
    outcomes = outcomes_of(session, job_id)
    # If the required source does not know the company, no other source is called.
    is_unknown = any(outcomes[one].is_unknown for one in REQUIRED_SOURCES if one in outcomes)
    return StartedJob(
        id=job_id,
        facts=facts,
        siret=job.company_siret,
        token=claim.token,
        called=frozenset(SourceApi if is_unknown else outcomes),
        postponements=job.put_offs,
    )


def record_heartbeat(session: Session, started: StartedJob, now: datetime) -> None:
    session.execute(
        update(EnrichmentJobRow)
        .where(
            EnrichmentJobRow.id == started.id,
            EnrichmentJobRow.lock_token == started.token,
            EnrichmentJobRow.state == JobState.RUNNING,
        )
        .values(heartbeat_at=now)
        .execution_options(synchronize_session=False)
    )


def record_visit(session: Session, job_id: int, now: datetime) -> None:
    """Record that a worker could not start the job because another one holds the claim on its SIREN."""
    session.execute(
        update(EnrichmentJobRow)
        .where(EnrichmentJobRow.id == job_id, EnrichmentJobRow.state == JobState.PENDING)
        .values(heartbeat_at=now)
        .execution_options(synchronize_session=False)
    )


def save_outcome(
    session: Session, started: StartedJob, outcome: SourceOutcome, now: datetime
) -> None:
    """Store the result of a source with its event. Raises LostJobError."""
    error, record = outcome.error, outcome.record
    row: dict[str, object] = {
        "job_id": _claimed_job(session, started).id,
        "fetched_at": now,
        "source_api": outcome.source,
        "status": outcome.status,
        "http_status": outcome.http_status,
        "error_code": outcome.error_code,
        "error_message": error.message if error else None,
        "is_retryable": bool(error and error.retryable),
        "attempts": outcome.attempts,
        "duration_ms": outcome.duration_ms,
        "said": stored_fields(record.fields) if record else None,
        "document": record.document if record else None,
        "is_masked": bool(record and record.is_masked),
        "warnings": list(record.warnings) if record else [],
    }
    upsert(session, EnrichmentJobSourceRow, [row], key=("job_id", "source_api"))
    if outcome.was_called:
        enqueue(session, [events.source_fetched(started.facts, outcome, now)])


def postpone_job(
    session: Session, started: StartedJob, outcome: SourceOutcome, until: datetime, now: datetime
) -> None:
    """Return the job to PENDING, to be started again at `until`, because its required source asks to
    wait. The attempt does not count. Raises LostJobError."""
    row = locked_enrichment(session, started.facts.siren, now)
    job = _claimed_job(session, started)
    has_snapshot = session.get(CompanyRow, row.siren) is not None
    status = EnrichmentStatus.STALE if has_snapshot else EnrichmentStatus.PENDING
    reason = f"{outcome.source} asks to wait until {until:%H:%M} UTC. "
    reason += outcome.error.message if outcome.error else ""
    move_enrichment(session, row, status, WORKER, now, reason)
    row.running_job_id = None
    job.state, job.attempt, job.not_before = JobState.PENDING, job.attempt - 1, until
    job.put_offs += outcome.was_called
    copy_status_to_requests(session, row, now)


def outcomes_of(session: Session, job_id: int) -> dict[SourceApi, SourceOutcome]:
    """Return the stored results by source, in the order of the calls."""
    rows = session.scalars(
        select(EnrichmentJobSourceRow).where(EnrichmentJobSourceRow.job_id == job_id)
    )
    known = {SourceApi(row.source_api): _outcome(row) for row in rows}
    return {source: known[source] for source in SourceApi if source in known}


def other_establishments(session: Session, started: StartedJob) -> frozenset[str]:
    """Return the SIRETs of waiting requests except that of the job; none if the company was not found."""
    outcomes = outcomes_of(session, started.id)
    if any(one not in outcomes or outcomes[one].record is None for one in REQUIRED_SOURCES):
        return frozenset()
    attached = select(AttachmentRow.request_id).where(AttachmentRow.job_id == started.id)
    sirets = session.scalars(
        select(CompanyRequestRow.siret).where(CompanyRequestRow.id.in_(attached))
    )
    return frozenset(siret for siret in sirets if siret and siret != started.siret)


def stored_fields(fields: CompanyFields) -> dict[str, object]:
    """The fields as a JSON object, without those that are None."""
    stored = {name: value for name, value in asdict(fields).items() if value is not None}
    if fields.creation_date is not None:
        stored["creation_date"] = fields.creation_date.isoformat()
    return stored


def fields_from(stored: Mapping[str, object]) -> CompanyFields:
    fields: dict[str, Any] = dict(stored)  # Any: a field is a string or a date
    if fields.get("creation_date"):
        fields["creation_date"] = date.fromisoformat(fields["creation_date"])
    return CompanyFields(**fields)


def _facts(job: EnrichmentJobRow) -> EnrichmentFacts:
    return EnrichmentFacts(
        job_id=job.id,
        siren=job.company_siren,
        attempt=job.attempt,
        tenant_id=job.requested_by_tenant,
        correlation_id=job.correlation_id,
    )


def _locked_job(session: Session, job_id: int) -> EnrichmentJobRow:
    query = select(EnrichmentJobRow).where(EnrichmentJobRow.id == job_id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()


def _claimed_job(session: Session, started: StartedJob) -> EnrichmentJobRow:
    job = _locked_job(session, started.id)
    if job.lock_token != started.token or job.state != JobState.RUNNING:
        raise LostJobError
    return job


def _outcome(row: EnrichmentJobSourceRow) -> SourceOutcome:
    record, error = None, None
    if row.status == CallStatus.SUCCESS:
        record = SourceRecord(
            siren="",
            fields=fields_from(row.said or {}),
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
    return SourceOutcome(
        source=SourceApi(row.source_api),
        duration_ms=row.duration_ms,
        attempts=row.attempts,
        record=record,
        error=error,
    )


def finish_job(
    session: Session,
    started: StartedJob,
    options: EnrichmentOptions,
    now: datetime,
    establishments: Mapping[str, Sequence[str]] | None = None,
) -> Evaluation:
    """Evaluate and end the job. If the job has lost its workers too often, its calls count, but it
    stores no snapshot.

    `establishments` are the warnings about SIRETs other than that of the job. Raises LostJobError,
    and writes nothing in that case.
    """
    row = locked_enrichment(session, started.facts.siren, now)
    job = _claimed_job(session, started)
    is_abandoned = job.attempt > options.max_attempts
    outcomes = outcomes_of(session, job.id)
    records = _records(outcomes)
    identifiers = Identifiers(row.siren, job.company_siret)
    found = merge_records(None, records, identifiers)
    evaluation = evaluate_job(
        tuple(outcomes.values()),
        core_identity_present=has_core_identity(found),
        optional_not_found_counts=options.optional_not_found_counts,
        is_abandoned=is_abandoned,
    )
    if evaluation.status in GOOD_STATUSES:
        before, locked = known_of(session, row.siren)
        failed = {source for source, outcome in outcomes.items() if outcome.has_failed}
        after = merge_records(before, records, identifiers, locked, failed)
        job.changes = changed_fields(before, after) or None
        new_sources = {
            field: source
            for field, source in found.sources.items()
            if after.sources.get(field) is source and field not in locked
        }
        _save_snapshot(session, after, new_sources, now)
    _save_documents(session, row.siren, outcomes, now)
    if not is_abandoned:
        own = [warning for record in records.values() for warning in record.warnings]
        warnings = {**(establishments or {}), job.company_siret or "": own}
        _warn_requests(session, job, warnings, evaluation)
    _end_job(session, row, job, evaluation, options, now)
    return evaluation


def known_of(session: Session, siren: str) -> tuple[Snapshot | None, frozenset[str]]:
    """Return the snapshot of a company, and the fields that users have locked."""
    company = session.get(CompanyRow, siren)
    rows = session.scalars(
        select(FieldSourceRow).where(FieldSourceRow.company_siren == siren)
    ).all()
    locked = frozenset(row.field for row in rows if row.locked_by_user is not None)
    if company is None:
        return None, locked
    sources = {row.field: SourceApi(row.source_api) for row in rows if row.source_api is not None}
    values = CompanyFields(**{field: getattr(company, field) for field in FIELDS})
    return Snapshot(siren, values, sources, company.is_masked), locked


def _records(outcomes: Mapping[SourceApi, SourceOutcome]) -> dict[SourceApi, SourceRecord]:
    return {source: one.record for source, one in outcomes.items() if one.record is not None}


def _warn_requests(
    session: Session,
    job: EnrichmentJobRow,
    warnings: Mapping[str, Sequence[str]],
    evaluation: Evaluation,
) -> None:
    """Add to each waiting request the warnings about its establishment."""
    attached = select(AttachmentRow.request_id).where(AttachmentRow.job_id == job.id)
    query = select(CompanyRequestRow).where(
        CompanyRequestRow.id.in_(attached), CompanyRequestRow.siret.is_not(None)
    )
    for request in session.scalars(query):
        siret = request.siret or ""
        unknown = [not_looked_up(siret)] if evaluation.status in GOOD_STATUSES else []
        add_warnings(request, warnings.get(siret, unknown))


def _save_snapshot(
    session: Session, after: Snapshot, new_sources: Mapping[str, SourceApi], now: datetime
) -> None:
    """Store the snapshot, and the source of each field in `new_sources`."""
    values = {field: getattr(after.values, field) for field in FIELDS}
    changes = {"is_masked": after.is_masked, "updated_at": now, **values}
    upsert(
        session, CompanyRow, [{"siren": after.siren, **changes}], key=("siren",), fields=[*changes]
    )
    provenance = [
        {
            "company_siren": after.siren,
            "field": field,
            "source_api": source,
            "fetched_at": now,
            "value_hash": value_hash(values[field]),
        }
        for field, source in new_sources.items()
    ]
    fields = ("source_api", "fetched_at", "value_hash")
    upsert(session, FieldSourceRow, provenance, key=("company_siren", "field"), fields=fields)


def _save_documents(
    session: Session, siren: str, outcomes: Mapping[SourceApi, SourceOutcome], now: datetime
) -> None:
    """Store each version of a document once, and the last call of each source."""
    documents = [
        {
            "company_siren": siren,
            "doc_type": DOCUMENT_TYPES[source],
            "source_api": source,
            "retrieved_at": now,
            "payload_json": record.document,
            "checksum": document_checksum(record.document),
        }
        for source, record in _records(outcomes).items()
    ]
    key = ("company_siren", "doc_type", "checksum")
    upsert(session, CompanyDocumentRow, documents, key=key, fields=("retrieved_at",))
    retrievals = [
        {
            "company_siren": siren,
            "source_api": source,
            "last_retrieved_at": now,
            "last_status": one.status,
            "last_http_status": one.http_status,
            "last_error": one.error_code,
        }
        for source, one in outcomes.items()
    ]
    fields = ("last_retrieved_at", "last_status", "last_http_status", "last_error")
    upsert(session, RetrievalRow, retrievals, key=("company_siren", "source_api"), fields=fields)


def _end_job(
    session: Session,
    row: EnrichmentRow,
    job: EnrichmentJobRow,
    evaluation: Evaluation,
    options: EnrichmentOptions,
    now: datetime,
) -> None:
    move_enrichment(session, row, evaluation.status, WORKER, now, evaluation.error)
    row.running_job_id, row.enrichment_error, row.last_run_at = None, evaluation.error, now
    row.due_at = due_at(row.siren, evaluation, row.retries, now, options.freshness)
    row.retries = row.retries + 1 if is_retried_soon(evaluation, row.retries) else 0
    if job.trigger == EnrichmentTrigger.MANUAL_REFRESH:
        row.last_manual_at = now
    job.state, job.status, job.finished_at = JobState.DONE, evaluation.status, now
    job.sources_success_count = evaluation.success
    job.required_failed_count = evaluation.required_failed
    job.optional_failed_count = evaluation.optional_failed
    job.core_identity_present = evaluation.core_identity_present
    job.enrichment_error = evaluation.error
    copy_status_to_requests(session, row, now)
    facts = _facts(job)
    query = select(AttachmentRow).where(AttachmentRow.job_id == job.id).order_by(AttachmentRow.id)
    # One event per waiting request, for its tenant; without a request, one for the job.
    waiting: list[tuple[int | None, EnrichmentFacts]] = [
        (one.request_id, replace(facts, tenant_id=one.tenant_id, correlation_id=one.correlation_id))
        for one in session.scalars(query)
    ]
    enqueue(
        session,
        [
            events.enrichment_completed(request_facts, request_id, evaluation, now)
            for request_id, request_facts in waiting or [(None, facts)]
        ],
    )


def get_job(session: Session, job_id: int) -> EnrichmentJobShown:
    row = session.get(EnrichmentJobRow, job_id)
    if row is None:
        raise NotFoundError(f"Enrichment job {job_id} not found")
    return _shown(session, [row])[0]


def jobs_of_request(
    session: Session, request_id: int, tenant_id: str, limit: int
) -> Sequence[EnrichmentJobShown]:
    """Return the jobs of the request's company, newest first, also those of other requesters. Raises NotFoundError,
    also for a request of another tenant."""
    siren = request_of(session, request_id, tenant_id).company_siren
    query = select(EnrichmentJobRow).where(EnrichmentJobRow.company_siren == siren)
    rows = session.scalars(query.order_by(EnrichmentJobRow.id.desc()).limit(limit))
    return _shown(session, rows.all())


def _shown(session: Session, rows: Sequence[EnrichmentJobRow]) -> list[EnrichmentJobShown]:
    query = (
        select(EnrichmentJobSourceRow)
        .where(among(session, EnrichmentJobSourceRow.job_id, [row.id for row in rows]))
        .options(defer(EnrichmentJobSourceRow.document), defer(EnrichmentJobSourceRow.said))
        .order_by(EnrichmentJobSourceRow.id)
    )
    sources: dict[int, list[JobSourceShown]] = defaultdict(list)
    for one in session.scalars(query):
        sources[one.job_id].append(JobSourceShown.model_validate(one, from_attributes=True))
    return [
        EnrichmentJobShown.model_validate(row, from_attributes=True).model_copy(
            update={"sources": tuple(sources[row.id])}
        )
        for row in rows
    ]
