"""Parsing of the catalogue and of prices."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.pricing.models.shop import (
    CataloguePage,
    FailureKind,
    Price,
    Variant,
    format_amount,
)
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.mock_answers import json_answer
from automation_pipeline_tests.clients.shopify_client import (
    catalogue,
    node,
    page,
    price_document,
    priced,
    prices,
)


def only(**changed: object) -> Variant:
    (variant,) = page(json_answer(catalogue(node(1, **changed)))).value.variants
    return variant


def test_a_variant_has_every_field_that_rules_use() -> None:
    assert only() == Variant(
        variant_id="1",
        product_id="7",
        currency="EUR",
        amount=1999,
        compare_at=2990,
        cost=850,
        sku="SKU-1",
        barcode="4006381333931",
        variant_title="Red",
        title="Lamp",
        handle="lamp",
        vendor="Lux",
        product_type="Light",
        tags=("new", "sale"),
        inventory=4,
        is_active=True,
    )


@every_case(
    ("changed", "field", "value"),
    [
        ({"status": "DRAFT"}, "is_active", False),
        ({"status": "ARCHIVED"}, "is_active", False),
        ({"sku": ""}, "sku", None),
        ({"sku": None}, "sku", None),
        ({"barcode": " "}, "barcode", None),
        ({"price": None}, "amount", None),
        ({"price": "0.00"}, "amount", 0),
        ({"compareAtPrice": None}, "compare_at", None),
        ({"inventoryQuantity": None}, "inventory", None),
        ({"inventoryQuantity": -3}, "inventory", -3),
        ({"inventoryItem": None}, "cost", None),
        ({"inventoryItem": {"unitCost": None}}, "cost", None),
        ({"inventoryItem": {"unitCost": {"amount": "8.5", "currencyCode": "USD"}}}, "cost", None),
        ({"inventoryItem": {"unitCost": {"amount": "any", "currencyCode": "USD"}}}, "cost", None),
        ({"tags": []}, "tags", ()),
        ({"title": "Re\0d"}, "variant_title", "Red"),
        ({"tags": ["a\0b"]}, "tags", ("ab",)),
    ],
)
def test_optional_and_empty_variant_fields_are_normalised(
    changed: dict[str, Any], field: str, value: object
) -> None:
    assert getattr(only(**changed), field) == value


@every_case(
    ("currency", "text", "amount"),
    [
        ("EUR", "19.99", 1999),
        ("JPY", "1299", 1299),
        ("JPY", "1299.0", 1299),
        ("KWD", "1.234", 1234),
    ],
)
def test_amounts_use_the_currency_of_the_response(currency: str, text: str, amount: int) -> None:
    (variant,) = page(json_answer(catalogue(node(1, price=text), currency=currency))).value.variants
    assert (variant.amount, variant.currency) == (amount, currency)
    assert prices(json_answer(price_document(priced(1, text, None), currency=currency))).value == {
        "1": Price(amount, currency)
    }


@every_case(
    ("after", "has_next", "requested_after", "expected"),
    [
        ("abc", True, None, "abc"),
        ("abc", False, None, None),
        (None, False, None, None),
        ("b", True, "a", "b"),
    ],
)
def test_the_next_page_starts_at_the_end_cursor(
    after: str | None, has_next: bool, requested_after: str | None, expected: str | None
) -> None:
    document = catalogue()
    document["data"]["productVariants"]["pageInfo"] = {"hasNextPage": has_next, "endCursor": after}
    assert page(json_answer(document), requested_after).value == CataloguePage((), expected)


@every_case(
    ("after", "requested_after"),
    [(None, None), ("", None), ("a", "a"), (7, None), ("x" * 3000, None)],
)
def test_a_page_with_a_missing_or_repeated_cursor_is_a_server_failure(
    after: object, requested_after: str | None
) -> None:
    document = catalogue(node())
    document["data"]["productVariants"]["pageInfo"] = {"hasNextPage": True, "endCursor": after}
    assert page(json_answer(document), requested_after).failure.kind is FailureKind.SERVER


def denied(*path: object, code: object = "ACCESS_DENIED") -> dict[str, Any]:
    return {"message": "Access denied.", "path": list(path), "extensions": {"code": code}}


AT = ("productVariants", "nodes", 0)
HIDDEN = denied(*AT, "inventoryItem", "unitCost")


@every_case(
    ("item", "errors"),
    [
        ({"unitCost": None}, [HIDDEN]),
        (None, [denied(*AT, "inventoryItem")]),
        (None, [denied(*AT, "inventoryItem"), HIDDEN]),
    ],
)
def test_a_cost_denied_to_the_token_is_read_as_none(item: object, errors: list[object]) -> None:
    called = page(json_answer(catalogue(node(1, inventoryItem=item)) | {"errors": errors}))
    assert called.failure is None
    assert [(one.cost, one.amount) for one in called.value.variants] == [(None, 1999)]


@every_case(
    "errors",
    [
        [HIDDEN, denied(*AT, "product")],
        [denied(*AT, "price")],
        [denied()],
        [denied(*AT, "unitCost", code="INTERNAL_SERVER_ERROR")],
        [denied(*AT, "unitCost", code=None)],
        [HIDDEN, "no"],
        [HIDDEN, {"message": "no"}],
        {"unitCost": ["no"]},
        "unitCost",
    ],
)
def test_any_other_error_fails_the_page(errors: object) -> None:
    assert page(json_answer(catalogue(node()) | {"errors": errors})).value is None


def test_denied_access_beyond_the_cost_is_an_authorization_failure() -> None:
    for data in (catalogue(None)["data"], {"productVariants": None}, None):
        failure = page(json_answer({"data": data, "errors": [HIDDEN]})).failure
        assert (failure.kind, failure.message) == (
            FailureKind.AUTHORIZATION,
            "The shop answered with an error: Access denied.",
        )


NONSENSE = [
    {"price": "-1.00"},
    {"price": "1e3"},
    {"price": "NaN"},
    {"price": "19,99"},
    {"price": ""},
    {"price": "19\0.99"},
    {"price": "9" * 15},
    {"price": "9" * 5000},
    {"price": 19.99},
    {"price": 10**40},
    {"price": ["19.99"]},
    {"compareAtPrice": "much"},
    {"compareAtPrice": "-0.01"},
    {"id": None},
    {"id": "1"},
    {"id": "gid://shopify/Product/1"},
    {"id": "gid://shopify/ProductVariant/x"},
    {"id": "gid://shopify/ProductVariant/" + "1" * 30},
    {"product": None},
    {"product": {"id": "gid://shopify/ProductVariant/7", "status": "ACTIVE"}},
    {"product": {"id": "gid://shopify/Product/7"}},
    {"tags": "new"},
    {"tags": [1]},
    {"sku": 7},
    {"inventoryQuantity": 10**30},
    {"inventoryQuantity": "4"},
    {"inventoryQuantity": True},
    {"inventoryItem": {"unitCost": {"amount": "-1", "currencyCode": "EUR"}}},
    {"inventoryItem": {"unitCost": {"amount": None, "currencyCode": "EUR"}}},
]


@every_case("changed", NONSENSE, ids=lambda changed: str(changed)[:60])
def test_one_malformed_variant_fails_the_page_with_a_retryable_failure(
    changed: dict[str, Any],
) -> None:
    called = page(json_answer(catalogue(node(1), node(2, **changed), after="more")))
    assert called.value is None
    assert (called.failure.kind, called.failure.retryable) == (FailureKind.SERVER, True)
    assert called.failure.message.startswith("The shop's answer is not understood: ")
    assert len(called.failure.message) < 200


@every_case("currency", [None, "", "eur", "EURO", 978, "E\0R"])
def test_amounts_without_a_valid_currency_are_a_server_failure(currency: object) -> None:
    assert (
        page(json_answer(catalogue(node(), currency=currency))).failure.kind is FailureKind.SERVER
    )
    assert (
        prices(json_answer(price_document(priced(1), currency=currency))).failure.kind
        is FailureKind.SERVER
    )


def test_prices_include_only_requested_variants_known_to_the_shop() -> None:
    answered = price_document(
        priced(1, "1.00", None), None, {}, priced(3, None), priced(4, "4.00", "5.00"), priced(99)
    )
    assert prices(json_answer(answered), "1", "2", "3", "4").value == {
        "1": Price(100, "EUR"),
        "4": Price(400, "EUR", 500),
    }


@every_case("nodes", [[7], ["1"], [priced(1, "x")], [priced(1, 3)], [{"id": "1", "price": "1.00"}]])
def test_malformed_prices_are_a_server_failure(nodes: list[object]) -> None:
    assert prices(json_answer(price_document(*nodes))).failure.kind is FailureKind.SERVER


@given(amount=st.integers(0, 10**12), currency=st.sampled_from(["EUR", "JPY", "KWD"]))
def test_amounts_survive_a_round_trip(amount: int, currency: str) -> None:

    text = format_amount(amount, currency)
    assert prices(json_answer(price_document(priced(1, text, text), currency=currency))).value == {
        "1": Price(amount, currency, amount)
    }
