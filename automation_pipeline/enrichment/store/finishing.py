"""The end of a job, in one transaction: the snapshot, its sources, the status, the requests, and who is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.enrichment.domain import events
from automation_pipeline.enrichment.domain.documents import checksum
from automation_pipeline.enrichment.domain.due import due_at, is_tried_again_soon
from automation_pipeline.enrichment.domain.evaluation import Evaluation, evaluate, given_up
from automation_pipeline.enrichment.domain.events import JobFacts
from automation_pipeline.enrichment.domain.identifiers import Identifiers
from automation_pipeline.enrichment.domain.knobs import Knobs
from automation_pipeline.enrichment.domain.merging import changes, has_core_identity, merged, value_hash
from automation_pipeline.enrichment.domain.record import FIELDS, CompanyFields, Snapshot, SourceOutcome, SourceRecord
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.domain.vocabulary import DOCUMENT_TYPES, JobState, SourceApi, Trigger
from automation_pipeline.enrichment.store.requests import add_warnings, mirror, move_enrichment, not_looked_up
from automation_pipeline.enrichment.store.working import WORKER, Begun, facts_of, held_with_enrichment, outcomes_of
from automation_pipeline.enrichment.tables import (
    AttachmentRow,
    CompanyRequestRow,
    CompanyRow,
    DocumentRow,
    EnrichmentRow,
    FieldSourceRow,
    JobRow,
    RetrievalRow,
)
from automation_pipeline.storage.bulk import upsert
from automation_pipeline.storage.outbox import enqueue

_GOOD = frozenset({EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL})


@dataclass(frozen=True)
class Known:
    """The snapshot before the job, and the fields that users have locked."""

    snapshot: Snapshot | None
    locked: frozenset[str]


def finish(
    session: Session,
    begun: Begun,
    knobs: Knobs,
    now: datetime,
    looked_up: Mapping[str, Sequence[str]] | None = None,
) -> Evaluation:
    """`looked_up`: what is to be said of other establishments than the job's own. LostJobError: somebody else has the
    job by now, and nothing is written."""
    row, job = held_with_enrichment(session, begun, now)
    outcomes, known = outcomes_of(session, job.id), known_of(session, row.siren)
    records, failed = _records(outcomes), {source for source, one in outcomes.items() if one.has_failed}
    after = merged(known.snapshot, records, Identifiers(row.siren, job.company_siret), known.locked, failed)
    found = _found(row.siren, job, outcomes)
    evaluation = evaluate(
        tuple(outcomes.values()),
        core_identity_present=has_core_identity(found),
        optional_not_found_counts=knobs.optional_not_found_counts,
    )
    if evaluation.status in _GOOD:
        job.changes = changes(known.snapshot, after) or None
        told = {field: source for field, source in found.sources.items() if after.sources.get(field) is source}
        _keep_snapshot(session, after, told, known, now)
    _keep_what_was_said(session, row.siren, outcomes, now)
    own = [warning for record in records.values() for warning in record.warnings]
    _warn_requests(session, job, {**(looked_up or {}), job.company_siret or "": own}, evaluation)
    _end(session, row, job, evaluation, knobs, now)
    return evaluation


def give_up(session: Session, begun: Begun, knobs: Knobs, now: datetime) -> Evaluation:
    """A job whose workers were lost again and again."""
    row, job = held_with_enrichment(session, begun, now)
    outcomes = outcomes_of(session, job.id)
    evaluation = given_up(
        tuple(outcomes.values()),
        core_identity_present=has_core_identity(_found(row.siren, job, outcomes)),
        optional_not_found_counts=knobs.optional_not_found_counts,
    )
    _keep_what_was_said(session, row.siren, outcomes, now)
    _end(session, row, job, evaluation, knobs, now)
    return evaluation


def _warn_requests(
    session: Session, job: JobRow, looked_up: Mapping[str, Sequence[str]], evaluation: Evaluation
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


def _found(siren: str, job: JobRow, outcomes: Mapping[SourceApi, SourceOutcome]) -> Snapshot:
    """What is said now, whatever was known."""
    return merged(None, _records(outcomes), Identifiers(siren, job.company_siret))


def known_of(session: Session, siren: str) -> Known:
    company = session.get(CompanyRow, siren)
    rows = session.scalars(select(FieldSourceRow).where(FieldSourceRow.company_siren == siren)).all()
    locked = frozenset(row.field for row in rows if row.locked_by_user is not None)
    if company is None:
        return Known(None, locked)
    sources = {row.field: SourceApi(row.source_api) for row in rows if row.source_api is not None}
    values = CompanyFields(**{field: getattr(company, field) for field in FIELDS})
    return Known(Snapshot(siren, values, sources, company.is_masked), locked)


def _keep_snapshot(
    session: Session, after: Snapshot, told: Mapping[str, SourceApi], known: Known, now: datetime
) -> None:
    """`told`: who has said what now; the provenance of all else stays as it is."""
    values = {field: getattr(after.values, field) for field in FIELDS}
    row = {"siren": after.siren, "is_masked": after.is_masked, "updated_at": now, **values}
    upsert(session, CompanyRow, [row], key=("siren",), fields=[name for name in row if name != "siren"])
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


def _keep_what_was_said(
    session: Session, siren: str, outcomes: Mapping[SourceApi, SourceOutcome], now: datetime
) -> None:
    documents = [
        {
            "company_siren": siren,
            "doc_type": DOCUMENT_TYPES[source],
            "source_api": source,
            "retrieved_at": now,
            "payload_json": one.record.document,
            "checksum": checksum(one.record.document),
        }
        for source, one in outcomes.items()
        if one.record is not None
    ]
    upsert(
        session,
        DocumentRow,
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


def _end(
    session: Session, row: EnrichmentRow, job: JobRow, evaluation: Evaluation, knobs: Knobs, now: datetime
) -> None:
    retries = row.retries
    move_enrichment(session, row, evaluation.status, WORKER, now, evaluation.error)
    row.running_job_id, row.enrichment_error, row.last_run_at = None, evaluation.error, now
    row.due_at = due_at(row.siren, evaluation, retries, now, knobs.freshness)
    row.retries = retries + 1 if is_tried_again_soon(evaluation, retries) else 0
    if job.trigger == Trigger.MANUAL_REFRESH:
        row.last_manual_at = now
    job.state, job.status, job.finished_at = JobState.DONE, evaluation.status, now
    job.sources_success_count = evaluation.success
    job.required_failed_count, job.optional_failed_count = evaluation.required_failed, evaluation.optional_failed
    job.core_identity_present, job.enrichment_error = evaluation.core_identity_present, evaluation.error
    mirror(session, row, now)
    enqueue(session, [events.completed(facts, id_, evaluation, now) for id_, facts in _told(session, job)])


def _told(session: Session, job: JobRow) -> Sequence[tuple[int | None, JobFacts]]:
    """Whoever waits for the job, each in the name of its own tenant."""
    own = facts_of(job)
    rows = session.scalars(select(AttachmentRow).where(AttachmentRow.job_id == job.id).order_by(AttachmentRow.id))
    waiting = [
        (one.request_id, replace(own, tenant_id=one.tenant_id, correlation_id=one.correlation_id)) for one in rows
    ]
    return waiting or [(None, own)]
