"""The HTTP API of the simulated shop: authentication, answers, errors and faults."""

from uuid import UUID

import httpx
import pytest

from automation_pipeline.clients.shop import CATALOGUE, WHO
from automation_pipeline.clients.shop import PRICES as CLIENTS_PRICES
from automation_pipeline.clients.shop import WRITE as CLIENTS_WRITE
from automation_pipeline_tests.simulator.shop.client import (
    PAGE,
    PATH,
    ShopClient,
    number,
    product,
    variant,
)
from automation_pipeline_tests.simulator_control import add_faults, call_count
from automation_pipeline_tests.waiting import wait_until

WRONG = "[API] Invalid API key or access token (unrecognized login or wrong password)"


def test_every_query_of_the_client_is_answered(shop: ShopClient) -> None:
    catalogue = shop.data(CATALOGUE, first=120)
    found = {node["id"]: node for node in catalogue["productVariants"]["nodes"]}
    assert catalogue["shop"] == {"currencyCode": "EUR"}
    assert len(found) == 120
    assert {node["product"]["status"] for node in found.values()} == {"ACTIVE", "DRAFT", "ARCHIVED"}
    assert shop.data(CLIENTS_PRICES, ids=[variant(), variant(9999)])["nodes"] == [
        {name: found[variant()][name] for name in ("id", "price", "compareAtPrice")},
        None,
    ]
    written = shop.data(
        CLIENTS_WRITE, productId=product(), variants=[{"id": variant(), "price": "12.5"}]
    )
    assert written["productVariantsBulkUpdate"]["productVariants"][0]["price"] == "12.50"
    assert shop.data(WHO) == {"shop": {"currencyCode": "EUR"}}


def test_pages_cover_the_whole_catalogue(shop: ShopClient) -> None:
    skus, after, more = [], None, True
    while more:
        page = shop.data(PAGE, first=50, after=after)["productVariants"]
        skus += [node["sku"] for node in page["nodes"]]
        after, more = page["pageInfo"]["endCursor"], page["pageInfo"]["hasNextPage"]
    assert skus == [f"SKU-{product_number}" for product_number in range(1, 121)]


def test_products_have_pages_of_variants(shop: ShopClient) -> None:
    query = """{
      products(first: 2) { edges { cursor node { id tags variants(first: 5) { nodes { sku } } } } }
      product(id: "gid://shopify/Product/7000002") { title }
      productVariant(id: "gid://shopify/ProductVariant/70000010002") { sku displayName inventoryItem { id } }
      none: product(id: "gid://shopify/ProductVariant/70000010002") { title }
    }"""
    data = shop.data(query)
    first, second = data["products"]["edges"]
    assert first["node"]["id"] == product(1)
    assert [one["sku"] for one in second["node"]["variants"]["nodes"]] == [
        "SKU-4",
        "SKU-5",
        "SKU-6",
    ]
    assert (data["productVariant"]["sku"], data["none"]) == ("SKU-2", None)


@pytest.mark.parametrize("token", ["", "wrong", "é"])
def test_the_shop_refuses_an_invalid_token(shop: ShopClient, token: str) -> None:
    answer = shop.post(
        PATH, json={"query": WHO}, headers={"X-Shopify-Access-Token": token.encode()}
    )
    assert (answer.status_code, answer.json()) == (401, {"errors": WRONG})
    assert shop.totals()["calls"]["read"] == 0


@pytest.mark.parametrize("version", ["2026", "latest", "2026-1"])
def test_invalid_versions_are_refused(shop: ShopClient, version: str) -> None:
    answer = shop.post(PATH.replace("2026-10", version), json={"query": WHO})
    assert (answer.status_code, answer.json()) == (404, {"errors": "Not Found"})
    assert shop.post(PATH.replace("2026-10", "unstable"), json={"query": WHO}).status_code == 200


@pytest.mark.parametrize(
    "body", ["", "[]", "{", '{"query": 5}', '{"query": "{shop{name}}", "variables": []}']
)
def test_a_body_without_a_query_is_a_bad_request(shop: ShopClient, body: str) -> None:
    answer = shop.post(PATH, content=body)
    assert (answer.status_code, type(answer.json()["errors"])) == (400, str)


@pytest.mark.parametrize(
    "query",
    [
        "{ shop { currency } }",
        "{ shop",
        "query A { shop { name } } query B { shop { name } }",
        "{" * 1000,
        "mutation { x }",
    ],
)
def test_a_document_that_cannot_be_executed_has_errors_and_no_data(
    shop: ShopClient, query: str
) -> None:
    answer = shop.send_query(query)
    assert (answer.status_code, set(answer.json())) == (200, {"errors"})
    assert shop.totals()["spent"] == 0


def test_every_answer_has_its_own_request_id(shop: ShopClient) -> None:
    add_faults(shop.url, {"route": "shop.graphql", "item": "catalogue", "status": 503})
    answers = [
        shop.send_query(WHO),
        shop.send_query(WHO),
        shop.send_query("{"),
        shop.send_query(PAGE, first=1),
        shop.post(PATH, headers={"X-Shopify-Access-Token": ""}),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 503, 401]
    assert len({UUID(answer.headers["x-request-id"]) for answer in answers}) == 5


@pytest.mark.parametrize("status", [402, 423, 429, 500, 503])
def test_faults_apply_by_kind_of_call_and_have_shopifys_format(
    shop: ShopClient, status: int
) -> None:
    add_faults(
        shop.url,
        {"route": "shop.graphql", "item": "7000002", "status": status, "retry_after": "2.0"},
    )
    written = {"variants": [{"id": variant(2), "price": "5.00"}]}
    answer = shop.send_query(CLIENTS_WRITE, productId=product(2), **written)
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "2.0")
    assert isinstance(answer.json()["errors"], str)
    assert shop.write({"id": variant(1), "price": "5.00"})["userErrors"] == []
    shop.send_query(PAGE, first=1)
    shop.send_query(WHO)
    counted = {
        item: call_count(shop.url, item, "shop.graphql")
        for item in ("7000001", "7000002", "catalogue", "read")
    }
    assert counted == {"7000001": 1, "7000002": 1, "catalogue": 1, "read": 1}
    assert shop.totals()["writes"] == {number(1): 1}


def test_a_dropped_call_may_change_prices_or_not(shop: ShopClient) -> None:
    add_faults(
        shop.url,
        {"route": "shop.graphql", "item": "7000001", "drop": True},
        {"route": "shop.graphql", "item": "7000002", "drop": True, "after": True},
    )
    for product_number in (1, 2):
        with pytest.raises(httpx.RemoteProtocolError):
            shop.write(
                {"id": variant(product_number), "price": "5.00"}, product_number=product_number
            )
    assert shop.totals()["writes"] == {number(2): 1}
    assert shop.prices(variant(2)) == ["5.00"]


def test_a_call_that_hangs_after_its_work_has_changed_prices(shop: ShopClient) -> None:
    add_faults(shop.url, {"route": "shop.graphql", "item": "7000001", "hang": True, "after": True})
    given = {"productId": product(), "variants": [{"id": variant(), "price": "5.00"}]}
    with pytest.raises(httpx.ReadTimeout):
        shop.post(PATH, json={"query": CLIENTS_WRITE, "variables": given}, timeout=0.2)
    wait_until(lambda: shop.totals()["writes"] == {number(): 1})


def test_a_fault_can_throttle_a_call_without_effect(shop: ShopClient) -> None:
    add_faults(
        shop.url, {"route": "shop.graphql", "item": "7000001", "body": "throttled", "first": 1}
    )
    given = {"productId": product(), "variants": [{"id": variant(), "price": "5.00"}]}
    answer = shop.send_query(CLIENTS_WRITE, **given)
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}],
            "extensions": {
                "cost": {
                    "requestedQueryCost": 10,
                    "actualQueryCost": None,
                    "throttleStatus": {
                        "maximumAvailable": 2000,
                        "currentlyAvailable": 9,
                        "restoreRate": 0,
                    },
                }
            },
        },
    )
    totals = shop.totals()
    assert (totals["writes"], totals["spent"], totals["throttled"]) == ({}, 0, 0)
    assert (
        shop.send_query(CLIENTS_WRITE, **given).json()["data"]["productVariantsBulkUpdate"][
            "userErrors"
        ]
        == []
    )


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ({"route": "crm.details", "body": "throttled"}, "is for a shop, not for crm.details"),
        (
            {"route": "shop.graphql", "body": "refusal"},
            "is for a language model, not for shop.graphql",
        ),
        ({"route": "shop.graphql", "after": True}, "needs a status"),
        ({"route": "shop.graphql", "after": True, "status": 500}, "can do so 'after' its work"),
        ({"route": "shop.graphql", "after": "yes", "drop": True}, "'after' must be true or false"),
    ],
)
def test_a_fault_rule_of_another_provider_is_refused(
    shop: ShopClient, rule: dict[str, object], complaint: str
) -> None:
    answer = shop.post("/_sim/faults", json=rule)
    assert answer.status_code == 422
    assert complaint in answer.json()["detail"]
