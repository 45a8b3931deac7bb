"""Queries about jobs: opened for requests, worked on under a claim, finished in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import exists, func, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.coordination import Claim
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.logs import CORRELATION_TAG
from automation_pipeline.enrichment import events
from automation_pipeline.enrichment.events import JobFacts
from automation_pipeline.enrichment.models import (
    DOCUMENT_TYPES,
    FIELDS,
    REQUIRED_SOURCES,
    CallStatus,
    CompanyFields,
    EnrichmentOptions,
    EnrichmentStatus,
    EnrichmentTrigger,
    ErrorCode,
    Identifiers,
    JobState,
    Snapshot,
    SourceApi,
    SourceError,
    SourceOutcome,
    SourceRecord,
)
from automation_pipeline.enrichment.queries.requests import (
    Requester,
    add_warnings,
    copy_status_to_requests,
    locked_enrichment,
    move_enrichment,
    not_looked_up,
)
from automation_pipeline.enrichment.rules.evaluation import (
    Evaluation,
    changed_fields,
    document_checksum,
    due_at,
    evaluate_abandoned_job,
    evaluate_job,
    has_core_identity,
    is_tried_again_soon,
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
OPEN = (JobState.PENDING, JobState.RUNNING)


def open_job(session: Session, siren: str) -> EnrichmentJobRow | None:
    """Of a SIREN whose enrichment is locked."""
    return session.scalar(
        select(EnrichmentJobRow).where(
            EnrichmentJobRow.company_siren == siren, EnrichmentJobRow.state.in_(OPEN)
        )
    )


def add_job(
    session: Session,
    identifiers: Identifiers,
    trigger: EnrichmentTrigger,
    asking: Requester,
    now: datetime,
    *,
    priority: int = 5,
) -> EnrichmentJobRow:
    """Of a SIREN whose enrichment is locked, and that has none. A worker is asked for."""
    [row] = add_jobs(session, [identifiers], trigger, asking, now, priority=priority)
    return row


def add_jobs(
    session: Session,
    wanted: Sequence[Identifiers],
    trigger: EnrichmentTrigger,
    asking: Requester,
    now: datetime,
    *,
    priority: int = 5,
) -> list[EnrichmentJobRow]:
    """As `add_job`, of many."""
    keys = _keys(session, [one.siren for one in wanted], trigger, now)
    rows = [
        EnrichmentJobRow(
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
    request_workers(session, rows, now)
    return rows


def request_workers(session: Session, jobs: Sequence[EnrichmentJobRow], now: datetime) -> None:
    """A number is never used twice, so that Dagster does not take the request for an old one. The
    run works under the id of whoever wanted the job, also when it is the sweep that asks."""
    wishes: list[NewRunRequest] = []
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
        wishes.append(NewRunRequest(key, JOB, {"job_id": job.id}, tags))
    file_requests(session, wishes, now)


def _keys(
    session: Session, sirens: Sequence[str], trigger: EnrichmentTrigger, now: datetime
) -> Mapping[str, str]:
    """{siren}:{trigger}:{date}, with a number from the second job of the day on. The SIRENs are
    locked."""
    today = now.astimezone(UTC).date()
    midnight = datetime.combine(today, datetime.min.time(), tzinfo=UTC)
    its = (
        among(session, EnrichmentJobRow.company_siren, sirens),
        EnrichmentJobRow.trigger == trigger,
        EnrichmentJobRow.created_at >= midnight,
    )
    counted = (
        select(EnrichmentJobRow.company_siren, func.count())
        .where(*its)
        .group_by(EnrichmentJobRow.company_siren)
    )
    earlier = dict(session.execute(counted).tuples().all())
    keys = {siren: f"{siren}:{trigger}:{today}" for siren in sirens}
    return {
        siren: f"{key}:{earlier[siren] + 1}" if siren in earlier else key
        for siren, key in keys.items()
    }


def first_request_key(session: Session, job_id: int) -> str:
    return session.scalars(select(EnrichmentJobRow.key).where(EnrichmentJobRow.id == job_id)).one()


def attach(
    session: Session,
    job: EnrichmentJobRow,
    request: CompanyRequestRow,
    asking: Requester,
    now: datetime,
) -> None:
    """Once each."""
    row = {
        "job_id": job.id, "request_id": request.id, "tenant_id": request.tenant_id,
        "correlation_id": asking.correlation_id, "attached_at": now,
    }  # fmt: skip
    insert = insert_into(session, AttachmentRow).values(**row)
    session.execute(insert.on_conflict_do_nothing(index_elements=["job_id", "request_id"]))


def was_opened_today(session: Session, siren: str, now: datetime) -> bool:
    """A job was made for the SIREN because somebody looked, since midnight (UTC)."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    its = (
        EnrichmentJobRow.company_siren == siren,
        EnrichmentJobRow.trigger == EnrichmentTrigger.REQUEST_OPENED,
        EnrichmentJobRow.created_at >= midnight,
    )
    return session.scalar(select(exists().where(*its))) or False


WORKER = "worker"


class LostJobError(Exception):
    """Somebody else has the job by now, or it is over: nothing more is written."""


@dataclass(frozen=True, kw_only=True)
class StartedJob:
    """A job under a lease. `attempt` may be beyond what is allowed: then it only has to be
    ended."""

    facts: JobFacts
    siret: str | None
    token: int
    called: frozenset[SourceApi]
    put_offs: int = 0


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
    """None: it is over, it waits for a source, or a later holder has begun it. Each lease begins a
    job once."""
    row = locked_enrichment(session, siren_of(session, job_id), now)
    job = _locked_job(session, job_id)
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
    copy_status_to_requests(session, row, now)
    if job.attempt <= max_attempts:
        enqueue(session, [events.enrichment_started(facts, now)])
    called = _not_to_call(session, job_id)
    return StartedJob(
        facts=facts,
        siret=job.company_siret,
        token=claim.token,
        called=called,
        put_offs=job.put_offs,
    )


def _not_to_call(session: Session, job_id: int) -> frozenset[SourceApi]:
    """What an earlier attempt has heard; all of them, where it heard that there is no such
    company."""
    outcomes = outcomes_of(session, job_id)
    errors = (outcomes[source].error for source in REQUIRED_SOURCES if source in outcomes)
    is_unknown = any(
        error is not None and error.error_code is ErrorCode.NOT_FOUND for error in errors
    )
    return frozenset(SourceApi if is_unknown else outcomes)


def record_heartbeat(session: Session, begun: StartedJob, now: datetime) -> None:
    session.execute(
        update(EnrichmentJobRow)
        .where(
            EnrichmentJobRow.id == begun.facts.job_id,
            EnrichmentJobRow.lock_token == begun.token,
            EnrichmentJobRow.state == JobState.RUNNING,
        )
        .values(heartbeat_at=now)
        .execution_options(synchronize_session=False)
    )


def record_visit(session: Session, job_id: int, now: datetime) -> None:
    """A worker came and could not begin: the lease of an earlier job is held."""
    session.execute(
        update(EnrichmentJobRow)
        .where(EnrichmentJobRow.id == job_id, EnrichmentJobRow.state == JobState.PENDING)
        .values(heartbeat_at=now)
        .execution_options(synchronize_session=False)
    )


def save_outcome(
    session: Session, begun: StartedJob, outcome: SourceOutcome, now: datetime
) -> None:
    """LostJobError: it is not ours to say any more."""
    claimed_job(session, begun)
    row = {"job_id": begun.facts.job_id, "fetched_at": now, **_outcome_columns(outcome)}
    upsert(session, EnrichmentJobSourceRow, [row], key=("job_id", "source_api"))
    if outcome.was_called:
        enqueue(session, [events.source_fetched(begun.facts, outcome, now)])


def postpone_job(
    session: Session, begun: StartedJob, outcome: SourceOutcome, until: datetime, now: datetime
) -> None:
    """The required source asks to wait: the job is PENDING again until then, and the attempt does
    not count."""
    row, job = claimed_job_and_enrichment(session, begun, now)
    has_snapshot = session.get(CompanyRow, row.siren) is not None
    reason = outcome.error.message if outcome.error else ""
    status = EnrichmentStatus.STALE if has_snapshot else EnrichmentStatus.PENDING
    move_enrichment(
        session,
        row,
        status,
        WORKER,
        now,
        f"{outcome.source} asks to wait until {until:%H:%M} UTC. {reason}",
    )
    row.running_job_id = None
    job.state, job.attempt, job.not_before = JobState.PENDING, job.attempt - 1, until
    job.put_offs += outcome.was_called
    copy_status_to_requests(session, row, now)


def claimed_job(session: Session, begun: StartedJob) -> EnrichmentJobRow:
    job = _locked_job(session, begun.facts.job_id)
    if job.lock_token != begun.token or job.state != JobState.RUNNING:
        raise LostJobError
    return job


def claimed_job_and_enrichment(
    session: Session, begun: StartedJob, now: datetime
) -> tuple[EnrichmentRow, EnrichmentJobRow]:
    row = locked_enrichment(session, begun.facts.siren, now)
    return row, claimed_job(session, begun)


def outcomes_of(session: Session, job_id: int) -> dict[SourceApi, SourceOutcome]:
    """In the order of the calls."""
    rows = session.scalars(
        select(EnrichmentJobSourceRow).where(EnrichmentJobSourceRow.job_id == job_id)
    )
    known = {SourceApi(row.source_api): _outcome(row) for row in rows}
    return {source: known[source] for source in SourceApi if source in known}


def other_establishments(session: Session, begun: StartedJob) -> frozenset[str]:
    """What requests that wait for the job asked for, besides its own; none, if the company itself
    was not found."""
    outcomes = outcomes_of(session, begun.facts.job_id)
    if any(
        source not in outcomes or outcomes[source].record is None for source in REQUIRED_SOURCES
    ):
        return frozenset()
    attached = select(AttachmentRow.request_id).where(AttachmentRow.job_id == begun.facts.job_id)
    sirets = session.scalars(
        select(CompanyRequestRow.siret).where(CompanyRequestRow.id.in_(attached))
    )
    return frozenset(siret for siret in sirets if siret and siret != begun.siret)


def facts_of(job: EnrichmentJobRow) -> JobFacts:
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


def _locked_job(session: Session, job_id: int) -> EnrichmentJobRow:
    query = (
        select(EnrichmentJobRow)
        .where(EnrichmentJobRow.id == job_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    return session.scalars(query).one()


def _outcome_columns(outcome: SourceOutcome) -> dict[str, object]:
    error, record = outcome.error, outcome.record
    said = (
        None if record is None else {k: v for k, v in asdict(record.said).items() if v is not None}
    )
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


def _outcome(row: EnrichmentJobSourceRow) -> SourceOutcome:
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
    return SourceOutcome(
        source=source,
        duration_ms=row.duration_ms,
        attempts=row.attempts,
        record=record,
        error=error,
    )


_GOOD = frozenset({EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL})


@dataclass(frozen=True)
class KnownCompany:
    """The snapshot before the job, and the fields that users have locked."""

    snapshot: Snapshot | None
    locked: frozenset[str]


def finish_job(
    session: Session,
    begun: StartedJob,
    knobs: EnrichmentOptions,
    now: datetime,
    looked_up: Mapping[str, Sequence[str]] | None = None,
) -> Evaluation:
    """`looked_up`: what is to be said of other establishments than the job's own. LostJobError:
    somebody else has the job by now, and nothing is written."""
    row, job = claimed_job_and_enrichment(session, begun, now)
    outcomes, known = outcomes_of(session, job.id), known_of(session, row.siren)
    records, failed = (
        _records(outcomes),
        {source for source, one in outcomes.items() if one.has_failed},
    )
    after = merge_records(
        known.snapshot, records, Identifiers(row.siren, job.company_siret), known.locked, failed
    )
    found = _new_snapshot(row.siren, job, outcomes)
    evaluation = evaluate_job(
        tuple(outcomes.values()),
        core_identity_present=has_core_identity(found),
        optional_not_found_counts=knobs.optional_not_found_counts,
    )
    if evaluation.status in _GOOD:
        job.changes = changed_fields(known.snapshot, after) or None
        told = {
            field: source
            for field, source in found.sources.items()
            if after.sources.get(field) is source
        }
        _save_snapshot(session, after, told, known, now)
    _save_documents(session, row.siren, outcomes, now)
    own = [warning for record in records.values() for warning in record.warnings]
    _warn_requests(session, job, {**(looked_up or {}), job.company_siret or "": own}, evaluation)
    _end_job(session, row, job, evaluation, knobs, now)
    return evaluation


def abandon_job(
    session: Session, begun: StartedJob, knobs: EnrichmentOptions, now: datetime
) -> Evaluation:
    """A job whose workers were lost again and again."""
    row, job = claimed_job_and_enrichment(session, begun, now)
    outcomes = outcomes_of(session, job.id)
    evaluation = evaluate_abandoned_job(
        tuple(outcomes.values()),
        core_identity_present=has_core_identity(_new_snapshot(row.siren, job, outcomes)),
        optional_not_found_counts=knobs.optional_not_found_counts,
    )
    _save_documents(session, row.siren, outcomes, now)
    _end_job(session, row, job, evaluation, knobs, now)
    return evaluation


def _warn_requests(
    session: Session,
    job: EnrichmentJobRow,
    looked_up: Mapping[str, Sequence[str]],
    evaluation: Evaluation,
) -> None:
    """The requests that wait for the job, each of its own establishment."""
    attached = select(AttachmentRow.request_id).where(AttachmentRow.job_id == job.id)
    its = CompanyRequestRow.id.in_(attached), CompanyRequestRow.siret.is_not(None)
    for request in session.scalars(select(CompanyRequestRow).where(*its)):
        siret = request.siret or ""
        unknown = [not_looked_up(siret)] if evaluation.status in _GOOD else []
        add_warnings(request, looked_up.get(siret, unknown))


def _records(outcomes: Mapping[SourceApi, SourceOutcome]) -> dict[SourceApi, SourceRecord]:
    return {source: one.record for source, one in outcomes.items() if one.record is not None}


def _new_snapshot(
    siren: str, job: EnrichmentJobRow, outcomes: Mapping[SourceApi, SourceOutcome]
) -> Snapshot:
    """What is said now, whatever was known."""
    return merge_records(None, _records(outcomes), Identifiers(siren, job.company_siret))


def known_of(session: Session, siren: str) -> KnownCompany:
    company = session.get(CompanyRow, siren)
    rows = session.scalars(
        select(FieldSourceRow).where(FieldSourceRow.company_siren == siren)
    ).all()
    locked = frozenset(row.field for row in rows if row.locked_by_user is not None)
    if company is None:
        return KnownCompany(None, locked)
    sources = {row.field: SourceApi(row.source_api) for row in rows if row.source_api is not None}
    values = CompanyFields(**{field: getattr(company, field) for field in FIELDS})
    return KnownCompany(Snapshot(siren, values, sources, company.is_masked), locked)


def _save_snapshot(
    session: Session,
    after: Snapshot,
    told: Mapping[str, SourceApi],
    known: KnownCompany,
    now: datetime,
) -> None:
    """`told`: who has said what now; the provenance of all else stays as it is."""
    values = {field: getattr(after.values, field) for field in FIELDS}
    row = {"siren": after.siren, "is_masked": after.is_masked, "updated_at": now, **values}
    upsert(
        session, CompanyRow, [row], key=("siren",), fields=[name for name in row if name != "siren"]
    )
    said = [
        {
            "company_siren": after.siren,
            "field": field,
            "source_api": source,
            "fetched_at": now,
            "value_hash": value_hash(values[field]),
        }
        for field, source in told.items()
        if field not in known.locked
    ]
    fields = ("source_api", "fetched_at", "value_hash")
    upsert(session, FieldSourceRow, said, key=("company_siren", "field"), fields=fields)


def _save_documents(
    session: Session, siren: str, outcomes: Mapping[SourceApi, SourceOutcome], now: datetime
) -> None:
    documents = [
        {
            "company_siren": siren,
            "doc_type": DOCUMENT_TYPES[source],
            "source_api": source,
            "retrieved_at": now,
            "payload_json": one.record.document,
            "checksum": document_checksum(one.record.document),
        }
        for source, one in outcomes.items()
        if one.record is not None
    ]
    upsert(
        session,
        CompanyDocumentRow,
        documents,
        key=("company_siren", "doc_type", "checksum"),
        fields=("retrieved_at",),
    )
    retrievals = [
        {
            "company_siren": siren,
            "source_api": source,
            "last_retrieved_at": now,
            "last_status": one.status,
            "last_http_status": one.error.http_status if one.error else 200,
            "last_error": one.error.error_code if one.error else None,
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
    knobs: EnrichmentOptions,
    now: datetime,
) -> None:
    retries = row.retries
    move_enrichment(session, row, evaluation.status, WORKER, now, evaluation.error)
    row.running_job_id, row.enrichment_error, row.last_run_at = None, evaluation.error, now
    row.due_at = due_at(row.siren, evaluation, retries, now, knobs.freshness)
    row.retries = retries + 1 if is_tried_again_soon(evaluation, retries) else 0
    if job.trigger == EnrichmentTrigger.MANUAL_REFRESH:
        row.last_manual_at = now
    job.state, job.status, job.finished_at = JobState.DONE, evaluation.status, now
    job.sources_success_count = evaluation.success
    job.required_failed_count, job.optional_failed_count = (
        evaluation.required_failed,
        evaluation.optional_failed,
    )
    job.core_identity_present, job.enrichment_error = (
        evaluation.core_identity_present,
        evaluation.error,
    )
    copy_status_to_requests(session, row, now)
    enqueue(
        session,
        [
            events.enrichment_completed(facts, id_, evaluation, now)
            for id_, facts in _waiting_requests(session, job)
        ],
    )


def _waiting_requests(
    session: Session, job: EnrichmentJobRow
) -> Sequence[tuple[int | None, JobFacts]]:
    """Whoever waits for the job, each in the name of its own tenant."""
    own = facts_of(job)
    rows = session.scalars(
        select(AttachmentRow).where(AttachmentRow.job_id == job.id).order_by(AttachmentRow.id)
    )
    waiting = [
        (one.request_id, replace(own, tenant_id=one.tenant_id, correlation_id=one.correlation_id))
        for one in rows
    ]
    return waiting or [(None, own)]
