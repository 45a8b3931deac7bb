"""Queries about organisations, their hosts, servers, job types and audit log."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, exists, false, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.org_jobs.models.job_types import ALIASES, TYPE_NAME, JobTypeCard, job_types
from automation_pipeline.org_jobs.models.jobs import JobType, Performer
from automation_pipeline.org_jobs.models.organisations import (
    AuditEntry,
    Host,
    Organisation,
    OrgScope,
    Server,
    complaint,
    id_fault,
)
from automation_pipeline.org_jobs.models.states import ACTIVE_RUN_STATES, OrgJobsRunState
from automation_pipeline.org_jobs.queries.queue import is_free
from automation_pipeline.org_jobs.tables import (
    AuditLogRow,
    HostRow,
    JobRunRow,
    OrganisationRow,
    OrgJobRow,
    OrgJobTypeRow,
    OrgScheduleRow,
    ServerRow,
)
from automation_pipeline.storage.statements import among

Row = TypeVar("Row", OrganisationRow, HostRow, ServerRow)
Shown = TypeVar("Shown", bound=JsonModel)


def get_organisation(session: Session, org_id: str, within: OrgScope) -> Organisation:
    return as_organisation(
        _found(session, _an_organisation(org_id, within), f"Organisation {org_id}")
    )


def locked_organisation(session: Session, org_id: str, within: OrgScope) -> OrganisationRow:
    """Nobody else changes it, or what is unique within it, until the transaction ends; keys that
    refer to it are checked all the same."""
    query = _an_organisation(org_id, within).with_for_update(key_share=True)
    return _found(session, query, f"Organisation {org_id}")


def has_organisation(session: Session, org_id: str) -> bool:
    """Whoever asks runs the whole system."""
    return session.scalar(select(OrganisationRow.id).where(_is_organisation(org_id))) is not None


def list_organisations(
    session: Session, within: OrgScope, *, q: str | None = None, limit: int, offset: int
) -> list[Organisation]:
    """By id; `q` is part of the id or the name."""
    query = select(OrganisationRow).where(*_within(OrganisationRow.id, within))
    if q:
        query = query.where(
            or_(
                OrganisationRow.id.icontains(q, autoescape=True), _is_named(OrganisationRow.name, q)
            )
        )
    page = query.order_by(OrganisationRow.id).limit(limit).offset(offset)
    return [as_organisation(row) for row in session.scalars(page)]


def get_host(session: Session, host_id: int, within: OrgScope) -> Host:
    return as_host(_found(session, _a_host(host_id, within), f"Host {host_id}"))


def locked_host(
    session: Session, host_id: int, within: OrgScope, *, key_share: bool = True
) -> HostRow:
    """Without `key_share` nobody begins to refer to it either: it is to be deleted."""
    return _found(
        session, _a_host(host_id, within).with_for_update(key_share=key_share), f"Host {host_id}"
    )


def list_hosts(
    session: Session,
    within: OrgScope,
    *,
    org_id: str | None = None,
    q: str | None = None,
    limit: int,
    offset: int,
) -> list[Host]:
    """By organisation and name; `q` is part of the name."""
    query = select(HostRow).where(*_within(HostRow.org_id, within), *_chosen(HostRow, org_id, q))
    page = query.order_by(HostRow.org_id, HostRow.name).limit(limit).offset(offset)
    return [as_host(row) for row in session.scalars(page)]


def get_server(session: Session, server_id: int, within: OrgScope) -> Server:
    return as_server(_found(session, _a_server(server_id, within), f"Server {server_id}"))


def locked_server(
    session: Session, server_id: int, within: OrgScope, *, key_share: bool = True
) -> ServerRow:
    """Without `key_share` nobody begins to refer to it either: it is to be deleted."""
    return _found(
        session,
        _a_server(server_id, within).with_for_update(key_share=key_share),
        f"Server {server_id}",
    )


def list_servers(  # noqa: PLR0913  what narrows the list, by name
    session: Session,
    within: OrgScope,
    *,
    org_id: str | None = None,
    host_id: int | None = None,
    q: str | None = None,
    limit: int,
    offset: int,
) -> list[Server]:
    """By organisation and name; `q` is part of the name."""
    query = select(ServerRow).where(
        *_within(ServerRow.org_id, within), *_chosen(ServerRow, org_id, q)
    )
    if host_id is not None:
        query = query.where(ServerRow.host_id == host_id)
    page = query.order_by(ServerRow.org_id, ServerRow.name).limit(limit).offset(offset)
    return [as_server(row) for row in session.scalars(page)]


def as_organisation(row: OrganisationRow) -> Organisation:
    return _shown(Organisation, row)


def as_host(row: HostRow) -> Host:
    return _shown(Host, row)


def as_server(row: ServerRow) -> Server:
    return _shown(Server, row)


def is_taken(session: Session, table: type[HostRow | ServerRow], org_id: str, name: str) -> bool:
    """Asked while the organisation is locked."""
    return (
        session.scalar(select(table.id).where(table.org_id == org_id, table.name == name))
        is not None
    )


def change(
    row: OrganisationRow | HostRow | ServerRow, columns: Mapping[str, object], now: datetime
) -> None:
    for name, value in columns.items():
        setattr(row, name, value)
    row.updated_at = now


def _an_organisation(org_id: str, within: OrgScope) -> Select[tuple[OrganisationRow]]:
    return select(OrganisationRow).where(
        _is_organisation(org_id), *_within(OrganisationRow.id, within)
    )


def _is_organisation(org_id: str) -> ColumnElement[bool]:
    """Texts that are no ids are not asked for: a database cannot read them all."""
    return false() if id_fault(org_id) else OrganisationRow.id == org_id


def _a_host(host_id: int, within: OrgScope) -> Select[tuple[HostRow]]:
    return select(HostRow).where(HostRow.id == host_id, *_within(HostRow.org_id, within))


def _a_server(server_id: int, within: OrgScope) -> Select[tuple[ServerRow]]:
    return select(ServerRow).where(ServerRow.id == server_id, *_within(ServerRow.org_id, within))


def _within(org_id: InstrumentedAttribute[str], within: OrgScope) -> list[ColumnElement[bool]]:
    return [] if within.org_id is None else [org_id == within.org_id]


def _chosen(
    table: type[HostRow | ServerRow], org_id: str | None, q: str | None
) -> list[ColumnElement[bool]]:
    named = [_is_named(table.name, q)] if q else []
    return named if org_id is None else [*named, table.org_id == org_id]


def _is_named(name: InstrumentedAttribute[str], text: str) -> ColumnElement[bool]:
    """Databases fold the case of unaccented letters only: accented ones are tried as people write
    them."""
    return or_(
        *(
            name.icontains(way, autoescape=True)
            for way in sorted({text, text.lower(), text.upper()})
        )
    )


def _found(session: Session, query: Select[tuple[Row]], what: str) -> Row:
    row = session.scalar(query.execution_options(populate_existing=True))
    if row is None:
        raise NotFoundError(f"{what} not found")
    return row


def _shown(model: type[Shown], row: Any) -> Shown:  # noqa: ANN401  a row of one of three tables
    return model.model_validate({name: getattr(row, name) for name in model.model_fields})


def check_host(session: Session, host_id: int | None, org_id: str) -> None:
    """It stays until the transaction ends."""
    if host_id is None:
        return
    query = select(HostRow.id).where(HostRow.id == host_id, HostRow.org_id == org_id)
    if session.scalar(query.with_for_update(read=True, key_share=True)) is None:
        raise InvalidInputError(
            complaint("server"), (("hostId", f"is not a host of organisation '{org_id}'"),)
        )


def count_servers_of(session: Session, host_id: int) -> int:
    return session.scalar(select(func.count(ServerRow.id)).where(ServerRow.host_id == host_id)) or 0


def active_jobs_of_host(session: Session, host_id: int) -> int:
    its = JobRunRow.host_id == host_id, JobRunRow.status.in_(ACTIVE_RUN_STATES)
    return session.scalar(select(func.count(JobRunRow.id)).where(*its)) or 0


def leave_host(session: Session, host_id: int) -> None:
    """Runs that have ended on it are of no host any more."""
    session.execute(
        update(JobRunRow)
        .where(JobRunRow.host_id == host_id)
        .values(host_id=None)
        .execution_options(synchronize_session=False)
    )


def move_waiting_jobs(session: Session, server_id: int, host_id: int | None) -> None:
    """What nobody has begun or taken. In the order of ids, as everybody locks runs."""
    of_server = select(OrgJobRow.id).where(OrgJobRow.server_instance_id == server_id)
    waiting = (
        select(JobRunRow.id)
        .where(
            JobRunRow.job_id.in_(of_server), JobRunRow.status == OrgJobsRunState.PENDING, is_free()
        )
        .order_by(JobRunRow.id)
        .with_for_update()
    )
    run_ids = session.scalars(waiting).all()
    session.execute(
        update(JobRunRow)
        .where(among(session, JobRunRow.id, run_ids))
        .values(host_id=host_id)
        .execution_options(synchronize_session=False)
    )


def count_schedules_of(session: Session, server_id: int) -> int:
    """Without deleted ones."""
    its = OrgScheduleRow.server_instance_id == server_id, OrgScheduleRow.deleted_at.is_(None)
    return session.scalar(select(func.count(OrgScheduleRow.id)).where(*its)) or 0


def count_jobs_of(session: Session, server_id: int) -> int:
    return (
        session.scalar(
            select(func.count(OrgJobRow.id)).where(OrgJobRow.server_instance_id == server_id)
        )
        or 0
    )


def leave_server(session: Session, server_id: int) -> None:
    """Deleted schedules are of no server any more."""
    session.execute(
        update(OrgScheduleRow)
        .where(
            OrgScheduleRow.server_instance_id == server_id, OrgScheduleRow.deleted_at.is_not(None)
        )
        .values(server_instance_id=None)
        .execution_options(synchronize_session=False)
    )


def add_audit_entry(  # noqa: PLR0913  who did what to what, and why
    session: Session,
    *,
    org_id: str,
    actor: str,
    action: str,
    entity: str,
    entity_id: str,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    reason: str | None = None,
    now: datetime,
) -> None:
    """Such as `pause` of a `schedule`. `before` and `after` are JSON."""
    session.add(
        AuditLogRow(
            org_id=org_id,
            actor=actor,
            action=action,
            entity=entity,
            entity_id=entity_id,
            before=None if before is None else dict(before),
            after=None if after is None else dict(after),
            reason=reason,
            at=now,
        )
    )


def audit_log(  # noqa: PLR0913  what narrows it, by name
    session: Session,
    within: OrgScope,
    *,
    entity: str | None = None,
    entity_id: str | None = None,
    limit: int,
    after_id: int = 0,
    newest_first: bool = False,
) -> list[AuditEntry]:
    """Oldest first, unless the newest are wanted; `after_id` is the last one of the page before."""
    query = select(AuditLogRow)
    if within.org_id is not None:
        query = query.where(AuditLogRow.org_id == within.org_id)
    if entity is not None:
        query = query.where(AuditLogRow.entity == entity)
    if entity_id is not None:
        query = query.where(AuditLogRow.entity_id == entity_id)
    if newest_first:
        query = query.where(AuditLogRow.id < after_id) if after_id else query
        query = query.order_by(AuditLogRow.id.desc())
    else:
        query = query.where(AuditLogRow.id > after_id).order_by(AuditLogRow.id)
    return [_entry(row) for row in session.scalars(query.limit(limit))]


def _entry(row: AuditLogRow) -> AuditEntry:
    return AuditEntry.model_validate({name: getattr(row, name) for name in AuditEntry.model_fields})


def own_type(session: Session, org_id: str, name: object) -> dict[str, JobType]:
    """The organisation's type of that name, if it has one."""
    if not isinstance(name, str) or not re.fullmatch(TYPE_NAME, name):
        name = ALIASES.get(name) if isinstance(name, str) else None
    return {} if name is None else own_types(session, [org_id], [name]).get(org_id, {})


def own_types(
    session: Session, org_ids: Iterable[str], names: Iterable[str]
) -> dict[str, dict[str, JobType]]:
    """By organisation and name, in one query."""
    query = select(OrgJobTypeRow).where(
        among(session, OrgJobTypeRow.org_id, org_ids), among(session, OrgJobTypeRow.name, names)
    )
    found: dict[str, dict[str, JobType]] = {}
    for row in session.scalars(query):
        found.setdefault(row.org_id, {})[row.name] = JobType(
            name=row.name,
            performer=Performer.AGENT,
            is_mutation=row.is_mutation,
            limit_seconds=row.limit_seconds,
            payload=row.payload_schema,
            summary=row.summary,
        )
    return found


def list_job_types(session: Session, org_id: str | None) -> list[JobTypeCard]:
    """Those that every organisation has, then those that this one defines instead or besides."""
    if org_id is None:
        return list(job_types())
    query = select(OrgJobTypeRow).where(OrgJobTypeRow.org_id == org_id).order_by(OrgJobTypeRow.name)
    own = {row.name: as_card(row) for row in session.scalars(query)}
    return [*(own.pop(one.name, one) for one in job_types()), *own.values()]


def locked_type(session: Session, org_id: str, name: str, within: OrgScope) -> OrgJobTypeRow:
    query = select(OrgJobTypeRow).where(OrgJobTypeRow.org_id == org_id, OrgJobTypeRow.name == name)
    row = session.scalar(query.with_for_update()) if re.fullmatch(TYPE_NAME, name) else None
    if row is None or not within.includes(org_id):
        raise NotFoundError(f"Job type {name[:100]} not found")
    return row


def count_types(session: Session, org_id: str) -> int:
    query = select(func.count(OrgJobTypeRow.id)).where(OrgJobTypeRow.org_id == org_id)
    return session.scalar(query) or 0


def has_type(session: Session, org_id: str, name: str) -> bool:
    query = exists().where(OrgJobTypeRow.org_id == org_id, OrgJobTypeRow.name == name)
    return bool(session.scalar(select(query)))


def uses_of(session: Session, org_id: str, name: str) -> tuple[int, int]:
    """How many schedules have the type, and how many of its jobs wait or are at work."""
    schedules = select(func.count(OrgScheduleRow.id)).where(
        OrgScheduleRow.org_id == org_id,
        OrgScheduleRow.job_type == name,
        OrgScheduleRow.deleted_at.is_(None),
    )
    jobs = select(func.count(OrgJobRow.id)).where(
        OrgJobRow.org_id == org_id,
        OrgJobRow.type == name,
        OrgJobRow.status.in_(ACTIVE_RUN_STATES),
    )
    return session.scalar(schedules) or 0, session.scalar(jobs) or 0


def as_card(row: OrgJobTypeRow) -> JobTypeCard:
    return JobTypeCard(
        name=row.name,
        performer=Performer.AGENT,
        is_mutation=row.is_mutation,
        limit_seconds=row.limit_seconds,
        summary=row.summary,
        payload_schema=row.payload_schema,
        permission=None,
        aliases=(),
        org_id=row.org_id,
        updated_at=row.updated_at,
    )
