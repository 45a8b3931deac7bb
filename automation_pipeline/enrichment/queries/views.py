"""Queries about requests, companies, jobs and sources as they are shown."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.enrichment.models import (
    FIELDS,
    CompanyRequestView,
    CompanyView,
    DocumentView,
    EnrichmentStatus,
    JobSourceView,
    JobView,
    RequestView,
    RetrievalView,
    SourceApi,
    SourceView,
    vat_number,
)
from automation_pipeline.enrichment.queries.jobs import OPEN, open_job
from automation_pipeline.enrichment.queries.requests import request_of, warnings_of
from automation_pipeline.enrichment.queries.sources import source_statuses
from automation_pipeline.enrichment.tables import (
    CompanyDocumentRow,
    CompanyRequestRow,
    CompanyRow,
    EnrichmentJobRow,
    EnrichmentJobSourceRow,
    FieldSourceRow,
    RetrievalRow,
)
from automation_pipeline.storage.statements import among

_AS_CALLED = [source.value for source in SourceApi]


def get_job(session: Session, job_id: int) -> JobView:
    row = session.get(EnrichmentJobRow, job_id)
    if row is None:
        raise NotFoundError(f"Enrichment job {job_id} not found")
    its = (
        select(EnrichmentJobSourceRow)
        .where(EnrichmentJobSourceRow.job_id == job_id)
        .order_by(EnrichmentJobSourceRow.id)
    )
    sources = session.scalars(
        its.options(defer(EnrichmentJobSourceRow.document), defer(EnrichmentJobSourceRow.said))
    )
    told = tuple(
        JobSourceView.model_validate(_columns(JobSourceView.model_fields, one)) for one in sources
    )
    known = {name: getattr(row, name) for name in JobView.model_fields if name != "sources"}
    return JobView.model_validate({**known, "sources": told})


def get_request(session: Session, request_id: int, tenant_id: str) -> RequestView:
    """NotFoundError also for one of another tenant."""
    row = request_of(session, request_id, tenant_id)
    siren, job = row.company_siren, open_job(session, row.company_siren)
    its = (
        select(CompanyDocumentRow)
        .where(CompanyDocumentRow.company_siren == siren)
        .options(defer(CompanyDocumentRow.payload_json))
    )
    documents = session.scalars(its.order_by(CompanyDocumentRow.id.desc()).limit(50))
    retrievals = session.scalars(
        select(RetrievalRow).where(RetrievalRow.company_siren == siren)
    ).all()
    return RequestView(
        request=_request_view(row),
        company=find_company(session, siren),
        documents=tuple(
            DocumentView.model_validate(_columns(DocumentView.model_fields, one))
            for one in documents
        ),
        source_retrievals=tuple(
            RetrievalView.model_validate(_columns(RetrievalView.model_fields, one))
            for one in sorted(retrievals, key=lambda row: _AS_CALLED.index(row.source_api))
        ),
        enrichment_running=job is not None,
        job_id=None if job is None else job.id,
    )


def list_requests(
    session: Session, tenant_id: str, *, siren: str | None = None, limit: int, offset: int = 0
) -> Sequence[CompanyRequestView]:
    """Newest first."""
    query = select(CompanyRequestRow).where(CompanyRequestRow.tenant_id == tenant_id)
    if siren is not None:
        query = query.where(CompanyRequestRow.company_siren == siren)
    rows = session.scalars(query.order_by(CompanyRequestRow.id.desc()).limit(limit).offset(offset))
    return [_request_view(row) for row in rows]


def find_company(session: Session, siren: str) -> CompanyView | None:
    row = session.get(CompanyRow, siren)
    if row is None:
        return None
    sources = session.scalars(select(FieldSourceRow).where(FieldSourceRow.company_siren == siren))
    field_sources = {one.field: one.source_api or f"user:{one.locked_by_user}" for one in sources}
    values = {name: getattr(row, name) for name in ("siren", *FIELDS, "is_masked", "updated_at")}
    return CompanyView.model_validate(
        {**values, "vat_number": vat_number(siren), "field_sources": field_sources}
    )


def source_views(session: Session, now: datetime) -> Sequence[SourceView]:
    return [
        SourceView(
            source_api=one.source,
            resting_until=one.open_until if one.is_resting(now) else None,
            reason=one.open_reason if one.is_resting(now) else None,
            failures=one.failures,
            calls_today=one.used_on(now.date()),
        )
        for one in source_statuses(session).values()
    ]


def _request_view(row: CompanyRequestRow) -> CompanyRequestView:
    known = {
        name: getattr(row, name) for name in CompanyRequestView.model_fields if name != "warnings"
    }
    status = EnrichmentStatus(row.enrichment_status)
    return CompanyRequestView.model_validate(
        {**known, "enrichment_status": status, "warnings": warnings_of(row)}
    )


def _columns(names: Iterable[str], row: object) -> dict[str, object]:
    return {name: getattr(row, name) for name in names}


def jobs_of_request(
    session: Session, request_id: int, tenant_id: str, limit: int
) -> Sequence[JobView]:
    """Those of its SIREN, newest first, whoever asked for them. NotFoundError also for one of
    another tenant."""
    siren = request_of(session, request_id, tenant_id).company_siren
    query = (
        select(EnrichmentJobRow)
        .where(EnrichmentJobRow.company_siren == siren)
        .order_by(EnrichmentJobRow.id.desc())
        .limit(limit)
    )
    rows = session.scalars(query).all()
    of_jobs = select(EnrichmentJobSourceRow).where(
        among(session, EnrichmentJobSourceRow.job_id, [row.id for row in rows])
    )
    sources: dict[int, list[JobSourceView]] = defaultdict(list)
    for one in session.scalars(of_jobs.order_by(EnrichmentJobSourceRow.id)):
        known = {name: getattr(one, name) for name in JobSourceView.model_fields}
        sources[one.job_id].append(JobSourceView.model_validate(known))
    return [_job_view(row, sources[row.id]) for row in rows]


def _job_view(row: EnrichmentJobRow, sources: Sequence[JobSourceView]) -> JobView:
    known = {name: getattr(row, name) for name in JobView.model_fields if name != "sources"}
    return JobView.model_validate({**known, "sources": tuple(sources)})


@dataclass(frozen=True, kw_only=True)
class RequestStatus:
    """Of a request. `is_running`: a job of its SIREN is open, which `open_job_id` names where it
    may be worked on from here; `company`: the last good snapshot."""

    request_id: int
    siren: str
    siret: str | None
    status: EnrichmentStatus
    error: str | None
    is_running: bool
    company: CompanyView | None
    open_job_id: int | None = None
    warnings: tuple[str, ...] = ()


def request_statuses(session: Session, request_ids: Sequence[int]) -> Sequence[RequestStatus]:
    """Four queries, however many there are."""
    rows = session.scalars(
        select(CompanyRequestRow)
        .where(among(session, CompanyRequestRow.id, request_ids))
        .order_by(CompanyRequestRow.id)
    ).all()
    sirens = [row.company_siren for row in rows]
    companies = _companies(session, sirens)
    is_theirs = among(session, EnrichmentJobRow.company_siren, sirens)
    running = select(EnrichmentJobRow.company_siren, EnrichmentJobRow.id).where(
        is_theirs, EnrichmentJobRow.state.in_(OPEN)
    )
    open_jobs = dict(session.execute(running).tuples().all())
    return [
        RequestStatus(
            request_id=row.id,
            siren=row.company_siren,
            siret=row.siret,
            status=EnrichmentStatus(row.enrichment_status),
            error=row.enrichment_error,
            is_running=row.company_siren in open_jobs,
            company=companies.get(row.company_siren),
            open_job_id=open_jobs.get(row.company_siren),
            warnings=warnings_of(row),
        )
        for row in rows
    ]


def _companies(session: Session, sirens: Sequence[str]) -> dict[str, CompanyView]:
    sources: dict[str, dict[str, str]] = defaultdict(dict)
    for one in session.scalars(
        select(FieldSourceRow).where(among(session, FieldSourceRow.company_siren, sirens))
    ):
        sources[one.company_siren][one.field] = one.source_api or f"user:{one.locked_by_user}"
    shown = ("siren", *FIELDS, "is_masked", "updated_at")
    return {
        row.siren: CompanyView.model_validate(
            {name: getattr(row, name) for name in shown}
            | {"vat_number": vat_number(row.siren), "field_sources": sources[row.siren]}
        )
        for row in session.scalars(
            select(CompanyRow).where(among(session, CompanyRow.siren, sirens))
        )
    }
