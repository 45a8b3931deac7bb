"""What is kept to be looked at, on a screen: alerts that were raised, and who changed what."""

import json
from collections.abc import Iterable, Mapping

from rich.text import Text

from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import minute
from automation_pipeline.cli.output import one_line
from automation_pipeline.org_jobs.domain.alerts import AlertSeverity
from automation_pipeline.org_jobs.domain.audit_entry import AuditEntry
from automation_pipeline.org_jobs.domain.raised_alert import OrgAlert

COLOURS = {AlertSeverity.WARNING: "yellow", AlertSeverity.CRITICAL: "red"}


def print_alerts(alerts: Iterable[OrgAlert]) -> None:
    columns = ("id", "raised (UTC)", "organisation", "alert", "severity", "about", "message", "webhook")
    print_fitted_table(columns, map(_alert, alerts), texts={"about", "message", "webhook"})


def print_entries(entries: Iterable[AuditEntry]) -> None:
    columns = ("id", "at (UTC)", "organisation", "who", "did", "to", "change", "why")
    print_fitted_table(columns, map(_entry, entries), texts={"who", "to", "change", "why"})


def _alert(alert: OrgAlert) -> tuple[object, ...]:
    carried = alert.status if alert.last_error is None else f"{alert.status}: {one_line(alert.last_error)}"
    severity = Text(alert.severity, COLOURS[alert.severity])
    when = minute(alert.raised_at)
    return (alert.id, when, alert.org_id, alert.name, severity, alert.subject, one_line(alert.message), carried)


def _entry(entry: AuditEntry) -> tuple[object, ...]:
    what = f"{entry.entity} {entry.entity_id}"
    changed = _change(entry.before or {}, entry.after or {})
    return (entry.id, minute(entry.at), entry.org_id, entry.actor, entry.action, what, changed, entry.reason)


def _change(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """Only what is another value than before."""
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name}: {_values(name, before, after)}" for name in changed)


def _values(name: str, before: Mapping[str, object], after: Mapping[str, object]) -> str:
    return " -> ".join(json.dumps(fields[name], ensure_ascii=False) for fields in (before, after) if name in fields)
