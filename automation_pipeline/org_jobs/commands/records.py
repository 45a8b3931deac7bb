"""`automation org-jobs alerts`, `audit-log` and `backfills`."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.text import Text

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import operation
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    Limit,
    Offset,
    counted,
    delivery_cell,
    json_line,
    minute,
    one_line,
    print_facts,
    say,
    screen,
    severity_cell,
    show_one,
    show_page,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.org_jobs.commands.arguments import AfterId, OfOrg, operating
from automation_pipeline.org_jobs.commands.organisations import check_org
from automation_pipeline.org_jobs.fires import cancel_backfill
from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    AuditEntry,
    OrgScope,
)
from automation_pipeline.org_jobs.models.states import BatchState
from automation_pipeline.org_jobs.queries.fires import get_backfill, list_backfills
from automation_pipeline.org_jobs.queries.health import list_alerts
from automation_pipeline.org_jobs.queries.organisations import audit_log
from automation_pipeline.org_jobs.rules.due import Backfill, BackfillTime, OrgJobsLeftOut
from automation_pipeline.org_jobs.rules.health import OrgAlert
from automation_pipeline.storage.database import Session

backfills_app = command_group("Show backfills and cancel them.")

BACKFILLS = "/api/org-backfills"
BACKFILL_COLOURS = {
    BatchState.RUNNING: "cyan",
    BatchState.COMPLETED: "green",
    BatchState.COMPLETED_WITH_FAILURES: "red",
    BatchState.CANCELLED: "yellow",
}


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
    return cancel_backfill(batch_id, **operating(services))


WHY = {
    None: "",
    OrgJobsLeftOut.DISPATCHED: "skipped: it has a job",
    OrgJobsLeftOut.AT_WORK: "skipped: its job has not ended",
    OrgJobsLeftOut.STILL_DUE: "skipped: its schedule is about to dispatch it",
}


def alerts(
    *, org: OfOrg = None, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the alerts, newest first: why each was raised, and how its message was delivered.

    For example: automation org-jobs alerts --org acme
    """
    check_org(org)
    found = org_alerts(org=org, limit=limit + 1, offset=offset)
    show_page("alerts", found, ALERTS.print, limit=limit, offset=offset, as_json=as_json)


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


def print_backfill(b: Backfill) -> None:
    if b.dry_run:
        if b.times:
            TIMES.print(b.times)
            screen.print()
        jobs = counted(b.total, "job")
        say(f"{jobs} would be created. This is a dry run: omit --dry-run to create them.")
        return
    print_facts(
        {
            "backfill": b.id,
            "organisation": b.org_id,
            "schedule": b.schedule_id,
            "status": _status(b),
            "period": f"{_period(b)} UTC, repeated: {b.behaviour}",
            "jobs": _counts(b),
            "made": f"{minute(b.created_at)} UTC by {b.created_by}",
            "ended": b.finished_at and f"{minute(b.finished_at)} UTC",
        }
    )
    if b.status is BatchState.RUNNING:
        say(f"See its jobs: `automation org-jobs list --backfill {b.id}`.")
        say(f"Stop it: `automation org-jobs backfills cancel {b.id}`.")


def _status(b: Backfill) -> Text:
    return Text("") if b.status is None else Text(b.status, BACKFILL_COLOURS[b.status])


def _period(b: Backfill) -> str:
    return f"{minute(b.from_at)} to {minute(b.until_at)}"


def _counts(b: Backfill) -> str:
    states = ("pending", "running", "success", "failed", "cancelled")
    counts = [f"{count} {state}" for state in states if (count := getattr(b, state))]
    return f"{b.total} = {' + '.join(counts)}" if counts else str(b.total)


def _change(entry: AuditEntry) -> str:
    """Only the changed fields."""
    before, after = entry.before or {}, entry.after or {}
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name}: {_values(name, before, after)}" for name in changed)


def _values(name: str, before: Mapping[str, object], after: Mapping[str, object]) -> str:
    return " -> ".join(json_line(fields[name]) for fields in (before, after) if name in fields)


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
ENTRIES = Columns[AuditEntry](
    {
        "id": lambda one: one.id,
        "at (UTC)": lambda one: minute(one.at),
        "organisation": lambda one: one.org_id,
        "who": lambda one: one.actor,
        "did": lambda one: one.action,
        "to": lambda one: f"{one.entity} {one.entity_id}",
        "change": _change,
        "why": lambda one: one.reason,
    },
    texts={"who", "to", "change", "why"},
)
BACKFILL_COLUMNS = Columns[Backfill](
    {
        "id": lambda one: one.id,
        "organisation": lambda one: one.org_id,
        "schedule": lambda one: one.schedule_id,
        "status": _status,
        "period (UTC)": _period,
        "made (UTC)": lambda one: minute(one.created_at),
        "jobs": _counts,
    },
    texts={"jobs"},
)
TIMES = Columns[BackfillTime](
    {
        "due (UTC)": lambda one: minute(one.scheduled_for),
        "begins (UTC)": lambda one: minute(one.effective_for),
        "": lambda one: WHY[one.left_out],
    },
    texts=(),
)
