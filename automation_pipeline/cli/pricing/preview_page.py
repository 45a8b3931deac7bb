"""A preview on a screen: every price before and after, and what is left alone and why, for a person to approve."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from rich.text import Text

from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import say
from automation_pipeline.cli.pricing.guardrails import check_words
from automation_pipeline.cli.pricing.prices import amount, change, compare_at_change, price
from automation_pipeline.pricing.domain.outcome import Skip, Warn
from automation_pipeline.pricing.domain.rule_run import RuleRun, RuleTarget, SkippedVariant

# Targets keep the sentence: it stands once below the table.
_IN_SHORT = {one.words: one.replace("_", " ") for one in Warn}
_SKIPS = {str(one): one.why for one in Skip}


def print_targets(run: RuleRun, targets: Sequence[RuleTarget]) -> None:
    if not targets:
        return
    print_fitted_table(
        ("target", "variant", "sku", "before", "after", "change", "compare-at", "limited by", "warnings"),
        map(_target, targets),
        texts={"variant", "sku", "limited by", "warnings"},
    )
    for warning, count in Counter(warning for target in targets for warning in target.warnings).items():
        say(f"{_IN_SHORT.get(warning, 'warned')} ({count}): {warning}")
    if run.total_targets > len(targets):
        say(f"{len(targets)} of {run.total_targets} are shown: --all shows every one.")


def print_blocked(run: RuleRun, blocked: Sequence[SkippedVariant]) -> None:
    if not blocked:
        return
    say(f"Blocked by the project's guardrails: {run.blocked}")
    columns = ("variant", "sku", "price", "proposed", "because")
    print_fitted_table(columns, map(_blocked, blocked), texts={"variant", "sku", "because"})
    if run.blocked > len(blocked):
        say(f"{len(blocked)} of {run.blocked} blocked ones are shown: --all shows every one.")


def print_account(run: RuleRun) -> None:
    """How many are picked, and what becomes of them."""
    say(f"Picked: {picked(run)}.")
    for reason, count in skipped_by_reason(run).items():
        say(f"  {count} left alone: {_SKIPS.get(reason, reason)}")
    conflicts = cast("Sequence[str]", (run.explain or {}).get("conflicts") or ())
    if conflicts:
        runs = ", ".join(conflicts)
        say(f"Beware: other runs are changing some of the same prices (run {runs}).")


def picked(run: RuleRun) -> str:
    """The law that everything that is picked is to be changed, left alone or blocked."""
    return f"{run.matched} = {run.total_targets} to change + {run.skipped} left alone + {run.blocked} blocked"


def skipped_by_reason(run: RuleRun) -> Mapping[str, int]:
    """The most frequent first."""
    counted = cast("Mapping[str, int]", (run.explain or {}).get("skippedByReason") or {})
    return dict(sorted(counted.items(), key=lambda entry: -entry[1]))


def variant_name(title: str | None, product_id: str, variant_id: str | None) -> str:
    ids = f"{product_id}/{variant_id or '?'}"
    return f"{title}  {ids}" if title else ids


def _target(target: RuleTarget) -> tuple[object, ...]:
    before, after = target.before, target.after
    return (
        target.id,
        variant_name(target.title, target.product_id, target.variant_id),
        target.sku_id,
        price(before),
        price(after),
        change(before.unit_amount, after.unit_amount, before.currency),
        compare_at_change(before, after, is_written=target.writes_compare_at),
        ", ".join(_limits(target)),
        Text(", ".join(_IN_SHORT.get(warning, warning) for warning in target.warnings), "yellow"),
    )


def _limits(target: RuleTarget) -> Iterable[str]:
    """The limits of the rule that moved the price, each once."""
    constraints = cast("Mapping[str, Sequence[str]]", (target.trace or {}).get("constraints") or {})
    return dict.fromkeys(limit.partition(":")[0] for limit in constraints.get("applied", ()))


def _blocked(variant: SkippedVariant) -> tuple[object, ...]:
    failing = [check_words(check, variant.currency) for check in variant.checks] or [variant.why]
    return (
        variant_name(variant.title, variant.product_id, variant.variant_id),
        variant.sku_id,
        amount(variant.current_amount, variant.currency),
        amount(variant.proposed_amount, variant.currency),
        Text("; ".join(failing), "yellow"),
    )
