"""`automation org-jobs orgs`: the organisations that jobs are done for."""

from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.listing import Limit, Offset, one_more, say_more
from automation_pipeline.cli.org_jobs.arguments import File, Reason, changed_fields, given_fields
from automation_pipeline.cli.org_jobs.maintenance import EndMaintenance, MaintenanceUntil, maintenance
from automation_pipeline.cli.org_jobs.places_page import print_organisation, print_organisations
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.organisation import Organisation

app = typer.Typer(help="Say for which organisations jobs are done, and how many at once.", no_args_is_help=True)

OrgId = Annotated[
    str, typer.Argument(help="The organisation's short name, as `automation org-jobs orgs list` shows it.")
]
Name = Annotated[str | None, typer.Option("--name", "-n", help="What people know it by.")]
MaxRunning = Annotated[
    int | None, typer.Option("--max-running", metavar="N", help="How many of its jobs are at work at once, at most.")
]


@app.command()
def create(
    org_id: Annotated[str | None, typer.Argument(help="A short name, for good, such as acme.")] = None,
    *,
    name: Name = None,
    max_running: MaxRunning = None,
    maintenance_until: MaintenanceUntil = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Add an organisation. For example: automation org-jobs orgs create acme --name "Acme Games" --max-running 20"""
    flags = {"id": org_id, "name": name, "maxRunning": max_running}
    said = {field: value for field, value in flags.items() if value is not None} | maintenance(maintenance_until)
    _show(desk().org_jobs.organisations.create(given_fields(file, said)), as_json=as_json)


@app.command("list")
def list_(*, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False) -> None:
    """List the organisations. For example: automation org-jobs orgs list --json"""
    found = desk().org_jobs.organisations.listed(one_more(limit, offset))
    if as_json:
        print_json({"organisations": [as_document(one) for one in found[:limit]], "more": len(found) > limit})
        return
    print_organisations(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(org_id: OrgId, *, as_json: AsJson = False) -> None:
    """Show one organisation. For example: automation org-jobs orgs show acme"""
    _show(desk().org_jobs.organisations.get(org_id), as_json=as_json)


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

    For example: automation org-jobs orgs update acme --max-running 5 --maintenance-until 2026-07-01T08:00:00Z
    """
    flags = {"name": name, "maxRunning": max_running}
    said = {field: value for field, value in flags.items() if value is not None}
    patch = changed_fields(file, said | maintenance(maintenance_until, is_over=end_maintenance))
    _show(desk().org_jobs.organisations.update(org_id, patch), as_json=as_json)


@app.command()
def suspend(org_id: OrgId, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Pause all schedules of an organisation until it is resumed, and begin none of its jobs.

    For example: automation org-jobs orgs suspend acme --reason "Unpaid since May"
    """
    _show(desk().org_jobs.organisations.suspend(org_id, reason), as_json=as_json)


@app.command()
def resume(org_id: OrgId, *, as_json: AsJson = False) -> None:
    """Take a suspended organisation into service again, with the schedules that were paused by that.

    For example: automation org-jobs orgs resume acme
    """
    _show(desk().org_jobs.organisations.resume(org_id), as_json=as_json)


def _show(organisation: Organisation, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(organisation))
    else:
        print_organisation(organisation)
