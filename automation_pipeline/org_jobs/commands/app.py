"""`automation org-jobs`, and its commands `alerts`, `audit-log` and `backfills`."""

from collections.abc import Sequence
from typing import Annotated

import typer

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import operation
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    Limit,
    Offset,
    delivery_cell,
    minute,
    one_line,
    severity_cell,
    show_one,
    show_page,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.org_jobs.commands import jobs, organisations, schedules
from automation_pipeline.org_jobs.commands.arguments import AfterId, OfOrg, org_write_context
from automation_pipeline.org_jobs.commands.organisations import check_org
from automation_pipeline.org_jobs.commands.pages import BACKFILL_COLUMNS, ENTRIES, print_backfill
from automation_pipeline.org_jobs.fires import cancel_backfill
from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    AuditEntry,
    OrgScope,
)
from automation_pipeline.org_jobs.queries.fires import get_backfill, list_backfills
from automation_pipeline.org_jobs.queries.health import list_alerts
from automation_pipeline.org_jobs.queries.organisations import audit_log
from automation_pipeline.org_jobs.rules.due import Backfill
from automation_pipeline.org_jobs.rules.health import OrgAlert
from automation_pipeline.storage.database import Session

app = command_group("Manage the jobs of organisations: schedules, queues and results.")
backfills_app = command_group("Show backfills and cancel them.")
app.add_typer(schedules.app, name="schedules")
app.add_typer(organisations.types_app, name="types")
app.add_typer(backfills_app, name="backfills")
app.add_typer(organisations.orgs_app, name="orgs")
app.add_typer(organisations.hosts_app, name="hosts")
app.add_typer(organisations.servers_app, name="servers")
app.command("list")(jobs.list_)
for command in (jobs.show, jobs.create, jobs.cancel, jobs.retry, jobs.watch, jobs.log):
    app.command()(command)
app.command("queues")(jobs.queues_)

BACKFILLS = "/api/org-backfills"


@operation("GET /api/org-alerts")
def org_alerts(session: Session, *, org: str | None, limit: int, offset: int) -> Sequence[OrgAlert]:
    return list_alerts(session, ALL_ORGANISATIONS, org_id=org, limit=limit, offset=offset)


@operation("GET /api/org-audit-log")
def audit_entries(
    session: Session,
    *,
    org: str | None,
    entity: str | None,
    entity_id: str | None,
    limit: int,
    after: int,
    newest: bool = True,
) -> Sequence[AuditEntry]:
    return audit_log(
        session,
        OrgScope(org),
        entity=entity,
        entity_id=entity_id,
        limit=limit,
        after_id=after,
        newest_first=newest,
    )


@operation(f"GET {BACKFILLS}")
def backfills(session: Session, *, org: str | None, limit: int, offset: int) -> Sequence[Backfill]:
    return list_backfills(session, ALL_ORGANISATIONS, org_id=org, limit=limit, offset=offset)


@operation(f"GET {BACKFILLS}/{{batch_id}}")
def backfill(session: Session, batch_id: int) -> Backfill:
    return get_backfill(session, batch_id, ALL_ORGANISATIONS)


@operation(f"POST {BACKFILLS}/{{batch_id}}/cancel")
def cancel_stored_backfill(services: Services, batch_id: int) -> Backfill:
    return cancel_backfill(batch_id, **org_write_context(services))


@app.command()
def alerts(
    *, org: OfOrg = None, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the alerts, newest first: why each was raised, and how its message was delivered.

    For example: automation org-jobs alerts --org acme
    """
    check_org(org)
    found = org_alerts(org=org, limit=limit + 1, offset=offset)
    show_page("alerts", found, ALERTS.print, limit=limit, offset=offset, as_json=as_json)


@app.command("audit-log")
def audit_log_(
    *,
    org: OfOrg = None,
    entity: Annotated[
        str | None,
        typer.Option(
            "--entity",
            help="Only changes of this kind of entity: schedule, job, organisation, host ...",
        ),
    ] = None,
    entity_id: Annotated[
        str | None,
        typer.Option("--id", help="Only changes of the entity with this id; requires --entity."),
    ] = None,
    limit: Limit = 50,
    after: AfterId = 0,
    as_json: AsJson = False,
) -> None:
    """Show who changed what, when, and why.

    For example: automation org-jobs audit-log --org acme --entity host --id 2
    """
    if entity_id is not None and entity is None:
        raise InvalidInputError("--id requires --entity.")
    check_org(org)
    found = audit_entries(org=org, entity=entity, entity_id=entity_id, limit=limit + 1, after=after)
    show_page("log", found, ENTRIES.print, limit=limit, as_json=as_json)


BackfillId = Annotated[
    int,
    typer.Argument(
        min=1,
        max=LARGEST_ID,
        help="The backfill's id, as `automation org-jobs backfills list` shows it.",
    ),
]


@backfills_app.command("list")
def list_backfills_(
    *, org: OfOrg = None, limit: Limit = 20, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the backfills, newest first. For example: automation org-jobs backfills list --org
    acme"""
    check_org(org)
    found = backfills(org=org, limit=limit + 1, offset=offset)
    show_page(
        "backfills", found, BACKFILL_COLUMNS.print, limit=limit, offset=offset, as_json=as_json
    )


@backfills_app.command("show")
def show_backfill(backfill_id: BackfillId, *, as_json: AsJson = False) -> None:
    """Show the status of a backfill's jobs. For example: automation org-jobs backfills show 2"""
    show_one(backfill(backfill_id), print_backfill, as_json=as_json)


@backfills_app.command("cancel")
def cancel_backfill_(backfill_id: BackfillId, *, as_json: AsJson = False) -> None:
    """Cancel the jobs of a backfill that have not started, and ask running jobs to stop.

    For example: automation org-jobs backfills cancel 2"""
    show_one(cancel_stored_backfill(backfill_id), print_backfill, as_json=as_json)


ALERTS = Columns[OrgAlert](
    {
        "id": lambda one: one.id,
        "raised (UTC)": lambda one: minute(one.raised_at),
        "organisation": lambda one: one.org_id,
        "alert": lambda one: one.name,
        "severity": lambda one: severity_cell(one.severity),
        "about": lambda one: one.subject,
        "message": lambda one: one_line(one.message),
        "webhook": lambda one: delivery_cell(one.status, one.last_error),
    },
    texts={"about", "message", "webhook"},
)
