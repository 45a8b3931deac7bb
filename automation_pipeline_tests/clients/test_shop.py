"""The Shopify client: requests, calls without a response, limits and the check."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from automation_pipeline.clients import shop
from automation_pipeline.clients.shop import CATALOGUE, PRICES, WHO, WRITE
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.logs import correlated
from automation_pipeline.core.metrics import Meter
from automation_pipeline.pricing.models.shop import CallFailure
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.mock_answers import failing_answer, json_answer, with_client
from automation_pipeline_tests.clients.shopify_client import (
    PATH,
    TOKEN,
    catalogue,
    client,
    failing,
    node,
    page,
    price_document,
    priced,
    prices,
    updated,
    write,
)

ASKING = (
    (page, catalogue(), CATALOGUE, {"first": 250, "after": None}),
    (prices, price_document(), PRICES, {"ids": ["gid://shopify/ProductVariant/1"]}),
    (write, updated(), WRITE, None),
)


@every_case(("ask", "document", "query", "variables"), ASKING, ids=["page", "prices", "write"])
def test_every_call_is_one_graphql_post(
    ask: Any, document: object, query: str, variables: object
) -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=document)

    with correlated("request-7"):
        assert ask(answer).failure is None
        assert ask(answer, timeout_seconds=6.0).failure is None
    request, shorter = requests
    assert (request.method, str(request.url)) == ("POST", f"https://shop.test{PATH}")
    assert request.headers["X-Request-Id"] == "request-7"
    assert request.headers["Accept"] == "application/json"
    assert request.extensions["timeout"] == {"connect": 10, "read": 30, "write": 30, "pool": None}
    assert shorter.extensions["timeout"] == {"connect": 3, "read": 6, "write": 6, "pool": None}
    assert request.headers["X-Shopify-Access-Token"] == TOKEN
    assert request.headers["Content-Type"] == "application/json"
    sent = json.loads(request.content)
    assert sent["query"] == query
    assert variables is None or sent["variables"] == variables


def test_a_catalogue_cursor_is_passed_unchanged() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["variables"]["after"] == 'ab"c=='
        return httpx.Response(200, json=catalogue(node()))

    assert len(page(answer, 'ab"c==').value.variants) == 1


def test_call_costs_are_below_the_maximum_query_cost() -> None:
    costs = client(json_answer({})).costs
    assert (costs.page, costs.prices, costs.each_price, costs.write) == (753, 1, 1, 10)


def verdict(failure: CallFailure) -> tuple[str, bool, bool]:
    return failure.kind.value, failure.retryable, failure.outcome_unknown


NEVER_SENT = ("network", True, False)
OUTCOME_UNKNOWN = ("network", True, True)


@every_case(
    ("error", "expected", "message"),
    [
        (
            httpx.ConnectError("x"),
            NEVER_SENT,
            "could not be reached (ConnectError; check SHOP_API_BASE_URL)",
        ),
        (
            httpx.ConnectTimeout("x"),
            NEVER_SENT,
            "could not be reached (ConnectTimeout; check SHOP_API_BASE_URL)",
        ),
        (httpx.PoolTimeout("x"), NEVER_SENT, "could not be reached"),
        (httpx.ProxyError("x"), NEVER_SENT, "could not be reached"),
        (
            UnicodeError("label too long"),
            ("network", False, False),
            "cannot be looked up (check SHOP_API_BASE_URL)",
        ),
        (httpx.ReadTimeout("x"), OUTCOME_UNKNOWN, "did not answer in time"),
        (httpx.WriteTimeout("x"), OUTCOME_UNKNOWN, "did not answer in time"),
        (httpx.ReadError(TOKEN), OUTCOME_UNKNOWN, "broke (ReadError)"),
        (httpx.WriteError("x"), OUTCOME_UNKNOWN, "broke (WriteError)"),
        (httpx.RemoteProtocolError(PATH), OUTCOME_UNKNOWN, "broke (RemoteProtocolError)"),
    ],
)
@every_case("ask", [page, prices, write])
def test_a_call_without_a_response_reports_whether_its_outcome_is_unknown(
    error: Exception, expected: tuple[str, bool, bool], message: str, ask: Any
) -> None:
    called = ask(failing_answer(error))
    assert (called.value, verdict(called.failure), called.bucket, called.request_id) == (
        None,
        expected,
        None,
        None,
    )
    assert message in called.failure.message
    assert TOKEN not in called.failure.message
    assert PATH not in called.failure.message


class Endless(httpx.AsyncByteStream):
    """An endless body. `read` counts the bytes read."""

    def __init__(self, piece: bytes = b" " * 100_000, pause: float = 0.0) -> None:
        self._piece, self._pause, self.read = piece, pause, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(self._pause)
            self.read += len(self._piece)
            yield self._piece


@every_case(
    ("status", "ask", "expected"),
    [
        (200, page, ("server", True, True)),
        (200, write, OUTCOME_UNKNOWN),
        (401, write, ("authentication", False, False)),
    ],
)
def test_reading_an_endless_response_stops_at_the_maximum_size(
    status: int, ask: Any, expected: tuple[str, bool, bool]
) -> None:
    stream = Endless()
    assert verdict(ask(lambda _: httpx.Response(status, stream=stream)).failure) == expected
    assert stream.read <= shop.MAX_BYTES + 100_000


def test_a_slow_response_times_out() -> None:
    stream = Endless(b" ", pause=0.01)
    failure = write(lambda _: httpx.Response(200, stream=stream), timeout_seconds=0.2).failure
    assert (verdict(failure), failure.message) == (
        OUTCOME_UNKNOWN,
        "The shop did not answer in time.",
    )


@every_case(("ask", "expected"), [(page, ("server", True, True)), (write, OUTCOME_UNKNOWN)])
@every_case("body", [b"", b"null", b"[]", b"7", b"<html>Welcome</html>", b'{"data": {"sh'])
def test_a_body_that_is_not_graphql_is_a_failure(
    ask: Any, expected: tuple[str, bool, bool], body: bytes
) -> None:
    failure = ask(lambda _: httpx.Response(200, content=body)).failure
    assert verdict(failure) == expected
    assert failure.message == "The shop's answer is not understood: it is not GraphQL."


@every_case(("ask", "expected"), [(page, ("server", True, True)), (write, OUTCOME_UNKNOWN)])
@every_case(
    ("headers", "problem"),
    [
        ({"Content-Encoding": "gzip, gzip"}, "it is compressed (gzip, gzip)"),
        ({"Content-Length": "8000001"}, "it is larger than 8 MB"),
    ],
)
def test_an_unread_response_is_a_failure_with_its_reason(
    ask: Any, expected: tuple[str, bool, bool], headers: dict[str, str], problem: str
) -> None:
    failure = ask(lambda _: httpx.Response(200, headers=headers, stream=Endless())).failure
    assert (verdict(failure), failure.message) == (
        expected,
        f"The shop's answer is not understood: {problem}.",
    )


def test_every_call_is_counted() -> None:
    meter = Meter()
    page(json_answer(catalogue()), meter=meter)
    write(json_answer({}, 429), meter=meter)
    counted = meter.drain()
    assert counted["provider_calls_total", 'provider="shop",status="200"'] == 1
    assert counted["provider_calls_total", 'provider="shop",status="429"'] == 1


@every_case("token", [None, "", "  ", "tökén", "a\nb"])
def test_a_missing_or_unsendable_token_is_refused(token: str | None) -> None:
    with pytest.raises(PermanentError, match="SHOP_API_TOKEN"):
        client(json_answer({}), token=token)


@every_case(
    "address",
    [
        "",
        "shop.test",
        "ftp://shop.test",
        "http://",
        "http://h:port/",
        "http://h:99999",
        "http://h:0",
        "http://\n",
    ],
)
def test_a_base_url_that_is_not_http_is_refused_at_construction(address: str) -> None:
    with pytest.raises(PermanentError, match="SHOP_API_BASE_URL"):
        client(json_answer({}), base_url=address)


@every_case(
    ("base_url", "address"),
    [
        ("https://shop.test", "https://shop.test/admin/api/2026-10/graphql.json"),
        (" https://shop.test:8443/ ", "https://shop.test:8443/admin/api/2026-10/graphql.json"),
        ("http://127.0.0.1:1/sim/?a=1#b", "http://127.0.0.1:1/sim/admin/api/2026-10/graphql.json"),
    ],
)
def test_the_graphql_path_is_appended_to_the_base_url(base_url: str, address: str) -> None:
    assert str(shop.graphql_address(base_url, "2026-10")) == address


def test_the_check_succeeds_when_the_shop_answers() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["query"] == WHO
        return httpx.Response(200, json={"data": {"shop": {"currencyCode": "EUR"}}})

    with_client(client(answer), lambda opened: opened.check())


@every_case(
    ("answer", "kind", "message"),
    [
        (
            json_answer({"errors": "[API] Invalid API key"}, 401),
            PermanentError,
            "Invalid API key (check SHOP_API_TOKEN)",
        ),
        (json_answer({}, 404), PermanentError, "SHOP_API_BASE_URL"),
        (json_answer({}, 503, Retry_After="7"), TransientError, "answered 503"),
        (json_answer(failing("Throttled", "THROTTLED")), TransientError, "is busy"),
        (json_answer(failing("no", "ACCESS_DENIED")), PermanentError, "no"),
        (json_answer({"data": {"shop": None}}), TransientError, "not understood"),
        (failing_answer(httpx.ConnectError("x")), TransientError, "could not be reached"),
    ],
)
def test_a_failed_shop_check_names_the_problem(
    answer: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        with_client(client(answer), lambda opened: opened.check())
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")
    assert type(caught.value) is kind


def test_a_cancelled_call_does_not_block_closing_the_shop() -> None:
    async def leave() -> None:
        waiting = asyncio.Event()

        async def answer(_: httpx.Request) -> httpx.Response:
            waiting.set()
            await asyncio.Event().wait()
            raise AssertionError

        opened = client(answer)
        call = asyncio.create_task(opened.prices(["1"]))
        await waiting.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await opened.aclose()

    asyncio.run(leave())


def test_prices_of_many_variants_take_one_call() -> None:
    ids = [str(number) for number in range(1, 251)]
    answered = price_document(*(priced(int(each)) for each in ids))
    assert len(prices(json_answer(answered), *ids).value) == 250
