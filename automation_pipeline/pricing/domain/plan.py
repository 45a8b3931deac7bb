"""What a rule comes to, variant by variant: a target, or why there is none; and the account that is given of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.domain.money import Price
from automation_pipeline.pricing.domain.outcome import Outcome, Skip
from automation_pipeline.pricing.domain.policy import Check, Policy, guarded
from automation_pipeline.pricing.domain.rule import RuleInput
from automation_pipeline.pricing.domain.rule_run import BLOCKED
from automation_pipeline.pricing.domain.variant import Variant

# Shares are told to this many decimals.
_SHARE = Decimal("0.000001")


@dataclass(frozen=True)
class PlannedTarget:
    """A price that will be changed, and how it came about."""

    before: Price
    after: Price
    outcome: Outcome

    @property
    def variant(self) -> Variant:
        return self.outcome.variant


@dataclass(frozen=True)
class LeftAlone:
    """`reason` is a Skip, or BLOCKED with the guardrails' checks that failed."""

    variant: Variant
    reason: str
    checks: Sequence[Check] = ()
    proposed: Price | None = None

    @property
    def is_listed(self) -> bool:
        """Those that have their price already are only counted."""
        return self.reason != Skip.NO_CHANGE


def planned(outcome: Outcome, policy: Policy | None, used: Decimal) -> PlannedTarget | LeftAlone:
    """`used` is what of the variant's daily budget is spent."""
    before, after = outcome.before, outcome.after
    if before is None or after is None:
        return LeftAlone(outcome.variant, outcome.skipped or Skip.NO_PRICE)
    failing = guarded(policy, outcome.variant.sku, before, after.unit_amount, used).failing if policy else []
    if failing:
        return LeftAlone(outcome.variant, BLOCKED, failing, after)
    return PlannedTarget(before, after, outcome)


def check_document(check: Check) -> dict[str, object]:
    facts = {name: _told(fact) for name, fact in check.facts.items()}
    return {"name": check.name, "ok": check.ok, **facts}


@dataclass
class Tally:
    """How many of the catalogue are matched, and what becomes of them: matched = targets + skipped + blocked."""

    catalogue: int = 0
    targets: int = 0
    blocked: int = 0
    skips: Counter[str] = field(default_factory=Counter[str])
    products: set[str] = field(default_factory=set[str])

    @property
    def skipped(self) -> int:
        return self.skips.total()

    @property
    def matched(self) -> int:
        return self.targets + self.skipped + self.blocked

    def count(self, plan: PlannedTarget | LeftAlone) -> None:
        self.products.add(plan.variant.product_id)
        if isinstance(plan, PlannedTarget):
            self.targets += 1
        elif plan.reason == BLOCKED:
            self.blocked += 1
        else:
            self.skips[plan.reason] += 1


def explained(rule: RuleInput, tally: Tally, conflicts: Sequence[int]) -> Mapping[str, object]:
    """`conflicts` are other runs that are changing some of the same variants."""
    written = as_document(rule)
    return {
        "catalogueVariants": tally.catalogue,
        "matchedProducts": len(tally.products),
        "matchedVariants": tally.matched,
        "skippedTargets": tally.skipped,
        "skippedByReason": dict(sorted(tally.skips.items())),
        "blocked": tally.blocked,
        "selector": written["selector"],
        "transform": written["transform"],
        "conflicts": [str(run_id) for run_id in conflicts],
    }


def _told(fact: object) -> object:
    """A number is exact where it can be; only a share that does not end is cut."""
    if not isinstance(fact, Decimal):
        return fact
    return int(fact) if fact == int(fact) else float(fact.quantize(_SHARE))
