"""Use cases of organisations, their hosts, servers and job types."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.json_model import JsonModel, as_document, parse
from automation_pipeline.org_jobs.models.job_types import (
    MOST_OWN_TYPES,
    JobTypeCard,
    OwnTypeFields,
    OwnTypeInput,
)
from automation_pipeline.org_jobs.models.organisations import (
    Host,
    HostInput,
    Organisation,
    OrganisationFields,
    OrganisationInput,
    OrgScope,
    Server,
    ServerInput,
    changed_fields,
    differences,
    written_fields,
)
from automation_pipeline.org_jobs.queries.organisations import (
    Lock,
    add_audit_entry,
    as_card,
    check_host,
    detach_host,
    detach_server,
    find,
    is_taken,
    locked_organisation,
    locked_type,
    names_of_types,
    uses_of_host,
    uses_of_server,
    uses_of_type,
)
from automation_pipeline.org_jobs.queries.queue import move_waiting_runs
from automation_pipeline.org_jobs.queries.schedules import resume_schedules, suspend_schedules
from automation_pipeline.org_jobs.tables import HostRow, OrganisationRow, OrgJobTypeRow, ServerRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.statements import insert_into

Row = TypeVar("Row", OrganisationRow, HostRow, ServerRow, OrgJobTypeRow)
Shown = TypeVar("Shown", bound=JsonModel)


class Records(Generic[Row, Shown]):
    """Create, change and delete rows of one kind, each with an entry in the audit log.

    `written` are the fields of a new row that people write, `changeable` those that they may change
    later. Every change locks the organisation first, because names are unique within it."""

    noun: ClassVar[str]
    table: type[Row]
    shown: type[Shown]
    written: ClassVar[type[JsonModel]]
    changeable: ClassVar[type[JsonModel]]

    def create(
        self,
        given: Mapping[str, object],
        *,
        org_id: str,
        within: OrgScope,
        database: Database,
        clock: Clock,
        actor: str,
    ) -> Shown:
        """Raises InvalidInputError with every invalid field, and ConflictError when the name is taken."""
        wanted = parse(self.written, given, f"Invalid {self.noun}")
        with database.transaction() as session:
            locked_organisation(session, org_id, within)
            now, columns = clock.now(), wanted.model_dump()
            row = self.table(org_id=org_id, created_at=now, updated_at=now, **columns)
            self.check(session, row, columns)
            session.add(row)
            session.flush()
            self.log(session, row, "create", actor, now, after=as_document(wanted))
            return self.value(row)

    def update(  # noqa: PLR0913  the collaborators by name
        self,
        key: int | str,
        patch: Mapping[str, object],
        *,
        org_id: str | None = None,
        within: OrgScope,
        database: Database,
        clock: Clock,
        actor: str,
    ) -> Shown:
        """Fields that the patch does not name stay; null clears a nullable field."""
        with database.transaction() as session:
            row, now = self.locked(session, key, org_id, within, Lock.CHANGE), clock.now()
            stored = self.value(row)
            wanted = changed_fields(self.changeable, stored, patch, self.noun)
            before, after = differences(
                written_fields(self.changeable, stored), as_document(wanted)
            )
            if not after:
                return stored
            columns = wanted.model_dump()
            self.check(session, row, {k: v for k, v in columns.items() if v != getattr(row, k)})
            for name, value in {**columns, "updated_at": now}.items():
                setattr(row, name, value)
            self.log(session, row, "update", actor, now, before=before, after=after)
            return self.value(row)

    def delete(
        self,
        key: int | str,
        *,
        org_id: str | None = None,
        within: OrgScope,
        database: Database,
        clock: Clock,
        actor: str,
    ) -> None:
        """ConflictError while other rows use it."""
        with database.transaction() as session:
            row = self.locked(session, key, org_id, within, Lock.DELETE)
            self.detach(session, row)
            before = written_fields(self.written, self.value(row))
            self.log(session, row, "delete", actor, clock.now(), before=before)
            session.delete(row)

    def check(self, session: Session, row: Row, changed: Mapping[str, Any]) -> None:
        """Reject invalid values in the changed columns of the row."""

    def detach(self, session: Session, row: Row) -> None:
        """Refuse to delete a row in use, and detach the rows that stay."""

    def value(self, row: Row) -> Shown:
        return self.shown.model_validate(row, from_attributes=True)

    def locked(
        self, session: Session, key: int | str, org_id: str | None, within: OrgScope, lock: Lock
    ) -> Row:
        owner = org_id or find(session, self.table, key, within).org_id
        locked_organisation(session, owner, within)
        return find(session, self.table, key, within, lock)

    def log(  # noqa: PLR0913  the parts of a log entry
        self,
        session: Session,
        row: Row,
        action: str,
        actor: str,
        now: datetime,
        *,
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
        reason: str | None = None,
    ) -> None:
        add_audit_entry(
            session,
            org_id=row.org_id,
            actor=actor,
            action=action,
            entity=self.noun.replace(" ", "_"),
            entity_id=row.name if isinstance(row, OrgJobTypeRow) else str(row.id),
            before=before,
            after=after,
            reason=reason,
            now=now,
        )


class _Organisations(Records[OrganisationRow, Organisation]):
    noun = "organisation"
    table, shown = OrganisationRow, Organisation
    written, changeable = OrganisationInput, OrganisationFields


class _Hosts(Records[HostRow, Host]):
    noun = "host"
    table, shown = HostRow, Host
    written = changeable = HostInput

    def check(self, session: Session, row: HostRow, changed: Mapping[str, Any]) -> None:
        _refuse_taken(session, row, changed)

    def detach(self, session: Session, row: HostRow) -> None:
        servers, jobs = uses_of_host(session, row.id)
        if servers:
            raise ConflictError(
                f"Host {row.id} has {servers} servers: delete them, or move them to another host."
            )
        if jobs:
            raise ConflictError(
                f"The agent of host {row.id} has work: wait for {jobs} jobs, or cancel them."
            )
        detach_host(session, row.id)


class _Servers(Records[ServerRow, Server]):
    """Waiting jobs move with their server; running jobs stay on their host."""

    noun = "server"
    table, shown = ServerRow, Server
    written = changeable = ServerInput

    def check(self, session: Session, row: ServerRow, changed: Mapping[str, Any]) -> None:
        _refuse_taken(session, row, changed)
        if "host_id" in changed:
            check_host(session, changed["host_id"], row.org_id)
            if row in session:
                move_waiting_runs(session, row.id, changed["host_id"])

    def detach(self, session: Session, row: ServerRow) -> None:
        schedules, jobs = uses_of_server(session, row.id)
        if schedules:
            raise ConflictError(
                f"Server {row.id} has {schedules} schedules: delete them, or move them to another server."
            )
        if jobs:
            raise ConflictError(
                f"Server {row.id} has {jobs} jobs, which are kept for a while: disable it instead "
                "(isEnabled: false), and delete it when they are gone."
            )
        detach_server(session, row.id)


class _JobTypes(Records[OrgJobTypeRow, JobTypeCard]):
    """The name of a built-in type of agents replaces that type in the organisation.

    After a change, existing jobs keep their limit. Saving or running a schedule checks its payload
    again."""

    noun = "job type"
    table, shown = OrgJobTypeRow, JobTypeCard
    written, changeable = OwnTypeInput, OwnTypeFields

    def check(self, session: Session, row: OrgJobTypeRow, changed: Mapping[str, Any]) -> None:
        names = names_of_types(session, row.org_id) if "name" in changed else set[str]()
        if row.name in names:
            raise ConflictError(
                f"Organisation '{row.org_id}' defines a job type {row.name} already: update it."
            )
        if len(names) >= MOST_OWN_TYPES:
            raise ConflictError(
                f"Organisation '{row.org_id}' defines {MOST_OWN_TYPES} job types, which is the maximum: delete one."
            )

    def detach(self, session: Session, row: OrgJobTypeRow) -> None:
        schedules, jobs = uses_of_type(session, row.org_id, row.name)
        if schedules or jobs:
            raise ConflictError(
                f"Job type {row.name} is in use by {schedules} schedules and {jobs} jobs that have not "
                "ended: delete or change the schedules, and wait for the jobs or cancel them."
            )

    def value(self, row: OrgJobTypeRow) -> JobTypeCard:
        return as_card(row)

    def locked(
        self, session: Session, key: int | str, org_id: str | None, within: OrgScope, lock: Lock
    ) -> OrgJobTypeRow:
        _ = lock
        organisation = locked_organisation(session, org_id or "", within)
        return locked_type(session, organisation.id, str(key))


_ORGANISATIONS, _HOSTS, _SERVERS, _JOB_TYPES = _Organisations(), _Hosts(), _Servers(), _JobTypes()
update_organisation = _ORGANISATIONS.update
create_host, update_host, delete_host = _HOSTS.create, _HOSTS.update, _HOSTS.delete
create_server, update_server, delete_server = _SERVERS.create, _SERVERS.update, _SERVERS.delete
create_job_type, update_job_type = _JOB_TYPES.create, _JOB_TYPES.update
delete_job_type = _JOB_TYPES.delete


def _refuse_taken(session: Session, row: HostRow | ServerRow, changed: Mapping[str, Any]) -> None:
    if "name" in changed and is_taken(session, type(row), row.org_id, changed["name"]):
        noun = "host" if isinstance(row, HostRow) else "server"
        raise ConflictError(
            f"Organisation '{row.org_id}' has a {noun} '{changed['name']}' already: choose another name."
        )


def create_organisation(
    given: Mapping[str, object], *, within: OrgScope, database: Database, clock: Clock, actor: str
) -> Organisation:
    """Raises ConflictError if the id is taken, or if the caller belongs to an organisation."""
    wanted, now = parse(OrganisationInput, given, "Invalid organisation"), clock.now()
    if within.org_id is not None:
        raise ConflictError("A caller of an organisation cannot create others.")
    columns = {**wanted.model_dump(), "created_at": now, "updated_at": now}
    with database.transaction() as session:
        insert = insert_into(session, OrganisationRow).values(columns).on_conflict_do_nothing()
        if session.scalar(insert.returning(OrganisationRow.id)) is None:
            raise ConflictError(
                f"There is an organisation '{wanted.id}' already: choose another id."
            )
        row = find(session, OrganisationRow, wanted.id, within)
        _ORGANISATIONS.log(session, row, "create", actor, now, after=as_document(wanted))
        return _ORGANISATIONS.value(row)


def suspend_organisation(
    org_id: str,
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    reason: str | None = None,
) -> Organisation:
    """Pause its active schedules until it is resumed. An organisation that is already suspended
    keeps its reason."""
    with database.transaction() as session:
        row, now = locked_organisation(session, org_id, within), clock.now()
        if row.suspended_at is None:
            row.suspended_at, row.suspend_reason, row.updated_at = now, reason, now
            after = {"paused": suspend_schedules(session, org_id, actor, now, reason)}
            _ORGANISATIONS.log(session, row, "suspend", actor, now, after=after, reason=reason)
        return _ORGANISATIONS.value(row)


def resume_organisation(
    org_id: str, *, within: OrgScope, database: Database, clock: Clock, actor: str
) -> Organisation:
    """Schedules that an operator paused stay paused. Missed due times are not dispatched."""
    with database.transaction() as session:
        row, now = locked_organisation(session, org_id, within), clock.now()
        if row.suspended_at is not None:
            row.suspended_at, row.suspend_reason, row.updated_at = None, None, now
            after = {"resumed": resume_schedules(session, org_id, actor, now)}
            _ORGANISATIONS.log(session, row, "resume", actor, now, after=after)
        return _ORGANISATIONS.value(row)
