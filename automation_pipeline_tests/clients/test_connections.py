"""Kept connections on a real server: how many there are, who gets one, what becomes of those that are left or dead."""

import asyncio
import gc
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterator

import httpx
import pytest

from automation_pipeline.clients import connections
from automation_pipeline.clients.connections import Connections, certificates
from automation_pipeline.clients.http11 import Connection
from automation_pipeline.clients.observed import Observation, ObservedClient
from automation_pipeline.core.meter import Meter
from automation_pipeline_tests.clients.switchboard import Switchboard, answering
from automation_pipeline_tests.waiting import come_true

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
Call = Callable[[httpx.AsyncClient, str], Awaitable[object]]


@pytest.fixture(autouse=True)
def straight(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ssl.SSLContext]]:
    """The certificates that are loaded in this test."""
    made: list[ssl.SSLContext] = []

    def load() -> ssl.SSLContext:
        made.append(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        return made[-1]

    monkeypatch.setattr(httpx, "create_ssl_context", load)
    certificates.cache_clear()
    yield made
    certificates.cache_clear()


def meet(talk: Callable[[Switchboard, httpx.AsyncClient], Coroutine[object, object, None]], most: int = 1) -> None:
    async def go() -> None:
        async with answering() as board, httpx.AsyncClient(transport=Connections(most)) as http:
            await talk(board, http)

    asyncio.run(go())


def test_a_connection_is_used_again() -> None:
    async def talk(board: Switchboard, http: httpx.AsyncClient) -> None:
        for _ in range(3):
            assert (await http.get(board.url)).text == "ok"
        assert board.lines == 1

    meet(talk, most=5)


def test_at_most_so_many_are_open_and_the_line_is_in_order() -> None:
    async def talk(board: Switchboard, http: httpx.AsyncClient) -> None:
        async with asyncio.TaskGroup() as calls:
            held = [calls.create_task(http.get(f"{board.url}/held")) for _ in range(2)]
            await come_true(lambda: len(board.asked) == 2)
            rest = [calls.create_task(http.get(f"{board.url}/{at}")) for at in range(10)]
            await asyncio.sleep(0)
            board.held.set()
        assert all(call.result().text == "ok" for call in held + rest)
        assert board.asked[2:] == [f"/{at}" for at in range(10)]
        assert (board.lines, board.most) == (2, 2)

    meet(talk, most=2)


async def dropped(http: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError) as met:
        await http.get(f"{url}/drop")
    assert met.value.request.url == f"{url}/drop"


async def cut_short(http: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await http.get(f"{url}/cut")


async def late(http: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await http.get(f"{url}/held", timeout=0.05)


async def not_there(http: httpx.AsyncClient, _: str) -> None:
    with pytest.raises(httpx.ConnectError):
        await http.get("http://127.0.0.1:1/")


async def cancelled(http: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await http.get(f"{url}/held")


async def cancelled_in_the_body(http: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await http.get(f"{url}/endless")


async def cancelled_in_line(http: httpx.AsyncClient, url: str) -> None:
    async with http.stream("GET", f"{url}/endless"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await http.get(url)


async def cancelled_when_its_turn_comes(http: httpx.AsyncClient, url: str) -> None:
    async with http.stream("GET", f"{url}/endless"):
        waiting = asyncio.create_task(http.get(url))
        await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()


async def impatient_in_line(http: httpx.AsyncClient, url: str) -> None:
    async with http.stream("GET", f"{url}/endless"):
        with pytest.raises(httpx.PoolTimeout):
            await http.get(url, timeout=httpx.Timeout(60, pool=0.05))


async def unread(http: httpx.AsyncClient, url: str) -> None:
    async with http.stream("GET", f"{url}/endless"):
        pass


async def half_read(http: httpx.AsyncClient, url: str) -> None:
    async with http.stream("GET", f"{url}/endless") as answer:
        async for _ in answer.aiter_bytes():
            break


async def forgotten(http: httpx.AsyncClient, url: str) -> None:
    answer = await http.send(http.build_request("GET", f"{url}/endless"), stream=True)
    async for _ in answer.aiter_bytes():
        break
    del answer
    gc.collect()


async def closed_twice(http: httpx.AsyncClient, url: str) -> None:
    answer = await http.send(http.build_request("GET", url), stream=True)
    await answer.stream.aclose()
    await answer.stream.aclose()


async def no_web_address(http: httpx.AsyncClient, _: str) -> None:
    for address in ("ftp://records.test/1", "http://"):
        with pytest.raises(httpx.UnsupportedProtocol):
            await http.get(address)


ENDINGS = [
    dropped, cut_short, late, not_there, cancelled, cancelled_in_the_body, cancelled_in_line, impatient_in_line,
    cancelled_when_its_turn_comes, unread, half_read, forgotten, closed_twice, no_web_address,
]  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_connection_is_given_back_however_a_call_ends(ending: Call) -> None:
    async def talk(board: Switchboard, http: httpx.AsyncClient) -> None:
        for _ in range(2):
            await ending(http, board.url)
            async with asyncio.timeout(60):
                assert (await http.get(board.url)).text == "ok"
        # Had it been given back twice, two calls would be made at a time.
        lines = board.lines
        async with asyncio.TaskGroup() as calls:
            for _ in range(3):
                calls.create_task(http.get(board.url))
        assert board.lines == lines

    meet(talk)


def test_one_that_the_server_has_ended_meanwhile_is_replaced() -> None:
    async def talk(board: Switchboard, http: httpx.AsyncClient) -> None:
        for _ in range(3):
            assert (await http.get(f"{board.url}/bye")).text == "ok"
            await come_true(lambda: board.opened == 0)
            await asyncio.sleep(0.01)
        assert board.lines == 3

    meet(talk)


async def five_at_once(board: Switchboard, http: httpx.AsyncClient) -> None:
    async with asyncio.TaskGroup() as calls:
        for _ in range(5):
            calls.create_task(http.get(f"{board.url}/held"))
        await come_true(lambda: len(board.asked) == 5)
        board.held.set()
    assert board.opened == 5


def test_those_that_are_not_needed_grow_old_and_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEPT_SECONDS", 0.3)

    async def talk(board: Switchboard, http: httpx.AsyncClient) -> None:
        await five_at_once(board, http)

        async def one_is_left() -> None:
            while board.opened > 1:
                await http.get(board.url)
                await asyncio.sleep(0.01)

        await asyncio.wait_for(one_is_left(), 60)
        assert board.lines == 5

    meet(talk, most=5)


def test_one_that_is_too_old_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEPT_SECONDS", 0.0)

    async def talk(board: Switchboard, http: httpx.AsyncClient) -> None:
        await http.get(board.url)
        await http.get(board.url)
        assert board.lines == 2
        await come_true(lambda: board.opened == 1)

    meet(talk, most=5)


def test_a_call_looks_at_one_connection_however_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: set[Connection] = set()
    really = Connection.can_be_used.fget
    assert really is not None

    def noted(connection: Connection) -> bool:
        looked_at.add(connection)
        return really(connection)

    monkeypatch.setattr(Connection, "can_be_used", property(noted))

    async def talk(board: Switchboard, http: httpx.AsyncClient) -> None:
        await five_at_once(board, http)
        looked_at.clear()
        await http.get(board.url)
        assert len(looked_at) == 1

    meet(talk, most=5)


def test_another_place_gets_the_room_of_one_that_is_idle() -> None:
    async def go() -> None:
        async with answering() as here, answering() as there, httpx.AsyncClient(transport=Connections(2)) as http:
            for url in (here.url, there.url, here.url, there.url):
                await http.get(url)
            assert (here.lines, there.lines) == (1, 1)
            async with http.stream("GET", f"{here.url}/endless"):
                await http.get(there.url)
                async with http.stream("GET", f"{here.url}/endless"):
                    await come_true(lambda: there.opened == 0)
                    assert here.opened == 2

    asyncio.run(go())


def test_two_names_at_one_address_share_no_connection() -> None:
    async def talk(board: Switchboard, http: httpx.AsyncClient) -> None:
        for name in ("a.example.com", "b.example.com", "a.example.com", None):
            await http.get(board.url, extensions={"sni_hostname": name} if name else {})
        assert board.lines == 3

    meet(talk, most=5)


def test_closing_ends_all_of_them() -> None:
    async def talk(board: Switchboard, http: httpx.AsyncClient) -> None:
        await five_at_once(board, http)
        answer = await http.send(http.build_request("GET", f"{board.url}/endless"), stream=True)
        await http.aclose()
        await come_true(lambda: board.opened == 0)
        await answer.aclose()
        assert board.lines == 5

    meet(talk, most=5)


def test_certificates_are_loaded_for_the_first_https_and_no_second_time(loaded: list[ssl.SSLContext]) -> None:
    async def talk(board: Switchboard) -> None:
        for _ in range(2):
            async with ObservedClient(Observation("crm", Meter())) as http:
                await http.get(board.url)
        assert loaded == []
        for _ in range(2):
            async with ObservedClient(Observation("crm", Meter())) as http:
                with pytest.raises(httpx.ConnectError):
                    await http.get("https://127.0.0.1:1/")
        assert len(loaded) == 1

    async def go() -> None:
        async with answering() as board:
            await talk(board)

    asyncio.run(go())


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_httpx_own_business(
    name: str, monkeypatch: pytest.MonkeyPatch, loaded: list[ssl.SSLContext]
) -> None:
    async def go() -> None:
        async with answering() as board:
            monkeypatch.setenv(name, board.url)
            async with ObservedClient(Observation("crm", Meter())) as http:
                await http.get("http://crm.test/api")
            assert board.asked == ["http://crm.test/api"]

    asyncio.run(go())
