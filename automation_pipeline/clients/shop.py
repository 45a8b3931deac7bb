"""The client of Shopify's Admin API. It implements `pricing.ports.Shop`: each call is one GraphQL POST
and returns a value, whatever happens."""

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
    MAX_ID_LENGTH,
    MAX_MESSAGE_LENGTH,
    CataloguePayload,
    PricesPayload,
    ShopAnswer,
    WhoPayload,
    WritePayload,
    envelope_of,
    hides_only_costs,
    product_gid,
    query_failure,
    status_failure,
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
# A page costs the connection, three objects per variant and the shop.
COSTS = CallCosts(page=2 + PAGE_SIZE * 3 + 1, each_price=1, write=10, prices=1)
CONNECT_SECONDS = 10.0
MAX_BYTES = 8 * MEGABYTE

_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)

Value = TypeVar("Value")


def graphql_address(base_url: str, version: str) -> httpx.URL:
    """Raises PermanentError if it is not a web address."""
    try:
        url = httpx.URL(base_url.strip())
    except httpx.InvalidURL:
        url = httpx.URL()
    # An invalid port would otherwise raise an ExceptionGroup in the event loop.
    is_port = url.port is None or 0 < url.port < 65_536
    if url.scheme not in {"http", "https"} or not url.host or not is_port:
        raise PermanentError("The shop's address is not one of the web (set SHOP_API_BASE_URL)")
    return url.copy_with(
        path=f"{url.path.rstrip('/')}/admin/api/{version}/graphql.json", query=None, fragment=None
    )


class ShopifyShop:
    """The constructor raises PermanentError if the address or the token is unusable."""

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
        # Parts of the address may be secrets too. Longest first, so that no part remains.
        root = self._url.path.partition("/admin/api/")[0]
        known = (self._token, str(self._url), self._url.path, self._url.raw_path.decode(), root)
        self._secrets = [secret for secret in known if secret]
        self._now = now
        self._timeout_seconds = timeout_seconds
        self._http = HttpClient(
            Observation("shop", meter or Meter(), is_trusted=True),
            headers={"Accept": "application/json", "X-Shopify-Access-Token": self._token},
            # A failed connection is known to have written nothing, so it must time out before the
            # call does.
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
        variables: dict[str, object] = {"first": PAGE_SIZE, "after": after}

        def read(data: JsonValue) -> CataloguePage:
            return CataloguePayload.model_validate(data).to_page(after)

        return await self._call(CATALOGUE, variables, read, needs_costs=False)

    async def prices(self, variant_ids: Sequence[str]) -> CallResult[Prices]:
        variables = {"ids": [variant_gid(variant_id) for variant_id in variant_ids]}
        return await self._call(
            PRICES,
            variables,
            lambda data: PricesPayload.model_validate(data).to_prices(variant_ids),
        )

    async def write(self, product_id: str, writes: Sequence[PriceWrite]) -> CallResult[Written]:
        def read(data: JsonValue) -> Written:
            update = WritePayload.model_validate(data).product_variants_bulk_update
            return update.to_written(writes, self._printable)

        variables: dict[str, object] = {
            "productId": product_gid(product_id),
            "variants": [write_input(write) for write in writes],
        }
        return await self._call(WRITE, variables, read, writes=True)

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
        variables: Mapping[str, object],
        read: Callable[[JsonValue], Value],
        *,
        writes: bool = False,
        needs_costs: bool = True,
    ) -> CallResult[Value]:
        answer = await self._send({"query": query, "variables": variables})
        if isinstance(answer, CallFailure):
            return CallResult(failure=answer)
        envelope = envelope_of(answer.body)
        bucket = envelope.bucket if envelope else None
        if not 200 <= answer.status < 300:
            return CallResult(
                None, status_failure(answer, envelope, self._printable), bucket, answer.request_id
            )
        if envelope is None:
            return CallResult(
                None, _format_failure("it is no GraphQL", writes=writes), None, answer.request_id
            )
        failure = query_failure(answer, envelope, self._printable, writes=writes)
        if failure is not None and (needs_costs or not hides_only_costs(envelope)):
            return CallResult(None, failure, bucket, answer.request_id)
        try:
            return CallResult(read(envelope.data), None, bucket, answer.request_id)
        except ValidationError as error:
            where = ".".join(
                str(part) for part in error.errors(include_url=False, include_input=False)[0]["loc"]
            )
            problem = f"unexpected value at {where or 'data'}"
        except InvalidInputError:
            problem = "an amount or a page's end cannot be read"
        return CallResult(
            None, failure or _format_failure(problem, writes=writes), bucket, answer.request_id
        )

    async def _send(self, question: Mapping[str, object]) -> ShopAnswer | CallFailure:
        """Errors become values, because httpx's errors contain the headers with the token."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._post(question)
        except _NOT_SENT as error:
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

    async def _post(self, question: Mapping[str, object]) -> ShopAnswer:
        try:
            answer = await self._http.call(
                self._http.build_request("POST", self._url, json=question), MAX_BYTES
            )
        except BodyRefusedError:  # the shop has the request, but its answer is unusable
            return ShopAnswer(status=200, body=None, retry_after_seconds=None, request_id=None)
        request_id = answer.headers.get(REQUEST_ID, "")
        return ShopAnswer(
            status=answer.status,
            body=answer.body,
            retry_after_seconds=retry_after_seconds(answer.headers.get("Retry-After"), self._now()),
            request_id=self._printable(request_id)[:MAX_ID_LENGTH] or None,
        )

    def _printable(self, text: str) -> str:
        """One line without secrets. Unprintable characters go first, because they may split a secret."""
        line = "".join(sign for sign in " ".join(text.split()) if sign.isprintable())
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line[:MAX_MESSAGE_LENGTH]


def _format_failure(problem: str, *, writes: bool) -> CallFailure:
    """The effect of a write is then unknown; a query can be repeated."""
    signal = FailureSignal(lost=True) if writes else FailureSignal(code="INTERNAL_SERVER_ERROR")
    return classify_failure(signal, f"The shop's answer is not understood: {problem}.")
