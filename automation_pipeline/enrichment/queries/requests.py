"""Queries about requests and the enrichment of a SIREN."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.enrichment.models import ENRICHMENT, EnrichmentStatus, Identifiers
from automation_pipeline.enrichment.tables import (
    AttachmentRow,
    CompanyRequestRow,
    CompanyRow,
    EnrichmentJobRow,
    EnrichmentRow,
)
from automation_pipeline.storage.statements import insert_into
from automation_pipeline.storage.transitions import Transition, record_transitions


@dataclass(frozen=True, kw_only=True)
class Requester:
    """Who asks, as what is written says it."""

    tenant_id: str
    correlation_id: str
    actor: str
    idempotency_key: str | None = None


def add_request(
    session: Session,
    identifiers: Identifiers,
    raw: Mapping[str, str | None],
    asking: Requester,
    now: datetime,
) -> CompanyRequestRow:
    row = CompanyRequestRow(
        tenant_id=asking.tenant_id,
        idempotency_key=asking.idempotency_key,
        siren=identifiers.siren,
        siret=identifiers.siret,
        siren_raw=raw.get("siren"),
        siret_raw=raw.get("siret"),
        company_siren=identifiers.siren,
        warnings={"warnings": list(identifiers.warnings)} if identifiers.warnings else None,
        correlation_id=asking.correlation_id,
        created_by=asking.actor,
        created_at=now,
        updated_at=now,
    )
    session.add(row)
    session.flush()
    return row


def warnings_of(request: CompanyRequestRow) -> tuple[str, ...]:
    found = (request.warnings or {}).get("warnings", ())
    return tuple(map(str, found)) if isinstance(found, list | tuple) else ()  # pyright: ignore[reportUnknownArgumentType]  what JSON holds


def add_warnings(request: CompanyRequestRow, warnings: Sequence[str]) -> None:
    """Each once."""
    if warnings:
        request.warnings = {"warnings": [*dict.fromkeys([*warnings_of(request), *warnings])]}


def not_looked_up(siret: str) -> str:
    return f"The establishment {siret} could not be looked up: ask for it again later."


def establishment_warnings(session: Session, siret: str, since: datetime) -> Sequence[str] | None:
    """What requests for the establishment were warned of since then. None: no job has looked it
    up."""
    query = (
        select(CompanyRequestRow)
        .join(AttachmentRow, AttachmentRow.request_id == CompanyRequestRow.id)
        .join(EnrichmentJobRow, EnrichmentJobRow.id == AttachmentRow.job_id)
        .where(
            CompanyRequestRow.company_siren == siret[:9],
            CompanyRequestRow.siret == siret,
            EnrichmentJobRow.status.in_((EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL)),
            EnrichmentJobRow.finished_at > since,
        )
        .order_by(EnrichmentJobRow.id.desc())
        .limit(1)
    )
    request = session.scalar(query)
    warnings = () if request is None else warnings_of(request)
    return None if request is None or not_looked_up(siret) in warnings else warnings


def known_request(session: Session, asking: Requester) -> CompanyRequestRow | None:
    """That which was made for the same key before."""
    if asking.idempotency_key is None:
        return None
    its = (
        CompanyRequestRow.tenant_id == asking.tenant_id,
        CompanyRequestRow.idempotency_key == asking.idempotency_key,
    )
    return session.scalar(select(CompanyRequestRow).where(*its))


def request_of(session: Session, request_id: int, tenant_id: str) -> CompanyRequestRow:
    """NotFoundError also for one of another tenant."""
    its = CompanyRequestRow.id == request_id, CompanyRequestRow.tenant_id == tenant_id
    row = session.scalar(select(CompanyRequestRow).where(*its))
    if row is None:
        raise NotFoundError(f"Request {request_id} not found")
    return row


def locked_enrichment(session: Session, siren: str, now: datetime) -> EnrichmentRow:
    """Made where there is none. All that happens to a SIREN goes through this row, one after
    another."""
    row = {
        "siren": siren,
        "status": EnrichmentStatus.PENDING,
        "retries": 0,
        "created_at": now,
        "updated_at": now,
    }
    insert = insert_into(session, EnrichmentRow).values(**row)
    session.execute(insert.on_conflict_do_nothing(index_elements=["siren"]))
    query = select(EnrichmentRow).where(EnrichmentRow.siren == siren).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()


def enrichment_of(session: Session, siren: str) -> EnrichmentRow | None:
    return session.get(EnrichmentRow, siren)


def company_of(session: Session, siren: str) -> CompanyRow | None:
    return session.get(CompanyRow, siren)


def move_enrichment(
    session: Session,
    row: EnrichmentRow,
    to: EnrichmentStatus,
    actor: str,
    now: datetime,
    reason: str | None = None,
) -> None:
    """Of a row that is locked: legal, or IllegalMoveError; and logged."""
    frm = EnrichmentStatus(row.status)
    row.status, row.updated_at = ENRICHMENT.move(frm, to), now
    record_transitions(
        session, [Transition(ENRICHMENT.name, row.siren, frm, to, actor, now, reason)]
    )


def copy_status_to_requests(session: Session, row: EnrichmentRow, now: datetime) -> None:
    """All requests of the SIREN say what its enrichment says. None is newer: who makes one has the
    row's lock first."""
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
