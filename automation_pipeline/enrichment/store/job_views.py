"""The jobs of a company as they are shown; one alone is in `views`."""

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.enrichment.domain.views import JobSourceView, JobView
from automation_pipeline.enrichment.store.requests import request_of
from automation_pipeline.enrichment.tables import JobRow, JobSourceRow
from automation_pipeline.storage.bulk import among


def jobs_of_request(session: Session, request_id: int, tenant_id: str, limit: int) -> Sequence[JobView]:
    """Those of its SIREN, newest first, whoever asked for them. NotFoundError also for one of another tenant."""
    siren = request_of(session, request_id, tenant_id).company_siren
    query = select(JobRow).where(JobRow.company_siren == siren).order_by(JobRow.id.desc()).limit(limit)
    rows = session.scalars(query).all()
    of_jobs = select(JobSourceRow).where(among(session, JobSourceRow.job_id, [row.id for row in rows]))
    sources: dict[int, list[JobSourceView]] = defaultdict(list)
    for one in session.scalars(of_jobs.order_by(JobSourceRow.id)):
        known = {name: getattr(one, name) for name in JobSourceView.model_fields}
        sources[one.job_id].append(JobSourceView.model_validate(known))
    return [_job(row, sources[row.id]) for row in rows]


def _job(row: JobRow, sources: Sequence[JobSourceView]) -> JobView:
    known = {name: getattr(row, name) for name in JobView.model_fields if name != "sources"}
    return JobView.model_validate({**known, "sources": tuple(sources)})
