"""`automation org-jobs orgs`, `types`, `hosts` and `servers`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import Document, operation
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    Limit,
    Offset,
    compact,
    confirm,
    minute,
    one_line,
    print_facts,
    print_json,
    print_result,
    read_json_object,
    show_one,
    show_page,
)
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.org_jobs.commands.arguments import (
    EndMaintenance,
    File,
    MaintenanceUntil,
    OfOrg,
    Org,
    OrgId,
    Reason,
    Yes,
    changed_fields,
    chosen_org,
    default_org,
    given_fields,
    maintenance,
    maintenance_line,
    org_write_context,
)
from automation_pipeline.org_jobs.models.job_types import TYPE_NAME, JobTypeCard
from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    Host,
    Organisation,
    Server,
)
from automation_pipeline.org_jobs.organisations import (
    create_host,
    create_job_type,
    create_organisation,
    create_server,
    delete_host,
    delete_job_type,
    delete_server,
    resume_organisation,
    suspend_organisation,
    update_host,
    update_job_type,
    update_organisation,
    update_server,
)
from automation_pipeline.org_jobs.queries.organisations import (
    get_host,
    get_organisation,
    get_server,
    list_hosts,
    list_job_types,
    list_organisations,
    list_servers,
)
from automation_pipeline.storage.database import Session

orgs_app = command_group("Manage organisations and the number of their concurrent jobs.")
types_app = typer.Typer(help="List job types, and define types for agents.")

ORGANISATIONS, TYPES = "/api/organisations", "/api/org-jobs/types"


@operation(f"POST {ORGANISATIONS}")
def new_organisation(services: Services, given: Document) -> Organisation:
    return create_organisation(given, **org_write_context(services))


@operation(f"GET {ORGANISATIONS}")
def organisations(session: Session, *, limit: int, offset: int) -> Sequence[Organisation]:
    return list_organisations(session, ALL_ORGANISATIONS, limit=limit, offset=offset)


@operation(f"GET {ORGANISATIONS}/{{org_id}}")
def organisation(session: Session, org_id: str) -> Organisation:
    return get_organisation(session, org_id, ALL_ORGANISATIONS)


def check_org(org_id: str | None) -> None:
    """Raise NotFoundError for an unknown organisation instead of showing an empty list."""
    if org_id is not None:
        organisation(org_id)


@operation(f"PATCH {ORGANISATIONS}/{{org_id}}")
def change_organisation(services: Services, org_id: str, given: Document) -> Organisation:
    return update_organisation(org_id, given, **org_write_context(services))


@operation(f"POST {ORGANISATIONS}/{{org_id}}/suspend")
def suspend_stored_organisation(
    services: Services, org_id: str, reason: str | None
) -> Organisation:
    return suspend_organisation(org_id, reason=reason, **org_write_context(services))


@operation(f"POST {ORGANISATIONS}/{{org_id}}/resume")
def resume_stored_organisation(services: Services, org_id: str) -> Organisation:
    return resume_organisation(org_id, **org_write_context(services))


@operation(f"GET {TYPES}")
def job_types(services: Services, *, org: str | None) -> Sequence[JobTypeCard]:
    with services.database.reading() as session:
        return list_job_types(session, default_org(services, org))


@operation(f"POST {TYPES}", query=["org"])
def new_type(services: Services, given: Document, *, org: str | None) -> JobTypeCard:
    return create_job_type(given, org_id=chosen_org(services, org), **org_write_context(services))


@operation(f"PUT {TYPES}/{{name}}", query=["org"])
def change_type(services: Services, name: str, given: Document, *, org: str | None) -> JobTypeCard:
    return update_job_type(
        name, given, org_id=chosen_org(services, org), **org_write_context(services)
    )


@operation(f"DELETE {TYPES}/{{name}}")
def remove_type(services: Services, name: str, *, org: str | None) -> None:
    delete_job_type(name, org_id=chosen_org(services, org), **org_write_context(services))


OrgName = Annotated[str | None, typer.Option("--name", "-n", help="A name for people.")]
MaxRunning = Annotated[
    int | None,
    typer.Option("--max-running", metavar="N", help="The maximum number of jobs that run at once."),
]


@orgs_app.command()
def create(
    org_id: Annotated[
        str | None, typer.Argument(help="A short name that cannot be changed, such as acme.")
    ] = None,
    *,
    name: OrgName = None,
    max_running: MaxRunning = None,
    maintenance_until: MaintenanceUntil = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Add an organisation. For example: automation org-jobs orgs create acme --name "Acme Games"
    --max-running 20"""
    flags = compact(id=org_id, name=name, maxRunning=max_running) | maintenance(maintenance_until)
    show_one(new_organisation(given_fields(file, flags)), print_organisation, as_json=as_json)


@orgs_app.command("list")
def list_(*, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False) -> None:
    """List the organisations. For example: automation org-jobs orgs list --json"""
    found = organisations(limit=limit + 1, offset=offset)
    show_page(
        "organisations",
        found,
        ORGANISATION_COLUMNS.print,
        limit=limit,
        offset=offset,
        as_json=as_json,
    )


@orgs_app.command()
def show(org_id: OrgId, *, as_json: AsJson = False) -> None:
    """Show one organisation. For example: automation org-jobs orgs show acme"""
    show_one(organisation(org_id), print_organisation, as_json=as_json)


@orgs_app.command()
def update(
    org_id: OrgId,
    *,
    name: OrgName = None,
    max_running: MaxRunning = None,
    maintenance_until: MaintenanceUntil = None,
    end_maintenance: EndMaintenance = False,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Change an organisation. Running jobs continue.

    For example: automation org-jobs orgs update acme --max-running 5 --maintenance-until
    2026-07-01T08:00:00Z"""
    flags = compact(name=name, maxRunning=max_running)
    flags |= maintenance(maintenance_until, is_over=end_maintenance)
    changed = change_organisation(org_id, changed_fields(file, flags))
    show_one(changed, print_organisation, as_json=as_json)


@orgs_app.command()
def suspend(org_id: OrgId, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Pause all schedules of an organisation and start none of its jobs until it is resumed.

    For example: automation org-jobs orgs suspend acme --reason "Unpaid since May"
    """
    show_one(suspend_stored_organisation(org_id, reason), print_organisation, as_json=as_json)


@orgs_app.command()
def resume(org_id: OrgId, *, as_json: AsJson = False) -> None:
    """Resume a suspended organisation and the schedules that were paused with it.

    For example: automation org-jobs orgs resume acme"""
    show_one(resume_stored_organisation(org_id), print_organisation, as_json=as_json)


NewTypeName = Annotated[str, typer.Argument(help="The type's name in capitals.")]


def _type_name(name: str) -> str:
    if not re.fullmatch(TYPE_NAME, name):
        raise NotFoundError(f"Job type {name[:100]} does not exist.")
    return name


TypeName = Annotated[str, typer.Argument(callback=_type_name, help="The type's name in capitals.")]
Summary = Annotated[str | None, typer.Option("--summary", help="What a job of the type does.")]
LimitSeconds = Annotated[
    int | None,
    typer.Option("--limit-seconds", help="The time limit of an attempt in seconds. Default: 900."),
]
Reads = Annotated[
    bool,
    typer.Option(
        "--read-only", help="Jobs of the type make no changes: a host runs eight at a time."
    ),
]
ReadsOrChanges = Annotated[
    bool | None,
    typer.Option("--read-only/--changes", help="Whether a host runs up to eight at a time."),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option("--schema", metavar="FILE", help="A JSON Schema of the payload. Default: any."),
]


@types_app.callback(invoke_without_command=True)
def job_types_overview(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List job types, and define types for agents. Alone it lists the types."""
    if context.invoked_subcommand is None:
        _list_types(None, as_json=as_json)


@types_app.command("list")
def list_types(*, org: Org = None, as_json: AsJson = False) -> None:
    """List job types; with --org also those that the organisation defines. --json shows the schemas
    of their payloads.

    For example: automation org-jobs types list --org acme"""
    _list_types(org, as_json=as_json)


def _list_types(org: str | None, *, as_json: bool) -> None:
    found = job_types(org=org)
    if as_json:
        print_json({"types": [as_document(one) for one in found]})
    else:
        TYPE_COLUMNS.print(found)


@types_app.command("create")
def create_type_command(
    name: NewTypeName,
    *,
    summary: Summary = None,
    limit_seconds: LimitSeconds = None,
    read_only: Reads = False,
    schema: SchemaFile = None,
    file: File = None,
    org: Org = None,
    as_json: AsJson = False,
) -> None:
    """Define a type, or replace a built-in type in the organisation.

    For example: automation org-jobs types create REPORT_EXPORT --summary "Export the report"
    """
    flags = _type_fields(summary, limit_seconds, schema, read_only=read_only)
    created = new_type(given_fields(file, {"name": name, **flags}), org=org)
    sentence = f"Job type {created.name} of organisation {created.org_id} is defined."
    print_result(as_document(created), sentence, as_json=as_json)


@types_app.command("update")
def update_type_command(
    name: TypeName,
    *,
    summary: Summary = None,
    limit_seconds: LimitSeconds = None,
    read_only: ReadsOrChanges = None,
    schema: SchemaFile = None,
    file: File = None,
    org: Org = None,
    as_json: AsJson = False,
) -> None:
    """Change a type that the organisation defines. Omitted fields stay.

    For example: automation org-jobs types update REPORT_EXPORT --summary "Export it" --read-only"""
    flags = _type_fields(summary, limit_seconds, schema, read_only=read_only)
    changed = change_type(name, changed_fields(file, flags), org=org)
    sentence = f"Job type {changed.name} of organisation {changed.org_id} is updated."
    print_result(as_document(changed), sentence, as_json=as_json)


@types_app.command("delete")
def delete_type_command(
    name: TypeName, *, org: Org = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Delete a type that no schedule and no open job uses.

    For example: automation org-jobs types delete REPORT_EXPORT --yes"""
    if not yes:
        confirm(f"Delete job type {name}?", f"delete job type {name}")
    remove_type(name, org=org)
    print_result({"name": name, "deleted": True}, f"Job type {name} is deleted.", as_json=as_json)


def _type_fields(
    summary: str | None, limit_seconds: int | None, schema: Path | None, *, read_only: bool | None
) -> dict[str, object]:
    return compact(
        summary=summary,
        limitSeconds=limit_seconds,
        isMutation=None if read_only is None else not read_only,
        payloadSchema=None if schema is None else read_json_object(schema),
    )


def print_organisation(one: Organisation) -> None:
    why = f": {one_line(one.suspend_reason)}" if one.suspend_reason else ""
    print_facts(
        {
            "organisation": f"{one.id}  {one.name}",
            "state": _state(one),
            "suspended": one.suspended_at and f"{minute(one.suspended_at)} UTC{why}",
            "at once": f"{one.max_running} jobs at most",
            "maintenance": maintenance_line(one.maintenance_until),
            "created": f"{minute(one.created_at)} UTC",
        }
    )


def _state(one: Organisation) -> Text:
    return Text("in service", "green") if one.suspended_at is None else Text("suspended", "red")


def _limit(one: JobTypeCard) -> str:
    seconds = one.limit_seconds
    return f"{seconds // 60} min" if seconds < 2 * 3600 else f"{seconds // 3600} h"


def _summary(one: JobTypeCard) -> str:
    also = f" Also: {', '.join(one.aliases)}." if one.aliases else ""
    return f"{one.summary}{also}"


ORGANISATION_COLUMNS = Columns[Organisation](
    {
        "id": lambda one: one.id,
        "name": lambda one: one.name,
        "state": _state,
        "at once": lambda one: one.max_running,
        "maintenance until (UTC)": lambda one: minute(one.maintenance_until),
    },
    texts={"name"},
)
TYPE_COLUMNS = Columns[JobTypeCard](
    {
        "type": lambda one: one.name,
        "by": lambda one: one.performer,
        "changes": lambda one: "yes" if one.is_mutation else "no",
        "at most": _limit,
        "needs": lambda one: one.permission and f"{one.permission}.write",
        "summary": _summary,
    },
    texts={"needs", "summary"},
)


hosts_app = command_group("Manage the machines on which agents run.")
servers_app = command_group("Manage servers and their hosts.")

HOSTS, SERVERS = "/api/org-hosts", "/api/org-servers"


@operation(f"POST {HOSTS}", query=["org"])
def new_host(services: Services, given: Document, *, org: str | None) -> Host:
    return create_host(given, org_id=chosen_org(services, org), **org_write_context(services))


@operation(f"GET {HOSTS}")
def hosts(session: Session, *, org: str | None, limit: int, offset: int) -> Sequence[Host]:
    return list_hosts(session, ALL_ORGANISATIONS, org_id=org, limit=limit, offset=offset)


@operation(f"GET {HOSTS}/{{host_id}}")
def host(session: Session, host_id: int) -> Host:
    return get_host(session, host_id, ALL_ORGANISATIONS)


@operation(f"PATCH {HOSTS}/{{host_id}}")
def change_host(services: Services, host_id: int, given: Document) -> Host:
    return update_host(host_id, given, **org_write_context(services))


@operation(f"DELETE {HOSTS}/{{host_id}}")
def remove_host(services: Services, host_id: int) -> None:
    delete_host(host_id, **org_write_context(services))


@operation(f"POST {SERVERS}", query=["org"])
def new_server(services: Services, given: Document, *, org: str | None) -> Server:
    return create_server(given, org_id=chosen_org(services, org), **org_write_context(services))


@operation(f"GET {SERVERS}")
def servers(session: Session, *, org: str | None, limit: int, offset: int) -> Sequence[Server]:
    return list_servers(session, ALL_ORGANISATIONS, org_id=org, limit=limit, offset=offset)


@operation(f"GET {SERVERS}/{{server_id}}")
def server(session: Session, server_id: int) -> Server:
    return get_server(session, server_id, ALL_ORGANISATIONS)


@operation(f"PATCH {SERVERS}/{{server_id}}")
def change_server(services: Services, server_id: int, given: Document) -> Server:
    return update_server(server_id, given, **org_write_context(services))


@operation(f"DELETE {SERVERS}/{{server_id}}")
def remove_server(services: Services, server_id: int) -> None:
    delete_server(server_id, **org_write_context(services))


HostId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The host's id, as `automation org-jobs hosts list` shows it."
    ),
]
ItemName = Annotated[
    str | None, typer.Option("--name", "-n", help="A name for people, unique in the organisation.")
]


@hosts_app.command("create")
def create_host_command(
    *,
    name: ItemName = None,
    org: Org = None,
    maintenance_until: MaintenanceUntil = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Add a host. Its agent then claims jobs with a token of the organisation.

    For example: automation org-jobs hosts create --name paris-1 --org acme"""
    flags = compact(name=name) | maintenance(maintenance_until)
    show_one(new_host(given_fields(file, flags), org=org), print_host, as_json=as_json)


@hosts_app.command("list")
def list_hosts_(
    *, org: OfOrg = None, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the hosts and the last call of each agent.

    For example: automation org-jobs hosts list --org acme"""
    check_org(org)
    found = hosts(org=org, limit=limit + 1, offset=offset)
    show_page("hosts", found, HOST_COLUMNS.print, limit=limit, offset=offset, as_json=as_json)


@hosts_app.command("show")
def show_host_command(host_id: HostId, *, as_json: AsJson = False) -> None:
    """Show one host. For example: automation org-jobs hosts show 2"""
    show_one(host(host_id), print_host, as_json=as_json)


@hosts_app.command("update")
def update_host_command(
    host_id: HostId,
    *,
    name: ItemName = None,
    maintenance_until: MaintenanceUntil = None,
    end_maintenance: EndMaintenance = False,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Change a host. For example: automation org-jobs hosts update 2 --maintenance-until
    2026-07-01T08:00:00Z"""
    flags = compact(name=name) | maintenance(maintenance_until, is_over=end_maintenance)
    show_one(change_host(host_id, changed_fields(file, flags)), print_host, as_json=as_json)


@hosts_app.command("delete")
def delete_host_command(host_id: HostId, *, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a host without servers. For example: automation org-jobs hosts delete 2 --yes"""
    if not yes:
        confirm(f"Delete host {host_id}, {host(host_id).name}?", f"delete host {host_id}")
    remove_host(host_id)
    document = {"id": str(host_id), "deleted": True}
    print_result(document, f"Host {host_id} is deleted.", as_json=as_json)


ServerId = Annotated[
    int,
    typer.Argument(
        min=1,
        max=LARGEST_ID,
        help="The server's id, as `automation org-jobs servers list` shows it.",
    ),
]
OnHost = Annotated[
    int | None,
    typer.Option(
        "--host", min=1, max=LARGEST_ID, help="The host of the server; its agent runs the jobs."
    ),
]
NoHost = Annotated[
    bool,
    typer.Option(
        "--no-host", help="Remove the server from its host: its jobs wait until it has a host."
    ),
]
Enabled = Annotated[
    bool | None,
    typer.Option(
        "--enabled/--disabled", help="Jobs that are due on a disabled server are skipped."
    ),
]


@servers_app.command("create")
def create_server_command(
    *,
    name: ItemName = None,
    host: OnHost = None,
    enabled: Enabled = None,
    org: Org = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Add a server. For example: automation org-jobs servers create --name lobby-3 --host 2 --org
    acme"""
    flags = compact(name=name, hostId=_id(host), isEnabled=enabled)
    show_one(new_server(given_fields(file, flags), org=org), print_server, as_json=as_json)


@servers_app.command("list")
def list_servers_(
    *, org: OfOrg = None, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the servers. For example: automation org-jobs servers list --org acme"""
    check_org(org)
    found = servers(org=org, limit=limit + 1, offset=offset)
    show_page("servers", found, SERVER_COLUMNS.print, limit=limit, offset=offset, as_json=as_json)


@servers_app.command("show")
def show_server_command(server_id: ServerId, *, as_json: AsJson = False) -> None:
    """Show one server. For example: automation org-jobs servers show 3"""
    show_one(server(server_id), print_server, as_json=as_json)


@servers_app.command("update")
def update_server_command(
    server_id: ServerId,
    *,
    name: ItemName = None,
    host: OnHost = None,
    no_host: NoHost = False,
    enabled: Enabled = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Change a server, or move it to another host with its jobs that have not started.

    For example: automation org-jobs servers update 3 --host 4"""
    if no_host and host is not None:
        raise InvalidInputError("Use either --host or --no-host.")
    flags = compact(name=name, hostId=_id(host), isEnabled=enabled)
    if no_host:
        flags["hostId"] = None
    show_one(change_server(server_id, changed_fields(file, flags)), print_server, as_json=as_json)


@servers_app.command("delete")
def delete_server_command(
    server_id: ServerId, *, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Delete a server that no schedule uses. For example: automation org-jobs servers delete 3 --yes"""
    if not yes:
        confirm(
            f"Delete server {server_id}, {server(server_id).name}?", f"delete server {server_id}"
        )
    remove_server(server_id)
    document = {"id": str(server_id), "deleted": True}
    print_result(document, f"Server {server_id} is deleted.", as_json=as_json)


def _id(number: int | None) -> str | None:
    return None if number is None else str(number)


def print_host(one: Host) -> None:
    print_facts(
        {
            "host": f"{one.id}  {one.name}",
            "organisation": one.org_id,
            "agent": one.agent_version,
            "last seen": f"{minute(one.last_seen_at)} UTC" if one.last_seen_at else "never",
            "maintenance": maintenance_line(one.maintenance_until),
            "created": f"{minute(one.created_at)} UTC",
        }
    )


def print_server(one: Server) -> None:
    print_facts(
        {
            "server": f"{one.id}  {one.name}",
            "organisation": one.org_id,
            "host": one.host_id or "none: its jobs wait until it has one",
            "state": "enabled" if one.is_enabled else "disabled",
            "created": f"{minute(one.created_at)} UTC",
        }
    )


HOST_COLUMNS = Columns[Host](
    {
        "id": lambda one: one.id,
        "organisation": lambda one: one.org_id,
        "name": lambda one: one.name,
        "agent": lambda one: one.agent_version,
        "last seen (UTC)": lambda one: minute(one.last_seen_at) or "never",
        "maintenance until (UTC)": lambda one: minute(one.maintenance_until),
    },
    texts={"name", "agent"},
)
SERVER_COLUMNS = Columns[Server](
    {
        "id": lambda one: one.id,
        "organisation": lambda one: one.org_id,
        "name": lambda one: one.name,
        "host": lambda one: one.host_id,
        "state": lambda one: "enabled" if one.is_enabled else "disabled",
    },
    texts={"name"},
)
