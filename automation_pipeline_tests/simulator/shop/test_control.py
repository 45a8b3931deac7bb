"""`/_sim/shop`: it configures the simulated shop, edits its prices, and shows its calls."""

from typing import Any

import pytest

from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.simulator.shop.client import PAGE, ShopClient, number, variant
from automation_pipeline_tests.simulator_control import (
    configure_shop,
    edit_variant,
    remove_variant,
    reset,
)


def test_settings_and_totals_are_shown(shop: ShopClient) -> None:
    shop.write({"id": variant(), "price": "5.00"}, {"id": variant(1, 2), "price": "6.00"})
    shop.write({"id": variant(), "price": "7.00"})
    shop.prices(variant())
    assert shop.totals() == {
        "products": 40,
        "variants_per_product": 3,
        "currency": "EUR",
        "maximum": 2000,
        "restore_rate": 0,
        "level": 1979,
        "lowest": 1979,
        "spent": 21,
        "throttled": 0,
        "calls": {"read": 1, "catalogue": 0, "write": 2},
        "writes": {number(): 2, number(1, 2): 1},
    }


def test_a_variant_has_a_history_of_prices(shop: ShopClient) -> None:
    (first,) = shop.prices(variant())
    shop.write({"id": variant(), "price": "5.00", "compareAtPrice": "9.00"})
    edit_variant(shop.url, number(), "6.00")
    edit_variant(shop.url, number(), "7.00", compareAtPrice=None)
    shown = shop.totals(variant=number())
    assert [(then["price"], then["compareAtPrice"], then["by"]) for then in shown["history"]][
        1:
    ] == [
        ("5.00", "9.00", "api"),
        ("6.00", "9.00", "hand"),
        ("7.00", None, "hand"),
    ]
    assert (shown["history"][0]["price"], shown["writes"], shown["is_there"]) == (first, 1, True)
    assert shop.prices(variant()) == ["7.00"]


def test_a_removed_variant_is_not_found(shop: ShopClient) -> None:
    remove_variant(shop.url, number(1, 2))
    assert shop.prices(variant(1, 2)) == [None]
    page = shop.data(PAGE, first=3)["productVariants"]
    assert [node["sku"] for node in page["nodes"]] == ["SKU-1", "SKU-3", "SKU-4"]
    codes = [
        error["code"] for error in shop.write({"id": variant(1, 2), "price": "5"})["userErrors"]
    ]
    assert codes == ["PRODUCT_VARIANT_DOES_NOT_EXIST"]
    assert shop.totals(variant=number(1, 2))["is_there"] is False


def test_a_page_continues_after_a_removed_variant(shop: ShopClient) -> None:
    first = shop.data(PAGE, first=2)["productVariants"]["pageInfo"]["endCursor"]
    remove_variant(shop.url, number(1, 2))
    assert shop.data(PAGE, first=1, after=first)["productVariants"]["nodes"][0]["sku"] == "SKU-3"


def test_a_reset_forgets_changes_and_fills_the_bucket(shop: ShopClient) -> None:
    before = shop.prices(variant())
    configure_shop(shop.url, maximum=500)
    shop.write({"id": variant(), "price": "5.00"})
    edit_variant(shop.url, number(2), "6.00")
    remove_variant(shop.url, number(3))
    reset(shop.url)
    totals = shop.totals()
    assert (totals["writes"], totals["spent"], totals["level"], totals["maximum"]) == (
        {},
        0,
        500,
        500,
    )
    assert totals["calls"] == {"read": 0, "catalogue": 0, "write": 0}
    assert shop.prices(variant()) == before
    assert shop.prices(variant(3)) != [None]


def test_a_different_size_creates_a_new_catalogue(
    shop: ShopClient,
) -> None:
    shop.write({"id": variant(), "price": "5.00"})
    configure_shop(shop.url, products=40, variants_per_product=3)
    assert shop.prices(variant()) == ["5.00"]
    configure_shop(shop.url, products=2, variants_per_product=4)
    assert len(shop.data(PAGE, first=50)["productVariants"]["nodes"]) == 8
    assert (shop.prices(variant()) != ["5.00"], shop.totals()["writes"]) == (True, {})


def test_a_catalogue_may_be_empty(shop: ShopClient) -> None:
    configure_shop(shop.url, products=0)
    assert shop.data(PAGE, first=5)["productVariants"] == {
        "nodes": [],
        "pageInfo": {"hasNextPage": False, "endCursor": None},
    }


@every_case(
    "posted",
    [
        {},
        [],
        {"product": 1},
        {"maximum": 5, "products": -1},
        {"maximum": 5, "variants_per_product": 0},
        {"maximum": 5, "products": 50_000, "variants_per_product": 5},
        {"maximum": 5, "products": 1.5},
        {"maximum": 5, "products": True},
        {"maximum": 5, "currency": "eur"},
        {"maximum": 5, "restore_rate": -1},
        {"maximum": 5, "restore_rate": "fast"},
        {"maximum": None},
    ],
)
def test_one_invalid_setting_rejects_all(shop: ShopClient, posted: Any) -> None:
    before = shop.totals()
    answer = shop.put("/_sim/shop", json=posted)
    assert (answer.status_code, set(answer.json())) == (422, {"detail"})
    assert shop.totals() == before


@pytest.mark.parametrize(
    "posted",
    [
        {},
        {"id": "1", "price": "5"},
        {"id": number()},
        {"id": number(), "price": "-5"},
        {"id": number(), "price": "5.001"},
        {"id": number(), "price": "expensive"},
        {"id": number(), "price": "5", "compareAtPrice": "expensive"},
        {"id": variant(), "price": "5"},
        {"id": None, "price": "5"},
    ],
)
def test_an_invalid_edit_is_refused(shop: ShopClient, posted: Any) -> None:
    assert shop.post("/_sim/shop/variants", json=posted).status_code == 422


@pytest.mark.parametrize("path", ["/_sim/shop?variant=1", "/_sim/shop?variant=x"])
def test_an_unknown_variant_has_no_history(shop: ShopClient, path: str) -> None:
    assert shop.get(path).status_code == 422
    assert shop.delete("/_sim/shop/variants/1").status_code == 422
