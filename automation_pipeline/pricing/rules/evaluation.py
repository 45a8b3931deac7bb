"""From a rule and a variant to a planned price: selection, operation, limits, guardrails."""

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    CalculatedPrice,
    Clamp,
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
_Test = Callable[[object], bool]

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


def matches(selector: Selector, variant: Variant) -> bool:
    return compile_selector(selector)(variant)


def compile_selector(selector: Selector) -> VariantTest:
    """Tags and the texts of fields are compared without regard to capitals, as shops do; SKUs and
    ids exactly."""
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

    def within(variant: Variant) -> bool:
        amount = variant.amount
        if amount is None or variant.currency != band.currency:
            return False
        return all(holds(amount, bound) for holds, bound in tests)

    return within


def _by_field(field: VariantField, op: Comparison, value: object) -> VariantTest:
    """A variant that lacks the field satisfies `ne` alone."""
    told = _reader(field)
    test = _test(op, _folded(value))
    if op is Comparison.NE:
        return lambda variant: not test(told(variant))

    def picked(variant: Variant) -> bool:
        it = told(variant)
        return it is not None and test(it)

    return picked


def _reader(field: VariantField) -> Callable[[Variant], object]:
    if field in FLAG_FIELDS:
        return is_on_sale
    if field in NUMBER_FIELDS:
        return lambda variant: variant.inventory
    return lambda variant: _folded(text_of(variant, field))


def _test(op: Comparison, value: object) -> _Test:
    if op in _ORDER_TESTS:
        orders, bound = _ORDER_TESTS[op], cast("int", value)
        return lambda it: orders(cast("int", it), bound)
    if op in _TEXT_TESTS:
        looks, text = _TEXT_TESTS[op], cast("str", value)
        return lambda it: looks(cast("str", it), text)
    wanted = (
        frozenset(cast("tuple[object, ...]", value)) if op is Comparison.IN else frozenset({value})
    )
    return lambda it: it in wanted


def _folded(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(_folded(entry) for entry in cast("tuple[object, ...]", value))
    return value.strip().casefold() if isinstance(value, str) else value


_HUNDRED = Decimal(100)


@dataclass(frozen=True)
class Limits:
    """Bounds in minor units. None: no such bound."""

    lowest_change: int | None
    highest_change: int | None
    margin: int | None
    floor: int | None
    ceiling: int | None

    @property
    def conflict(self) -> bool:
        return self.margin is not None and self.ceiling is not None and self.margin > self.ceiling


def limits_of(transform: Transform, before: int, cost: int | None) -> Limits:
    """Bounds are drawn inwards to whole units. From zero no change can be measured in percent."""
    share = transform.max_change_percent
    change = None if share is None or before == 0 else before * share / _HUNDRED
    margin = transform.margin_over_cost_percent
    return Limits(
        lowest_change=None if change is None else max(math.ceil(before - change), 0),
        highest_change=None if change is None else math.floor(before + change),
        margin=None
        if margin is None or cost is None
        else math.ceil(cost * (_HUNDRED + margin) / _HUNDRED),
        floor=transform.floor,
        ceiling=transform.ceiling,
    )


def within(limits: Limits, amount: int) -> tuple[int, Sequence[Clamp]]:
    """The amount inside all limits, and the limits that moved it, in order."""
    moved: list[Clamp] = []
    for name, bound, is_lower in (
        ("maxChange", limits.lowest_change, True),
        ("maxChange", limits.highest_change, False),
        ("margin", limits.margin, True),
        ("floor", limits.floor, True),
        ("ceiling", limits.ceiling, False),
    ):
        if bound is not None and (amount < bound if is_lower else amount > bound):
            amount = bound
            moved.append(Clamp(name, bound))
    return amount, moved


def exceeds_change(limits: Limits, amount: int) -> bool:
    lowest, highest = limits.lowest_change, limits.highest_change
    return (lowest is not None and amount < lowest) or (highest is not None and amount > highest)


@dataclass(frozen=True)
class _LimitedPrice:
    """A price that the limits have settled, and how."""

    amount: int
    drawn: CalculatedPrice
    limits: Limits
    clamps: tuple[Clamp, ...]


def evaluate(rule: RuleInput, variants: Iterable[Variant]) -> list[PriceOutcome]:
    """One outcome for each variant that the selector picks, in their order."""
    picked = compile_selector(rule.selector)
    return [price(rule, variant) for variant in variants if picked(variant)]


def price(rule: RuleInput, variant: Variant) -> PriceOutcome:
    """What becomes of the variant, whether or not the selector picks it."""
    before = variant.price
    skipped = _skip_reason(rule, variant)
    if skipped is not None or before is None:
        return PriceOutcome(variant=variant, before=before, skipped=skipped or Skip.NO_PRICE)
    found = _limited_price(rule.transform, variant, before)
    if isinstance(found, Skip):
        return PriceOutcome(variant=variant, before=before, skipped=found)
    after = Price(found.amount, before.currency, _compare_at(rule.transform, before))
    is_touched = rule.transform.compare_at != UNTOUCHED
    changed = not after.stands_as(before, with_compare_at=is_touched)
    return PriceOutcome(
        variant=variant,
        before=before,
        after=after if changed else None,
        writes_compare_at=changed and is_touched,
        trace=_trace(rule.transform, found),
        warnings=tuple(_warnings(rule.transform, variant, found, after)) if changed else (),
        skipped=None if changed else Skip.NO_CHANGE,
    )


def _skip_reason(rule: RuleInput, variant: Variant) -> Skip | None:
    transform = rule.transform
    checks = (
        (not variant.is_active, Skip.NOT_ACTIVE),
        (variant.amount is None, Skip.NO_PRICE),
        (rule.currency not in {None, variant.currency}, Skip.OTHER_CURRENCY),
        (variant.amount == 0 and not transform.allow_zero, Skip.ZERO_PRICE),
        (
            transform.op is Operation.FROM_COMPARE_AT and variant.compare_at is None,
            Skip.NO_COMPARE_AT,
        ),
        (transform.margin_over_cost_percent is not None and variant.cost is None, Skip.NO_COST),
    )
    return next((skip for applies, skip in checks if applies), None)


def _limited_price(transform: Transform, variant: Variant, before: Price) -> _LimitedPrice | Skip:
    lattice = _lattice(transform, before.currency)
    if lattice is None:
        return Skip.NO_SUCH_ENDING
    limits = limits_of(transform, before.unit_amount, variant.cost)
    if limits.conflict:
        return Skip.LIMITS_CONFLICT
    drawn = _calculated_price(transform, before, lattice)
    amount, clamps = within(limits, drawn.rounded)
    if amount < 0 and transform.allow_zero:
        amount, clamps = 0, (*clamps, Clamp("zero", 0))
    if amount < (0 if transform.allow_zero else 1):
        return Skip.NO_PRICE_LEFT
    return _LimitedPrice(amount, drawn, limits, tuple(clamps))


def _lattice(transform: Transform, currency: str) -> Lattice | None:
    decimals = decimals_of(currency)
    if transform.ending:
        return with_ending(transform.ending, decimals)
    return multiples(decimals if transform.precision is None else transform.precision, decimals)


def _calculated_price(transform: Transform, before: Price, lattice: Lattice) -> CalculatedPrice:
    start = before.unit_amount
    if transform.op is Operation.FROM_COMPARE_AT and before.compare_at is not None:
        start = before.compare_at
    exact = _operated(transform, start)
    return CalculatedPrice(start, exact, rounded(exact, transform.round, lattice))


def _operated(transform: Transform, start: int) -> Decimal:
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


def _is_reversed(before: int, exact: Decimal, after: int) -> bool:
    return exact < before < after or after < before < exact


def _compare_at(transform: Transform, before: Price) -> int | None:
    wanted = transform.compare_at
    if wanted == UNTOUCHED:
        return before.compare_at
    return before.unit_amount if wanted == PRICE_BEFORE else wanted


def _trace(transform: Transform, found: _LimitedPrice) -> PriceTrace:
    limits = found.limits
    return PriceTrace(
        operation=transform.op,
        input_price=found.drawn.start,
        intermediate_price=found.drawn.exact,
        rounded_price=found.drawn.rounded,
        constraints=TraceConstraints(
            floor=limits.floor,
            ceiling=limits.ceiling,
            lowest_change=limits.lowest_change,
            highest_change=limits.highest_change,
            margin=limits.margin,
            applied=tuple(str(clamp) for clamp in found.clamps),
        ),
        final_price=found.amount,
    )


def _warnings(
    transform: Transform, variant: Variant, found: _LimitedPrice, after: Price
) -> list[Warn]:
    amount = found.amount
    lattice = _lattice(transform, after.currency)
    checks = (
        (
            transform.round is not Round.NONE and lattice is not None and not lattice.holds(amount),
            Warn.ENDING_LOST,
        ),
        (exceeds_change(found.limits, amount), Warn.CHANGE_OVER_MAXIMUM),
        (
            transform.max_change_percent is not None and variant.amount == 0,
            Warn.CHANGE_NOT_MEASURED,
        ),
        (after.compare_at is not None and after.compare_at <= amount, Warn.COMPARE_AT_NOT_ABOVE),
        (variant.cost is not None and amount < variant.cost, Warn.BELOW_COST),
        (_is_reversed(variant.amount or 0, found.drawn.exact, amount), Warn.DIRECTION_REVERSED),
    )
    return [warning for applies, warning in checks if applies]


@dataclass(frozen=True)
class GuardrailCheck:
    """`facts` are what was compared, for the person who reads why a price was blocked."""

    name: str
    ok: bool
    facts: Mapping[str, object]


@dataclass(frozen=True)
class GuardrailResult:
    checks: Sequence[GuardrailCheck]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def failing(self) -> list[GuardrailCheck]:
        return [check for check in self.checks if not check.ok]


def check_guardrails(
    policy: Policy, sku: str | None, current: Price, proposed: int, used: Decimal = Decimal(0)
) -> GuardrailResult:
    """`used` is the share of the variant's price that has been changed today, by `used_today`."""
    change = share_of_change(current.unit_amount, proposed)
    checks = [
        *_delta(policy.max_pct_delta, current.unit_amount, change),
        *_bounds(policy, sku, current.currency, proposed),
        *_budget(policy.daily_change_budget_pct, change, used),
    ]
    return GuardrailResult(checks)


def share_of_change(current: int, proposed: int) -> Decimal:
    """How large a change is, as a share of the price; from zero, all of it."""
    if current == 0:
        return Decimal(0) if proposed == 0 else Decimal(1)
    return abs(Decimal(proposed) - current) / current


def used_budget(changes: Iterable[tuple[int, int]]) -> Decimal:
    """Of a variant's changes applied since midnight, each as (before, after)."""
    return sum((share_of_change(before, after) for before, after in changes), Decimal(0))


def _delta(limit: Decimal | None, current: int, change: Decimal) -> list[GuardrailCheck]:
    if limit is None:
        return []
    # From zero every price passes: nothing can be measured.
    return [
        GuardrailCheck(
            "maxPctDelta", current == 0 or change <= limit, {"deltaPct": change, "limit": limit}
        )
    ]


def _bounds(policy: Policy, sku: str | None, currency: str, proposed: int) -> list[GuardrailCheck]:
    floor = policy.floors.get(sku or "", policy.floor)
    ceiling = policy.ceilings.get(sku or "", policy.ceiling)
    if floor is None and ceiling is None:
        return []
    if currency != policy.currency:
        return [
            GuardrailCheck(
                "currency", False, {"currency": currency, "policyCurrency": policy.currency}
            )
        ]
    checks: list[GuardrailCheck] = []
    if floor is not None:
        checks.append(
            GuardrailCheck("floor", proposed >= floor, {"floor": floor, "proposedAmount": proposed})
        )
    if ceiling is not None:
        checks.append(
            GuardrailCheck(
                "ceiling", proposed <= ceiling, {"ceiling": ceiling, "proposedAmount": proposed}
            )
        )
    return checks


def _budget(limit: Decimal | None, change: Decimal, used: Decimal) -> list[GuardrailCheck]:
    if limit is None:
        return []
    remaining = max(limit - used, Decimal(0))
    facts = {"deltaPct": change, "used": used, "limit": limit, "remaining": remaining}
    return [GuardrailCheck("dailyBudget", change <= remaining, facts)]


# Shares are told to this many decimals.
_SHARE = Decimal("0.000001")


@dataclass(frozen=True)
class PlannedTarget:
    """A price that will be changed, and how it came about."""

    before: Price
    after: Price
    outcome: PriceOutcome

    @property
    def variant(self) -> Variant:
        return self.outcome.variant


@dataclass(frozen=True)
class ExcludedVariant:
    """`reason` is a Skip, or BLOCKED with the guardrails' checks that failed."""

    variant: Variant
    reason: str
    checks: Sequence[GuardrailCheck] = ()
    proposed: Price | None = None

    @property
    def is_listed(self) -> bool:
        """Those that have their price already are only counted."""
        return self.reason != Skip.NO_CHANGE


def plan_target(
    outcome: PriceOutcome, policy: Policy | None, used: Decimal
) -> PlannedTarget | ExcludedVariant:
    """`used` is what of the variant's daily budget is spent."""
    before, after = outcome.before, outcome.after
    if before is None or after is None:
        return ExcludedVariant(outcome.variant, outcome.skipped or Skip.NO_PRICE)
    failing = (
        check_guardrails(policy, outcome.variant.sku, before, after.unit_amount, used).failing
        if policy
        else []
    )
    if failing:
        return ExcludedVariant(outcome.variant, BLOCKED, failing, after)
    return PlannedTarget(before, after, outcome)


def check_document(check: GuardrailCheck) -> dict[str, object]:
    facts = {name: _fact_document(fact) for name, fact in check.facts.items()}
    return {"name": check.name, "ok": check.ok, **facts}


@dataclass
class PlanTally:
    """How many of the catalogue are matched, and what becomes of them: matched = targets + skipped
    + blocked."""

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
    """A number is exact where it can be; only a share that does not end is cut."""
    if not isinstance(fact, Decimal):
        return fact
    return int(fact) if fact == int(fact) else float(fact.quantize(_SHARE))
