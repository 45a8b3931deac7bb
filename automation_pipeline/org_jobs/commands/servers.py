"""`automation org-jobs servers`."""

from typing import Annotated

import typer

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import (
    AsJson,
    Limit,
    Offset,
    one_more,
    print_json,
    say,
    say_more,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.org_jobs.commands.arguments import (
    File,
    OfOrg,
    Org,
    Yes,
    ask,
    changed_fields,
    given_fields,
)
from automation_pipeline.org_jobs.commands.organisations import print_server, print_servers
from automation_pipeline.org_jobs.models.organisations import Server

app = command_group("Say which servers there are, and on which hosts.")

ServerId = Annotated[
    int,
    typer.Argument(
        min=1,
        max=LARGEST_ID,
        help="The server's id, as `automation org-jobs servers list` shows it.",
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", "-n", help="What people know it by, once an organisation.")
]
HostId = Annotated[
    int | None,
    typer.Option(
        "--host", min=1, max=LARGEST_ID, help="The host that it is on; its agent does the jobs."
    ),
]
NoHost = Annotated[
    bool, typer.Option("--no-host", help="It is on no host any more: its jobs wait until it is.")
]
Enabled = Annotated[
    bool | None,
    typer.Option("--enabled/--disabled", help="What falls due on a disabled one is left out."),
]


@app.command()
def create(
    *,
    name: Name = None,
    host: HostId = None,
    enabled: Enabled = None,
    org: Org = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Add a server. For example: automation org-jobs servers create --name lobby-3 --host 2 --org
    acme"""
    made = open_client().org_jobs.servers.create(
        given_fields(file, _said(name, host, enabled)), org
    )
    _show(made, as_json=as_json)


@app.command("list")
def list_(
    *, org: OfOrg = None, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the servers. For example: automation org-jobs servers list --org acme"""
    found = open_client().org_jobs.servers.listed(org, one_more(limit, offset))
    if as_json:
        print_json(
            {"servers": [as_document(one) for one in found[:limit]], "more": len(found) > limit}
        )
        return
    print_servers(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(server_id: ServerId, *, as_json: AsJson = False) -> None:
    """Show one server. For example: automation org-jobs servers show 3"""
    _show(open_client().org_jobs.servers.get(server_id), as_json=as_json)


@app.command()
def update(
    server_id: ServerId,
    *,
    name: Name = None,
    host: HostId = None,
    no_host: NoHost = False,
    enabled: Enabled = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Change a server, or move it to another host with the jobs that nobody has begun.

    For example: automation org-jobs servers update 3 --host 4
    """
    if no_host and host is not None:
        raise InvalidInputError("--host and --no-host are two things: say one of them.")
    said = _said(name, host, enabled) | ({"hostId": None} if no_host else {})
    _show(
        open_client().org_jobs.servers.update(server_id, changed_fields(file, said)),
        as_json=as_json,
    )


@app.command()
def delete(server_id: ServerId, *, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a server that no schedule is about any more. For example: automation org-jobs servers
    delete 3 --yes"""
    client = open_client().org_jobs.servers
    if not yes:
        ask(
            f"Delete server {server_id}, {client.get(server_id).name}?",
            f"delete server {server_id}",
        )
    client.delete(server_id)
    if as_json:
        print_json({"id": str(server_id), "deleted": True})
    else:
        say(f"Server {server_id} is deleted.")


def _said(name: str | None, host_id: int | None, enabled: bool | None) -> dict[str, object]:
    fields = {
        "name": name,
        "hostId": None if host_id is None else str(host_id),
        "isEnabled": enabled,
    }
    return {field: value for field, value in fields.items() if value is not None}


def _show(server: Server, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(server))
    else:
        print_server(server)
