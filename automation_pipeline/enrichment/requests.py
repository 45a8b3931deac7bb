"""Requests for companies: create, open, refresh."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import select

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.logs import log
from automation_pipeline.enrichment import events
from automation_pipeline.enrichment.models import (
    GOOD_STATUSES,
    EnrichmentAnswer,
    EnrichmentOptions,
    EnrichmentStatus,
    EnrichmentTrigger,
    Identifiers,
    Requester,
    RequestOutcome,
    RequestShown,
    parse_request,
)
from automation_pipeline.enrichment.queries.jobs import add_jobs, attach, was_opened_today
from automation_pipeline.enrichment.queries.requests import (
    DATA_EXPIRED,
    OPEN,
    add_request,
    add_warnings,
    copy_status_to_requests,
    establishment_warnings,
    get_request,
    known_request,
    locked_enrichment,
    move_enrichment,
    not_looked_up,
    open_job,
    request_of,
    warnings_of,
)
from automation_pipeline.enrichment.rules.evaluation import cooldown_until, is_fresh
from automation_pipeline.enrichment.tables import (
    AttachmentRow,
    CompanyRequestRow,
    CompanyRow,
    EnrichmentJobRow,
    EnrichmentRow,
)
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue

_log = log(__name__)
_ANSWERING = GOOD_STATUSES | {EnrichmentStatus.FAILED}


def request_enrichment(
    given: Mapping[str, object],
    requester: Requester,
    *,
    options: EnrichmentOptions,
    database: Database,
    clock: Clock,
    force: bool = False,
) -> EnrichmentAnswer:
    """Request a company. A repeated idempotency key returns the earlier request. With `force`, a fresh
    company is refreshed too. Raises IdentifierError, and ConflictError if the key was used for
    another company."""
    wanted = parse_request(given)
    with database.transaction() as session:
        now = clock.now()
        row = locked_enrichment(session, wanted.identifiers.siren, now)
        known = known_request(session, requester)
        if known is None:
            request = add_request(session, wanted, requester, now)
            trigger = EnrichmentTrigger.REQUEST_CREATED
            return _enrich(
                session, row, request, trigger, requester, options=options, now=now, force=force
            )
        if known.company_siren != row.siren:
            raise ConflictError(
                f"The idempotency key of request {known.id} was for company {known.company_siren}."
            )
        return repeated_answer(session, known)


def open_request(
    request_id: int,
    requester: Requester,
    *,
    options: EnrichmentOptions,
    database: Database,
    clock: Clock,
) -> RequestShown:
    """Return the request with the stored data of its company. If the data is missing or stale, this
    requests a refresh, at most once per day."""
    now = clock.now()

    def needs_enrichment(session: Session, row: EnrichmentRow) -> bool:
        return not (
            is_answered(session, row, options, now)
            or was_opened_today(session, row.siren, now)
            or open_job(session, row.siren)
        )

    with database.reading() as session:
        siren = request_of(session, request_id, requester.tenant_id).company_siren
        row = session.get(EnrichmentRow, siren)
        is_needed = row is None or needs_enrichment(session, row)
    if is_needed:
        with database.transaction() as session:
            row = locked_enrichment(session, siren, now)
            if needs_enrichment(session, row):
                request = request_of(session, request_id, requester.tenant_id)
                trigger = EnrichmentTrigger.REQUEST_OPENED
                _enrich(session, row, request, trigger, requester, options=options, now=now)
    return database.read(get_request, request_id, requester.tenant_id)


def refresh_company(
    request_id: int,
    requester: Requester,
    *,
    options: EnrichmentOptions,
    database: Database,
    clock: Clock,
) -> EnrichmentAnswer:
    """Request a refresh of the company even if it is fresh, or attach the request to the open job.
    Raises NotFoundError, and ConflictError within the cooldown after another refresh."""
    with database.transaction() as session:
        now, request = clock.now(), request_of(session, request_id, requester.tenant_id)
        row = locked_enrichment(session, request.company_siren, now)
        status = EnrichmentStatus(row.status)
        until = cooldown_until(status, row.last_manual_at, now, options.cooldown)
        if until is not None and open_job(session, row.siren) is None:
            raise ConflictError(
                f"Company {row.siren} was refreshed a moment ago: try again from {iso(until)} on."
            )
        trigger = EnrichmentTrigger.MANUAL_REFRESH
        answer = _enrich(
            session, row, request, trigger, requester, options=options, now=now, force=True
        )
        row.last_manual_at = now
        return answer


def _enrich(  # noqa: PLR0913  the requester, the request and the options
    session: Session,
    row: EnrichmentRow,
    request: CompanyRequestRow,
    trigger: EnrichmentTrigger,
    requester: Requester,
    *,
    options: EnrichmentOptions,
    now: datetime,
    force: bool = False,
) -> EnrichmentAnswer:
    """Answer the request from the snapshot, attach it to the open job of the locked SIREN, or add a
    job for it."""
    requested = events.enrichment_requested(
        request.id,
        request.company_siren,
        request.siret,
        trigger,
        tenant_id=request.tenant_id,
        correlation_id=requester.correlation_id,
        now=now,
    )
    enqueue(session, [requested])
    job, outcome = open_job(session, row.siren), RequestOutcome.ATTACHED
    if job is None and not force and is_answered(session, row, options, now, request.siret):
        outcome = RequestOutcome.CACHE_HIT
        if request.siret is not None:
            known = establishment_warnings(session, request.siret, now - options.freshness)
            add_warnings(request, [not_looked_up(request.siret)] if known is None else known)
    elif job is None:
        outcome = RequestOutcome.ENQUEUED
        reason = "MANUAL" if force else "An establishment must be looked up."
        _mark_stale(session, row, requester.actor, now, options, reason)
        [job] = add_jobs(session, [Identifiers(row.siren, request.siret)], trigger, requester, now)
    if job is not None:
        attach(session, job, request, requester.correlation_id, now)
    request.enrichment_status, request.enrichment_error = row.status, row.enrichment_error
    request.enrichment_last_run_at = row.last_run_at
    answer = EnrichmentAnswer(
        request_id=request.id,
        siren=row.siren,
        outcome=outcome,
        status=EnrichmentStatus(row.status),
        job_id=None if job is None else job.id,
        warnings=warnings_of(request),
    )
    facts = events.EnrichmentFacts(
        job_id=answer.job_id,
        siren=row.siren,
        tenant_id=request.tenant_id,
        correlation_id=requester.correlation_id,
    )
    fields = events.log_fields(events.REQUESTED, facts, request_id=request.id)
    _log.info("Enrichment requested", outcome=outcome, **fields)
    return answer


def is_answered(
    session: Session,
    row: EnrichmentRow,
    options: EnrichmentOptions,
    now: datetime,
    siret: str | None = None,
) -> bool:
    """Whether the request needs no job: the snapshot is fresh, even if a later refresh failed, and
    the establishment was looked up. A company that failed without a snapshot is not retried within
    the cooldown."""
    company = session.get(CompanyRow, row.siren)
    if company is not None and is_fresh(company.updated_at, now, options.freshness):
        since = now - options.freshness
        if siret is None or establishment_warnings(session, siret, since) is not None:
            return row.status in _ANSWERING
    is_recent = row.last_run_at is not None and now - row.last_run_at < options.cooldown
    return row.status == EnrichmentStatus.FAILED and is_recent


def repeated_answer(session: Session, request: CompanyRequestRow) -> EnrichmentAnswer:
    """The current answer to an earlier request."""
    job_id = session.scalar(
        select(EnrichmentJobRow.id)
        .join(AttachmentRow, AttachmentRow.job_id == EnrichmentJobRow.id)
        .where(AttachmentRow.request_id == request.id, EnrichmentJobRow.state.in_(OPEN))
        .limit(1)
    )
    return EnrichmentAnswer(
        request_id=request.id,
        siren=request.company_siren,
        outcome=RequestOutcome.CACHE_HIT if job_id is None else RequestOutcome.ATTACHED,
        status=EnrichmentStatus(request.enrichment_status),
        job_id=job_id,
        warnings=warnings_of(request),
    )


def _mark_stale(
    session: Session,
    row: EnrichmentRow,
    actor: str,
    now: datetime,
    options: EnrichmentOptions,
    reason: str,
) -> None:
    """Mark a good snapshot as STALE before its refresh. `reason` is recorded for a fresh one."""
    company = session.get(CompanyRow, row.siren)
    if row.status not in GOOD_STATUSES or company is None:
        return
    is_old = not is_fresh(company.updated_at, now, options.freshness)
    if is_old or row.status == EnrichmentStatus.SUCCESS:
        reason = DATA_EXPIRED if is_old else reason
        move_enrichment(session, row, EnrichmentStatus.STALE, actor, now, reason)
        copy_status_to_requests(session, row, now)
