"""Evaluate a rule for a variant: selection, operation, limits, guardrails, planned price."""

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import cast

from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.rules import (
    Comparison,
    Policy,
    PriceBand,
    RuleInput,
    Selector,
)
from automation_pipeline.pricing.models.runs import BLOCKED
from automation_pipeline.pricing.models.shop import (
    FLAG_FIELDS,
    NUMBER_FIELDS,
    Price,
    Variant,
    VariantField,
    decimals_of,
    is_on_sale,
    text_of,
)
from automation_pipeline.pricing.models.transforms import (
    PRICE_BEFORE,
    UNTOUCHED,
    Lattice,
    Operation,
    PriceOutcome,
    PriceTrace,
    Round,
    Skip,
    TraceConstraints,
    Transform,
    Warn,
    multiples,
    rounded,
    with_ending,
)

VariantTest = Callable[[Variant], bool]

_ORDER_TESTS: dict[Comparison, Callable[[int, int], bool]] = {
    Comparison.GT: operator.gt,
    Comparison.GTE: operator.ge,
    Comparison.LT: operator.lt,
    Comparison.LTE: operator.le,
}
_TEXT_TESTS: dict[Comparison, Callable[[str, str], bool]] = {
    Comparison.CONTAINS: operator.contains,
    Comparison.STARTS_WITH: str.startswith,
    Comparison.ENDS_WITH: str.endswith,
}


def compile_selector(selector: Selector) -> VariantTest:
    """Tags and texts are compared case-insensitively, as shops do; SKUs and ids exactly."""
    if selector.all_of is not None:
        parts = [compile_selector(part) for part in selector.all_of]
        return lambda variant: all(part(variant) for part in parts)
    if selector.any_of is not None:
        parts = [compile_selector(part) for part in selector.any_of]
        return lambda variant: any(part(variant) for part in parts)
    if selector.opposite_of is not None:
        inner = compile_selector(selector.opposite_of)
        return lambda variant: not inner(variant)
    return _leaf(selector)


def _leaf(selector: Selector) -> VariantTest:
    if selector.sku is not None:
        skus = frozenset(selector.sku)
        return lambda variant: variant.sku in skus
    if selector.product is not None:
        products = frozenset(selector.product)
        return lambda variant: variant.product_id in products
    if selector.tag is not None:
        tags = frozenset(tag.casefold() for tag in selector.tag)
        return lambda variant: any(tag.strip().casefold() in tags for tag in variant.tags)
    if selector.price is not None:
        return _in_band(selector.price)
    if selector.field is not None:
        return _by_field(selector.field, cast("Comparison", selector.op), selector.value)
    return lambda _: True


def _in_band(band: PriceBand) -> VariantTest:
    bounds = {
        Comparison.GT: band.gt,
        Comparison.GTE: band.gte,
        Comparison.LT: band.lt,
        Comparison.LTE: band.lte,
    }
    tests = [(_ORDER_TESTS[op], bound) for op, bound in bounds.items() if bound is not None]
    tests += [] if band.eq is None else [(operator.eq, band.eq)]

    def matches(variant: Variant) -> bool:
        amount = variant.amount
        if amount is None or variant.currency != band.currency:
            return False
        return all(holds(amount, bound) for holds, bound in tests)

    return matches


def _by_field(field: VariantField, op: Comparison, value: object) -> VariantTest:
    """A variant without the field matches only `ne`."""
    test = _test(op, _casefolded(value))

    def matches(variant: Variant) -> bool:
        found = _field_value(variant, field)
        if op is Comparison.NE:
            return not test(found)
        return found is not None and test(found)

    return matches


def _field_value(variant: Variant, field: VariantField) -> object:
    if field in FLAG_FIELDS:
        return is_on_sale(variant)
    if field in NUMBER_FIELDS:
        return variant.inventory
    return _casefolded(text_of(variant, field))


def _test(op: Comparison, value: object) -> Callable[[object], bool]:
    if op in _ORDER_TESTS:
        compares, bound = _ORDER_TESTS[op], cast("int", value)
        return lambda found: compares(cast("int", found), bound)
    if op in _TEXT_TESTS:
        compares_text, text = _TEXT_TESTS[op], cast("str", value)
        return lambda found: compares_text(cast("str", found), text)
    accepted = cast("tuple[object, ...]", value) if op is Comparison.IN else (value,)
    return frozenset(accepted).__contains__


def _casefolded(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(_casefolded(entry) for entry in cast("tuple[object, ...]", value))
    return value.strip().casefold() if isinstance(value, str) else value


_HUNDRED = Decimal(100)


@dataclass(frozen=True)
class Limits:
    """Bounds in minor units. A bound that does not apply is None."""

    lowest_change: int | None
    highest_change: int | None
    margin: int | None
    floor: int | None
    ceiling: int | None

    @property
    def conflict(self) -> bool:
        return self.margin is not None and self.ceiling is not None and self.margin > self.ceiling


def limits_of(transform: Transform, before: int, cost: int | None) -> Limits:
    share = transform.max_change_percent
    change = None if share is None or before == 0 else before * share / _HUNDRED
    percent = transform.margin_over_cost_percent
    margin = None
    if percent is not None and cost is not None:
        margin = math.ceil(cost * (_HUNDRED + percent) / _HUNDRED)
    return Limits(
        lowest_change=None if change is None else max(math.ceil(before - change), 0),
        highest_change=None if change is None else math.floor(before + change),
        margin=margin,
        floor=transform.floor,
        ceiling=transform.ceiling,
    )


def clamp(limits: Limits, amount: int) -> tuple[int, list[str]]:
    """Return the amount within the limits, and the limits that changed it. A later limit wins."""
    applied: list[str] = []
    for name, bound, is_lower in (
        ("maxChange", limits.lowest_change, True),
        ("maxChange", limits.highest_change, False),
        ("margin", limits.margin, True),
        ("floor", limits.floor, True),
        ("ceiling", limits.ceiling, False),
    ):
        if bound is not None and (amount < bound if is_lower else amount > bound):
            amount = bound
            applied.append(f"{name}:{bound}")
    return amount, applied


def price(rule: RuleInput, variant: Variant) -> PriceOutcome:
    """Return the effect of the rule on the variant, whether or not its selector matches."""
    before, transform = variant.price, rule.transform
    skipped = _skip_reason(rule, variant)
    if skipped is not None or before is None:
        return PriceOutcome(variant=variant, before=before, skipped=skipped or Skip.NO_PRICE)
    trace = _trace(transform, variant, before)
    if isinstance(trace, Skip):
        return PriceOutcome(variant=variant, before=before, skipped=trace)
    is_touched = transform.compare_at != UNTOUCHED
    compare_at = before.compare_at
    if is_touched:
        given = transform.compare_at
        compare_at = before.unit_amount if given == PRICE_BEFORE else cast("int | None", given)
    after = Price(trace.final_price, before.currency, compare_at)
    if after.equals(before, with_compare_at=is_touched):
        return PriceOutcome(variant=variant, before=before, trace=trace, skipped=Skip.NO_CHANGE)
    return PriceOutcome(
        variant=variant,
        before=before,
        after=after,
        writes_compare_at=is_touched,
        trace=trace,
        warnings=tuple(_warnings(transform, variant, trace, after)),
    )


def _skip_reason(rule: RuleInput, variant: Variant) -> Skip | None:
    transform = rule.transform
    starts_from_compare_at = transform.op is Operation.FROM_COMPARE_AT
    checks = (
        (not variant.is_active, Skip.NOT_ACTIVE),
        (variant.amount is None, Skip.NO_PRICE),
        (rule.currency not in {None, variant.currency}, Skip.OTHER_CURRENCY),
        (variant.amount == 0 and not transform.allow_zero, Skip.ZERO_PRICE),
        (starts_from_compare_at and variant.compare_at is None, Skip.NO_COMPARE_AT),
        (transform.margin_over_cost_percent is not None and variant.cost is None, Skip.NO_COST),
    )
    return next((skip for applies, skip in checks if applies), None)


def _trace(transform: Transform, variant: Variant, before: Price) -> PriceTrace | Skip:
    lattice = _lattice(transform, before.currency)
    if lattice is None:
        return Skip.NO_SUCH_ENDING
    limits = limits_of(transform, before.unit_amount, variant.cost)
    if limits.conflict:
        return Skip.LIMITS_CONFLICT
    start = before.unit_amount
    if transform.op is Operation.FROM_COMPARE_AT and before.compare_at is not None:
        start = before.compare_at
    exact = _exact_price(transform, start)
    rounded_price = rounded(exact, transform.round, lattice)
    amount, applied = clamp(limits, rounded_price)
    lowest = 0 if transform.allow_zero else 1
    if amount < 0 and transform.allow_zero:
        amount = 0
        applied.append("zero:0")
    if amount < lowest:
        return Skip.NO_PRICE_LEFT
    return PriceTrace(
        operation=transform.op,
        input_price=start,
        intermediate_price=exact,
        rounded_price=rounded_price,
        constraints=TraceConstraints(**vars(limits), applied=tuple(applied)),
        final_price=amount,
    )


def _lattice(transform: Transform, currency: str) -> Lattice | None:
    decimals = decimals_of(currency)
    if transform.ending:
        return with_ending(transform.ending, decimals)
    return multiples(decimals if transform.precision is None else transform.precision, decimals)


def _exact_price(transform: Transform, start: int) -> Decimal:
    value = transform.value or Decimal(0)
    match transform.op:
        case Operation.SET:
            return value
        case Operation.ABSOLUTE:
            return start + value
        case Operation.MULTIPLY:
            return start * (transform.factor or Decimal(1))
        case Operation.PERCENT | Operation.FROM_COMPARE_AT:
            return start * (_HUNDRED + value) / _HUNDRED


def _warnings(
    transform: Transform, variant: Variant, trace: PriceTrace, after: Price
) -> list[Warn]:
    amount, limits, exact = trace.final_price, trace.constraints, trace.intermediate_price
    before = variant.amount or 0
    lattice = _lattice(transform, after.currency) if transform.round is not Round.NONE else None
    lowest, highest = limits.lowest_change, limits.highest_change
    checks = (
        (lattice is not None and not lattice.contains(amount), Warn.ENDING_LOST),
        (
            (lowest is not None and amount < lowest) or (highest is not None and amount > highest),
            Warn.CHANGE_OVER_MAXIMUM,
        ),
        (transform.max_change_percent is not None and before == 0, Warn.CHANGE_NOT_MEASURED),
        (after.compare_at is not None and after.compare_at <= amount, Warn.COMPARE_AT_NOT_ABOVE),
        (variant.cost is not None and amount < variant.cost, Warn.BELOW_COST),
        (exact < before < amount or amount < before < exact, Warn.DIRECTION_REVERSED),
    )
    return [warning for applies, warning in checks if applies]


@dataclass(frozen=True)
class GuardrailCheck:
    """A limit that a price violates. `facts` are the compared numbers; they show an operator why the
    price is blocked."""

    name: str
    facts: Mapping[str, object]


def failing_guardrails(
    policy: Policy, sku: str | None, current: Price, proposed: int, used: Decimal = Decimal(0)
) -> list[GuardrailCheck]:
    """Return the limits of the policy that the proposed price violates. `used` is the used part of
    the variant's daily budget, from `used_budget`."""
    checks: list[GuardrailCheck] = []
    change = share_of_change(current.unit_amount, proposed)
    limit, budget = policy.max_pct_delta, policy.daily_change_budget_pct
    # A change from zero has no percentage, so this limit allows every price.
    if limit is not None and current.unit_amount != 0 and change > limit:
        checks.append(GuardrailCheck("maxPctDelta", {"deltaPct": change, "limit": limit}))
    checks += _failing_bounds(policy, sku, current.currency, proposed)
    if budget is not None:
        left = max(budget - used, Decimal(0))
        if change > left:
            facts = {"deltaPct": change, "used": used, "limit": budget, "remaining": left}
            checks.append(GuardrailCheck("dailyBudget", facts))
    return checks


def share_of_change(current: int, proposed: int) -> Decimal:
    """Return the change as a share of the current price. A change from zero counts as 100 %."""
    if current == 0:
        return Decimal(0) if proposed == 0 else Decimal(1)
    return abs(Decimal(proposed) - current) / current


def used_budget(changes: Iterable[tuple[int, int]]) -> Decimal:
    """Return the used budget of a variant. `changes` are those applied since midnight: (before, after)."""
    return sum((share_of_change(before, after) for before, after in changes), Decimal(0))


def _failing_bounds(
    policy: Policy, sku: str | None, currency: str, proposed: int
) -> Iterator[GuardrailCheck]:
    floor = policy.floors.get(sku or "", policy.floor)
    ceiling = policy.ceilings.get(sku or "", policy.ceiling)
    if floor is None and ceiling is None:
        return
    if currency != policy.currency:
        facts = {"currency": currency, "policyCurrency": policy.currency}
        yield GuardrailCheck("currency", facts)
        return
    if floor is not None and proposed < floor:
        yield GuardrailCheck("floor", {"floor": floor, "proposedAmount": proposed})
    if ceiling is not None and proposed > ceiling:
        yield GuardrailCheck("ceiling", {"ceiling": ceiling, "proposedAmount": proposed})


def check_text(check: GuardrailCheck) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in check.facts.items())
    return f"{check.name} ({facts})"


# Stored shares have six decimals.
_SHARE = Decimal("0.000001")


@dataclass(frozen=True)
class PlannedTarget:
    before: Price
    after: Price
    outcome: PriceOutcome

    @property
    def variant(self) -> Variant:
        return self.outcome.variant


@dataclass(frozen=True)
class ExcludedVariant:
    """`reason` is a Skip, or BLOCKED with the failed checks of the guardrails."""

    variant: Variant
    reason: str
    checks: Sequence[GuardrailCheck] = ()
    proposed: Price | None = None

    @property
    def is_listed(self) -> bool:
        """Variants that already have the target price are only counted."""
        return self.reason != Skip.NO_CHANGE


def plan_target(
    outcome: PriceOutcome, policy: Policy | None, used: Decimal
) -> PlannedTarget | ExcludedVariant:
    before, after = outcome.before, outcome.after
    if before is None or after is None:
        return ExcludedVariant(outcome.variant, outcome.skipped or Skip.NO_PRICE)
    if policy is not None:
        sku, proposed = outcome.variant.sku, after.unit_amount
        failing = failing_guardrails(policy, sku, before, proposed, used)
        if failing:
            return ExcludedVariant(outcome.variant, BLOCKED, failing, after)
    return PlannedTarget(before, after, outcome)


def check_document(check: GuardrailCheck) -> dict[str, object]:
    facts = {name: _fact_document(fact) for name, fact in check.facts.items()}
    return {"name": check.name, "ok": False, **facts}


@dataclass
class PlanTally:
    """The counts of a plan: matched = targets + skipped + blocked."""

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

    def count(self, plan: PlannedTarget | ExcludedVariant) -> None:
        self.products.add(plan.variant.product_id)
        if isinstance(plan, PlannedTarget):
            self.targets += 1
        elif plan.reason == BLOCKED:
            self.blocked += 1
        else:
            self.skips[plan.reason] += 1


def explain_plan(
    rule: RuleInput, tally: PlanTally, conflicts: Sequence[int]
) -> Mapping[str, object]:
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


def _fact_document(fact: object) -> object:
    """Shares with more than six decimals are rounded."""
    if not isinstance(fact, Decimal):
        return fact
    return int(fact) if fact == int(fact) else float(fact.quantize(_SHARE))
