"""The mutation of the simulated shop: the prices that it sets, and the errors that it reports."""

from typing import Any

import pytest

from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.simulator.shop.client import (
    WRITE,
    ShopClient,
    number,
    product,
    variant,
)
from automation_pipeline_tests.simulator_control import configure_shop

VALID_VARIANT = {"id": variant(1, 2), "price": "5.00"}
INVALID_VARIANTS = [
    ({"id": variant(1), "price": "-1"}, "NEGATIVE_PRICE_VALUE", "price"),
    (
        {"id": variant(1), "price": "5", "compareAtPrice": "-0.01"},
        "GREATER_THAN_OR_EQUAL_TO",
        "compareAtPrice",
    ),
    ({"id": variant(1), "price": None}, "BLANK", "price"),
    ({"id": variant(1), "price": "100000000"}, "INVALID_INPUT", "price"),
    ({"id": variant(1), "price": "5.001"}, "INVALID_INPUT", "price"),
    ({"id": variant(2), "price": "5"}, "MUST_BE_FOR_THIS_PRODUCT", "id"),
    ({"id": variant(1, 4), "price": "5"}, "PRODUCT_VARIANT_DOES_NOT_EXIST", "id"),
    ({"id": product(1), "price": "5"}, "PRODUCT_VARIANT_DOES_NOT_EXIST", "id"),
    ({"price": "5"}, "PRODUCT_VARIANT_ID_MISSING", "id"),
    (VALID_VARIANT, "INVALID_INPUT", "id"),
]


@pytest.mark.parametrize(("invalid", "code", "field"), INVALID_VARIANTS)
def test_with_partial_updates_an_invalid_variant_is_named_and_the_others_are_set(
    shop: ShopClient, invalid: dict[str, Any], code: str, field: str
) -> None:
    result = shop.write(VALID_VARIANT, invalid)
    assert [(error["code"], error["field"]) for error in result["userErrors"]] == [
        (code, ["variants", "1", field])
    ]
    assert [one["id"] for one in result["productVariants"]] == [variant(1, 2)]
    assert shop.totals()["writes"] == {number(1, 2): 1}


@every_case(("invalid", "code", "field"), INVALID_VARIANTS)
def test_without_partial_updates_an_invalid_variant_rejects_all(
    shop: ShopClient, invalid: dict[str, Any], code: str, field: str
) -> None:
    result = shop.write(VALID_VARIANT, invalid, partial=False)
    assert [error["code"] for error in result["userErrors"]] == [code]
    assert (result["productVariants"], shop.totals()["writes"]) == (None, {})


def test_an_update_of_an_unknown_product_is_refused(shop: ShopClient) -> None:
    result = shop.write(VALID_VARIANT, product_number=41)
    assert (result["product"], result["productVariants"]) == (None, None)
    assert result["userErrors"] == [
        {
            "code": "PRODUCT_DOES_NOT_EXIST",
            "field": ["productId"],
            "message": "Product does not exist",
        }
    ]


def test_omitted_fields_stay_and_null_clears_a_field(shop: ShopClient) -> None:
    def compared(**given: object) -> object:
        return shop.write({"id": variant(), **given})["productVariants"][0]["compareAtPrice"]

    assert compared(price="5.00", compareAtPrice="7.5") == "7.50"
    assert compared(price="6.00") == "7.50"
    assert compared(compareAtPrice="8") == "8.00"
    assert shop.prices(variant()) == ["6.00"]
    assert compared(price="6.00", compareAtPrice=None) is None


def test_a_variant_without_prices_stays_unchanged(shop: ShopClient) -> None:
    (before,) = shop.prices(variant())
    assert shop.write({"id": variant()})["productVariants"][0]["price"] == before
    assert shop.totals()["writes"] == {}


@every_case("price", ["cheap", "1e3", "", " 5", "5,00", True, ["5"]])
def test_an_invalid_amount_rejects_the_whole_call(shop: ShopClient, price: object) -> None:
    given = {"product": product(), "variants": [VALID_VARIANT, {"id": variant(), "price": price}]}
    assert shop.code(WRITE, **given) == "INVALID_VARIABLE"
    totals = shop.totals()
    assert (totals["writes"], totals["spent"]) == ({}, 0)


def test_a_call_has_at_most_250_variants(shop: ShopClient) -> None:
    configure_shop(shop.url, products=1, variants_per_product=251)
    given = [{"id": variant(1, n), "price": "5.00"} for n in range(1, 252)]
    assert shop.code(WRITE, product=product(), variants=given) == "MAX_INPUT_SIZE_EXCEEDED"
    assert len(shop.write(*given[:250])["productVariants"]) == 250
    literal = f"{{ nodes(ids: {str([variant()] * 251).replace(chr(39), chr(34))}) {{ id }} }}"
    assert shop.code(literal) == "MAX_INPUT_SIZE_EXCEEDED"


@pytest.mark.parametrize(
    ("currency", "price", "text"), [("JPY", "1299", "1299"), ("KWD", "1.234", "1.234")]
)
def test_written_amounts_have_the_decimal_places_of_the_currency(
    shop: ShopClient, currency: str, price: str, text: str
) -> None:
    configure_shop(shop.url, currency=currency)
    assert shop.write({"id": variant(), "price": price})["productVariants"][0]["price"] == text
    assert shop.write(
        {"id": variant(), "price": f"{price}.5" if currency == "JPY" else f"{price}5"}
    )["userErrors"]


def test_an_invalid_id_is_an_error_of_the_call(shop: ShopClient) -> None:
    answer = shop.send_query(WRITE, product="7000001", variants=[VALID_VARIANT]).json()
    assert answer["data"] == {"productVariantsBulkUpdate": None}
    assert answer["errors"][0]["message"] == "Invalid global id '7000001'"
