"""What is read to be shown: jobs, requests with their company, and how the sources stand."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.enrichment.domain.identifiers import vat_number
from automation_pipeline.enrichment.domain.record import FIELDS
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.domain.views import (
    CompanyRequestView,
    CompanyView,
    DocumentView,
    JobSourceView,
    JobView,
    RequestView,
    RetrievalView,
    SourceView,
)
from automation_pipeline.enrichment.domain.vocabulary import SourceApi
from automation_pipeline.enrichment.store.jobs import open_job
from automation_pipeline.enrichment.store.requests import request_of, warnings_of
from automation_pipeline.enrichment.store.sources import standings
from automation_pipeline.enrichment.tables import (
    CompanyRequestRow,
    CompanyRow,
    DocumentRow,
    FieldSourceRow,
    JobRow,
    JobSourceRow,
    RetrievalRow,
)

_AS_CALLED = [source.value for source in SourceApi]


def get_job(session: Session, job_id: int) -> JobView:
    row = session.get(JobRow, job_id)
    if row is None:
        raise NotFoundError(f"Enrichment job {job_id} does not exist.")
    its = select(JobSourceRow).where(JobSourceRow.job_id == job_id).order_by(JobSourceRow.id)
    sources = session.scalars(its.options(defer(JobSourceRow.document), defer(JobSourceRow.said)))
    told = tuple(JobSourceView.model_validate(_read(JobSourceView.model_fields, one)) for one in sources)
    known = {name: getattr(row, name) for name in JobView.model_fields if name != "sources"}
    return JobView.model_validate({**known, "sources": told})


def get_request(session: Session, request_id: int, tenant_id: str) -> RequestView:
    """NotFoundError also for one of another tenant."""
    row = request_of(session, request_id, tenant_id)
    siren, job = row.company_siren, open_job(session, row.company_siren)
    its = select(DocumentRow).where(DocumentRow.company_siren == siren).options(defer(DocumentRow.payload_json))
    documents = session.scalars(its.order_by(DocumentRow.id.desc()).limit(50))
    retrievals = session.scalars(select(RetrievalRow).where(RetrievalRow.company_siren == siren)).all()
    return RequestView(
        request=_request(row),
        company=find_company(session, siren),
        documents=tuple(DocumentView.model_validate(_read(DocumentView.model_fields, one)) for one in documents),
        source_retrievals=tuple(
            RetrievalView.model_validate(_read(RetrievalView.model_fields, one))
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
    return [_request(row) for row in rows]


def find_company(session: Session, siren: str) -> CompanyView | None:
    row = session.get(CompanyRow, siren)
    if row is None:
        return None
    sources = session.scalars(select(FieldSourceRow).where(FieldSourceRow.company_siren == siren))
    field_sources = {one.field: one.source_api or f"user:{one.locked_by_user}" for one in sources}
    values = {name: getattr(row, name) for name in ("siren", *FIELDS, "is_masked", "updated_at")}
    return CompanyView.model_validate({**values, "vat_number": vat_number(siren), "field_sources": field_sources})


def source_views(session: Session, now: datetime) -> Sequence[SourceView]:
    return [
        SourceView(
            source_api=one.source,
            resting_until=one.open_until if one.is_resting(now) else None,
            reason=one.open_reason if one.is_resting(now) else None,
            failures=one.failures,
            calls_today=one.used_on(now.date()),
        )
        for one in standings(session).values()
    ]


def _request(row: CompanyRequestRow) -> CompanyRequestView:
    known = {name: getattr(row, name) for name in CompanyRequestView.model_fields if name != "warnings"}
    status = EnrichmentStatus(row.enrichment_status)
    return CompanyRequestView.model_validate({**known, "enrichment_status": status, "warnings": warnings_of(row)})


def _read(names: Iterable[str], row: object) -> dict[str, object]:
    return {name: getattr(row, name) for name in names}
