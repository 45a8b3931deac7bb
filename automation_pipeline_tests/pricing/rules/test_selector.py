"""What a selector must be: one kind a part, no field beyond the list, nothing empty but `all`."""

import pytest
from hypothesis import given, settings

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.rules import bands_of
from automation_pipeline_tests.pricing.rules.rules import any_selector, selector
from automation_pipeline_tests.tables import every_case

KINDS = "must say exactly one of all, sku, tag, product, price, field, and, or, not"


def faults(given: object) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as refused:
        selector(given)
    return dict(refused.value.fields)


@every_case(
    ("given", "field", "fault"),
    [
        ({}, "selector", KINDS),
        ({"sku": None}, "selector", KINDS),
        ({"sku": "a", "tag": "b"}, "selector", KINDS),
        ("all", "selector", "must be an object"),
        ({"all": False}, "selector.all", "must be true"),
        ({"everybody": True}, "selector.everybody", "is not a known field"),
        ({"all": True, "op": "eq"}, "selector", "has op or value, which go with field only"),
        ({"sku": []}, "selector.sku", "must have 1 to 10000 entries"),
        ({"tag": ["a", " "]}, "selector.tag", "must not hold an empty text"),
        ({"sku": [1]}, "selector.sku.0", "must be a text"),
        ({"and": []}, "selector.and", "must have 1 to 10000 entries"),
        ({"and": [{"all": True}, {}]}, "selector.and.1", KINDS),
        ({"not": {"or": [{}]}}, "selector.not.or.0", KINDS),
        (
            {"price": {"currency": "EUR"}},
            "selector.price",
            "must have at least one of gt, gte, lt, lte and eq",
        ),
        ({"price": {"gt": 5}}, "selector.price.currency", "is required"),
        ({"price": {"gt": -1, "currency": "EUR"}}, "selector.price.gt", "must be at least 0"),
        (
            {"price": {"gt": 9.99, "currency": "EUR"}},
            "selector.price.gt",
            "must be a whole number of minor units, such as 1299 for 12.99",
        ),
        ({"field": "vendor", "value": "x"}, "selector.op", "is required"),
        ({"field": "vendor", "op": "eq"}, "selector.value", "must be a text that is not empty"),
        ({"field": "vendor", "op": "in", "value": "x"}, "selector.value", "must be a list"),
        (
            {"field": "vendor", "op": "in", "value": []},
            "selector.value",
            "must have 1 to 10000 entries",
        ),
        (
            {"field": "inventory", "op": "eq", "value": True},
            "selector.value",
            "must be a whole number",
        ),
        (
            {"field": "onSale", "op": "eq", "value": "yes"},
            "selector.value",
            "must be true or false",
        ),
        (
            {"field": "onSale", "op": "in", "value": [True]},
            "selector.op",
            "must be one of eq, ne for onSale",
        ),
    ],
)
def test_each_fault_is_named_where_it_is(given: object, field: str, fault: str) -> None:
    assert faults(given) == {field: fault}


@every_case("field", ["tenant_id", "id", "price", "__class__"])
def test_a_field_that_is_not_on_the_list_is_refused(field: str) -> None:
    assert "must be 'sku'" in faults({"field": field, "op": "eq", "value": "x"})["selector.field"]


@every_case(("field", "op"), [("vendor", "gt"), ("inventory", "contains"), ("vendor", "like")])
def test_a_comparison_that_makes_no_sense_for_the_field_is_refused(field: str, op: str) -> None:
    assert "selector.op" in faults({"field": field, "op": op, "value": "x"})


def test_a_selector_that_is_too_deep_or_too_large_is_refused_before_it_is_looked_at() -> None:
    deep: dict[str, object] = {"all": True}
    for _ in range(100_000):
        deep = {"not": deep}
    assert faults(deep) == {"selector": "must not be nested deeper than 10"}
    assert faults({"or": [{"all": True}] * 1000}) == {"selector": "must have at most 1000 parts"}


def test_one_text_is_a_list_of_one_and_each_is_kept_once() -> None:
    assert selector({"sku": " a "}).sku == ("a",)
    assert selector({"sku": ["a", "b", "a "]}).sku == ("a", "b")


@given(any_selector)
@settings(max_examples=50, deadline=None)
def test_what_is_written_reads_back_the_same(given: dict[str, object]) -> None:
    parsed = selector(given)
    assert selector(as_document(parsed)) == parsed


def test_price_bands_are_found_however_deep() -> None:
    band = {"price": {"gt": 1, "currency": "EUR"}}
    assert len(bands_of(selector({"and": [band, {"not": {"or": [band, {"all": True}]}}]}))) == 2
