"""The client of Shopify's Admin API. It implements `pricing.models.shop.Shop`: each call is one GraphQL POST
and returns a value, whatever happens."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Annotated, TypeAlias, TypeVar, cast

import httpx
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import from_json

from automation_pipeline.clients.http import (
    MEGABYTE,
    REQUEST_ID,
    BodyRefusedError,
    HttpClient,
    LenientText,
    Observation,
    Payload,
    first_fault,
    number_or_none,
    text_or_none,
    usable_key,
    web_address,
)
from automation_pipeline.core.errors import InvalidInputError, PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.pricing.models.shop import (
    LARGEST_AMOUNT,
    BucketStatus,
    CallCosts,
    CallFailure,
    CallResult,
    CataloguePage,
    FailureSignal,
    Price,
    Prices,
    PriceWrite,
    Variant,
    Written,
    classify_failure,
    format_amount,
    is_currency,
    parse_amount,
)
from automation_pipeline.pricing.rules.runs import throttle_seconds

MAX_IN_STOCK = 10**12
MAX_CURSOR_LENGTH = 2000

_DIGITS = re.compile(r"[1-9][0-9]{0,19}")
_PRODUCT, _VARIANT = "gid://shopify/Product/", "gid://shopify/ProductVariant/"


def _id_of(kind: str) -> AfterValidator:
    """A validator that keeps the digits of a GraphQL id of this kind."""

    def digits(gid: str) -> str:
        if not (gid.startswith(kind) and _DIGITS.fullmatch(gid.removeprefix(kind))):
            raise ValueError("it is not an id of this kind")
        return gid.removeprefix(kind)

    return AfterValidator(digits)


Text: TypeAlias = Annotated[str, AfterValidator(lambda text: text.replace("\0", ""))]
OptionalText: TypeAlias = Annotated[
    Text | None, AfterValidator(lambda text: (text or "").strip() or None)
]
ProductId: TypeAlias = Annotated[str, _id_of(_PRODUCT)]
VariantId: TypeAlias = Annotated[str, _id_of(_VARIANT)]


class ShopWire(Payload):
    model_config = ConfigDict(alias_generator=to_camel)


class ShopPayload(ShopWire):
    currency_code: str

    @field_validator("currency_code")
    @classmethod
    def _require_currency(cls, text: str) -> str:
        if not is_currency(text):
            raise ValueError("it is not a currency")
        return text


class WhoPayload(ShopWire):
    shop: ShopPayload


class PageInfoPayload(ShopWire):
    has_next_page: bool
    end_cursor: Annotated[str, Field(max_length=MAX_CURSOR_LENGTH)] | None = None


class MoneyPayload(ShopWire):
    amount: str
    currency_code: str


class InventoryItemPayload(ShopWire):
    unit_cost: MoneyPayload | None = None


class ProductPayload(ShopWire):
    id: ProductId
    status: str
    title: OptionalText = None
    handle: OptionalText = None
    vendor: OptionalText = None
    product_type: OptionalText = None
    tags: list[Text] = Field(default=[])


class _PriceTag(ShopWire):
    price: str | None = None
    compare_at_price: str | None = None

    def to_price(self, currency: str) -> Price | None:
        amount = _amount(self.price, currency)
        return (
            None
            if amount is None
            else Price(amount, currency, _amount(self.compare_at_price, currency))
        )


class PricedPayload(_PriceTag):
    """Has no id if the node is not a variant."""

    id: VariantId | None = None


class VariantPayload(_PriceTag):
    id: VariantId
    product: ProductPayload
    sku: OptionalText = None
    barcode: OptionalText = None
    title: OptionalText = None
    inventory_quantity: Annotated[int, Field(ge=-MAX_IN_STOCK, le=MAX_IN_STOCK)] | None = None
    inventory_item: InventoryItemPayload | None = None

    def to_variant(self, currency: str) -> Variant:
        product = self.product
        cost = self.inventory_item.unit_cost if self.inventory_item else None
        is_known = cost is not None and cost.currency_code == currency
        return Variant(
            variant_id=self.id,
            product_id=product.id,
            currency=currency,
            amount=_amount(self.price, currency),
            compare_at=_amount(self.compare_at_price, currency),
            cost=_amount(cost.amount, currency) if cost and is_known else None,
            sku=self.sku,
            barcode=self.barcode,
            variant_title=self.title,
            title=product.title,
            handle=product.handle,
            vendor=product.vendor,
            product_type=product.product_type,
            tags=tuple(product.tags),
            inventory=self.inventory_quantity,
            is_active=product.status == "ACTIVE",
        )


class VariantsPayload(ShopWire):
    page_info: PageInfoPayload
    nodes: list[VariantPayload]


class CataloguePayload(ShopWire):
    shop: ShopPayload
    product_variants: VariantsPayload

    def to_page(self, asked_after: str | None) -> CataloguePage:
        variants = tuple(
            node.to_variant(self.shop.currency_code) for node in self.product_variants.nodes
        )
        info = self.product_variants.page_info
        if info.has_next_page and info.end_cursor in {None, "", asked_after}:
            raise InvalidInputError("The page has no cursor for the next one.")
        return CataloguePage(variants, info.end_cursor if info.has_next_page else None)


class PricesPayload(ShopWire):
    shop: ShopPayload
    nodes: list[PricedPayload | None]

    def to_prices(self, variant_ids: Sequence[str]) -> Mapping[str, Price]:
        requested, currency = set(variant_ids), self.shop.currency_code
        prices = {
            node.id: node.to_price(currency)
            for node in self.nodes
            if node and node.id in requested and node.id
        }
        return {variant_id: price for variant_id, price in prices.items() if price is not None}


def _amount(text: str | None, currency: str) -> int | None:
    if text is None:
        return None
    amount = parse_amount(text, currency)
    if not 0 <= amount <= LARGEST_AMOUNT:
        raise InvalidInputError("An amount is out of range.")
    return amount


MAX_MESSAGE_LENGTH = 300
MAX_ID_LENGTH = 200
MAX_POINTS = 1e9
MIN_RESTORE_RATE = 0.01

_MAX_TEXTS = 3
_THROTTLED, _DENIED = "THROTTLED", "ACCESS_DENIED"
# With these codes the shop rejected the query before it did anything.
_NOTHING_DONE_CODES = frozenset({_THROTTLED, _DENIED, "SHOP_INACTIVE", "MAX_COST_EXCEEDED"})
_COST_FIELDS = frozenset({"inventoryItem", "unitCost"})
_ADVICE = {
    401: " (check SHOP_API_TOKEN)",
    403: " (check the scopes of SHOP_API_TOKEN)",
    404: " (check SHOP_API_BASE_URL and SHOP_API_VERSION)",
}


@dataclass(frozen=True)
class ShopAnswer:
    """One answer of the shop. `document` is None if the body is not a JSON object or was not read;
    `problem` is the reason."""

    status: int
    document: dict[str, JsonValue] | None = None
    retry_after_seconds: float | None = None
    request_id: str | None = None
    problem: str = "it is not GraphQL"

    @property
    def errors(self) -> JsonValue:
        return _nested_value(self.document, "errors")

    @property
    def bucket(self) -> BucketStatus | None:
        """None if the numbers are missing or implausible."""
        status = _nested_value(self.document, "extensions", "cost", "throttleStatus")
        maximum = number_or_none(_nested_value(status, "maximumAvailable")) or 0.0
        available = number_or_none(_nested_value(status, "currentlyAvailable"))
        rate = number_or_none(_nested_value(status, "restoreRate")) or 0.0
        if available is None:
            return None
        is_plausible = (
            0 < maximum <= MAX_POINTS
            and abs(available) <= MAX_POINTS
            and MIN_RESTORE_RATE <= rate <= MAX_POINTS
        )
        return BucketStatus(min(available, maximum), maximum, rate) if is_plausible else None

    @property
    def wait_seconds(self) -> float | None:
        """The seconds until the bucket contains the cost of the query, or those that the shop asked
        for."""
        cost = number_or_none(
            _nested_value(self.document, "extensions", "cost", "requestedQueryCost")
        )
        if self.bucket is None or cost is None:
            return self.retry_after_seconds
        wait = throttle_seconds(cost, self.bucket.available, self.bucket.restore_rate)
        return wait or self.retry_after_seconds

    @property
    def hides_only_costs(self) -> bool:
        """Whether the shop denied only costs, which need a separate scope. The other fields are
        readable."""
        errors = self.errors
        if not isinstance(errors, list) or not 200 <= self.status < 300:
            return False
        paths = [_nested_value(error, "path") for error in errors if _code_of(error) == _DENIED]
        hidden = [path for path in paths if isinstance(path, list) and path]
        return len(hidden) == len(errors) and all(path[-1] in _COST_FIELDS for path in hidden)

    def may_have_written(self, code: str | None) -> bool:
        """A query that the shop refuses before execution has no `data`, or null for its fields."""
        data = _nested_value(self.document, "data")
        if isinstance(data, dict) and any(value is not None for value in data.values()):
            return True
        return "data" in (self.document or {}) and code not in _NOTHING_DONE_CODES


def _nested_value(value: JsonValue, *names: str) -> JsonValue:
    """The value under these names, each inside the other; None if it is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _code_of(error: JsonValue) -> str | None:
    return text_or_none(_nested_value(error, "extensions", "code"))


def _texts(errors: JsonValue) -> list[str]:
    """Shopify uses `"text"`, `{"field": ["text"]}`, `["text"]` and `[{"message": "text"}]`."""
    if isinstance(errors, str):
        return [errors]
    if isinstance(errors, dict):
        return [
            ": ".join(filter(None, (field, ", ".join(_plain_texts(texts)))))
            for field, texts in errors.items()
        ]
    if isinstance(errors, list):
        messages = [text_or_none(_nested_value(error, "message")) for error in errors]
        return list(filter(None, messages)) or _plain_texts(errors)
    return []


def _plain_texts(value: JsonValue) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]


_INDEX = re.compile(r"[0-9]{1,4}")
_NO_RESULT = classify_failure(
    FailureSignal(lost=True), "The answer of the shop does not contain this price."
)
_OTHER_PRICE = classify_failure(
    FailureSignal(lost=True), "The shop shows another price than the one that was written."
)


def write_input(write: PriceWrite) -> dict[str, object]:
    """An omitted compare-at price stays; null clears it."""
    amount, currency, compare_at = (
        write.price.unit_amount,
        write.price.currency,
        write.price.compare_at,
    )
    variant: dict[str, object] = {
        "id": _VARIANT + write.variant_id,
        "price": format_amount(amount, currency),
    }
    if write.writes_compare_at:
        variant["compareAtPrice"] = (
            None if compare_at is None else format_amount(compare_at, currency)
        )
    return variant


def _variant_index(field: JsonValue) -> int | None:
    """The 3 of `["variants", "3", "price"]`: the index of the variant in the request."""
    path = [str(step) for step in field] if isinstance(field, list) else []
    indexes = (
        int(step) for name, step in pairwise(path) if name == "variants" and _INDEX.fullmatch(step)
    )
    return next(indexes, None)


class UserErrorPayload(ShopWire):
    field: Annotated[int | None, BeforeValidator(_variant_index)] = None
    message: LenientText = None
    code: LenientText = None

    def to_failure(self, printable: Callable[[str], str]) -> CallFailure:
        text = (
            ", ".join(printable(text) for text in (self.message, self.code) if text)
            or "it gives no reason"
        )
        return classify_failure(
            FailureSignal(user_error=True, code=self.code), f"The shop refuses the price: {text}."
        )


class UpdatePayload(ShopWire):
    product_variants: list[PricedPayload] | None = None
    user_errors: list[UserErrorPayload] | None = None

    def to_written(
        self, writes: Sequence[PriceWrite], printable: Callable[[str], str]
    ) -> dict[str, Price | CallFailure]:
        """An error about a variant outweighs its listed price. An error without a variant applies to
        all variants that are not listed with the requested price."""
        currencies = {write.variant_id: write.price.currency for write in writes}
        listed = {
            each.id: each.to_price(currencies[each.id])
            for each in self.product_variants or []
            if each.id in currencies
        }
        errors = self.user_errors or []
        general = next(
            (error for error in errors if error.field is None or error.field >= len(writes)), None
        )
        about_all = general.to_failure(printable) if general else None
        written = {
            write.variant_id: _outcome(write, listed.get(write.variant_id), about_all)
            for write in writes
        }
        for error in reversed(errors):
            if error.field is not None and error.field < len(writes):
                written[writes[error.field].variant_id] = error.to_failure(printable)
        return written


def _outcome(
    write: PriceWrite, result: Price | None, about_all: CallFailure | None
) -> Price | CallFailure:
    """A variant may also be listed with its former price."""
    if result and write.price.equals(result, with_compare_at=write.writes_compare_at):
        return result
    return about_all or (_OTHER_PRICE if result else _NO_RESULT)


class WritePayload(ShopWire):
    product_variants_bulk_update: UpdatePayload


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
    url = web_address(base_url, "The shop's address is not one of the web (set SHOP_API_BASE_URL)")
    path = f"{url.path.rstrip('/')}/admin/api/{version}/graphql.json"
    return url.copy_with(path=path, query=None, fragment=None)


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
        variables = {"ids": [_VARIANT + variant_id for variant_id in variant_ids]}
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
            "productId": _PRODUCT + product_id,
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
        failure = self._failure(answer, writes=writes)
        if failure is None or (not needs_costs and answer.hides_only_costs):
            try:
                value = read(_nested_value(answer.document, "data"))
                return CallResult(value, None, answer.bucket, answer.request_id)
            except ValidationError as error:
                problem = f"unexpected value at {first_fault(error, whole='data')}"
            except InvalidInputError:
                problem = "an amount or a page's end cannot be read"
            failure = failure or _format_failure(problem, writes=writes)
        return CallResult(None, failure, answer.bucket, answer.request_id)

    def _failure(self, answer: ShopAnswer, *, writes: bool) -> CallFailure | None:
        """None if the answer contains no errors."""
        errors = answer.errors
        text = self._printable("; ".join(_texts(errors)[:_MAX_TEXTS])).rstrip(".")
        if not 200 <= answer.status < 300:
            reason = f": {text}" if text else ""
            message = f"The shop answered {answer.status}{reason}{_ADVICE.get(answer.status, '')}."
            signal = FailureSignal(status=answer.status)
            return classify_failure(signal, message, answer.retry_after_seconds)
        if answer.document is None:
            return _format_failure(answer.problem, writes=writes)
        if not errors:
            return None
        found = map(_code_of, errors if isinstance(errors, list) else [])
        codes = [code.upper() for code in found if code]
        code = _THROTTLED if _THROTTLED in codes else next(iter(codes), None)
        signal = FailureSignal(code=code, lost=writes and answer.may_have_written(code))
        if code == _THROTTLED:
            busy = "The shop is busy and delays further calls."
            return classify_failure(signal, busy, answer.wait_seconds)
        return classify_failure(
            signal, f"The shop answered with an error: {text or 'it gives no reason'}."
        )

    async def _send(self, question: Mapping[str, object]) -> ShopAnswer | CallFailure:
        """Errors become values, because httpx's errors contain the headers with the token."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                request = self._http.build_request("POST", self._url, json=question)
                answer = await self._http.call(request, MAX_BYTES)
        except BodyRefusedError as error:  # the shop has received the request
            return ShopAnswer(status=200, problem=str(error))
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

        try:
            document = cast("object", from_json(answer.body))
        except ValueError:
            document = None
        return ShopAnswer(
            answer.status,
            cast("dict[str, JsonValue]", document) if isinstance(document, dict) else None,
            retry_after_seconds(answer.headers.get("Retry-After"), self._now()),
            self._printable(answer.headers.get(REQUEST_ID, ""))[:MAX_ID_LENGTH] or None,
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
