"""Shopify's Admin API over HTTP: `pricing.ports.Shop`. Every call is one POST of GraphQL and ends
as a value."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import httpx
from pydantic import JsonValue, ValidationError

from automation_pipeline.clients.http import (
    MEGABYTE,
    REQUEST_ID,
    BodyRefusedError,
    HttpClient,
    Observation,
    usable_key,
)
from automation_pipeline.clients.shop_payloads import (
    LONGEST_ID,
    LONGEST_MESSAGE,
    CataloguePayload,
    PricesPayload,
    ShopAnswer,
    WhoPayload,
    WritePayload,
    envelope_of,
    hides_only_costs,
    product_gid,
    refused_question,
    refused_status,
    variant_gid,
    write_input,
)
from automation_pipeline.core.errors import InvalidInputError, PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.pricing.models.shop import (
    CallCosts,
    CallFailure,
    CallResult,
    CataloguePage,
    FailureSignal,
    Prices,
    PriceWrite,
    Written,
    classify_failure,
)

CATALOGUE = """
query Catalogue($first: Int!, $after: String) {
  shop { currencyCode }
  productVariants(first: $first, after: $after) {
    pageInfo { hasNextPage endCursor }
    nodes {
      id sku barcode title price compareAtPrice inventoryQuantity
      inventoryItem { unitCost { amount currencyCode } }
      product { id title handle vendor productType tags status }
    }
  }
}
"""

PRICES = """
query Prices($ids: [ID!]!) {
  shop { currencyCode }
  nodes(ids: $ids) { ... on ProductVariant { id price compareAtPrice } }
}
"""

WRITE = """
mutation Write($productId: ID!, $variants: [ProductVariantsBulkInput!]!) {
  productVariantsBulkUpdate(productId: $productId, variants: $variants, allowPartialUpdates: true) {
    productVariants { id price compareAtPrice }
    userErrors { field message code }
  }
}
"""

WHO = "query Who { shop { currencyCode } }"


PAGE_SIZE = 250
# Of a page: the connection, each variant with its item and its product, the shop.
COSTS = CallCosts(page=2 + PAGE_SIZE * 3 + 1, each_price=1, write=10, prices=1)
CONNECT_SECONDS = 10.0
MOST_BYTES = 8 * MEGABYTE

_NOTHING_WAS_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)

Value = TypeVar("Value")


def graphql_address(base_url: str, version: str) -> httpx.URL:
    """PermanentError: it is no web address."""
    try:
        url = httpx.URL(base_url.strip())
    except httpx.InvalidURL:
        url = httpx.URL()
    # A port that no socket knows would end in a group of errors.
    is_port = url.port is None or 0 < url.port < 65_536
    if url.scheme not in {"http", "https"} or not url.host or not is_port:
        raise PermanentError("The shop's address is not one of the web (set SHOP_API_BASE_URL)")
    return url.copy_with(
        path=f"{url.path.rstrip('/')}/admin/api/{version}/graphql.json", query=None, fragment=None
    )


class ShopifyShop:
    """PermanentError already when it is made without a usable address or token."""

    def __init__(  # noqa: PLR0913  what a connection needs, by name
        self,
        base_url: str,
        token: str | None,
        *,
        version: str,
        now: Callable[[], datetime],
        timeout_seconds: float = 30.0,
        connections: int = 5,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = graphql_address(base_url, version)
        self._token = usable_key(token, "Shop", "SHOP_API_TOKEN")
        # The parts of the address may be secrets too: longest first, so that none is left in
        # pieces.
        root = self._url.path.partition("/admin/api/")[0]
        known = (self._token, str(self._url), self._url.path, self._url.raw_path.decode(), root)
        self._secrets = [secret for secret in known if secret]
        self._now = now
        self._timeout_seconds = timeout_seconds
        self._http = HttpClient(
            Observation("shop", meter or Meter(), tells_id=True),
            headers={"Accept": "application/json", "X-Shopify-Access-Token": self._token},
            # Whoever cannot be connected to is known to have been told nothing: that must end
            # before the whole does.
            timeout=httpx.Timeout(
                timeout_seconds, connect=min(timeout_seconds / 2, CONNECT_SECONDS), pool=None
            ),
            transport=transport,
            connections=connections,
        )

    @property
    def costs(self) -> CallCosts:
        return COSTS

    async def page(self, after: str | None) -> CallResult[CataloguePage]:
        asked: dict[str, object] = {"first": PAGE_SIZE, "after": after}

        def read(data: JsonValue) -> CataloguePage:
            return CataloguePayload.model_validate(data).to_page(after)

        return await self._call(CATALOGUE, asked, read, needs_costs=False)

    async def prices(self, variant_ids: Sequence[str]) -> CallResult[Prices]:
        asked: dict[str, object] = {"ids": [variant_gid(variant_id) for variant_id in variant_ids]}
        return await self._call(
            PRICES, asked, lambda data: PricesPayload.model_validate(data).to_prices(variant_ids)
        )

    async def write(self, product_id: str, writes: Sequence[PriceWrite]) -> CallResult[Written]:
        def read(data: JsonValue) -> Written:
            update = WritePayload.model_validate(data).product_variants_bulk_update
            return update.to_written(writes, self._shown)

        asked: dict[str, object] = {
            "productId": product_gid(product_id),
            "variants": [write_input(write) for write in writes],
        }
        return await self._call(WRITE, asked, read, writes=True)

    async def check(self) -> None:
        failure = (await self._call(WHO, {}, WhoPayload.model_validate)).failure
        if failure is None:
            return
        if failure.retryable:
            raise TransientError(failure.message, retry_after_seconds=failure.retry_after_seconds)
        raise PermanentError(failure.message)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _call(
        self,
        query: str,
        asked: Mapping[str, object],
        read: Callable[[JsonValue], Value],
        *,
        writes: bool = False,
        needs_costs: bool = True,
    ) -> CallResult[Value]:
        heard = await self._heard({"query": query, "variables": asked})
        if isinstance(heard, CallFailure):
            return CallResult(failure=heard)
        envelope = envelope_of(heard.body)
        bucket = envelope.bucket if envelope else None
        if not 200 <= heard.status < 300:
            return CallResult(
                None, refused_status(heard, envelope, self._shown), bucket, heard.request_id
            )
        if envelope is None:
            return CallResult(
                None, _not_understood("it is no GraphQL", writes=writes), None, heard.request_id
            )
        failure = refused_question(heard, envelope, self._shown, writes=writes)
        if failure is not None and (needs_costs or not hides_only_costs(envelope)):
            return CallResult(None, failure, bucket, heard.request_id)
        try:
            return CallResult(read(envelope.data), None, bucket, heard.request_id)
        except ValidationError as error:
            where = ".".join(
                str(part) for part in error.errors(include_url=False, include_input=False)[0]["loc"]
            )
            problem = f"unexpected value at {where or 'data'}"
        except InvalidInputError:
            problem = "an amount or a page's end cannot be read"
        return CallResult(
            None, failure or _not_understood(problem, writes=writes), bucket, heard.request_id
        )

    async def _heard(self, question: Mapping[str, object]) -> ShopAnswer | CallFailure:
        """No error is kept: httpx's own carry the headers, and the token with them."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._answer(question)
        except _NOTHING_WAS_SENT as error:
            how = f"({type(error).__name__}; check SHOP_API_BASE_URL)"
            return classify_failure(
                FailureSignal(code="ECONNREFUSED"), f"The shop could not be reached {how}."
            )
        except UnicodeError:
            unknown = FailureSignal(code="ENOTFOUND", retryable=False)
            return classify_failure(
                unknown, "The shop's address cannot be looked up (check SHOP_API_BASE_URL)."
            )
        except (TimeoutError, httpx.TimeoutException):
            return classify_failure(FailureSignal(lost=True), "The shop did not answer in time.")
        except httpx.HTTPError as error:
            return classify_failure(
                FailureSignal(lost=True),
                f"The connection to the shop broke ({type(error).__name__}).",
            )

    async def _answer(self, question: Mapping[str, object]) -> ShopAnswer:
        try:
            answer = await self._http.call(
                self._http.build_request("POST", self._url, json=question), MOST_BYTES
            )
        except BodyRefusedError:  # the shop has the question: what it answers is not understood
            return ShopAnswer(status=200, body=None, retry_after_seconds=None, request_id=None)
        told = answer.headers.get(REQUEST_ID, "")
        return ShopAnswer(
            status=answer.status,
            body=answer.body,
            retry_after_seconds=retry_after_seconds(answer.headers.get("Retry-After"), self._now()),
            request_id=self._shown(told)[:LONGEST_ID] or None,
        )

    def _shown(self, text: str) -> str:
        """On one line, without what must not be shown: cleaned first, for a secret may be told in
        pieces."""
        line = "".join(sign for sign in " ".join(text.split()) if sign.isprintable())
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line[:LONGEST_MESSAGE]


def _not_understood(problem: str, *, writes: bool) -> CallFailure:
    """What a write has done is not known then; a question may be asked again."""
    signal = FailureSignal(lost=True) if writes else FailureSignal(code="INTERNAL_SERVER_ERROR")
    return classify_failure(signal, f"The shop's answer is not understood: {problem}.")
