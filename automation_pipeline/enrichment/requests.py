"""Requests for companies: make, open, refresh."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import select

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.logs import log
from automation_pipeline.enrichment import events
from automation_pipeline.enrichment.events import log_fields
from automation_pipeline.enrichment.models import (
    Asked,
    EnrichmentAnswer,
    EnrichmentOptions,
    EnrichmentStatus,
    EnrichmentTrigger,
    Identifiers,
    RequestView,
    parse_request,
)
from automation_pipeline.enrichment.queries.jobs import (
    OPEN,
    add_job,
    attach,
    open_job,
    was_opened_today,
)
from automation_pipeline.enrichment.queries.requests import (
    Requester,
    add_request,
    add_warnings,
    company_of,
    copy_status_to_requests,
    enrichment_of,
    establishment_warnings,
    known_request,
    locked_enrichment,
    move_enrichment,
    not_looked_up,
    request_of,
    warnings_of,
)
from automation_pipeline.enrichment.queries.views import get_request
from automation_pipeline.enrichment.rules.evaluation import cooldown_until, is_fresh
from automation_pipeline.enrichment.tables import (
    AttachmentRow,
    CompanyRequestRow,
    EnrichmentJobRow,
    EnrichmentRow,
)
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue

_log = log(__name__)
_SNAPSHOTS = frozenset({EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL})
_ANSWERS = _SNAPSHOTS | {EnrichmentStatus.FAILED}
MANUAL_REASON, STALE_REASON = "MANUAL", "Its time is over."
ESTABLISHMENT = "An establishment is looked up."


def enrich_request(  # noqa: PLR0913  who asks for what, and how
    session: Session,
    row: EnrichmentRow,
    request: CompanyRequestRow,
    trigger: EnrichmentTrigger,
    asking: Requester,
    *,
    knobs: EnrichmentOptions,
    now: datetime,
    force: bool = False,
) -> EnrichmentAnswer:
    """Of a SIREN that is locked. What is told of it first is the wish, then what comes of it."""
    enqueue(
        session,
        [
            events.enrichment_requested(
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
            return _answer(request, row, Asked.CACHE_HIT, None, asking)
        _mark_stale(
            session, row, asking.actor, now, knobs, MANUAL_REASON if force else ESTABLISHMENT
        )
        identifiers = Identifiers(row.siren, request.siret)
        job, asked = add_job(session, identifiers, trigger, asking, now), Asked.ENQUEUED
    attach(session, job, request, asking, now)
    return _answer(request, row, asked, job.id, asking)


def is_answered(
    session: Session,
    row: EnrichmentRow,
    knobs: EnrichmentOptions,
    now: datetime,
    siret: str | None = None,
) -> bool:
    """A snapshot is fresh, also where a refresh of it failed since, and the establishment was
    looked up. One that has just failed without any is not asked about again and again."""
    company = company_of(session, row.siren)
    if company is not None and is_fresh(company.updated_at, now, knobs.freshness):
        since = now - knobs.freshness
        if siret is None or establishment_warnings(session, siret, since) is not None:
            return row.status in _ANSWERS
    is_new = row.last_run_at is not None and now - row.last_run_at < knobs.cooldown
    return row.status == EnrichmentStatus.FAILED and is_new


def repeated_answer(session: Session, request: CompanyRequestRow) -> EnrichmentAnswer:
    """What was said when it was made, as it stands now."""
    of_request = select(EnrichmentJobRow.id).join(
        AttachmentRow, AttachmentRow.job_id == EnrichmentJobRow.id
    )
    waits_for = session.scalar(
        of_request.where(
            AttachmentRow.request_id == request.id, EnrichmentJobRow.state.in_(OPEN)
        ).limit(1)
    )
    return EnrichmentAnswer(
        request_id=request.id,
        siren=request.company_siren,
        asked=Asked.CACHE_HIT if waits_for is None else Asked.ATTACHED,
        status=EnrichmentStatus(request.enrichment_status),
        job_id=waits_for,
        warnings=warnings_of(request),
    )


def _warn_of_establishment(
    session: Session, request: CompanyRequestRow, knobs: EnrichmentOptions, now: datetime
) -> None:
    if request.siret is not None:
        known = establishment_warnings(session, request.siret, now - knobs.freshness)
        add_warnings(request, [not_looked_up(request.siret)] if known is None else known)


def _mark_stale(
    session: Session,
    row: EnrichmentRow,
    actor: str,
    now: datetime,
    knobs: EnrichmentOptions,
    reason: str,
) -> None:
    """The only way from a good snapshot to another refresh. `reason`: why one that is fresh is
    refreshed."""
    company = company_of(session, row.siren)
    if row.status not in _SNAPSHOTS or company is None:
        return
    is_old = not is_fresh(company.updated_at, now, knobs.freshness)
    if is_old or row.status == EnrichmentStatus.SUCCESS:
        move_enrichment(
            session, row, EnrichmentStatus.STALE, actor, now, STALE_REASON if is_old else reason
        )
        copy_status_to_requests(session, row, now)


def _answer(
    request: CompanyRequestRow,
    row: EnrichmentRow,
    asked: Asked,
    job_id: int | None,
    asking: Requester,
) -> EnrichmentAnswer:
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
    return EnrichmentAnswer(
        request_id=request.id,
        siren=row.siren,
        asked=asked,
        status=EnrichmentStatus(row.status),
        job_id=job_id,
        warnings=warnings_of(request),
    )


def request_enrichment(
    given: Mapping[str, object],
    asking: Requester,
    *,
    knobs: EnrichmentOptions,
    database: Database,
    clock: Clock,
    force: bool = False,
) -> EnrichmentAnswer:
    """IdentifierError names what is wrong. The same key again is the same request; ConflictError:
    it was for another company. With `force`, what is fresh is asked for anew."""
    wanted = parse_request(given)
    with database.transaction() as session:
        now = clock.now()
        row = locked_enrichment(session, wanted.identifiers.siren, now)
        known = known_request(session, asking)
        if known is not None:
            if known.company_siren != row.siren:
                raise ConflictError(
                    f"The idempotency key of request {known.id} was for company {known.company_siren}."
                )
            return repeated_answer(session, known)
        request = add_request(session, wanted.identifiers, wanted.raw, asking, now)
        return enrich_request(
            session,
            row,
            request,
            EnrichmentTrigger.REQUEST_CREATED,
            asking,
            knobs=knobs,
            now=now,
            force=force,
        )


def open_request(
    request_id: int,
    asking: Requester,
    *,
    knobs: EnrichmentOptions,
    database: Database,
    clock: Clock,
) -> RequestView:
    """What is known now. A SIREN is asked about once a day because somebody looks at it."""
    now = clock.now()
    with database.reading() as session:
        siren = request_of(session, request_id, asking.tenant_id).company_siren
        row = enrichment_of(session, siren)
        is_wanting = row is None or _needs_enrichment(session, row, knobs, now)
    if is_wanting:
        with database.transaction() as session:
            row = locked_enrichment(session, siren, now)
            if _needs_enrichment(session, row, knobs, now):
                request = request_of(session, request_id, asking.tenant_id)
                enrich_request(
                    session,
                    row,
                    request,
                    EnrichmentTrigger.REQUEST_OPENED,
                    asking,
                    knobs=knobs,
                    now=now,
                )
    with database.reading() as session:
        return get_request(session, request_id, asking.tenant_id)


def _needs_enrichment(
    session: Session, row: EnrichmentRow, knobs: EnrichmentOptions, now: datetime
) -> bool:
    if is_answered(session, row, knobs, now) or was_opened_today(session, row.siren, now):
        return False
    return open_job(session, row.siren) is None


def refresh_company(
    request_id: int,
    asking: Requester,
    *,
    knobs: EnrichmentOptions,
    database: Database,
    clock: Clock,
) -> EnrichmentAnswer:
    """ConflictError: it was refreshed by hand a moment ago. Where a job is open already, the
    request waits for that."""
    with database.transaction() as session:
        now, request = clock.now(), request_of(session, request_id, asking.tenant_id)
        row = locked_enrichment(session, request.company_siren, now)
        until = cooldown_until(
            EnrichmentStatus(row.status), row.last_manual_at, now, knobs.cooldown
        )
        if until is not None and open_job(session, row.siren) is None:
            raise ConflictError(
                f"Company {row.siren} was refreshed a moment ago: again from {iso(until)} on."
            )
        asked = enrich_request(
            session,
            row,
            request,
            EnrichmentTrigger.MANUAL_REFRESH,
            asking,
            knobs=knobs,
            now=now,
            force=True,
        )
        row.last_manual_at = now
        return asked
