"""`automation pricing rules`: which variants get which price, and when. How a rule looks is in rule_page.py."""

from pathlib import Path
from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.listing import Limit, Offset, one_more, say, say_more
from automation_pipeline.cli.output import AsJson, consent, print_json, read_json_object
from automation_pipeline.cli.pricing.arguments import PROJECT, OfProject, Project, RuleId
from automation_pipeline.cli.pricing.rule_page import print_rule, print_rules, print_versions
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.pricing_rule import PricingRule

app = typer.Typer(help="Say which variants get which price, and when.", no_args_is_help=True)

RuleFile = Annotated[Path, typer.Option("--file", "-f", help="JSON file of the rule; - reads standard input.")]
ChangesFile = Annotated[
    Path, typer.Option("--file", "-f", help="JSON file of the fields that change; - reads standard input.")
]


@app.command()
def create(*, file: RuleFile, project: Project = PROJECT, as_json: AsJson = False) -> None:
    """Store a new rule. No price changes by it: preview it, then apply the preview. For example, 10 % off what is
    tagged summer, down to 5.00 EUR at most, to prices that end in .99:

    {"name": "Summer", "selector": {"tag": "summer"}, "transform": {"op": "percent", "value": -10, "floor": 500,
    "ending": ".99"}, "currency": "EUR"}

    Amounts are whole minor units: 500 is 5.00 EUR. `scheduleAt` starts it by itself; with `endsAt` it is a promotion,
    whose prices are taken back then. A fault is told by the name of its field.
    """
    _show(desk().pricing.rules.create(read_json_object(file), project), as_json=as_json)


@app.command("list")
def list_(
    *,
    project: OfProject = None,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Only those that are so; else both.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", help="Only those with this in their name.")] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the rules, newest first. For example: automation pricing rules list --enabled --query summer"""
    found = desk().pricing.rules.listed(project_id=project, enabled=enabled, query=query, span=one_more(limit, offset))
    if as_json:
        print_json({"rules": [as_document(rule) for rule in found[:limit]], "more": len(found) > limit})
        return
    print_rules(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(rule_id: RuleId, *, as_json: AsJson = False) -> None:
    """Show one rule: what it picks, what it does to prices, and when. For example: automation pricing rules show 3"""
    _show(desk().pricing.rules.get(rule_id), as_json=as_json)


@app.command()
def versions(rule_id: RuleId, *, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False) -> None:
    """List what the rule was before, newest first. A change of what decides prices makes a version.

    For example: automation pricing rules versions 3 --json
    """
    found = desk().pricing.rules.versions(rule_id, one_more(limit, offset))
    if as_json:
        print_json({"versions": [as_document(version) for version in found[:limit]], "more": len(found) > limit})
        return
    print_versions(found[:limit])
    say_more(found, limit, offset)


@app.command()
def update(rule_id: RuleId, *, file: ChangesFile, as_json: AsJson = False) -> None:
    """Change the fields that the file names. Null clears a field; selector and transform are replaced whole. What was
    previewed before is stale by it.

    For example: echo '{"enabled": false}' | automation pricing rules update 3 --file -
    """
    _show(desk().pricing.rules.update(rule_id, read_json_object(file)), as_json=as_json)


@app.command()
def delete(
    rule_id: RuleId,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a rule. Its runs stay, and so do the prices that they have written.

    For example: automation pricing rules delete 3 --yes
    """
    our = desk().pricing.rules
    if not yes:
        question = f"Delete pricing rule {rule_id}, {our.get(rule_id).name}? The prices that it has written stay."
        if not consent(question, f"delete pricing rule {rule_id}"):
            raise typer.Abort
    our.delete(rule_id)
    if as_json:
        print_json({"id": str(rule_id), "deleted": True})
    else:
        say(f"Pricing rule {rule_id} is deleted.")


def _show(rule: PricingRule, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(rule))
    else:
        print_rule(rule)
