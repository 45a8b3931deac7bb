"""What a rule makes of variants: operation, rounding, maximum change, then the hard limits, which always hold."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from automation_pipeline.pricing.domain.field_rules import PRICE_BEFORE, UNTOUCHED
from automation_pipeline.pricing.domain.limits import Limits, exceeds_change, limits_of, within
from automation_pipeline.pricing.domain.money import Price, decimals_of
from automation_pipeline.pricing.domain.outcome import Clamp, Constraints, Drawn, Outcome, Skip, Trace, Warn
from automation_pipeline.pricing.domain.rounding import Lattice, Round, multiples, rounded, with_ending
from automation_pipeline.pricing.domain.rule import RuleInput
from automation_pipeline.pricing.domain.selecting import picks
from automation_pipeline.pricing.domain.transform import Operation, Transform
from automation_pipeline.pricing.domain.variant import Variant

_HUNDRED = Decimal(100)


@dataclass(frozen=True)
class _Found:
    """A price that the limits have settled, and how."""

    amount: int
    drawn: Drawn
    limits: Limits
    clamps: tuple[Clamp, ...]


def evaluate(rule: RuleInput, variants: Iterable[Variant]) -> list[Outcome]:
    """One outcome for each variant that the selector picks, in their order."""
    picked = picks(rule.selector)
    return [price(rule, variant) for variant in variants if picked(variant)]


def price(rule: RuleInput, variant: Variant) -> Outcome:
    """What becomes of the variant, whether or not the selector picks it."""
    before = variant.price
    skipped = _unfit(rule, variant)
    if skipped is not None or before is None:
        return Outcome(variant=variant, before=before, skipped=skipped or Skip.NO_PRICE)
    found = _found(rule.transform, variant, before)
    if isinstance(found, Skip):
        return Outcome(variant=variant, before=before, skipped=found)
    after = Price(found.amount, before.currency, _compare_at(rule.transform, before))
    is_touched = rule.transform.compare_at != UNTOUCHED
    changed = not after.stands_as(before, with_compare_at=is_touched)
    return Outcome(
        variant=variant,
        before=before,
        after=after if changed else None,
        writes_compare_at=changed and is_touched,
        trace=_trace(rule.transform, found),
        warnings=tuple(_warnings(rule.transform, variant, found, after)) if changed else (),
        skipped=None if changed else Skip.NO_CHANGE,
    )


def _unfit(rule: RuleInput, variant: Variant) -> Skip | None:
    transform = rule.transform
    checks = (
        (not variant.is_active, Skip.NOT_ACTIVE),
        (variant.amount is None, Skip.NO_PRICE),
        (rule.currency not in {None, variant.currency}, Skip.OTHER_CURRENCY),
        (variant.amount == 0 and not transform.allow_zero, Skip.ZERO_PRICE),
        (transform.op is Operation.FROM_COMPARE_AT and variant.compare_at is None, Skip.NO_COMPARE_AT),
        (transform.margin_over_cost_percent is not None and variant.cost is None, Skip.NO_COST),
    )
    return next((skip for applies, skip in checks if applies), None)


def _found(transform: Transform, variant: Variant, before: Price) -> _Found | Skip:
    lattice = _lattice(transform, before.currency)
    if lattice is None:
        return Skip.NO_SUCH_ENDING
    limits = limits_of(transform, before.unit_amount, variant.cost)
    if limits.conflict:
        return Skip.LIMITS_CONFLICT
    drawn = _drawn(transform, before, lattice)
    amount, clamps = within(limits, drawn.rounded)
    if amount < 0 and transform.allow_zero:
        amount, clamps = 0, (*clamps, Clamp("zero", 0))
    if amount < (0 if transform.allow_zero else 1):
        return Skip.NO_PRICE_LEFT
    return _Found(amount, drawn, limits, tuple(clamps))


def _lattice(transform: Transform, currency: str) -> Lattice | None:
    decimals = decimals_of(currency)
    if transform.ending:
        return with_ending(transform.ending, decimals)
    return multiples(decimals if transform.precision is None else transform.precision, decimals)


def _drawn(transform: Transform, before: Price, lattice: Lattice) -> Drawn:
    start = before.unit_amount
    if transform.op is Operation.FROM_COMPARE_AT and before.compare_at is not None:
        start = before.compare_at
    exact = _operated(transform, start)
    return Drawn(start, exact, rounded(exact, transform.round, lattice))


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


def _trace(transform: Transform, found: _Found) -> Trace:
    limits = found.limits
    return Trace(
        operation=transform.op,
        input_price=found.drawn.start,
        intermediate_price=found.drawn.exact,
        rounded_price=found.drawn.rounded,
        constraints=Constraints(
            floor=limits.floor,
            ceiling=limits.ceiling,
            lowest_change=limits.lowest_change,
            highest_change=limits.highest_change,
            margin=limits.margin,
            applied=tuple(str(clamp) for clamp in found.clamps),
        ),
        final_price=found.amount,
    )


def _warnings(transform: Transform, variant: Variant, found: _Found, after: Price) -> list[Warn]:
    amount = found.amount
    lattice = _lattice(transform, after.currency)
    checks = (
        (transform.round is not Round.NONE and lattice is not None and not lattice.holds(amount), Warn.ENDING_LOST),
        (exceeds_change(found.limits, amount), Warn.CHANGE_OVER_MAXIMUM),
        (transform.max_change_percent is not None and variant.amount == 0, Warn.CHANGE_NOT_MEASURED),
        (after.compare_at is not None and after.compare_at <= amount, Warn.COMPARE_AT_NOT_ABOVE),
        (variant.cost is not None and amount < variant.cost, Warn.BELOW_COST),
        (_is_reversed(variant.amount or 0, found.drawn.exact, amount), Warn.DIRECTION_REVERSED),
    )
    return [warning for applies, warning in checks if applies]
