"""Queries of organisations, their hosts, servers, job types and audit log."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum, auto
from typing import TypeVar

from sqlalchemy import ColumnElement, exists, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.models.job_types import (
    ALIASES,
    TYPE_NAME,
    JobTypeCard,
    job_types,
)
from automation_pipeline.org_jobs.models.jobs import ACTIVE_RUN_STATES, JobType, Performer
from automation_pipeline.org_jobs.models.organisations import (
    AuditEntry,
    Host,
    Organisation,
    OrgScope,
    Server,
    id_fault,
)
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
from automation_pipeline.storage.statements import FRESH, UNSYNCHRONIZED, among, where_given

Row = TypeVar("Row", OrganisationRow, HostRow, ServerRow, OrgJobTypeRow)


class Lock(Enum):
    """Until the transaction ends no other transaction changes the row. With DELETE, none adds a
    reference to it either."""

    CHANGE = auto()
    DELETE = auto()


def find(
    session: Session, table: type[Row], key: str | int, within: OrgScope, lock: Lock | None = None
) -> Row:
    """NotFoundError also for a row of an organisation that the caller cannot access."""
    query = select(table).where(table.id == key, *where_given((table.org_id, within.org_id)))
    if lock is not None:
        query = query.with_for_update(key_share=lock is Lock.CHANGE)
    # PostgreSQL rejects some texts that are not ids.
    is_id = isinstance(key, int) or id_fault(key) is None
    row = session.scalar(query.execution_options(**FRESH)) if is_id else None
    if row is None:
        raise NotFoundError(f"{table.__name__.removesuffix('Row')} {key} not found")
    return row


def locked_organisation(session: Session, org_id: str, within: OrgScope) -> OrganisationRow:
    return find(session, OrganisationRow, org_id, within, Lock.CHANGE)


def get_organisation(session: Session, org_id: str, within: OrgScope) -> Organisation:
    row = find(session, OrganisationRow, org_id, within)
    return Organisation.model_validate(row, from_attributes=True)


def get_host(session: Session, host_id: int, within: OrgScope) -> Host:
    return Host.model_validate(find(session, HostRow, host_id, within), from_attributes=True)


def get_server(session: Session, server_id: int, within: OrgScope) -> Server:
    return Server.model_validate(find(session, ServerRow, server_id, within), from_attributes=True)


def has_organisation(session: Session, org_id: str) -> bool:
    is_there = select(exists().where(OrganisationRow.id == org_id))
    return id_fault(org_id) is None and bool(session.scalar(is_there))


def list_organisations(
    session: Session, within: OrgScope, *, q: str | None = None, limit: int, offset: int
) -> list[Organisation]:
    """By id; `q` is part of the id or the name."""
    query = select(OrganisationRow).where(*where_given((OrganisationRow.id, within.org_id)))
    if q:
        is_id = OrganisationRow.id.icontains(q, autoescape=True)
        query = query.where(or_(is_id, is_named(OrganisationRow.name, q)))
    page = query.order_by(OrganisationRow.id).limit(limit).offset(offset)
    return [Organisation.model_validate(row, from_attributes=True) for row in session.scalars(page)]


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
    page = (
        select(HostRow)
        .where(
            *where_given((HostRow.org_id, within.org_id), (HostRow.org_id, org_id)),
            is_named(HostRow.name, q),
        )
        .order_by(HostRow.org_id, HostRow.name)
        .limit(limit)
        .offset(offset)
    )
    return [Host.model_validate(row, from_attributes=True) for row in session.scalars(page)]


def list_servers(  # noqa: PLR0913  the filters of the list, by name
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
    page = (
        select(ServerRow)
        .where(
            *where_given(
                (ServerRow.org_id, within.org_id),
                (ServerRow.org_id, org_id),
                (ServerRow.host_id, host_id),
            ),
            is_named(ServerRow.name, q),
        )
        .order_by(ServerRow.org_id, ServerRow.name)
        .limit(limit)
        .offset(offset)
    )
    return [Server.model_validate(row, from_attributes=True) for row in session.scalars(page)]


def is_named(name: InstrumentedAttribute[str], part: str | None) -> ColumnElement[bool]:
    """Tries several spellings, because the databases ignore the case of unaccented letters only."""
    spellings = sorted({part, part.lower(), part.upper(), part.title()}) if part else [""]
    return or_(*(name.icontains(spelling, autoescape=True) for spelling in spellings))


def is_taken(session: Session, table: type[HostRow | ServerRow], org_id: str, name: str) -> bool:
    """The caller has locked the organisation."""
    is_there = select(exists().where(table.org_id == org_id, table.name == name))
    return bool(session.scalar(is_there))


def check_host(session: Session, host_id: int | None, org_id: str) -> None:
    """Raises InvalidInputError unless the host belongs to the organisation. It cannot be deleted until the
    transaction ends."""
    locked = (
        select(HostRow.id)
        .where(HostRow.id == host_id, HostRow.org_id == org_id)
        .with_for_update(read=True, key_share=True)
    )
    if host_id is not None and session.scalar(locked) is None:
        fault = ("hostId", f"is not a host of organisation '{org_id}'")
        raise InvalidInputError("Invalid server", (fault,))


def host_of_server(
    session: Session, server_id: int | None, org_id: str, complaint: str
) -> int | None:
    """Raises InvalidInputError unless the server belongs to the organisation. It cannot be deleted until
    the transaction ends."""
    if server_id is None:
        return None
    server = session.scalar(
        select(ServerRow)
        .where(ServerRow.id == server_id, ServerRow.org_id == org_id)
        .with_for_update(read=True, key_share=True)
    )
    if server is None:
        fault = ("serverInstanceId", f"is not a server of organisation '{org_id}'")
        raise InvalidInputError(complaint, (fault,))
    return server.host_id


def uses_of_host(session: Session, host_id: int) -> tuple[int, int]:
    """The number of its servers, and of the jobs that wait for its agent or run there."""
    is_active = JobRunRow.host_id == host_id, JobRunRow.status.in_(ACTIVE_RUN_STATES)
    return _count(session, ServerRow.host_id == host_id), _count(session, *is_active)


def detach_host(session: Session, host_id: int) -> None:
    session.execute(
        update(JobRunRow)
        .where(JobRunRow.host_id == host_id)
        .values(host_id=None)
        .execution_options(**UNSYNCHRONIZED)
    )


def uses_of_server(session: Session, server_id: int) -> tuple[int, int]:
    """The number of its schedules, without deleted ones, and of its jobs."""
    of_schedules = OrgScheduleRow.server_instance_id == server_id
    return _count(session, of_schedules, OrgScheduleRow.deleted_at.is_(None)), _count(
        session, OrgJobRow.server_instance_id == server_id
    )


def detach_server(session: Session, server_id: int) -> None:
    is_deleted = OrgScheduleRow.deleted_at.is_not(None)
    of_server = OrgScheduleRow.server_instance_id == server_id
    session.execute(
        update(OrgScheduleRow)
        .where(of_server, is_deleted)
        .values(server_instance_id=None)
        .execution_options(**UNSYNCHRONIZED)
    )


def _count(session: Session, *conditions: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count()).where(*conditions)) or 0


def own_type(session: Session, org_id: str, name: object) -> dict[str, JobType]:
    """The organisation's type of that name or alias, if it has one."""
    known = ALIASES.get(name, name) if isinstance(name, str) else ""
    if not re.fullmatch(TYPE_NAME, known):
        return {}
    return own_types(session, [org_id], [known]).get(org_id, {})


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
    """The types that every organisation has, each replaced where this one defines it, then the
    others that this one defines."""
    if org_id is None:
        return list(job_types())
    query = select(OrgJobTypeRow).where(OrgJobTypeRow.org_id == org_id).order_by(OrgJobTypeRow.name)
    own = {row.name: as_card(row) for row in session.scalars(query)}
    return [*(own.pop(one.name, one) for one in job_types()), *own.values()]


def locked_type(session: Session, org_id: str, name: str) -> OrgJobTypeRow:
    query = select(OrgJobTypeRow).where(OrgJobTypeRow.org_id == org_id, OrgJobTypeRow.name == name)
    row = session.scalar(query.with_for_update()) if re.fullmatch(TYPE_NAME, name) else None
    if row is None:
        raise NotFoundError(f"Job type {name[:100]} not found")
    return row


def names_of_types(session: Session, org_id: str) -> set[str]:
    return set(session.scalars(select(OrgJobTypeRow.name).where(OrgJobTypeRow.org_id == org_id)))


def uses_of_type(session: Session, org_id: str, name: str) -> tuple[int, int]:
    """The number of schedules with the type, and of its unfinished jobs."""
    return (
        _count(
            session,
            OrgScheduleRow.org_id == org_id,
            OrgScheduleRow.job_type == name,
            OrgScheduleRow.deleted_at.is_(None),
        ),
        _count(
            session,
            OrgJobRow.org_id == org_id,
            OrgJobRow.type == name,
            OrgJobRow.status.in_(ACTIVE_RUN_STATES),
        ),
    )


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


def add_audit_entry(  # noqa: PLR0913  the parts of a log entry
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
    """Add an entry such as `pause` of a `schedule`. `before` and `after` are JSON."""
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


def audit_log(  # noqa: PLR0913  the filters of the list, by name
    session: Session,
    within: OrgScope,
    *,
    entity: str | None = None,
    entity_id: str | None = None,
    limit: int,
    after_id: int = 0,
    newest_first: bool = False,
) -> list[AuditEntry]:
    """Oldest first unless `newest_first`; `after_id` is the last entry of the previous page."""
    key = AuditLogRow.id
    query = select(AuditLogRow).where(
        *where_given(
            (AuditLogRow.org_id, within.org_id),
            (AuditLogRow.entity, entity),
            (AuditLogRow.entity_id, entity_id),
        )
    )
    if after_id:
        query = query.where(key < after_id if newest_first else key > after_id)
    page = query.order_by(key.desc() if newest_first else key).limit(limit)
    return [AuditEntry.model_validate(row, from_attributes=True) for row in session.scalars(page)]
