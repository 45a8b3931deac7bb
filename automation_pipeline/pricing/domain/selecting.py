"""Which variants a selector picks. A selector over thousands of SKUs is read once and asked many times."""

import operator
from collections.abc import Callable
from typing import cast

from automation_pipeline.pricing.domain.selector import Comparison, PriceBand, Selector
from automation_pipeline.pricing.domain.variant import (
    FLAG_FIELDS,
    NUMBER_FIELDS,
    Variant,
    VariantField,
    is_on_sale,
    text_of,
)

Pick = Callable[[Variant], bool]
_Test = Callable[[object], bool]

_ORDERS: dict[Comparison, Callable[[int, int], bool]] = {
    Comparison.GT: operator.gt,
    Comparison.GTE: operator.ge,
    Comparison.LT: operator.lt,
    Comparison.LTE: operator.le,
}
_LOOKS: dict[Comparison, Callable[[str, str], bool]] = {
    Comparison.CONTAINS: operator.contains,
    Comparison.STARTS_WITH: str.startswith,
    Comparison.ENDS_WITH: str.endswith,
}


def matches(selector: Selector, variant: Variant) -> bool:
    return picks(selector)(variant)


def picks(selector: Selector) -> Pick:
    """Tags and the texts of fields are compared without regard to capitals, as shops do; SKUs and ids exactly."""
    if selector.all_of is not None:
        parts = [picks(part) for part in selector.all_of]
        return lambda variant: all(part(variant) for part in parts)
    if selector.any_of is not None:
        parts = [picks(part) for part in selector.any_of]
        return lambda variant: any(part(variant) for part in parts)
    if selector.opposite_of is not None:
        inner = picks(selector.opposite_of)
        return lambda variant: not inner(variant)
    return _leaf(selector)


def _leaf(selector: Selector) -> Pick:
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


def _in_band(band: PriceBand) -> Pick:
    bounds = {Comparison.GT: band.gt, Comparison.GTE: band.gte, Comparison.LT: band.lt, Comparison.LTE: band.lte}
    tests = [(_ORDERS[op], bound) for op, bound in bounds.items() if bound is not None]
    tests += [] if band.eq is None else [(operator.eq, band.eq)]

    def within(variant: Variant) -> bool:
        amount = variant.amount
        if amount is None or variant.currency != band.currency:
            return False
        return all(holds(amount, bound) for holds, bound in tests)

    return within


def _by_field(field: VariantField, op: Comparison, value: object) -> Pick:
    """A variant that lacks the field satisfies `ne` alone."""
    told = _teller(field)
    test = _test(op, _folded(value))
    if op is Comparison.NE:
        return lambda variant: not test(told(variant))

    def picked(variant: Variant) -> bool:
        it = told(variant)
        return it is not None and test(it)

    return picked


def _teller(field: VariantField) -> Callable[[Variant], object]:
    if field in FLAG_FIELDS:
        return is_on_sale
    if field in NUMBER_FIELDS:
        return lambda variant: variant.inventory
    return lambda variant: _folded(text_of(variant, field))


def _test(op: Comparison, value: object) -> _Test:
    if op in _ORDERS:
        orders, bound = _ORDERS[op], cast("int", value)
        return lambda it: orders(cast("int", it), bound)
    if op in _LOOKS:
        looks, text = _LOOKS[op], cast("str", value)
        return lambda it: looks(cast("str", it), text)
    wanted = frozenset(cast("tuple[object, ...]", value)) if op is Comparison.IN else frozenset({value})
    return lambda it: it in wanted


def _folded(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(_folded(entry) for entry in cast("tuple[object, ...]", value))
    return value.strip().casefold() if isinstance(value, str) else value
