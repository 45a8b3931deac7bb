"""The points of the simulated shop: the requested and the actual cost of a call, and throttling."""

from typing import Any

import pytest

from automation_pipeline.clients.shop import CATALOGUE
from automation_pipeline_tests.simulator.shop.client import (
    PAGE,
    PRICES,
    WRITE,
    ShopClient,
    number,
    product,
    variant,
)
from automation_pipeline_tests.simulator_control import configure_shop

NESTED = "{ products(first: 10) { edges { node { variants(first: 5) { nodes { id } } } } } }"
TWICE = "{ shop { name } shop { currencyCode } other: shop { name } }"
FRAGMENT = "{ productVariants(first: 10) { ...Page } } fragment Page on ProductVariantConnection { nodes { sku } }"


@pytest.mark.parametrize(
    ("query", "variables", "requested", "actual"),
    [
        ("{ shop { name currencyCode } }", {}, 1, 1),
        (TWICE, {}, 2, 2),
        (CATALOGUE, {"first": 100}, 303, 303),
        (CATALOGUE, {"first": 250}, 753, 363),
        (PAGE, {"first": 0}, 2, 2),
        (PRICES, {"ids": [variant(), variant(99), product()]}, 3, 2),
        (NESTED, {}, 2 + 10 * (1 + 2 + 5), 2 + 10 * (1 + 2 + 3)),
        (FRAGMENT, {}, 12, 12),
        ("{ productVariants(first: 10) { pageInfo { endCursor } } }", {}, 2, 2),
        ("query ($n: Int = 7) { products(first: $n) { nodes { id } } }", {}, 9, 9),
        ('{ productVariant(id: "gid://shopify/ProductVariant/1") { product { id } } }', {}, 2, 0),
        (WRITE, {"product": product(), "variants": [{"id": variant(), "price": "5"}]}, 10, 10),
        (WRITE, {"product": product(99), "variants": []}, 10, 10),
    ],
)
def test_points_for_missing_objects_are_refunded(
    shop: ShopClient, query: str, variables: dict[str, Any], requested: int, actual: int
) -> None:
    answer = shop.send_query(query, **variables).json()
    assert answer["extensions"]["cost"] == {
        "requestedQueryCost": requested,
        "actualQueryCost": actual,
        "throttleStatus": {
            "maximumAvailable": 2000,
            "currentlyAvailable": 2000 - actual,
            "restoreRate": 0,
        },
    }
    totals = shop.totals()
    assert (totals["spent"], totals["level"], totals["lowest"]) == (
        actual,
        2000 - actual,
        2000 - requested,
    )


def test_a_query_of_more_than_1000_points_is_always_refused(
    shop: ShopClient,
) -> None:
    wide = "{ products(first: 200) { nodes { variants(first: 3) { nodes { id } } } } }"
    assert shop.code(wide) == "MAX_COST_EXCEEDED"
    assert shop.totals()["spent"] == 0


@pytest.mark.parametrize(
    ("first", "message"), [(251, "first must be"), (-1, "first must be"), (None, "you must prov")]
)
def test_a_page_has_at_most_250(shop: ShopClient, first: int | None, message: str) -> None:
    query = "query ($n: Int) { productVariants(first: $n) { nodes { id } } }"
    assert message in shop.send_query(query, n=first).json()["errors"][0]["message"]


def test_an_empty_bucket_throttles_calls(shop: ShopClient) -> None:
    configure_shop(shop.url, maximum=25)
    given = {"product": product(), "variants": [{"id": variant(), "price": "5"}]}
    for _ in range(2):
        shop.data(WRITE, **given)
    assert shop.code(WRITE, **given) == "THROTTLED"
    answer = shop.send_query(WRITE, **given)
    assert (answer.status_code, set(answer.json())) == (200, {"errors", "extensions"})
    assert answer.json()["extensions"]["cost"] == {
        "requestedQueryCost": 10,
        "actualQueryCost": None,
        "throttleStatus": {"maximumAvailable": 25, "currentlyAvailable": 5, "restoreRate": 0},
    }
    totals = shop.totals()
    assert (totals["throttled"], totals["spent"], totals["writes"]) == (2, 20, {number(): 2})


def test_the_named_one_of_several_operations_is_executed(shop: ShopClient) -> None:
    both = "query A { shop { name } } query B { shop { currencyCode } }"
    answer = shop.post(
        "/admin/api/2026-10/graphql.json", json={"query": both, "operationName": "B"}
    ).json()
    assert answer["data"] == {"shop": {"currencyCode": "EUR"}}
