"""`automation pricing`: its commands and groups."""

from automation_pipeline.cli.groups import command_group
from automation_pipeline.pricing.commands import rules, runs, shop

app = command_group(
    "Change prices in the shop by rules: preview, apply, retry, roll back, reconcile."
)
app.add_typer(rules.app, name="rules")
app.command()(rules.preview)
app.add_typer(runs.app, name="runs")
app.command()(shop.dlq)
app.add_typer(rules.policy_app, name="policy")
app.add_typer(shop.app, name="shop")
app.command()(shop.alerts)
app.command()(shop.changes)
