"""`automation pricing`: its commands and groups."""

from automation_pipeline.cli.groups import command_group
from automation_pipeline.pricing.commands import dead_letters, history, rules, runs, shop
from automation_pipeline.pricing.commands import policies as policy
from automation_pipeline.pricing.commands import rules as preview

app = command_group(
    "Change prices in the shop by rules: preview, apply, retry, take back, reconcile."
)
app.add_typer(rules.app, name="rules")
app.command()(preview.preview)
app.add_typer(runs.app, name="runs")
app.command()(dead_letters.dlq)
app.add_typer(policy.app, name="policy")
app.add_typer(shop.app, name="shop")
app.command()(history.alerts)
app.command()(history.changes)
