"""`automation org-jobs hosts` and `servers`."""

from collections.abc import Sequence
from typing import Annotated

import typer

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
    print_facts,
    print_result,
    show_one,
    show_page,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.org_jobs.commands.arguments import (
    EndMaintenance,
    File,
    MaintenanceUntil,
    OfOrg,
    Org,
    Yes,
    changed_fields,
    chosen_org,
    given_fields,
    maintenance,
    maintenance_line,
    operating,
)
from automation_pipeline.org_jobs.commands.organisations import check_org
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, Host, Server
from automation_pipeline.org_jobs.organisations import (
    create_host,
    create_server,
    delete_host,
    delete_server,
    update_host,
    update_server,
)
from automation_pipeline.org_jobs.queries.organisations import (
    get_host,
    get_server,
    list_hosts,
    list_servers,
)
from automation_pipeline.storage.database import Session

app = command_group("Manage the machines on which agents run.")
servers_app = command_group("Manage servers and their hosts.")

HOSTS, SERVERS = "/api/org-hosts", "/api/org-servers"


@operation(f"POST {HOSTS}", query=["org"])
def new_host(services: Services, given: Document, *, org: str | None) -> Host:
    return create_host(given, org_id=chosen_org(services, org), **operating(services))


@operation(f"GET {HOSTS}")
def hosts(session: Session, *, org: str | None, limit: int, offset: int) -> Sequence[Host]:
    return list_hosts(session, ALL_ORGANISATIONS, org_id=org, limit=limit, offset=offset)


@operation(f"GET {HOSTS}/{{host_id}}")
def host(session: Session, host_id: int) -> Host:
    return get_host(session, host_id, ALL_ORGANISATIONS)


@operation(f"PATCH {HOSTS}/{{host_id}}")
def change_host(services: Services, host_id: int, given: Document) -> Host:
    return update_host(host_id, given, **operating(services))


@operation(f"DELETE {HOSTS}/{{host_id}}")
def remove_host(services: Services, host_id: int) -> None:
    delete_host(host_id, **operating(services))


@operation(f"POST {SERVERS}", query=["org"])
def new_server(services: Services, given: Document, *, org: str | None) -> Server:
    return create_server(given, org_id=chosen_org(services, org), **operating(services))


@operation(f"GET {SERVERS}")
def servers(session: Session, *, org: str | None, limit: int, offset: int) -> Sequence[Server]:
    return list_servers(session, ALL_ORGANISATIONS, org_id=org, limit=limit, offset=offset)


@operation(f"GET {SERVERS}/{{server_id}}")
def server(session: Session, server_id: int) -> Server:
    return get_server(session, server_id, ALL_ORGANISATIONS)


@operation(f"PATCH {SERVERS}/{{server_id}}")
def change_server(services: Services, server_id: int, given: Document) -> Server:
    return update_server(server_id, given, **operating(services))


@operation(f"DELETE {SERVERS}/{{server_id}}")
def remove_server(services: Services, server_id: int) -> None:
    delete_server(server_id, **operating(services))


HostId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The host's id, as `automation org-jobs hosts list` shows it."
    ),
]
ItemName = Annotated[
    str | None, typer.Option("--name", "-n", help="A name for people, unique in the organisation.")
]


@app.command("create")
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


@app.command("list")
def list_hosts_(
    *, org: OfOrg = None, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the hosts and the last call of each agent.

    For example: automation org-jobs hosts list --org acme"""
    check_org(org)
    found = hosts(org=org, limit=limit + 1, offset=offset)
    show_page("hosts", found, HOST_COLUMNS.print, limit=limit, offset=offset, as_json=as_json)


@app.command("show")
def show_host_command(host_id: HostId, *, as_json: AsJson = False) -> None:
    """Show one host. For example: automation org-jobs hosts show 2"""
    show_one(host(host_id), print_host, as_json=as_json)


@app.command("update")
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


@app.command("delete")
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
    changed = change_server(server_id, changed_fields(file, flags))
    show_one(changed, print_server, as_json=as_json)


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
            "made": f"{minute(one.created_at)} UTC",
        }
    )


def print_server(one: Server) -> None:
    print_facts(
        {
            "server": f"{one.id}  {one.name}",
            "organisation": one.org_id,
            "host": one.host_id or "none: its jobs wait until it has one",
            "state": "enabled" if one.is_enabled else "disabled",
            "made": f"{minute(one.created_at)} UTC",
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
