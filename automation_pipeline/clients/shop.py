"""The client of Shopify's Admin API. It implements `pricing.ports.Shop`: each call is one GraphQL POST
and returns a value, whatever happens."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Annotated, TypeAlias, TypeVar

import httpx
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.alias_generators import to_camel

from automation_pipeline.clients.http import (
    MEGABYTE,
    REQUEST_ID,
    BodyRefusedError,
    HttpClient,
    LenientNumber,
    LenientText,
    Observation,
    usable_key,
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


def product_gid(product_id: str) -> str:
    return _PRODUCT + product_id


def variant_gid(variant_id: str) -> str:
    return _VARIANT + variant_id


def _digits_after(kind: str) -> Callable[[str], str]:
    def digits(gid: str) -> str:
        if not (gid.startswith(kind) and _DIGITS.fullmatch(gid.removeprefix(kind))):
            raise ValueError("it is no such id")
        return gid.removeprefix(kind)

    return digits


def _currency(text: str) -> str:
    if not is_currency(text):
        raise ValueError("it is no currency")
    return text


def _without_nul(text: str) -> str:
    return text.replace("\0", "")


def _filled(text: str | None) -> str | None:
    return (text or "").strip() or None


Text: TypeAlias = Annotated[str, AfterValidator(_without_nul)]
OptionalText: TypeAlias = Annotated[Text | None, AfterValidator(_filled)]
ProductId: TypeAlias = Annotated[str, AfterValidator(_digits_after(_PRODUCT))]
VariantId: TypeAlias = Annotated[str, AfterValidator(_digits_after(_VARIANT))]
Currency: TypeAlias = Annotated[str, AfterValidator(_currency)]


class ShopWire(BaseModel):
    """Types are strict; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, alias_generator=to_camel)


class ShopPayload(ShopWire):
    currency_code: Currency


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
    tags: list[Text] = []


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
        return Variant(
            variant_id=self.id,
            product_id=product.id,
            currency=currency,
            amount=_amount(self.price, currency),
            compare_at=_amount(self.compare_at_price, currency),
            cost=self._cost(currency),
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

    def _cost(self, currency: str) -> int | None:
        """None if the cost is in another currency."""
        cost = self.inventory_item.unit_cost if self.inventory_item else None
        return _amount(cost.amount, currency) if cost and cost.currency_code == currency else None


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
            raise InvalidInputError("The page does not say where the next one begins.")
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
        raise InvalidInputError("An amount is out of all reason.")
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

Printable: TypeAlias = Callable[[str], str]


@dataclass(frozen=True)
class ShopAnswer:
    """One answer of the shop. `body` is None if it is too large."""

    status: int
    body: bytes | None
    retry_after_seconds: float | None
    request_id: str | None


def _none_if_invalid(value: object, read: ValidatorFunctionWrapHandler) -> object:
    try:
        return read(value)
    except ValidationError:
        return None


class ThrottlePayload(ShopWire):
    maximum_available: LenientNumber = None
    currently_available: LenientNumber = None
    restore_rate: LenientNumber = None


class CostPayload(ShopWire):
    requested_query_cost: LenientNumber = None
    throttle_status: Annotated[ThrottlePayload | None, WrapValidator(_none_if_invalid)] = None

    def to_bucket(self) -> BucketStatus | None:
        """None for implausible numbers, by which no pace could be kept."""
        status = self.throttle_status
        if status is None or status.maximum_available is None or status.currently_available is None:
            return None
        maximum, available, rate = (
            status.maximum_available,
            status.currently_available,
            status.restore_rate or 0.0,
        )
        is_plausible = (
            0 < maximum <= MAX_POINTS
            and abs(available) <= MAX_POINTS
            and MIN_RESTORE_RATE <= rate <= MAX_POINTS
        )
        return BucketStatus(min(available, maximum), maximum, rate) if is_plausible else None


class ExtensionsPayload(ShopWire):
    cost: Annotated[CostPayload | None, WrapValidator(_none_if_invalid)] = None


class Envelope(ShopWire):
    """The GraphQL envelope. An invalid part does not invalidate the rest."""

    data: JsonValue = None
    errors: JsonValue = None
    extensions: Annotated[ExtensionsPayload | None, WrapValidator(_none_if_invalid)] = None

    @property
    def cost(self) -> CostPayload:
        return (self.extensions and self.extensions.cost) or CostPayload()

    @property
    def bucket(self) -> BucketStatus | None:
        return self.cost.to_bucket()

    @property
    def wait_seconds(self) -> float | None:
        """The seconds until the bucket contains the cost of the query."""
        bucket, requested = self.bucket, self.cost.requested_query_cost
        if bucket is None or requested is None:
            return None
        return throttle_seconds(requested, bucket.available, bucket.restore_rate)


class _CodePayload(ShopWire):
    code: LenientText = None


class ErrorPayload(ShopWire):
    message: LenientText = None
    extensions: Annotated[_CodePayload | None, WrapValidator(_none_if_invalid)] = None
    path: Annotated[list[str | int] | None, WrapValidator(_none_if_invalid)] = None

    @property
    def code(self) -> str | None:
        return self.extensions.code if self.extensions else None

    @property
    def hides_a_cost(self) -> bool:
        return self.code == _DENIED and bool(self.path) and self.path[-1] in _COST_FIELDS


def envelope_of(body: bytes | None) -> Envelope | None:
    try:
        return Envelope.model_validate_json(body or b"")
    except ValidationError:
        return None


def status_failure(
    answer: ShopAnswer, envelope: Envelope | None, printable: Printable
) -> CallFailure:
    text = _error_text(envelope.errors, printable) if envelope else ""
    message = f"The shop answered {answer.status}{': ' if text else ''}{text}{_ADVICE.get(answer.status, '')}."
    return classify_failure(
        FailureSignal(status=answer.status), message, answer.retry_after_seconds
    )


def query_failure(
    answer: ShopAnswer, envelope: Envelope, printable: Printable, *, writes: bool
) -> CallFailure | None:
    """None if the answer contains no errors."""
    if not envelope.errors:
        return None
    codes = [error.code.upper() for error in _error_list(envelope.errors) if error.code]
    code = _THROTTLED if _THROTTLED in codes else next(iter(codes), None)
    signal = FailureSignal(code=code, lost=writes and _may_have_written(envelope, code))
    if code == _THROTTLED:
        wait = envelope.wait_seconds or answer.retry_after_seconds
        return classify_failure(signal, "The shop is busy: it holds us back for a while.", wait)
    text = _error_text(envelope.errors, printable)
    return classify_failure(
        signal, f"The shop answered with an error: {text or 'it says no more'}."
    )


def hides_only_costs(envelope: Envelope) -> bool:
    """Whether the shop denied only costs, which need a separate scope. The other fields are readable."""
    errors = _error_list(envelope.errors)
    is_all = isinstance(envelope.errors, list) and len(errors) == len(envelope.errors)
    return is_all and all(error.hides_a_cost for error in errors)


def _may_have_written(envelope: Envelope, code: str | None) -> bool:
    """A query that the shop refuses before execution has no `data`, or null for its fields."""
    data = envelope.data
    if isinstance(data, dict) and any(value is not None for value in data.values()):
        return True
    return "data" in envelope.model_fields_set and code not in _NOTHING_DONE_CODES


def _error_list(errors: JsonValue) -> list[ErrorPayload]:
    """The entries that have Shopify's usual format."""
    found: list[ErrorPayload] = []
    for error in errors if isinstance(errors, list) else []:
        try:
            found.append(ErrorPayload.model_validate(error))
        except ValidationError:
            continue
    return found


def _error_text(errors: JsonValue, printable: Printable) -> str:
    return printable("; ".join(_texts(errors)[:_MAX_TEXTS])).rstrip(".")


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
        messages = [error.message for error in _error_list(errors) if error.message]
        return messages or _plain_texts(errors)
    return []


def _plain_texts(value: JsonValue) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]


_INDEX = re.compile(r"[0-9]{1,4}")
_NO_RESULT = classify_failure(
    FailureSignal(lost=True), "The shop does not say what became of this price."
)
_OTHER_PRICE = classify_failure(
    FailureSignal(lost=True), "The shop tells another price than the one that was written."
)


def write_input(write: PriceWrite) -> dict[str, object]:
    """An omitted compare-at price stays; null clears it."""
    amount, currency, compare_at = (
        write.price.unit_amount,
        write.price.currency,
        write.price.compare_at,
    )
    variant: dict[str, object] = {
        "id": variant_gid(write.variant_id),
        "price": format_amount(amount, currency),
    }
    if write.writes_compare_at:
        variant["compareAtPrice"] = (
            None if compare_at is None else format_amount(compare_at, currency)
        )
    return variant


def _variant_index(field: JsonValue) -> int | None:
    """The 3 of `["variants", "3", "price"]`: the index of the variant in the request."""
    path = (
        [str(step) for step in field if isinstance(step, str | int)]
        if isinstance(field, list)
        else []
    )
    steps = pairwise(path)
    indexes = (step for name, step in steps if name == "variants" and _INDEX.fullmatch(step))
    return next((int(index) for index in indexes), None)


class UserErrorPayload(ShopWire):
    field: Annotated[int | None, BeforeValidator(_variant_index)] = None
    message: LenientText = None
    code: LenientText = None

    def to_failure(self, printable: Callable[[str], str]) -> CallFailure:
        text = (
            ", ".join(printable(text) for text in (self.message, self.code) if text)
            or "it says no reason"
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
        listed = self._listed_prices({write.variant_id: write.price.currency for write in writes})
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

    def _listed_prices(self, currencies: Mapping[str, str]) -> dict[str, Price]:
        listed = ((each.id, each) for each in self.product_variants or [] if each.id in currencies)
        prices = {key: each.to_price(currencies[key]) for key, each in listed if key is not None}
        return {variant_id: price for variant_id, price in prices.items() if price is not None}


def _outcome(
    write: PriceWrite, result: Price | None, about_all: CallFailure | None
) -> Price | CallFailure:
    """A variant may also be listed with its former price."""
    if result and write.price.stands_as(result, with_compare_at=write.writes_compare_at):
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
