"""`automation pricing rules`, `preview` and `policy`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import Document, actor, every, operation, write_context
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    Limit,
    Offset,
    confirm,
    json_line,
    minute,
    print_facts,
    print_json,
    print_result,
    read_json_object,
    say,
    show_one,
    show_page,
)
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.commands.rendering import (
    OfProject,
    Project,
    RuleId,
    print_blocked,
    print_counts,
    print_policy,
    print_targets,
    say_next_step,
    shop_status_line,
)
from automation_pipeline.pricing.models.rules import (
    DEFAULT_PROJECT,
    Policy,
    PricingRule,
    RuleVersion,
    input_document,
)
from automation_pipeline.pricing.models.runs import (
    BLOCKED,
    RuleRun,
    RuleTarget,
    RuleTrigger,
    TargetState,
)
from automation_pipeline.pricing.models.shop import price_text
from automation_pipeline.pricing.models.transforms import IN_MINOR_UNITS, UNTOUCHED, Operation
from automation_pipeline.pricing.planning import preview_rule
from automation_pipeline.pricing.pricing_rules import (
    create_rule,
    delete_rule,
    get_rule,
    list_rules,
    policy_of,
    put_policy,
    remove_policy,
    update_rule,
    versions_of,
)
from automation_pipeline.pricing.queries.runs import skipped_of, targets_of
from automation_pipeline.storage.database import Session

app = command_group("Manage rules: which variants get which price, and when.")
policy_app = command_group(
    "Set a project's guardrails: which prices are blocked, and who must approve."
)

RULES = "/api/pricing/rules"
RUN = "/api/pricing/runs/{run_id}"
POLICY = "/api/pricing/policies/{project}"
SHOWN = 50

RuleFile = Annotated[
    Path, typer.Option("--file", "-f", help="JSON file of the rule; - reads standard input.")
]
ChangesFile = Annotated[
    Path,
    typer.Option(
        "--file", "-f", help="JSON file of the fields that change; - reads standard input."
    ),
]
PolicyFile = Annotated[
    Path, typer.Option("--file", "-f", help="JSON file of the policy; - reads standard input.")
]


@operation(f"POST {RULES}", query=["project"])
def new_rule(services: Services, given: Document, *, project: str) -> PricingRule:
    return create_rule(given, project_id=project, **write_context(services))


@operation(f"GET {RULES}")
def rules(
    session: Session,
    *,
    project: str | None,
    enabled: bool | None,
    q: str | None,
    limit: int,
    offset: int,
) -> Sequence[PricingRule]:
    return list_rules(session, project_id=project, enabled=enabled, q=q, limit=limit, offset=offset)


@operation(f"GET {RULES}/{{rule_id}}")
def rule(session: Session, rule_id: int) -> PricingRule:
    return get_rule(session, rule_id)


versions_of_rule = operation(f"GET {RULES}/{{rule_id}}/versions")(versions_of)


@operation(f"PATCH {RULES}/{{rule_id}}")
def change_rule(services: Services, rule_id: int, given: Document) -> PricingRule:
    return update_rule(rule_id, given, **write_context(services))


@operation(f"DELETE {RULES}/{{rule_id}}")
def remove_rule(services: Services, rule_id: int) -> None:
    delete_rule(rule_id, **write_context(services))


@operation(f"POST {RULES}/{{rule_id}}/preview")
def plan_preview(services: Services, rule_id: int) -> RuleRun:
    plan = preview_rule(rule_id, services.pricing_context, actor=actor(), trigger=RuleTrigger.CLI)
    return services.run(plan)


@operation(f"GET {RUN}/targets")
def targets_of_run(
    session: Session, run_id: int, *, status: TargetState | None, limit: int, after: int = 0
) -> Sequence[RuleTarget]:
    return targets_of(session, run_id, status=status, limit=limit, after_id=after)


skipped_by_run = operation(f"GET {RUN}/skipped")(skipped_of)


@operation(f"GET {POLICY}")
def get_policy(session: Session, project: str) -> Policy:
    found = policy_of(session, project)
    if found is None:
        raise NotFoundError(f"Project {project} has no pricing policy.")
    return found


@operation(f"PUT {POLICY}")
def save_policy(services: Services, project: str, given: Document) -> Policy:
    return put_policy(project, given, **write_context(services))


@operation(f"DELETE {POLICY}")
def drop_policy(services: Services, project: str) -> None:
    remove_policy(project, **write_context(services))


def guardrails(project: str) -> Policy | None:
    try:
        return get_policy(project)
    except NotFoundError:
        return None


@app.command()
def create(*, file: RuleFile, project: Project = DEFAULT_PROJECT, as_json: AsJson = False) -> None:
    """Store a new rule. This changes no price: preview the rule, then apply the preview. For
    example, 10 % off for the tag summer, not below 5.00 EUR, to prices that end in .99:

    {"name": "Summer", "selector": {"tag": "summer"}, "transform": {"op": "percent", "value": -10,
    "floor": 500, "ending": ".99"}, "currency": "EUR"}

    Amounts are whole minor units: 500 is 5.00 EUR. `scheduleAt` starts the rule automatically; with
    `endsAt` it is a promotion, whose prices are rolled back at that time. Errors name their fields."""
    show_one(new_rule(read_json_object(file), project=project), print_rule, as_json=as_json)


@app.command("list")
def list_(
    *,
    project: OfProject = None,
    enabled: Annotated[
        bool | None,
        typer.Option(
            "--enabled/--disabled", help="Only enabled or only disabled rules; both by default."
        ),
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Only rules whose name contains this text.")
    ] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the rules, newest first. For example: automation pricing rules list --enabled --query
    summer"""
    found = rules(project=project, enabled=enabled, q=query, limit=limit + 1, offset=offset)
    show_page("rules", found, RULE_COLUMNS.print, limit=limit, offset=offset, as_json=as_json)


@app.command()
def show(rule_id: RuleId, *, as_json: AsJson = False) -> None:
    """Show one rule: its selector, its transform and its times. For example: automation pricing rules show 3"""
    show_one(rule(rule_id), print_rule, as_json=as_json)


@app.command()
def versions(
    rule_id: RuleId, *, limit: Limit = 50, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """List the versions of a rule, newest first. A change that affects prices creates a version.

    For example: automation pricing rules versions 3 --json"""
    found = versions_of_rule(rule_id, limit=limit + 1, offset=offset)
    show_page("versions", found, VERSIONS.print, limit=limit, offset=offset, as_json=as_json)


@app.command()
def update(rule_id: RuleId, *, file: ChangesFile, as_json: AsJson = False) -> None:
    """Change the fields that the file names. Null clears a field; selector and transform are
    replaced as a whole. The change makes earlier previews stale.

    For example: echo '{"enabled": false}' | automation pricing rules update 3 --file -"""
    show_one(change_rule(rule_id, read_json_object(file)), print_rule, as_json=as_json)


@app.command()
def delete(
    rule_id: RuleId,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a rule. Its runs and the prices that they wrote stay.

    For example: automation pricing rules delete 3 --yes"""
    if not yes:
        question = (
            f"Delete pricing rule {rule_id}, {rule(rule_id).name}? The prices that it wrote stay."
        )
        confirm(question, f"delete pricing rule {rule_id}")
    remove_rule(rule_id)
    document = {"id": str(rule_id), "deleted": True}
    print_result(document, f"Pricing rule {rule_id} is deleted.", as_json=as_json)


def preview(
    rule_id: RuleId,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Show every row instead of the first {SHOWN}.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the effect of a rule on every price, without writing any. Apply exactly this preview
    afterwards by its id.

    For example: automation pricing preview 3, then automation pricing runs apply 7

    A preview is valid for 15 minutes and until the rule changes. A disabled rule can be previewed
    too."""
    with shop_status_line("Reading the catalogue", quiet=as_json):
        run = plan_preview(rule_id)
    if everything:
        targets = list(every(targets_of_run, run_id=run.id, status=None))
        blocked = list(every(skipped_by_run, by="offset", run_id=run.id, reason=BLOCKED))
    else:
        targets = targets_of_run(run.id, status=None, limit=SHOWN)
        blocked = skipped_by_run(run.id, reason=BLOCKED, limit=SHOWN)
    if as_json:
        print_json(
            {
                "run_id": str(run.id),
                "run": as_document(run),
                "targets": [as_document(target) for target in targets],
                "blocked": [as_document(variant) for variant in blocked],
                "truncated": run.total_targets > len(targets) or run.blocked > len(blocked),
            }
        )
        return
    say(
        f"Run {run.id} is a preview of rule {run.rule_id}, {run.rule_name}, version {run.rule_version}."
    )
    print_targets(run, targets)
    print_blocked(run, blocked)
    print_counts(run)
    if not rule(rule_id).enabled:
        say("The rule is disabled: it can be applied once it is enabled.")
    say_next_step(run, guardrails(run.project_id))


@policy_app.command("show")
def show_policy(*, project: Project = DEFAULT_PROJECT, as_json: AsJson = False) -> None:
    """Show a project's guardrails. For example: automation pricing policy show --project summer"""
    _show_policy(project, guardrails(project), as_json=as_json)


@policy_app.command("set")
def set_policy(
    *, file: PolicyFile, project: Project = DEFAULT_PROJECT, as_json: AsJson = False
) -> None:
    """Replace the guardrails of a project. For example, no change of more than 30 %, no price below
    1.00 EUR, and no run without an approval:

    {"maxPctDelta": 0.3, "floor": 100, "currency": "EUR", "autoApply": false}

    The preview checks them, and the worker checks them again before it writes a price. Guardrails
    block a price and never adjust it."""
    _show_policy(project, save_policy(project, read_json_object(file)), as_json=as_json)


@policy_app.command("remove")
def remove_policy_(*, project: Project = DEFAULT_PROJECT, as_json: AsJson = False) -> None:
    """Remove a project's guardrails. Its runs then need no approval.

    For example: automation pricing policy remove --project summer"""
    drop_policy(project)
    document = {"project": project, "removed": True}
    print_result(document, f"Project {project} no longer has guardrails.", as_json=as_json)


def _show_policy(project: str, found: Policy | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"project": project, "policy": found and as_document(found)})
    else:
        print_policy(project, found)


def print_rule(rule: PricingRule) -> None:
    written = input_document(rule)
    transform = cast("Mapping[str, object]", written["transform"])
    used = {name: value for name, value in transform.items() if _is_used(name, value)}
    print_facts(
        {
            "rule": f"{rule.id}  {rule.name}",
            "description": rule.description,
            "project": rule.project_id,
            "state": f"{_state(rule)}, version {rule.version}",
            "picks": json_line(written["selector"]),
            "does": json_line(used),
            "currency": rule.currency or "any; each variant's own",
            "starts": rule.schedule_at and f"{minute(rule.schedule_at)} UTC",
            "ends": rule.ends_at and f"{minute(rule.ends_at)} UTC: its prices are rolled back then",
            "on drift": f"{rule.on_drift} a price that differs from the preview",
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
        say(f"Preview it: `automation pricing preview {rule.id}`.")


def _state(rule: PricingRule) -> str:
    if rule.deleted_at is not None:
        return "deleted"
    return "enabled" if rule.enabled else "disabled"


def _transform(rule: Mapping[str, object]) -> str:
    """Return a short form of the transform for tables. `show` prints the details."""
    transform = cast("Mapping[str, object]", rule.get("transform") or {})
    op, value, currency = str(transform.get("op")), transform.get("value"), rule.get("currency")
    if op == Operation.MULTIPLY:
        return f"times {transform.get('factor')}"
    if value is None:
        return op.replace("_", " ")
    if op in IN_MINOR_UNITS and currency:
        return f"{op} {price_text(int(str(value)), str(currency))}"
    return f"{op.replace('_', ' ')} {value} %"


def _is_used(name: str, value: object) -> bool:
    """Whether `show` prints the field. `compareAt` is printed if it is null, which clears the price."""
    if value is None:
        return name == "compareAt"
    return value is not False and value not in {UNTOUCHED, "none"}


RULE_COLUMNS = Columns[PricingRule](
    {
        "id": lambda one: one.id,
        "name": lambda one: one.name,
        "project": lambda one: one.project_id,
        "state": _state,
        "version": lambda one: one.version,
        "does": lambda one: _transform(input_document(one)),
        "starts (UTC)": lambda one: minute(one.schedule_at),
        "ends (UTC)": lambda one: minute(one.ends_at),
    },
    texts={"name", "project", "does"},
)
VERSIONS = Columns[RuleVersion](
    {
        "version": lambda one: one.version,
        "from (UTC)": lambda one: minute(one.created_at),
        "by": lambda one: one.created_by,
        "picks": lambda one: json_line(one.rule.get("selector")),
        "does": lambda one: _transform(one.rule),
    },
    texts={"by", "picks", "does"},
)
