"""Each call of a provider is counted by its answer, told without its secrets, and knows whose it is."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from automation_pipeline.clients.observed import Observation, ObservedClient
from automation_pipeline.core.correlation import correlated
from automation_pipeline.core.meter import Meter

URL = "https://anna:hush@crm.test/api/fiches?token=hush"
Ask = Callable[[ObservedClient], Awaitable[httpx.Response]]


def get(http: ObservedClient) -> Awaitable[httpx.Response]:
    return http.get(URL)


def ask(answer: Callable[[httpx.Request], httpx.Response], how: Ask = get, *, tells_id: bool = True) -> Meter:
    meter = Meter()

    async def go() -> None:
        transport = httpx.MockTransport(answer)
        async with ObservedClient(Observation("crm", meter, tells_id=tells_id), transport=transport) as http:
            await how(http)

    asyncio.run(go())
    return meter


def calls(meter: Meter) -> dict[str, float]:
    return {labels: amount for (name, labels), amount in meter.drain().items() if name == "provider_calls_total"}


@pytest.mark.parametrize("status", [200, 302, 404, 503])
def test_an_answer_is_counted_by_its_status(status: int) -> None:
    meter = ask(lambda _: httpx.Response(status))
    drained = meter.drain()
    assert drained["provider_calls_total", f'provider="crm",status="{status}"'] == 1
    assert drained["provider_call_seconds_total", 'provider="crm"'] > 0


async def streamed(http: ObservedClient) -> httpx.Response:
    async with http.stream("POST", URL, content=b"{}") as answer:
        await answer.aread()
        return answer


def test_a_streamed_call_is_one_too() -> None:
    assert calls(ask(lambda _: httpx.Response(200), streamed)) == {'provider="crm",status="200"': 1}


def test_a_call_that_breaks_off_is_counted_by_what_happened_and_raises_as_before() -> None:
    def breaks(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("late")

    meter = Meter()

    async def go() -> None:
        http = ObservedClient(Observation("crm", meter), transport=httpx.MockTransport(breaks))
        with pytest.raises(httpx.ConnectTimeout):
            await http.get(URL)

    asyncio.run(go())
    assert calls(meter) == {'provider="crm",status="ConnectTimeout"': 1}


def test_a_call_that_is_given_up_is_counted_as_cancelled() -> None:
    meter = Meter()

    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(3600)
        raise AssertionError("waited to the end")

    async def go() -> None:
        http = ObservedClient(Observation("crm", meter), transport=httpx.MockTransport(never))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await http.get(URL)

    asyncio.run(go())
    assert calls(meter) == {'provider="crm",status="cancelled"': 1}


@pytest.mark.parametrize(("tells_id", "told"), [(True, "wish-7"), (False, None)])
def test_only_providers_of_ours_are_told_whose_call_it_is(tells_id: bool, told: str | None) -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("X-Request-Id"))
        return httpx.Response(200)

    with correlated("wish-7"):
        ask(answer, tells_id=tells_id)
    ask(answer, tells_id=tells_id)
    assert seen == [told, None]


@pytest.mark.parametrize("tells_id", [True, False])
def test_a_line_a_call_without_query_and_credentials(tells_id: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "automation_pipeline"):
        ask(lambda _: httpx.Response(200), tells_id=tells_id)
    [line] = [record for record in caplog.records if record.name.endswith("observed")]
    fields = line.__dict__["fields"]
    path = {"path": "/api/fiches"} if tells_id else {}
    assert fields == {
        "provider": "crm", "method": "GET", "host": "crm.test", **path, "status": "200", "seconds": fields["seconds"],
    }  # fmt: skip
    assert "hush" not in f"{line.getMessage()} {fields}"


def of(transport: httpx.AsyncBaseTransport) -> ObservedClient:
    return ObservedClient(Observation("crm", Meter()), transport=transport)


@pytest.mark.parametrize("status", [302, 303, 307])
@pytest.mark.parametrize("place", ["/elsewhere", "https://elsewhere.test/1"])
def test_a_redirect_is_not_followed_and_knows_the_next_call_as_httpx_makes_it(status: int, place: str) -> None:
    asked: list[str] = []

    def moved(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(status, headers={"Location": place})

    async def next_call(http: httpx.AsyncClient) -> tuple[str, str, httpx.Headers, bytes]:
        answer = await http.post("https://crm.test/", json={"fiche": 1}, headers={"Authorization": "hush"})
        assert answer.status_code == status
        following = answer.next_request
        assert following is not None
        return following.method, str(following.url), following.headers, await following.aread()

    async def go() -> None:
        async with of(httpx.MockTransport(moved)) as ours, httpx.AsyncClient(transport=ours._transport) as theirs:
            theirs.headers = ours.headers
            assert await next_call(ours) == await next_call(theirs)

    asyncio.run(go())
    assert asked == ["https://crm.test/"] * 2


def test_the_user_and_password_of_an_address_are_sent() -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        return httpx.Response(200)

    ask(answer)
    assert seen == [httpx.BasicAuth("anna", "hush")._auth_header]


class Broken(httpx.AsyncByteStream):
    """A body that breaks off."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"the beginning"
        raise self.error

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("how", [lambda http: http.get("https://crm.test/1"), streamed])
def test_a_body_that_breaks_off_closes_the_answer_and_the_error_knows_its_request(how: Ask) -> None:
    body = Broken(httpx.ReadError("gone"))

    async def go() -> None:
        async with of(httpx.MockTransport(lambda _: httpx.Response(200, stream=body))) as http:
            with pytest.raises(httpx.ReadError) as met:
                await how(http)
            assert met.value.request.url.host == "crm.test"

    asyncio.run(go())
    assert body.is_closed


def test_a_body_whose_reader_is_cancelled_closes_the_answer() -> None:
    body = Broken(asyncio.CancelledError())

    async def go() -> None:
        async with of(httpx.MockTransport(lambda _: httpx.Response(200, stream=body))) as http:
            with pytest.raises(asyncio.CancelledError):
                await http.get("https://crm.test/1")

    asyncio.run(go())
    assert body.is_closed


def test_a_redirect_to_what_is_no_address_closes_the_answer() -> None:
    body = Broken(httpx.ReadError("gone"))

    def moved(_: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"Location": "https://[::1"}, stream=body)

    async def go() -> None:
        async with of(httpx.MockTransport(moved)) as http:
            with pytest.raises(httpx.RemoteProtocolError):
                await http.get("https://crm.test/1")

    asyncio.run(go())
    assert body.is_closed
