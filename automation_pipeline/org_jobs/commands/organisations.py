"""`automation org-jobs orgs`, and organisations, hosts and servers on a screen."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import (
    AsJson,
    Limit,
    Offset,
    minute,
    one_line,
    one_more,
    print_facts,
    print_fitted_table,
    print_json,
    say_more,
)
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.commands.arguments import (
    EndMaintenance,
    File,
    MaintenanceUntil,
    Reason,
    changed_fields,
    given_fields,
    maintenance,
)
from automation_pipeline.org_jobs.models.organisations import Host, Organisation, Server


def print_organisations(organisations: Iterable[Organisation]) -> None:
    print_fitted_table(
        ("id", "name", "state", "at once", "maintenance until (UTC)"),
        (
            (one.id, one.name, _state(one), one.max_running, minute(one.maintenance_until))
            for one in organisations
        ),
        texts={"name"},
    )


def print_organisation(one: Organisation) -> None:
    print_facts(
        {
            "organisation": f"{one.id}  {one.name}",
            "state": _state(one),
            "suspended": one.suspended_at
            and f"{minute(one.suspended_at)} UTC{_why(one.suspend_reason)}",
            "at once": f"{one.max_running} jobs at most",
            "maintenance": _until(one.maintenance_until),
            "made": f"{minute(one.created_at)} UTC",
        }
    )


def print_hosts(hosts: Iterable[Host]) -> None:
    print_fitted_table(
        ("id", "organisation", "name", "agent", "last heard of (UTC)", "maintenance until (UTC)"),
        (
            (one.id, one.org_id, one.name, one.agent_version, _heard_of(one.last_seen_at),
             minute(one.maintenance_until))
            for one in hosts
        ),
        texts={"name", "agent"},
    )  # fmt: skip


def print_host(one: Host) -> None:
    print_facts(
        {
            "host": f"{one.id}  {one.name}",
            "organisation": one.org_id,
            "agent": one.agent_version,
            "last heard of": f"{minute(one.last_seen_at)} UTC" if one.last_seen_at else "never",
            "maintenance": _until(one.maintenance_until),
            "made": f"{minute(one.created_at)} UTC",
        }
    )


def print_servers(servers: Iterable[Server]) -> None:
    print_fitted_table(
        ("id", "organisation", "name", "host", "state"),
        ((one.id, one.org_id, one.name, one.host_id, _in_use(one)) for one in servers),
        texts={"name"},
    )


def print_server(one: Server) -> None:
    print_facts(
        {
            "server": f"{one.id}  {one.name}",
            "organisation": one.org_id,
            "host": one.host_id or "none: its jobs wait until it has one",
            "state": _in_use(one),
            "made": f"{minute(one.created_at)} UTC",
        }
    )


def _state(one: Organisation) -> Text:
    return Text("in service", "green") if one.suspended_at is None else Text("suspended", "red")


def _in_use(one: Server) -> str:
    return "enabled" if one.is_enabled else "disabled"


def _why(reason: str | None) -> str:
    return f": {one_line(reason)}" if reason else ""


def _until(instant: datetime | None) -> str | None:
    return f"until {minute(instant)} UTC: what falls due before is left out" if instant else None


def _heard_of(instant: datetime | None) -> str:
    return minute(instant) or "never"


app = command_group("Say for which organisations jobs are done, and how many at once.")

OrgId = Annotated[
    str,
    typer.Argument(
        help="The organisation's short name, as `automation org-jobs orgs list` shows it."
    ),
]
Name = Annotated[str | None, typer.Option("--name", "-n", help="What people know it by.")]
MaxRunning = Annotated[
    int | None,
    typer.Option(
        "--max-running", metavar="N", help="How many of its jobs are at work at once, at most."
    ),
]


@app.command()
def create(
    org_id: Annotated[
        str | None, typer.Argument(help="A short name, for good, such as acme.")
    ] = None,
    *,
    name: Name = None,
    max_running: MaxRunning = None,
    maintenance_until: MaintenanceUntil = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Add an organisation. For example: automation org-jobs orgs create acme --name "Acme Games"
    --max-running 20"""
    flags = {"id": org_id, "name": name, "maxRunning": max_running}
    said = {field: value for field, value in flags.items() if value is not None} | maintenance(
        maintenance_until
    )
    _show(open_client().org_jobs.organisations.create(given_fields(file, said)), as_json=as_json)


@app.command("list")
def list_(*, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False) -> None:
    """List the organisations. For example: automation org-jobs orgs list --json"""
    found = open_client().org_jobs.organisations.listed(one_more(limit, offset))
    if as_json:
        print_json(
            {
                "organisations": [as_document(one) for one in found[:limit]],
                "more": len(found) > limit,
            }
        )
        return
    print_organisations(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(org_id: OrgId, *, as_json: AsJson = False) -> None:
    """Show one organisation. For example: automation org-jobs orgs show acme"""
    _show(open_client().org_jobs.organisations.get(org_id), as_json=as_json)


@app.command()
def update(
    org_id: OrgId,
    *,
    name: Name = None,
    max_running: MaxRunning = None,
    maintenance_until: MaintenanceUntil = None,
    end_maintenance: EndMaintenance = False,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Change an organisation. What is at work goes on.

    For example: automation org-jobs orgs update acme --max-running 5 --maintenance-until
    2026-07-01T08:00:00Z
    """
    flags = {"name": name, "maxRunning": max_running}
    said = {field: value for field, value in flags.items() if value is not None}
    patch = changed_fields(file, said | maintenance(maintenance_until, is_over=end_maintenance))
    _show(open_client().org_jobs.organisations.update(org_id, patch), as_json=as_json)


@app.command()
def suspend(org_id: OrgId, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Pause all schedules of an organisation until it is resumed, and begin none of its jobs.

    For example: automation org-jobs orgs suspend acme --reason "Unpaid since May"
    """
    _show(open_client().org_jobs.organisations.suspend(org_id, reason), as_json=as_json)


@app.command()
def resume(org_id: OrgId, *, as_json: AsJson = False) -> None:
    """Take a suspended organisation into service again, with the schedules that were paused by
    that.

    For example: automation org-jobs orgs resume acme
    """
    _show(open_client().org_jobs.organisations.resume(org_id), as_json=as_json)


def _show(organisation: Organisation, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(organisation))
    else:
        print_organisation(organisation)
