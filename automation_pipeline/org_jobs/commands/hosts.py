"""`automation org-jobs hosts`."""

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
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.org_jobs.commands.arguments import (
    EndMaintenance,
    File,
    MaintenanceUntil,
    OfOrg,
    Org,
    Yes,
    ask,
    changed_fields,
    given_fields,
    maintenance,
)
from automation_pipeline.org_jobs.commands.organisations import print_host, print_hosts
from automation_pipeline.org_jobs.models.organisations import Host

app = command_group("Say on which machines agents work.")

HostId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The host's id, as `automation org-jobs hosts list` shows it."
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", "-n", help="What people know it by, once an organisation.")
]


@app.command()
def create(
    *,
    name: Name = None,
    org: Org = None,
    maintenance_until: MaintenanceUntil = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Add a host, whose agent then fetches its jobs with a token of the organisation.

    For example: automation org-jobs hosts create --name paris-1 --org acme
    """
    said = ({} if name is None else {"name": name}) | maintenance(maintenance_until)
    _show(open_client().org_jobs.hosts.create(given_fields(file, said), org), as_json=as_json)


@app.command("list")
def list_(
    *, org: OfOrg = None, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the hosts, and when the agent of each was last heard of.

    For example: automation org-jobs hosts list --org acme
    """
    found = open_client().org_jobs.hosts.listed(org, one_more(limit, offset))
    if as_json:
        print_json(
            {"hosts": [as_document(one) for one in found[:limit]], "more": len(found) > limit}
        )
        return
    print_hosts(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(host_id: HostId, *, as_json: AsJson = False) -> None:
    """Show one host. For example: automation org-jobs hosts show 2"""
    _show(open_client().org_jobs.hosts.get(host_id), as_json=as_json)


@app.command()
def update(
    host_id: HostId,
    *,
    name: Name = None,
    maintenance_until: MaintenanceUntil = None,
    end_maintenance: EndMaintenance = False,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Change a host. For example: automation org-jobs hosts update 2 --maintenance-until
    2026-07-01T08:00:00Z"""
    said = ({} if name is None else {"name": name}) | maintenance(
        maintenance_until, is_over=end_maintenance
    )
    _show(open_client().org_jobs.hosts.update(host_id, changed_fields(file, said)), as_json=as_json)


@app.command()
def delete(host_id: HostId, *, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a host that has no servers any more. For example: automation org-jobs hosts delete 2
    --yes"""
    client = open_client().org_jobs.hosts
    if not yes:
        ask(f"Delete host {host_id}, {client.get(host_id).name}?", f"delete host {host_id}")
    client.delete(host_id)
    if as_json:
        print_json({"id": str(host_id), "deleted": True})
    else:
        say(f"Host {host_id} is deleted.")


def _show(host: Host, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(host))
    else:
        print_host(host)
