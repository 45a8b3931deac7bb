"""What becomes of somebody's wish for a company: the answer that is there, or the job of the SIREN."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.logs import log
from automation_pipeline.enrichment.domain import events
from automation_pipeline.enrichment.domain.asked import Enriching
from automation_pipeline.enrichment.domain.due import is_fresh
from automation_pipeline.enrichment.domain.identifiers import Identifiers
from automation_pipeline.enrichment.domain.knobs import Knobs
from automation_pipeline.enrichment.domain.log_fields import log_fields
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.domain.vocabulary import Asked, Trigger
from automation_pipeline.enrichment.store.jobs import OPEN, add_job, attach, open_job
from automation_pipeline.enrichment.store.requests import (
    Asking,
    add_warnings,
    company_of,
    establishment_warnings,
    mirror,
    move_enrichment,
    not_looked_up,
    warnings_of,
)
from automation_pipeline.enrichment.tables import AttachmentRow, CompanyRequestRow, EnrichmentRow, JobRow
from automation_pipeline.storage.outbox import enqueue

_log = log(__name__)
_SNAPSHOTS = frozenset({EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL})
_ANSWERS = _SNAPSHOTS | {EnrichmentStatus.FAILED}
MANUAL, TOO_OLD = "MANUAL", "Its time is over."
ESTABLISHMENT = "An establishment is looked up."


def ask(  # noqa: PLR0913  who asks for what, and how
    session: Session,
    row: EnrichmentRow,
    request: CompanyRequestRow,
    trigger: Trigger,
    asking: Asking,
    *,
    knobs: Knobs,
    now: datetime,
    force: bool = False,
) -> Enriching:
    """Of a SIREN that is locked. What is told of it first is the wish, then what comes of it."""
    enqueue(
        session,
        [
            events.requested(
                request.id,
                request.company_siren,
                request.siret,
                trigger,
                tenant_id=request.tenant_id,
                correlation_id=asking.correlation_id,
                now=now,
            )
        ],
    )
    job = open_job(session, row.siren)
    asked = Asked.ATTACHED
    if job is None:
        if not force and is_answered(session, row, knobs, now, request.siret):
            _warn_of_establishment(session, request, knobs, now)
            return _told(request, row, Asked.CACHE_HIT, None, asking)
        _grow_stale(session, row, asking.actor, now, knobs, MANUAL if force else ESTABLISHMENT)
        identifiers = Identifiers(row.siren, request.siret)
        job, asked = add_job(session, identifiers, trigger, asking, now), Asked.ENQUEUED
    attach(session, job, request, asking, now)
    return _told(request, row, asked, job.id, asking)


def is_answered(session: Session, row: EnrichmentRow, knobs: Knobs, now: datetime, siret: str | None = None) -> bool:
    """A snapshot is fresh, also where a refresh of it failed since, and the establishment was looked up. One that has
    just failed without any is not asked about again and again."""
    company = company_of(session, row.siren)
    if company is not None and is_fresh(company.updated_at, now, knobs.freshness):
        since = now - knobs.freshness
        if siret is None or establishment_warnings(session, siret, since) is not None:
            return row.status in _ANSWERS
    is_new = row.last_run_at is not None and now - row.last_run_at < knobs.cooldown
    return row.status == EnrichmentStatus.FAILED and is_new


def as_asked(session: Session, request: CompanyRequestRow) -> Enriching:
    """What was said when it was made, as it stands now."""
    of_request = select(JobRow.id).join(AttachmentRow, AttachmentRow.job_id == JobRow.id)
    waits_for = session.scalar(
        of_request.where(AttachmentRow.request_id == request.id, JobRow.state.in_(OPEN)).limit(1)
    )
    return Enriching(
        request_id=request.id,
        siren=request.company_siren,
        asked=Asked.CACHE_HIT if waits_for is None else Asked.ATTACHED,
        status=EnrichmentStatus(request.enrichment_status),
        job_id=waits_for,
        warnings=warnings_of(request),
    )


def _warn_of_establishment(session: Session, request: CompanyRequestRow, knobs: Knobs, now: datetime) -> None:
    if request.siret is not None:
        known = establishment_warnings(session, request.siret, now - knobs.freshness)
        add_warnings(request, [not_looked_up(request.siret)] if known is None else known)


def _grow_stale(session: Session, row: EnrichmentRow, actor: str, now: datetime, knobs: Knobs, reason: str) -> None:
    """The only way from a good snapshot to another refresh. `reason`: why one that is fresh is refreshed."""
    company = company_of(session, row.siren)
    if row.status not in _SNAPSHOTS or company is None:
        return
    is_old = not is_fresh(company.updated_at, now, knobs.freshness)
    if is_old or row.status == EnrichmentStatus.SUCCESS:
        move_enrichment(session, row, EnrichmentStatus.STALE, actor, now, TOO_OLD if is_old else reason)
        mirror(session, row, now)


def _told(
    request: CompanyRequestRow, row: EnrichmentRow, asked: Asked, job_id: int | None, asking: Asking
) -> Enriching:
    request.enrichment_status, request.enrichment_error = row.status, row.enrichment_error
    request.enrichment_last_run_at = row.last_run_at
    fields = log_fields(
        events.REQUESTED,
        siren=row.siren,
        tenant_id=request.tenant_id,
        correlation_id=asking.correlation_id,
        request_id=request.id,
        job_id=job_id,
    )
    _log.info("Enrichment was asked for", outcome=asked, **fields)
    return Enriching(
        request_id=request.id,
        siren=row.siren,
        asked=asked,
        status=EnrichmentStatus(row.status),
        job_id=job_id,
        warnings=warnings_of(request),
    )
