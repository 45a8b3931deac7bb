"""How requests stand, many at once, for whoever follows them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.enrichment.domain.identifiers import vat_number
from automation_pipeline.enrichment.domain.record import FIELDS
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.domain.views import CompanyView
from automation_pipeline.enrichment.store.jobs import OPEN
from automation_pipeline.enrichment.store.requests import warnings_of
from automation_pipeline.enrichment.tables import CompanyRequestRow, CompanyRow, FieldSourceRow, JobRow
from automation_pipeline.storage.bulk import among


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Of a request. `is_running`: a job of its SIREN is open, which `open_job_id` names where it may be worked on from
    here; `company`: the last good snapshot."""

    request_id: int
    siren: str
    siret: str | None
    status: EnrichmentStatus
    error: str | None
    is_running: bool
    company: CompanyView | None
    open_job_id: int | None = None
    warnings: tuple[str, ...] = ()


def followed(session: Session, request_ids: Sequence[int]) -> Sequence[Standing]:
    """Four queries, however many there are."""
    rows = session.scalars(
        select(CompanyRequestRow)
        .where(among(session, CompanyRequestRow.id, request_ids))
        .order_by(CompanyRequestRow.id)
    ).all()
    sirens = [row.company_siren for row in rows]
    companies = _companies(session, sirens)
    is_theirs = among(session, JobRow.company_siren, sirens)
    running = select(JobRow.company_siren, JobRow.id).where(is_theirs, JobRow.state.in_(OPEN))
    open_jobs = dict(session.execute(running).tuples().all())
    return [
        Standing(
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
    for one in session.scalars(select(FieldSourceRow).where(among(session, FieldSourceRow.company_siren, sirens))):
        sources[one.company_siren][one.field] = one.source_api or f"user:{one.locked_by_user}"
    shown = ("siren", *FIELDS, "is_masked", "updated_at")
    return {
        row.siren: CompanyView.model_validate(
            {name: getattr(row, name) for name in shown}
            | {"vat_number": vat_number(row.siren), "field_sources": sources[row.siren]}
        )
        for row in session.scalars(select(CompanyRow).where(among(session, CompanyRow.siren, sirens)))
    }
