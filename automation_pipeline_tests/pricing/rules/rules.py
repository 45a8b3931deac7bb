"""Rules, selectors and variants for pricing tests, and Hypothesis strategies that generate them."""

from typing import cast

from hypothesis import strategies as st

from automation_pipeline.pricing.models.rules import (
    RuleInput,
    Selector,
    parse_rule,
)
from automation_pipeline.pricing.models.shop import Variant

SKUS, TAGS, VENDORS = ["a", "b", "c"], ["summer", "New", "sale"], ["Acme", "Umbra"]


def variant(amount: int | None = 1000, **facts: object) -> Variant:
    values = {"variant_id": "v1", "product_id": "p1", "currency": "EUR", "sku": "a"} | facts
    return Variant(amount=amount, **cast("dict[str, str]", values))


def rule(transform: dict[str, object], **fields: object) -> RuleInput:
    given = {"name": "A rule", "selector": {"all": True}, "currency": "EUR", "transform": transform}
    return parse_rule(given | fields)


def selector(given: dict[str, object]) -> Selector:
    return parse_rule(
        {"name": "A rule", "selector": given, "transform": {"op": "percent", "value": 1}}
    ).selector


amounts = st.integers(0, 100_000)

any_variant = st.builds(
    variant,
    amount=st.none() | amounts,
    sku=st.none() | st.sampled_from(SKUS),
    product_id=st.sampled_from(["p1", "p2"]),
    currency=st.sampled_from(["EUR", "EUR", "JPY", "KWD"]),
    compare_at=st.none() | amounts,
    cost=st.none() | amounts,
    tags=st.lists(st.sampled_from(TAGS), max_size=2).map(tuple),
    vendor=st.none() | st.sampled_from(VENDORS),
    inventory=st.none() | st.integers(-5, 5),
)

_leaves = st.one_of(
    st.just({"all": True}),
    st.sampled_from(SKUS).map(lambda sku: {"sku": sku}),
    st.lists(st.sampled_from(TAGS), min_size=1, max_size=2).map(lambda tags: {"tag": tags}),
    st.just({"product": ["p1"]}),
    amounts.map(lambda bound: {"price": {"gte": bound, "currency": "EUR"}}),
    st.sampled_from(["eq", "ne", "contains"]).map(
        lambda op: {"field": "vendor", "op": op, "value": "acme"}
    ),
    st.integers(-5, 5).map(lambda bound: {"field": "inventory", "op": "lt", "value": bound}),
)
any_selector = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=5,
)

_percents = st.decimals(-90, 300, places=3).map(str)
_operations = st.one_of(
    _percents.map(lambda value: {"op": "percent", "value": value}),
    st.integers(-100_000, 100_000).map(lambda value: {"op": "absolute", "value": value}),
    st.integers(1, 100_000).map(lambda value: {"op": "set", "value": value}),
    st.decimals("0.001", 5, places=3).map(lambda factor: {"op": "multiply", "factor": str(factor)}),
    _percents.map(lambda value: {"op": "from_compare_at", "value": value}),
)
_roundings = st.one_of(
    st.just({}),
    st.tuples(st.sampled_from(["none", "up", "down", "nearest"]), st.integers(0, 4)).map(
        lambda drawn: {"round": drawn[0], "precision": drawn[1]}
    ),
    st.tuples(
        st.sampled_from(["up", "down", "nearest"]), st.sampled_from([".99", ".95", "9.99", ".9"])
    ).map(lambda drawn: {"round": drawn[0], "ending": drawn[1]}),
)
_bounds = (
    st.tuples(amounts, amounts).map(sorted).map(lambda pair: {"floor": pair[0], "ceiling": pair[1]})
)
_limits = st.one_of(
    st.just({}),
    _bounds,
    amounts.map(lambda floor: {"floor": floor}),
    st.integers(1, 80).map(lambda share: {"maxChangePercent": share}),
    st.tuples(_bounds, st.integers(1, 80)).map(
        lambda drawn: drawn[0] | {"maxChangePercent": drawn[1]}
    ),
    st.integers(0, 100).map(lambda share: {"marginOverCostPercent": share}),
)
_compare_ats = st.one_of(
    st.just({}), st.sampled_from([None, "before", 5000]).map(lambda drawn: {"compareAt": drawn})
)


@st.composite
def any_transform(draw: st.DrawFn) -> dict[str, object]:
    parts = [draw(strategy) for strategy in (_operations, _roundings, _limits, _compare_ats)]
    transform: dict[str, object] = {"allowZero": draw(st.booleans())}
    for part in parts:
        transform |= cast("dict[str, object]", part)
    return transform
