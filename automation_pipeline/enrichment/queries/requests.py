"""Queries about requests, the enrichment of a SIREN, companies and their coverage."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import case, exists, func, select, update
from sqlalchemy.orm import Session, defer

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.enrichment.models import (
    ENRICHMENT,
    FIELDS,
    GOOD_STATUSES,
    CompanyRequestShown,
    CompanyShown,
    DocumentShown,
    EnrichmentStatus,
    JobState,
    Requester,
    RequestShown,
    RetrievalShown,
    SourceApi,
    WantedCompany,
    vat_number,
)
from automation_pipeline.enrichment.rules.evaluation import AGES, GRACE, OLDER, CompanyCoverage
from automation_pipeline.enrichment.tables import (
    AttachmentRow,
    CompanyDocumentRow,
    CompanyRequestRow,
    CompanyRow,
    EnrichmentJobRow,
    EnrichmentRow,
    FieldSourceRow,
    RetrievalRow,
)
from automation_pipeline.storage.history import Transition, record_transitions
from automation_pipeline.storage.statements import among, insert_into

OPEN = (JobState.PENDING, JobState.RUNNING)
# The recorded reason for which a company becomes STALE at the end of its lifetime.
DATA_EXPIRED = "The data has expired."
MAX_DOCUMENTS = 50
HAS_OPEN_JOB = exists().where(
    EnrichmentJobRow.company_siren == EnrichmentRow.siren, EnrichmentJobRow.state.in_(OPEN)
)


def add_request(
    session: Session, wanted: WantedCompany, requester: Requester, now: datetime
) -> CompanyRequestRow:
    identifiers = wanted.identifiers
    row = CompanyRequestRow(
        tenant_id=requester.tenant_id,
        idempotency_key=requester.idempotency_key,
        siren=identifiers.siren,
        siret=identifiers.siret,
        siren_raw=wanted.raw.siren,
        siret_raw=wanted.raw.siret,
        company_siren=identifiers.siren,
        correlation_id=requester.correlation_id,
        created_by=requester.actor,
        created_at=now,
        updated_at=now,
    )
    add_warnings(row, identifiers.warnings)
    session.add(row)
    session.flush()
    return row


def warnings_of(request: CompanyRequestRow) -> tuple[str, ...]:
    stored = (request.warnings or {}).get("warnings", ())
    return tuple(map(str, stored)) if isinstance(stored, list | tuple) else ()  # pyright: ignore[reportUnknownArgumentType]  what JSON holds


def add_warnings(request: CompanyRequestRow, warnings: Sequence[str]) -> None:
    """Add the warnings that the request does not have yet."""
    if warnings:
        request.warnings = {"warnings": [*dict.fromkeys([*warnings_of(request), *warnings])]}


def not_looked_up(siret: str) -> str:
    return f"The establishment {siret} could not be looked up: request it again later."


def establishment_warnings(session: Session, siret: str, since: datetime) -> Sequence[str] | None:
    """Return the warnings of the newest request for the establishment since then. None if no job
    has looked it up."""
    query = (
        select(CompanyRequestRow)
        .join(AttachmentRow, AttachmentRow.request_id == CompanyRequestRow.id)
        .join(EnrichmentJobRow, EnrichmentJobRow.id == AttachmentRow.job_id)
        .where(
            CompanyRequestRow.company_siren == siret[:9],
            CompanyRequestRow.siret == siret,
            EnrichmentJobRow.status.in_(GOOD_STATUSES),
            EnrichmentJobRow.finished_at > since,
        )
        .order_by(EnrichmentJobRow.id.desc())
        .limit(1)
    )
    request = session.scalar(query)
    if request is None or not_looked_up(siret) in warnings_of(request):
        return None
    return warnings_of(request)


def known_request(session: Session, requester: Requester) -> CompanyRequestRow | None:
    """Return the tenant's earlier request with the same idempotency key."""
    if requester.idempotency_key is None:
        return None
    query = select(CompanyRequestRow).where(
        CompanyRequestRow.tenant_id == requester.tenant_id,
        CompanyRequestRow.idempotency_key == requester.idempotency_key,
    )
    return session.scalar(query)


def request_of(session: Session, request_id: int, tenant_id: str) -> CompanyRequestRow:
    """Raises NotFoundError also for a request of another tenant."""
    row = session.get(CompanyRequestRow, request_id)
    if row is None or row.tenant_id != tenant_id:
        raise NotFoundError(f"Request {request_id} not found")
    return row


def locked_enrichment(session: Session, siren: str, now: datetime) -> EnrichmentRow:
    """Lock the row of the SIREN, and create it if it is missing. The lock serialises all changes to the SIREN."""
    row = {
        "siren": siren,
        "status": EnrichmentStatus.PENDING,
        "retries": 0,
        "created_at": now,
        "updated_at": now,
    }
    session.execute(
        insert_into(session, EnrichmentRow)
        .values(**row)
        .on_conflict_do_nothing(index_elements=["siren"])
    )
    query = select(EnrichmentRow).where(EnrichmentRow.siren == siren).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()


def move_enrichment(
    session: Session,
    row: EnrichmentRow,
    to: EnrichmentStatus,
    actor: str,
    now: datetime,
    reason: str | None = None,
) -> None:
    """Change the status of a locked row and log the transition. Raises IllegalMoveError."""
    previous = EnrichmentStatus(row.status)
    row.status, row.updated_at = ENRICHMENT.move(previous, to), now
    record_transitions(
        session, [Transition(ENRICHMENT.name, row.siren, previous, to, actor, now, reason)]
    )


def copy_status_to_requests(session: Session, row: EnrichmentRow, now: datetime) -> None:
    """Copy the status of a locked SIREN to all its requests."""
    session.flush()
    session.execute(
        update(CompanyRequestRow)
        .where(CompanyRequestRow.company_siren == row.siren)
        .values(
            enrichment_status=row.status,
            enrichment_last_run_at=row.last_run_at,
            enrichment_error=row.enrichment_error,
            updated_at=now,
        )
        .execution_options(synchronize_session=False)
    )


def open_job(session: Session, siren: str) -> EnrichmentJobRow | None:
    """Return the open job of the SIREN; there is at most one."""
    query = select(EnrichmentJobRow).where(
        EnrichmentJobRow.company_siren == siren, EnrichmentJobRow.state.in_(OPEN)
    )
    return session.scalar(query)


def get_request(session: Session, request_id: int, tenant_id: str) -> RequestShown:
    """Raises NotFoundError also for a request of another tenant."""
    siren = request_of(session, request_id, tenant_id).company_siren
    [shown] = request_statuses(session, [request_id])
    documents = (
        select(CompanyDocumentRow)
        .where(CompanyDocumentRow.company_siren == siren)
        .options(defer(CompanyDocumentRow.payload_json))
        .order_by(CompanyDocumentRow.id.desc())
        .limit(MAX_DOCUMENTS)
    )
    retrievals = sorted(
        session.scalars(select(RetrievalRow).where(RetrievalRow.company_siren == siren)),
        key=lambda row: [*SourceApi].index(SourceApi(row.source_api)),
    )
    return shown.model_copy(
        update={
            "documents": tuple(
                DocumentShown.model_validate(one, from_attributes=True)
                for one in session.scalars(documents)
            ),
            "source_retrievals": tuple(
                RetrievalShown.model_validate(one, from_attributes=True) for one in retrievals
            ),
        }
    )


def list_requests(
    session: Session, tenant_id: str, *, siren: str | None = None, limit: int, offset: int = 0
) -> Sequence[CompanyRequestShown]:
    """Return a page of the tenant's requests, newest first."""
    query = select(CompanyRequestRow).where(CompanyRequestRow.tenant_id == tenant_id)
    if siren is not None:
        query = query.where(CompanyRequestRow.company_siren == siren)
    rows = session.scalars(query.order_by(CompanyRequestRow.id.desc()).limit(limit).offset(offset))
    return [CompanyRequestShown.model_validate(row, from_attributes=True) for row in rows]


def request_statuses(session: Session, request_ids: Sequence[int]) -> list[RequestShown]:
    """Return the requests with their companies, but without documents and retrievals. The number of
    queries does not depend on the number of requests."""
    rows = session.scalars(
        select(CompanyRequestRow)
        .where(among(session, CompanyRequestRow.id, request_ids))
        .order_by(CompanyRequestRow.id)
    ).all()
    sirens = [row.company_siren for row in rows]
    companies = find_companies(session, sirens)
    running = select(EnrichmentJobRow.company_siren, EnrichmentJobRow.id).where(
        among(session, EnrichmentJobRow.company_siren, sirens), EnrichmentJobRow.state.in_(OPEN)
    )
    open_jobs = dict(session.execute(running).tuples().all())
    return [
        RequestShown(
            request=CompanyRequestShown.model_validate(row, from_attributes=True),
            company=companies.get(row.company_siren),
            documents=(),
            source_retrievals=(),
            enrichment_running=row.company_siren in open_jobs,
            job_id=open_jobs.get(row.company_siren),
        )
        for row in rows
    ]


def find_companies(session: Session, sirens: Sequence[str]) -> dict[str, CompanyShown]:
    """Return the snapshots by SIREN, with the source of each field."""
    rows = session.scalars(select(CompanyRow).where(among(session, CompanyRow.siren, sirens))).all()
    sources: dict[str, dict[str, str]] = defaultdict(dict)
    if rows:
        of_companies = among(session, FieldSourceRow.company_siren, sirens)
        for one in session.scalars(select(FieldSourceRow).where(of_companies)):
            sources[one.company_siren][one.field] = one.source_api or f"user:{one.locked_by_user}"
    return {
        row.siren: CompanyShown(
            siren=row.siren,
            is_masked=row.is_masked,
            updated_at=row.updated_at,
            vat_number=vat_number(row.siren),
            field_sources=sources[row.siren],
            **{name: getattr(row, name) for name in FIELDS},
        )
        for row in rows
    }


def enrichments_by_status(session: Session) -> Mapping[EnrichmentStatus, int]:
    """Return the number of companies by status, including zeros."""
    counts = dict(
        session.execute(select(EnrichmentRow.status, func.count()).group_by(EnrichmentRow.status))
        .tuples()
        .all()
    )
    return {status: counts.get(status, 0) for status in EnrichmentStatus}


def stale_backlog(session: Session) -> int:
    """Return the number of stale companies without an open job."""
    query = select(func.count()).select_from(EnrichmentRow)
    stale = EnrichmentRow.status == EnrichmentStatus.STALE
    return session.scalars(query.where(stale, ~HAS_OPEN_JOB)).one()


def coverage_of(session: Session, now: datetime, freshness: timedelta) -> CompanyCoverage:
    """Count the companies for the coverage checks."""
    age = case(
        *((CompanyRow.updated_at > now - length, name) for name, length in AGES.items()),
        else_=OLDER,
    ).label("age")
    masked = func.sum(case((CompanyRow.is_masked, 1), else_=0))
    found = session.execute(select(age, func.count(), masked).group_by(age)).tuples().all()
    counts = {name: count for name, count, _ in found}
    unexplained = select(func.count()).where(
        EnrichmentRow.status == EnrichmentStatus.FAILED,
        func.coalesce(EnrichmentRow.enrichment_error, "") == "",
    )
    overdue = (
        select(func.count())
        .select_from(EnrichmentRow)
        .join(CompanyRow, CompanyRow.siren == EnrichmentRow.siren)
        .where(
            EnrichmentRow.status == EnrichmentStatus.SUCCESS,
            CompanyRow.updated_at <= now - freshness - GRACE,
        )
    )
    return CompanyCoverage(
        statuses=enrichments_by_status(session),
        ages={name: counts.get(name, 0) for name in (*AGES, OLDER)},
        masked=sum(int(number) for _, _, number in found),
        unexplained=session.scalars(unexplained).one(),
        overdue=session.scalars(overdue).one(),
    )
