"""A client of the simulated shop."""

from typing import Any

import httpx

from automation_pipeline_tests.simulator_control import NO_CERTIFICATES, SHOP_TOKEN, shop_totals

PATH = "/admin/api/2026-10/graphql.json"
TOKEN = {"X-Shopify-Access-Token": SHOP_TOKEN}

WRITE = """
mutation Write($product: ID!, $variants: [ProductVariantsBulkInput!]!, $partial: Boolean = true) {
  productVariantsBulkUpdate(productId: $product, variants: $variants, allowPartialUpdates: $partial) {
    product { id }
    productVariants { id price compareAtPrice }
    userErrors { field message code }
  }
}
"""
PAGE = """
query Page($first: Int!, $after: String) {
  productVariants(first: $first, after: $after) {
    nodes { id sku price product { id status } }
    pageInfo { hasNextPage endCursor }
  }
}
"""
PRICES = "query Prices($ids: [ID!]!) { nodes(ids: $ids) { ... on ProductVariant { id price compareAtPrice } } }"


def product(product_number: int = 1) -> str:
    return f"gid://shopify/Product/{7_000_000 + product_number}"


def number(product_number: int = 1, variant: int = 1) -> str:
    return f"{7_000_000 + product_number}{variant:04d}"


def variant(product_number: int = 1, variant: int = 1) -> str:
    return f"gid://shopify/ProductVariant/{number(product_number, variant)}"


class ShopClient(httpx.Client):
    def __init__(self, url: str) -> None:
        super().__init__(base_url=url, headers=TOKEN, verify=NO_CERTIFICATES)
        self.url = url

    def send_query(self, query: str, **variables: Any) -> httpx.Response:
        return self.post(PATH, json={"query": query, "variables": variables})

    def data(self, query: str, **variables: Any) -> Any:
        answer = self.send_query(query, **variables).json()
        assert "errors" not in answer, answer
        return answer["data"]

    def code(self, query: str, **variables: Any) -> str:
        """Send a query, and return the code of the first error."""
        answer = self.send_query(query, **variables)
        assert answer.status_code == 200
        return answer.json()["errors"][0].get("extensions", {}).get("code", "none")

    def write(
        self, *variants: dict[str, Any], product_number: int = 1, partial: bool = True
    ) -> Any:
        given = {"product": product(product_number), "variants": list(variants), "partial": partial}
        return self.data(WRITE, **given)["productVariantsBulkUpdate"]

    def prices(self, *ids: str) -> list[str | None]:
        return [node and node["price"] for node in self.data(PRICES, ids=list(ids))["nodes"]]

    def totals(self, **wanted: str) -> Any:
        return shop_totals(self.url, **wanted)
