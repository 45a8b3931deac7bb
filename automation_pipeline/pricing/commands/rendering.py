"""Shared options of the pricing commands, and text and tables for prices, previews and runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from decimal import Decimal
from typing import Annotated, cast

import typer
from rich.text import Text

from automation_pipeline.cli.output import (
    Columns,
    minute,
    one_line,
    print_facts,
    say,
    screen,
    second,
)
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.pricing.models.rules import Policy, check_project
from automation_pipeline.pricing.models.runs import (
    LoggedMove,
    PricingRunState,
    RollbackState,
    RuleRun,
    RuleTarget,
    SkippedVariant,
)
from automation_pipeline.pricing.models.shop import PriceDocument, price_text
from automation_pipeline.pricing.models.transforms import Skip, Warn
from automation_pipeline.pricing.rules.runs import PREVIEW_LIFETIME, approval_fault


def _known_project(project: str | None) -> str | None:
    """None selects every project."""
    if project is not None:
        check_project(project, "Invalid request")
    return project


RuleId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The rule's id, as `automation pricing rules list` shows it."
    ),
]
RunId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The run's id, as `automation pricing runs list` shows it."
    ),
]
Project = Annotated[
    str,
    typer.Option("--project", "-p", callback=_known_project, help="The project, a group of rules."),
]
OfProject = Annotated[
    str | None,
    typer.Option("--project", "-p", callback=_known_project, help="Only entries of this project."),
]
Targets = Annotated[
    list[int] | None,
    typer.Option(
        "--target",
        min=1,
        max=LARGEST_ID,
        help="Only the target with this id, as `automation pricing runs targets` shows it; repeat the "
        "option for several.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end of the run.")]


def shop_status_line(what: str, *, quiet: bool) -> AbstractContextManager[object]:
    """Show a spinner on a terminal, because the shop's rate limit makes a large catalogue take minutes."""
    if quiet or not screen.is_terminal:
        return nullcontext()
    return screen.status(f"{what}, at the shop's rate limit")


MISSING = "-"


def price(document: PriceDocument) -> str:
    return price_text(document.unit_amount, document.currency)


def amount(units: int | None, currency: str) -> str:
    return MISSING if units is None else price_text(units, currency)


def change(before: int, after: int, currency: str) -> Text:
    """Format a change as a percentage and an amount: red for a decrease, green for an increase."""
    difference = after - before
    words = f"{'+' if difference > 0 else ''}{price_text(difference, currency)}"
    share = percent(before, after)
    colour = ""
    if difference:
        colour = "red" if difference < 0 else "green"
    return Text(words if share is None else f"{share}  {words}", colour)


def percent(before: int, after: int) -> str | None:
    """Return None for a change from zero, which has no percentage."""
    if before == 0:
        return None
    share = Decimal(after - before) * 100 / before
    if share and not round(share, 1):
        return f"{'-' if share < 0 else '+'}<0.1 %"
    return f"{share:+.1f} %"


def compare_at_change(before: PriceDocument, after: PriceDocument, *, is_written: bool) -> str:
    """Format the change of the struck-through price. The text is empty if the rule does not write it."""
    if not is_written:
        return ""
    was = amount(before.compare_at, before.currency)
    becomes = amount(after.compare_at, after.currency)
    return f"{becomes} (as it was)" if was == becomes else f"{was} -> {becomes}"


Facts = Mapping[str, object]


def print_policy(project_id: str, policy: Policy | None) -> None:
    if policy is None:
        print_facts({"project": project_id, "guardrails": "none: its runs need no approval"})
        return
    approval = "not needed" if policy.auto_apply else "by a person other than the run's creator"
    money = policy.currency or ""
    print_facts(
        {
            "project": project_id,
            "approval": approval,
            "largest change": _share(policy.max_pct_delta),
            "change per day": _share(policy.daily_change_budget_pct),
            "floor": None if policy.floor is None else amount(policy.floor, money),
            "ceiling": None if policy.ceiling is None else amount(policy.ceiling, money),
            "floors": _each(policy.floors, money),
            "ceilings": _each(policy.ceilings, money),
        }
    )


def guardrail_text(check: Facts, currency: str) -> str:
    """Describe why a guardrail blocked a price. Without the necessary facts, return only its name."""
    with suppress(KeyError):
        match check.get("name"):
            case "maxPctDelta":
                return f"changes by {_percent(check['deltaPct'])}, more than {_percent(check['limit'])}"
            case "dailyBudget":
                left, limit = _percent(check["remaining"]), _percent(check["limit"])
                return f"changes by {_percent(check['deltaPct'])}, and {left} of {limit} are left today"
            case "floor":
                return f"below the floor of {_money(check['floor'], currency)}"
            case "ceiling":
                return f"above the ceiling of {_money(check['ceiling'], currency)}"
            case "currency":
                return f"the floor and ceiling are in {check['policyCurrency']}, the price is in {currency}"
            case _:
                pass
    return str(check.get("name"))


def _money(units: object, currency: str) -> str:
    return amount(int(str(units)), currency)


def _percent(share: object) -> str:
    """Format a fraction: 0.15 is 15 %."""
    return f"{round(Decimal(str(share)) * 100, 2).normalize():f} %"


def _share(limit: Decimal | None) -> str | None:
    return None if limit is None else f"{_percent(limit)} of the price"


def _each(bounds: Mapping[str, int], currency: str) -> str | None:
    return ", ".join(f"{sku} {amount(units, currency)}" for sku, units in bounds.items()) or None


# Table cells show the short form; the full sentence follows once below the table.
_IN_SHORT = {one.sentence: one.replace("_", " ") for one in Warn}
_SKIPS = {str(one): one.why for one in Skip}


def print_targets(run: RuleRun, targets: Sequence[RuleTarget]) -> None:
    if not targets:
        return
    PLANNED.print(targets)
    for warning, count in Counter(
        warning for target in targets for warning in target.warnings
    ).items():
        say(f"{_IN_SHORT.get(warning, 'warned')} ({count}): {warning}")
    if run.total_targets > len(targets):
        say(f"{len(targets)} of {run.total_targets} are shown: --all shows every one.")


def print_blocked(run: RuleRun, blocked: Sequence[SkippedVariant]) -> None:
    if not blocked:
        return
    say(f"Blocked by the project's guardrails: {run.blocked}")
    BLOCKED.print(blocked)
    if run.blocked > len(blocked):
        say(f"{len(blocked)} of {run.blocked} blocked ones are shown: --all shows every one.")


def print_counts(run: RuleRun) -> None:
    """Print how many variants were selected, and what will happen to them."""
    say(f"Picked: {picked(run)}.")
    for reason, count in skipped_by_reason(run).items():
        say(f"  {count} skipped: {_SKIPS.get(reason, reason)}")
    conflicts = cast("Sequence[str]", (run.explain or {}).get("conflicts") or ())
    if conflicts:
        runs = ", ".join(conflicts)
        say(f"Warning: other runs are changing some of the same prices (run {runs}).")


def picked(run: RuleRun) -> str:
    """Every selected variant is either changed, skipped or blocked."""
    return f"{run.matched} = {run.total_targets} to change + {run.skipped} skipped + {run.blocked} blocked"


def skipped_by_reason(run: RuleRun) -> Mapping[str, int]:
    """Return the counts by reason, most frequent first."""
    counted = cast("Mapping[str, int]", (run.explain or {}).get("skippedByReason") or {})
    return dict(sorted(counted.items(), key=lambda entry: -entry[1]))


def _limits(target: RuleTarget) -> Iterable[str]:
    """Return the names of the rule's limits that changed the price, without duplicates."""
    constraints = cast("Mapping[str, Sequence[str]]", (target.trace or {}).get("constraints") or {})
    return dict.fromkeys(limit.partition(":")[0] for limit in constraints.get("applied", ()))


COMMAND = "automation pricing runs"


def next_step(run: RuleRun, policy: Policy | None) -> str | None:
    """Return a sentence with the next command, or None if no step is left. A project without a policy
    needs no approval."""
    if run.wish is not None or run.status in {PricingRunState.QUEUED, PricingRunState.APPLYING}:
        return f"Follow it: `{COMMAND} watch {run.id}`."
    if run.status is PricingRunState.PREVIEW:
        return _of_preview(run, policy)
    steps: list[str] = []
    if run.targets.failed:
        steps += [
            f"See what failed: `{COMMAND} targets {run.id} --status FAILED`; retry: `{COMMAND} retry {run.id}`."
        ]
    if run.targets.applied:
        rest = "the rest" if run.rollback_state is RollbackState.PARTIAL else "it"
        steps += [f"Take {rest} back: `{COMMAND} rollback {run.id}`."]
    return " ".join(steps) or None


def say_next_step(run: RuleRun, policy: Policy | None) -> None:
    step = next_step(run, policy)
    if step:
        say(step)


def _of_preview(run: RuleRun, policy: Policy | None) -> str | None:
    if run.previewed_at is None or run.cancel_requested_at is not None:
        return None
    if run.total_targets == 0:
        return "There is nothing to apply."
    until = f"until {run.previewed_at + PREVIEW_LIFETIME:%H:%M} UTC"
    apply = f"`{COMMAND} apply {run.id}`"
    # The author of the rule is unknown here; approving and applying the run check the author.
    fault = policy and approval_fault(
        auto_apply=policy.auto_apply,
        created_by=run.created_by,
        written_by=None,
        approved_by=run.approved_by,
    )
    if fault:
        return f"A second person must approve it, with `{COMMAND} approve {run.id}`. Then apply it, {until}: {apply}."
    return f"Apply it, {until}: {apply}."


# The colours of the states of runs and targets.
STATE_COLOURS: Mapping[str, str] = {
    PricingRunState.APPLIED: "green",
    PricingRunState.PARTIAL: "yellow",
    PricingRunState.FAILED: "red",
    PricingRunState.APPLYING: "cyan",
    PricingRunState.QUEUED: "cyan",
}


def print_run(run: RuleRun, policy: Policy | None) -> None:
    parent = f", created from run {run.parent_run_id}" if run.parent_run_id is not None else ""
    problem: Sequence[str] = [words for words in (run.error_type, run.error_message) if words]
    print_facts(
        {
            "run": f"{run.id} of rule {run.rule_id}, {run.rule_name}, version {run.rule_version}{parent}",
            "project": run.project_id,
            "shop": run.shop,
            "status": _status(run),
            "made": f"{second(run.created_at)} by {run.created_by} ({run.trigger})",
            "approved": run.approved_by and f"{second(run.approved_at)} by {run.approved_by}",
            "planned": second(run.previewed_at),
            "queued": second(run.queued_at),
            "started": second(run.started_at),
            "ended": second(run.finished_at),
            "continues": second(run.resume_at),
            "cancelled": run.cancel_requested_at and f"asked for {second(run.cancel_requested_at)}",
            "picked": picked(run),
            "skipped": ", ".join(
                f"{count} {reason}" for reason, count in skipped_by_reason(run).items()
            )
            or None,
            "targets": target_counts(run),
            "success": None if run.success_rate is None else f"{run.success_rate * 100:.1f} %",
            "rollback": None
            if run.rollback_state is RollbackState.NONE
            else run.rollback_state.lower(),
            "trouble": Text(one_line(": ".join(problem)), "red") if problem else None,
        }
    )
    say_next_step(run, policy)


def print_log(moves: Iterable[LoggedMove]) -> None:
    for move in moves:
        why = f": {one_line(move.reason)}" if move.reason else ""
        what = f"{move.machine} {move.entity_id}"
        say(
            f"{move.at:%Y-%m-%d %H:%M:%S}  {what:<18}  {move.from_state} -> {move.to_state}  by {move.actor}{why}"
        )


def target_counts(run: RuleRun) -> str | None:
    counts = {
        name: count
        for name, count in run.targets.model_dump().items()
        if count and name != "cancelled"
    }
    if not counts:
        return None
    words = " + ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
    cancelled = f" ({run.targets.cancelled} of them cancelled)" if run.targets.cancelled else ""
    return f"{run.total_targets} = {words}{cancelled}"


def outcome(run: RuleRun) -> str:
    """Return the outcome of a run as a sentence."""
    return f"Run {run.id} is {run.status}: {target_counts(run) or 'no target'}."


def _status(run: RuleRun) -> Text:
    request = f", {run.wish} is asked for" if run.wish else ""
    return Text(f"{run.status}{request}", STATE_COLOURS.get(run.status, ""))


def _why(target: RuleTarget) -> str:
    if target.error_type is None:
        return one_line(target.error_message or "")
    again = "" if target.error_retryable else ", not retryable"
    return one_line(f"{target.error_type}{again}: {target.error_message or ''}")


def _variant(one: RuleTarget | SkippedVariant) -> str:
    ids = f"{one.product_id}/{one.variant_id or '?'}"
    return f"{one.title}  {ids}" if one.title else ids


def _change(target: RuleTarget) -> Text:
    before, after = target.before, target.after
    return change(before.unit_amount, after.unit_amount, before.currency)


PLANNED = Columns[RuleTarget](
    {
        "target": lambda one: one.id,
        "variant": _variant,
        "sku": lambda one: one.sku_id,
        "before": lambda one: price(one.before),
        "after": lambda one: price(one.after),
        "change": _change,
        "compare-at": lambda one: compare_at_change(
            one.before, one.after, is_written=one.writes_compare_at
        ),
        "limited by": lambda one: ", ".join(_limits(one)),
        "warnings": lambda one: Text(
            ", ".join(_IN_SHORT.get(warning, warning) for warning in one.warnings), "yellow"
        ),
    },
    texts={"variant", "sku", "limited by", "warnings"},
)
TARGETS = Columns[RuleTarget](
    {
        "target": lambda one: one.id,
        "variant": _variant,
        "sku": lambda one: one.sku_id,
        "before": lambda one: price(one.before),
        "after": lambda one: price(one.after),
        "change": _change,
        "status": lambda one: Text(one.status, STATE_COLOURS.get(one.status, "")),
        "tries": lambda one: one.attempts or "",
        "why": _why,
    },
    texts={"variant", "sku", "why"},
)
BLOCKED = Columns[SkippedVariant](
    {
        "variant": _variant,
        "sku": lambda one: one.sku_id,
        "price": lambda one: amount(one.current_amount, one.currency),
        "proposed": lambda one: amount(one.proposed_amount, one.currency),
        "because": lambda one: Text(
            "; ".join([guardrail_text(check, one.currency) for check in one.checks] or [one.why]),
            "yellow",
        ),
    },
    texts={"variant", "sku", "because"},
)
RUNS = Columns[RuleRun](
    {
        "id": lambda one: one.id,
        "rule": lambda one: f"{one.rule_id} {one.rule_name}",
        "project": lambda one: one.project_id,
        "status": _status,
        "by": lambda one: one.trigger,
        "made (UTC)": lambda one: minute(one.created_at),
        "targets": target_counts,
    },
    texts={"rule", "project", "status", "targets"},
)
