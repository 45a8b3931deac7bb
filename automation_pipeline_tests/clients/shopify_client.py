"""A Shopify client on a mock transport, and builders of GraphQL documents."""

from datetime import UTC, datetime
from typing import Any

import httpx

from automation_pipeline.clients.shop import ShopifyShop
from automation_pipeline.pricing.models.shop import Price, PriceWrite
from automation_pipeline_tests.clients.mock_answers import with_client

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
TOKEN = "shpat_s3cret0123"
ROOT = "https://shop.test/hidden"
PATH = "/hidden/admin/api/2026-10/graphql.json"
WRITES = tuple(
    PriceWrite(str(number), Price(100 * number, "EUR", 900), writes_compare_at=True)
    for number in (1, 2, 3)
)


def client(
    answer: Any, token: str | None = TOKEN, base_url: str = ROOT, **options: Any
) -> ShopifyShop:
    options = {
        "version": "2026-10",
        "now": lambda: NOW,
        "transport": httpx.MockTransport(answer),
    } | options
    return ShopifyShop(base_url, token, **options)


def page(answer: Any, after: str | None = None, **options: Any) -> Any:
    return with_client(client(answer, **options), lambda shop: shop.page(after))


def prices(answer: Any, *ids: str, **options: Any) -> Any:
    return with_client(client(answer, **options), lambda shop: shop.prices(ids or ("1",)))


def write(answer: Any, *writes: PriceWrite, **options: Any) -> Any:
    return with_client(client(answer, **options), lambda shop: shop.write("7", writes or WRITES))


def node(number: int = 1, **changed: object) -> dict[str, Any]:
    product = {
        "id": "gid://shopify/Product/7",
        "title": "Lamp",
        "handle": "lamp",
        "vendor": "Lux",
        "productType": "Light",
        "tags": ["new", "sale"],
        "status": "ACTIVE",
    }
    return {
        "id": f"gid://shopify/ProductVariant/{number}",
        "sku": f"SKU-{number}",
        "barcode": "4006381333931",
        "title": "Red",
        "price": "19.99",
        "compareAtPrice": "29.90",
        "inventoryQuantity": 4,
        "inventoryItem": {"unitCost": {"amount": "8.5", "currencyCode": "EUR"}},
        "product": product | {k: changed.pop(k) for k in list(changed) if k in {"status", "tags"}},
    } | changed


def catalogue(*nodes: object, after: object = None, currency: object = "EUR") -> dict[str, Any]:
    info = {"hasNextPage": after is not None, "endCursor": after}
    return {
        "data": {
            "shop": {"currencyCode": currency},
            "productVariants": {"pageInfo": info, "nodes": list(nodes)},
        },
    }


def price_document(*nodes: object, currency: object = "EUR") -> dict[str, Any]:
    return {"data": {"shop": {"currencyCode": currency}, "nodes": list(nodes)}}


def priced(number: int, price: object = "1.00", compare_at: object = "9.00") -> dict[str, Any]:
    return {
        "id": f"gid://shopify/ProductVariant/{number}",
        "price": price,
        "compareAtPrice": compare_at,
    }


def updated(*variants: object, errors: object = ()) -> dict[str, Any]:
    update = {
        "productVariants": list(variants),
        "userErrors": list(errors) if isinstance(errors, tuple) else errors,
    }
    return {"data": {"productVariantsBulkUpdate": update}}


def complaint(
    *field: object, code: object = "INVALID_INPUT", message: object = "is not right"
) -> dict[str, Any]:
    return {"field": list(field) or None, "code": code, "message": message}


def failing(message: object, code: object = None, **more: object) -> dict[str, Any]:
    return {"errors": [{"message": message, "extensions": {"code": code}}], **more}


def costing(
    available: object, requested: object = 10, rate: object = 100.0, maximum: object = 2000.0
) -> dict[str, Any]:
    status = {"maximumAvailable": maximum, "currentlyAvailable": available, "restoreRate": rate}
    cost = {"requestedQueryCost": requested, "actualQueryCost": None, "throttleStatus": status}
    return {"extensions": {"cost": cost}}
