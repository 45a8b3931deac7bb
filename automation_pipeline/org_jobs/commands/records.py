"""`automation org-jobs alerts|audit-log`."""

import json
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer
from rich.text import Text

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.output import (
    AsJson,
    Limit,
    Offset,
    minute,
    one_line,
    one_more,
    print_fitted_table,
    print_json,
    say,
    say_more,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.core.webhooks import AlertSeverity
from automation_pipeline.org_jobs.commands.arguments import AfterId, OfOrg
from automation_pipeline.org_jobs.models.organisations import AuditEntry
from automation_pipeline.org_jobs.rules.health import OrgAlert

ALERT_COLOURS = {AlertSeverity.WARNING: "yellow", AlertSeverity.CRITICAL: "red"}


def print_alerts(alerts: Iterable[OrgAlert]) -> None:
    columns = (
        "id",
        "raised (UTC)",
        "organisation",
        "alert",
        "severity",
        "about",
        "message",
        "webhook",
    )
    print_fitted_table(columns, map(_alert, alerts), texts={"about", "message", "webhook"})


def print_entries(entries: Iterable[AuditEntry]) -> None:
    columns = ("id", "at (UTC)", "organisation", "who", "did", "to", "change", "why")
    print_fitted_table(columns, map(_entry, entries), texts={"who", "to", "change", "why"})


def _alert(alert: OrgAlert) -> tuple[object, ...]:
    carried = (
        alert.status
        if alert.last_error is None
        else f"{alert.status}: {one_line(alert.last_error)}"
    )
    severity = Text(alert.severity, ALERT_COLOURS[alert.severity])
    when = minute(alert.raised_at)
    return (
        alert.id,
        when,
        alert.org_id,
        alert.name,
        severity,
        alert.subject,
        one_line(alert.message),
        carried,
    )


def _entry(entry: AuditEntry) -> tuple[object, ...]:
    what = f"{entry.entity} {entry.entity_id}"
    changed = _change(entry.before or {}, entry.after or {})
    return (
        entry.id,
        minute(entry.at),
        entry.org_id,
        entry.actor,
        entry.action,
        what,
        changed,
        entry.reason,
    )


def _change(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """Only what is another value than before."""
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name}: {_values(name, before, after)}" for name in changed)


def _values(name: str, before: Mapping[str, object], after: Mapping[str, object]) -> str:
    return " -> ".join(
        json.dumps(fields[name], ensure_ascii=False) for fields in (before, after) if name in fields
    )


def alerts(
    *, org: OfOrg = None, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the alerts, newest first: why somebody was called, and what became of the message.

    For example: automation org-jobs alerts --org acme
    """
    found = open_client().org_jobs.alerts(org, one_more(limit, offset))
    if as_json:
        print_json(
            {"alerts": [as_document(one) for one in found[:limit]], "more": len(found) > limit}
        )
        return
    print_alerts(found[:limit])
    say_more(found, limit, offset)


def audit_log(
    *,
    org: OfOrg = None,
    entity: Annotated[
        str | None,
        typer.Option(
            "--entity", help="Only changes of such things: schedule, job, organisation, host ..."
        ),
    ] = None,
    entity_id: Annotated[
        str | None, typer.Option("--id", help="Only changes of this one; goes with --entity.")
    ] = None,
    limit: Limit = 50,
    after: AfterId = 0,
    as_json: AsJson = False,
) -> None:
    """Tell who changed what, when, and why.

    For example: automation org-jobs audit-log --org acme --entity host --id 2
    """
    if entity_id is not None and entity is None:
        raise InvalidInputError("--id goes with --entity.")
    found = open_client().org_jobs.audit_log(
        org, entity=entity, entity_id=entity_id, limit=limit + 1, after_id=after
    )
    if as_json:
        print_json(
            {"log": [as_document(entry) for entry in found[:limit]], "more": len(found) > limit}
        )
        return
    print_entries(found[:limit])
    if len(found) > limit:
        say(f"There are more: --after {found[limit - 1].id} shows the next.")
