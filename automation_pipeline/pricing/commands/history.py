"""`automation pricing alerts` and `changes`."""

from typing import Annotated

import typer
from rich.text import Text

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.output import (
    AsJson,
    Limit,
    Offset,
    one_line,
    one_more,
    print_fitted_table,
    print_json,
    say_more,
)
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.core.webhooks import AlertSeverity
from automation_pipeline.pricing.commands.arguments import OfProject, every_change
from automation_pipeline.pricing.commands.rendering import amount, change
from automation_pipeline.pricing.models.history import PriceChange, PriceChangeFilter, PricingAlert

ALERT_COLOURS = {AlertSeverity.WARNING: "yellow", AlertSeverity.CRITICAL: "red"}


def alerts(
    *, project: OfProject = None, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the alerts, newest first: why somebody was called, and what became of the message.

    For example: automation pricing alerts --project summer
    """
    found = open_client().pricing.alerts(project_id=project, span=one_more(limit, offset))
    if as_json:
        print_json(
            {"alerts": [as_document(alert) for alert in found[:limit]], "more": len(found) > limit}
        )
        return
    columns = ("id", "raised (UTC)", "project", "alert", "severity", "message", "webhook")
    print_fitted_table(columns, map(_alert, found[:limit]), texts={"project", "message", "webhook"})
    say_more(found, limit, offset)


def changes(
    *,
    variant: Annotated[str | None, typer.Option(help="Only the prices of this variant.")] = None,
    run: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Only what this run has written.")
    ] = None,
    project: OfProject = None,
    as_json: AsJson = False,
) -> None:
    """List every price that was written in the shop, by runs and by taking them back, newest last.

    For example: automation pricing changes --variant 44120301
    """
    chosen = PriceChangeFilter(project_id=project, variant_id=variant, run_id=run)
    found = every_change(open_client().pricing, chosen)
    if as_json:
        print_json({"changes": [as_document(one) for one in found]})
        return
    columns = ("written (UTC)", "run", "by", "variant", "sku", "before", "after", "change", "note")
    print_fitted_table(columns, map(_change, found), texts={"by", "variant", "sku", "note"})


def _alert(alert: PricingAlert) -> tuple[object, ...]:
    carried = (
        alert.status
        if alert.last_error is None
        else f"{alert.status}: {one_line(alert.last_error)}"
    )
    severity = Text(alert.severity, ALERT_COLOURS[alert.severity])
    when = f"{alert.raised_at:%Y-%m-%d %H:%M}"
    return (alert.id, when, alert.project_id, alert.name, severity, alert.message, carried)


def _change(one: PriceChange) -> tuple[object, ...]:
    return (
        f"{one.applied_at:%Y-%m-%d %H:%M:%S}",
        one.rule_run_id,
        f"{one.kind} ({one.source})",
        f"{one.product_id}/{one.variant_id}",
        one.sku_id,
        amount(one.from_amount, one.currency),
        amount(one.to_amount, one.currency),
        change(one.from_amount, one.to_amount, one.currency),
        "it was there already" if one.was_found else "",
    )
