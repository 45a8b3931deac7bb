"""Who a selector picks, and the laws of and, or and not."""

from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.pricing.models.shop import Variant
from automation_pipeline.pricing.rules.evaluation import compile_selector
from automation_pipeline_tests.pricing.rules.rules import (
    any_selector,
    any_variant,
    selector,
    variant,
)
from automation_pipeline_tests.tables import every_case

SHIRT = variant(
    1500,
    sku="SH-1",
    compare_at=2000,
    tags=("Summer", "shirts"),
    vendor="Acme Ltd",
    product_type="Shirt",
    inventory=3,
)


@every_case(
    ("given", "picked"),
    [
        ({"all": True}, True),
        ({"sku": ["x", "SH-1"]}, True),
        ({"sku": "sh-1"}, False),
        ({"product": "p1"}, True),
        ({"product": "p2"}, False),
        ({"tag": "summer"}, True),
        ({"tag": ["winter", "SHIRTS"]}, True),
        ({"tag": "summ"}, False),
        ({"price": {"gte": 1500, "lt": 1501, "currency": "EUR"}}, True),
        ({"price": {"gt": 1500, "currency": "EUR"}}, False),
        ({"price": {"lte": 1499, "currency": "EUR"}}, False),
        ({"price": {"eq": 1500, "currency": "EUR"}}, True),
        ({"price": {"gte": 0, "currency": "USD"}}, False),
        ({"field": "vendor", "op": "eq", "value": "acme ltd"}, True),
        ({"field": "vendor", "op": "ne", "value": "acme ltd"}, False),
        ({"field": "vendor", "op": "contains", "value": "CME"}, True),
        ({"field": "vendor", "op": "startsWith", "value": "acme"}, True),
        ({"field": "vendor", "op": "endsWith", "value": "acme"}, False),
        ({"field": "productType", "op": "in", "value": ["hat", "shirt"]}, True),
        ({"field": "barcode", "op": "eq", "value": "1"}, False),
        ({"field": "barcode", "op": "ne", "value": "1"}, True),
        ({"field": "inventory", "op": "gt", "value": 2}, True),
        ({"field": "inventory", "op": "lte", "value": 2}, False),
        ({"field": "inventory", "op": "in", "value": [3, 4]}, True),
        ({"field": "onSale", "op": "eq", "value": True}, True),
        ({"field": "onSale", "op": "ne", "value": True}, False),
        ({"and": [{"sku": "SH-1"}, {"tag": "winter"}]}, False),
        ({"or": [{"sku": "SH-1"}, {"tag": "winter"}]}, True),
        ({"not": {"tag": "winter"}}, True),
    ],
)
def test_a_selector_picks(given: dict[str, object], *, picked: bool) -> None:
    assert compile_selector(selector(given))(SHIRT) is picked


@every_case("op", ["lt", "gte", "eq", "in"])
def test_a_variant_without_the_field_is_not_picked_by_it(op: str) -> None:
    value = [1] if op == "in" else 1
    picked = compile_selector(selector({"field": "inventory", "op": op, "value": value}))
    assert not picked(variant(inventory=None))


def test_a_variant_without_a_price_is_in_no_band() -> None:
    assert not compile_selector(selector({"price": {"gte": 0, "currency": "EUR"}}))(variant(None))


@given(any_selector, any_selector, any_variant)
@settings(max_examples=80, deadline=None)
def test_selectors_keep_the_laws_of_logic(
    one: dict[str, object], other: dict[str, object], it: Variant
) -> None:
    def picks(given: dict[str, object]) -> bool:
        return compile_selector(selector(given))(it)

    first, second = picks(one), picks(other)
    assert picks({"not": {"not": one}}) is first
    assert picks({"not": one}) is not first
    assert picks({"and": [one, other]}) is (first and second) is picks({"and": [other, one]})
    assert picks({"or": [one, other]}) is (first or second) is picks({"or": [other, one]})
    assert picks({"not": {"and": [one, other]}}) is picks({"or": [{"not": one}, {"not": other}]})
    assert picks({"and": [one]}) is picks({"or": [one]}) is picks({"and": [one, one]}) is first


@given(st.lists(any_variant, max_size=5), any_selector)
@settings(max_examples=30, deadline=None)
def test_a_selector_and_its_opposite_share_all_variants_out(
    some: list[Variant], given: dict[str, object]
) -> None:
    assert all(
        compile_selector(selector(given))(it) != compile_selector(selector({"not": given}))(it)
        for it in some
    )
