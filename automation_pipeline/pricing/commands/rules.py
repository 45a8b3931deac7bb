"""`automation pricing rules` and `preview`."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, cast

import typer

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.ports import PricingClient, Span
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import (
    AsJson,
    Limit,
    Offset,
    consent,
    minute,
    one_more,
    print_facts,
    print_fitted_table,
    print_json,
    read_json_object,
    say,
    say_more,
)
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.commands.arguments import (
    PROJECT,
    OfProject,
    Project,
    RuleId,
    every_skipped,
    every_target,
    shop_status_line,
)
from automation_pipeline.pricing.commands.rendering import (
    next_step,
    print_account,
    print_blocked,
    print_targets,
)
from automation_pipeline.pricing.models.rules import PricingRule, RuleVersion, input_document
from automation_pipeline.pricing.models.runs import BLOCKED, RuleRun, RuleTarget, SkippedVariant
from automation_pipeline.pricing.models.shop import price_text
from automation_pipeline.pricing.models.transforms import IN_MINOR_UNITS, UNTOUCHED, Operation


def print_rules(rules: Iterable[PricingRule]) -> None:
    print_fitted_table(
        ("id", "name", "project", "state", "version", "does", "starts (UTC)", "ends (UTC)"),
        (
            (r.id, r.name, r.project_id, _state(r), r.version, _transform(input_document(r)), minute(r.schedule_at),
             minute(r.ends_at))
            for r in rules
        ),
        texts={"name", "project", "does"},
    )  # fmt: skip


def print_rule(rule: PricingRule) -> None:
    written = input_document(rule)
    print_facts(
        {
            "rule": f"{rule.id}  {rule.name}",
            "description": rule.description,
            "project": rule.project_id,
            "state": f"{_state(rule)}, version {rule.version}",
            "picks": _json(written["selector"]),
            "does": _json(_used_fields(written["transform"])),
            "currency": rule.currency or "any; each variant's own",
            "starts": rule.schedule_at and f"{minute(rule.schedule_at)} UTC",
            "ends": rule.ends_at and f"{minute(rule.ends_at)} UTC: its prices are taken back then",
            "on drift": _on_drift(rule),
            "rests": f"{rule.cooldown_minutes} minutes after a run"
            if rule.cooldown_minutes
            else None,
            "made": f"{minute(rule.created_at)} UTC by {rule.created_by}",
            "changed": None
            if rule.updated_at == rule.created_at
            else f"{minute(rule.updated_at)} UTC",
        }
    )
    if rule.deleted_at is None:
        say(f"See what it would do: `automation pricing preview {rule.id}`.")


def print_versions(versions: Iterable[RuleVersion]) -> None:
    print_fitted_table(
        ("version", "from (UTC)", "by", "picks", "does"),
        (
            (
                v.version,
                minute(v.created_at),
                v.created_by,
                _json(v.rule.get("selector")),
                _transform(v.rule),
            )
            for v in versions
        ),
        texts={"by", "picks", "does"},
    )


def _state(rule: PricingRule) -> str:
    if rule.deleted_at is not None:
        return "deleted"
    return "enabled" if rule.enabled else "disabled"


def _on_drift(rule: PricingRule) -> str:
    return f"{rule.on_drift} a price that is no longer the one that was previewed"


def _transform(rule: Mapping[str, object]) -> str:
    """In a word or two, for a table: `show` tells the rest."""
    transform = cast("Mapping[str, object]", rule.get("transform") or {})
    op, value, currency = str(transform.get("op")), transform.get("value"), rule.get("currency")
    if op == Operation.MULTIPLY:
        return f"times {transform.get('factor')}"
    if value is None:
        return op.replace("_", " ")
    if op in IN_MINOR_UNITS and currency:
        return f"{op} {price_text(int(str(value)), str(currency))}"
    return f"{op.replace('_', ' ')} {value} %"


def _used_fields(transform: object) -> Mapping[str, object]:
    """Without what is not used. A compare-at price of null is cleared."""
    given = cast("Mapping[str, object]", transform)
    return {name: value for name, value in given.items() if not _is_unused(name, value)}


def _is_unused(name: str, value: object) -> bool:
    if value is None:
        return name != "compareAt"
    return value is False or value in {UNTOUCHED, "none"}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


app = command_group("Say which variants get which price, and when.")

RuleFile = Annotated[
    Path, typer.Option("--file", "-f", help="JSON file of the rule; - reads standard input.")
]
ChangesFile = Annotated[
    Path,
    typer.Option(
        "--file", "-f", help="JSON file of the fields that change; - reads standard input."
    ),
]


@app.command()
def create(*, file: RuleFile, project: Project = PROJECT, as_json: AsJson = False) -> None:
    """Store a new rule. No price changes by it: preview it, then apply the preview. For example, 10
    % off what is tagged summer, down to 5.00 EUR at most, to prices that end in .99:

    {"name": "Summer", "selector": {"tag": "summer"}, "transform": {"op": "percent", "value": -10,
    "floor": 500, "ending": ".99"}, "currency": "EUR"}

    Amounts are whole minor units: 500 is 5.00 EUR. `scheduleAt` starts it by itself; with `endsAt`
    it is a promotion, whose prices are taken back then. A fault is told by the name of its field.
    """
    _show(open_client().pricing.rules.create(read_json_object(file), project), as_json=as_json)


@app.command("list")
def list_(
    *,
    project: OfProject = None,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Only those that are so; else both.")
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Only those with this in their name.")
    ] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the rules, newest first. For example: automation pricing rules list --enabled --query
    summer"""
    found = open_client().pricing.rules.listed(
        project_id=project, enabled=enabled, query=query, span=one_more(limit, offset)
    )
    if as_json:
        print_json(
            {"rules": [as_document(rule) for rule in found[:limit]], "more": len(found) > limit}
        )
        return
    print_rules(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(rule_id: RuleId, *, as_json: AsJson = False) -> None:
    """Show one rule: what it picks, what it does to prices, and when. For example: automation
    pricing rules show 3"""
    _show(open_client().pricing.rules.get(rule_id), as_json=as_json)


@app.command()
def versions(
    rule_id: RuleId, *, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List what the rule was before, newest first. A change of what decides prices makes a version.

    For example: automation pricing rules versions 3 --json
    """
    found = open_client().pricing.rules.versions(rule_id, one_more(limit, offset))
    if as_json:
        print_json(
            {
                "versions": [as_document(version) for version in found[:limit]],
                "more": len(found) > limit,
            }
        )
        return
    print_versions(found[:limit])
    say_more(found, limit, offset)


@app.command()
def update(rule_id: RuleId, *, file: ChangesFile, as_json: AsJson = False) -> None:
    """Change the fields that the file names. Null clears a field; selector and transform are
    replaced whole. What was previewed before is stale by it.

    For example: echo '{"enabled": false}' | automation pricing rules update 3 --file -
    """
    _show(open_client().pricing.rules.update(rule_id, read_json_object(file)), as_json=as_json)


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
    client = open_client().pricing.rules
    if not yes:
        question = f"Delete pricing rule {rule_id}, {client.get(rule_id).name}? The prices that it has written stay."
        if not consent(question, f"delete pricing rule {rule_id}"):
            raise typer.Abort
    client.delete(rule_id)
    if as_json:
        print_json({"id": str(rule_id), "deleted": True})
    else:
        say(f"Pricing rule {rule_id} is deleted.")


def _show(rule: PricingRule, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(rule))
    else:
        print_rule(rule)


SHOWN = 50


def preview(
    rule_id: RuleId,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Show every row, not the first {SHOWN}.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """See what a rule would do to every price: nothing is written. Exactly this is applied
    afterwards, by its number.

    For example: automation pricing preview 3, then automation pricing runs apply 7

    A preview is good for 15 minutes, and until the rule is changed. A disabled rule can be
    previewed too.
    """
    client = open_client().pricing
    with shop_status_line("Reading the catalogue", quiet=as_json):
        run = client.rules.preview(rule_id)
    targets, blocked = _rows(run, client, everything=everything)
    if as_json:
        print_json(_document(run, targets, blocked))
        return
    say(
        f"Run {run.id} is a preview of rule {run.rule_id}, {run.rule_name}, version {run.rule_version}."
    )
    print_targets(run, targets)
    print_blocked(run, blocked)
    print_account(run)
    if not client.rules.get(rule_id).enabled:
        say("The rule is disabled: it can be applied once it is enabled.")
    step = next_step(run, client.policies.get(run.project_id))
    if step:
        say(step)


def _rows(
    run: RuleRun, client: PricingClient, *, everything: bool
) -> tuple[list[RuleTarget], list[SkippedVariant]]:
    if everything:
        return list(every_target(client.runs, run.id, None)), list(
            every_skipped(client.runs, run.id, BLOCKED)
        )
    targets = client.runs.targets(run.id, status=None, limit=SHOWN)
    return list(targets), list(client.runs.skipped(run.id, reason=BLOCKED, span=Span(SHOWN)))


def _document(
    run: RuleRun, targets: list[RuleTarget], blocked: list[SkippedVariant]
) -> dict[str, object]:
    return {
        "run_id": str(run.id),
        "run": as_document(run),
        "targets": [as_document(target) for target in targets],
        "blocked": [as_document(variant) for variant in blocked],
        "truncated": run.total_targets > len(targets) or run.blocked > len(blocked),
    }
