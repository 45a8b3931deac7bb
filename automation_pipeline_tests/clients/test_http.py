"""The HTTP client on real sockets: responses, connections, unsent requests and body limits."""

import asyncio
import gzip
import itertools
import logging
import resource
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from automation_pipeline.audits.models.chat import AnswerSchema, Message, Question, Role
from automation_pipeline.clients import http as client_module
from automation_pipeline.clients.audio import AudioDownloader, AudioLimits, audio_guard
from automation_pipeline.clients.automation_api import AutomationApi
from automation_pipeline.clients.crm import CrmClient
from automation_pipeline.clients.elevenlabs import ElevenLabsSpeechToText
from automation_pipeline.clients.http import (
    HttpClient,
    Observation,
    PerLoop,
    SlotTransport,
    certificates,
)
from automation_pipeline.clients.llm import ChatCompletions
from automation_pipeline.clients.registries import CompanySearch
from automation_pipeline.clients.shop import ShopifyShop
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.logs import correlated
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import Backoff, Retrying
from automation_pipeline_tests.clients.http_server import (
    OK,
    ServerRecord,
    ServerScript,
    always_send,
    in_pieces,
    read_request,
    run_exchange,
    send_endlessly,
    serving,
)
from automation_pipeline_tests.clients.keep_alive_server import (
    KeepAliveServer,
    running_keep_alive_server,
)
from automation_pipeline_tests.clients.shopify_client import WRITES
from automation_pipeline_tests.waiting import wait_until_async

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE = b"0123456789abcdef" * 65_536
CERTIFICATE = Path(__file__).with_name("records_test.pem")
NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
ONCE = Retrying(attempts=1, backoff=Backoff(base_seconds=1, multiplier=2, cap_seconds=15))


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


# --- Answers


def send_bytewise(answer: bytes, *, closes: bool = False) -> ServerScript:
    """Sends one byte at a time."""

    async def server_script(
        record: ServerRecord, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        record.requests.append(await read_request(reader))
        for at in range(len(answer)):
            writer.write(answer[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0)
        return not closes

    return server_script


KEEPING: dict[bytes, bytes] = {
    OK: b"ok",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK: b"ok",
    CHUNKED + b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n": b"abcde",
    b"HTTP/1.1 204 No Content\r\n\r\n": b"",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n": b"",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n": b"",
}
CLOSING: dict[bytes, bytes] = {
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok": b"ok",
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok": b"ok",
    OK + OK: b"ok",  # the second response does not belong to the next call
    OK + b"and so on": b"ok",
}


@pytest.mark.parametrize("server_script", [always_send, send_bytewise])
def test_a_response_parses_the_same_whole_or_byte_by_byte(
    server_script: Callable[[bytes], ServerScript],
) -> None:
    for answer, body in (KEEPING | CLOSING).items():
        is_kept = answer in KEEPING

        async def client_script(
            record: ServerRecord,
            http: httpx.AsyncClient,
            body: bytes = body,
            is_kept: bool = is_kept,
        ) -> None:
            for _ in range(3):
                assert (await http.get(record.url)).content == body
                await asyncio.sleep(0.01 if server_script is send_bytewise else 0)
            assert record.connections == (1 if is_kept else 3)

        run_exchange(server_script(answer), client_script)


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def client_script(record: ServerRecord, http: httpx.AsyncClient) -> None:
        for _ in range(2):
            assert (await http.get(record.url)).content == LARGE
        assert record.connections == 2

    run_exchange(always_send(b"HTTP/1.1 200 OK\r\n\r\n" + LARGE, closes=True), client_script)


def test_a_truncated_or_malformed_response_is_an_error_and_closes_the_connection() -> None:
    cut = [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour",
        CHUNKED + b"5\r\nfour",
        CHUNKED + b"4\r\nfour\r\n",
        CHUNKED + b"4\r\nfour\r\n0\r\nX-Sum: 4\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"five\r\n",
        CHUNKED + b"2\r\nokay\r\n",
    ]

    async def client_script(record: ServerRecord, http: httpx.AsyncClient) -> None:
        for _ in range(2):
            with pytest.raises(httpx.RemoteProtocolError):
                await http.get(record.url)
        assert record.connections == 2

    for answer in cut:
        run_exchange(always_send(answer, closes=True), client_script)


def test_endless_headers_and_chunks_are_aborted() -> None:
    async def client_script(record: ServerRecord, http: httpx.AsyncClient) -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get(record.url)
        await wait_until_async(lambda: record.open_connections == 0)

    for beginning, again in (
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"a" * 10_000),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: a\r\n" * 1_000),
        (CHUNKED + b"5;a=", b"a" * 10_000),
        (CHUNKED + b"2\r\nok\r\n0\r\n", b"X-A: a\r\n" * 1_000),
    ):
        run_exchange(send_endlessly(beginning, again), client_script)


def test_a_response_sent_before_the_whole_request_body_is_read() -> None:
    async def server_script(
        _: ServerRecord, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 9\r\n\r\ntoo large"
        )
        await writer.drain()
        writer.write_eof()
        while await reader.read(65_536):
            pass
        return False

    async def client_script(record: ServerRecord, http: httpx.AsyncClient) -> None:
        for content in (LARGE, in_pieces(LARGE, LARGE)):
            answer = await http.post(record.url, content=content)
            assert (answer.status_code, answer.text) == (413, "too large")
        assert record.connections == 2

    run_exchange(server_script, client_script)


def test_invalid_headers_are_not_sent() -> None:
    async def client_script(record: ServerRecord, http: httpx.AsyncClient) -> None:
        for header in (
            (b"X-A", b"a\r\nX-B: b"),
            (b"X-A", b"a\nb"),
            (b"X A", b"a"),
            (b"X-A\r\nX-B", b"a"),
            (b"", b"a"),
        ):
            with pytest.raises(httpx.LocalProtocolError):
                await http.send(httpx.Request("GET", record.url, headers=[header]))
        assert (await http.get(record.url)).content == b"ok"
        assert (record.incomplete, len(record.requests)) == (b"", 1)

    run_exchange(always_send(OK), client_script)


# --- Connections

Ending = Callable[[httpx.AsyncClient, str], Awaitable[object]]


async def dropped(http: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await http.get(f"{url}/drop")


async def cut_short(http: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await http.get(f"{url}/cut")


async def timed_out(http: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await http.get(f"{url}/held", timeout=0.05)


async def connection_refused(http: httpx.AsyncClient, _: str) -> None:
    with pytest.raises(httpx.ConnectError):
        await http.get("http://127.0.0.1:1/")


async def cancelled(http: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await http.get(f"{url}/held")


async def cancelled_while_reading(http: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await http.get(f"{url}/endless")


async def cancelled_while_queued(http: httpx.AsyncClient, url: str) -> None:
    async with http.stream("GET", f"{url}/endless"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await http.get(url)


async def timed_out_while_queued(http: httpx.AsyncClient, url: str) -> None:
    async with http.stream("GET", f"{url}/endless"):
        with pytest.raises(httpx.PoolTimeout):
            await http.get(url, timeout=httpx.Timeout(60, pool=0.05))


async def partly_read(http: httpx.AsyncClient, url: str) -> None:
    async with http.stream("GET", f"{url}/endless") as answer:
        async for _ in answer.aiter_bytes():
            break


async def unsupported_scheme(http: httpx.AsyncClient, _: str) -> None:
    for address in ("ftp://records.test/1", "http://"):
        with pytest.raises(httpx.UnsupportedProtocol):
            await http.get(address)


async def overlong_host_name(http: httpx.AsyncClient, _: str) -> None:
    with pytest.raises(httpx.ConnectError):
        await http.get(f"http://{'a' * 70}.test/")


ENDINGS = (
    dropped,
    cut_short,
    timed_out,
    connection_refused,
    cancelled,
    cancelled_while_reading,
    cancelled_while_queued,
    timed_out_while_queued,
    partly_read,
    unsupported_scheme,
    overlong_host_name,
)


def test_every_way_a_call_can_end_releases_its_slot() -> None:
    async def go(ending: Ending) -> None:
        async with (
            running_keep_alive_server() as server,
            httpx.AsyncClient(transport=SlotTransport(1)) as http,
        ):
            for _ in range(2):
                await ending(http, server.url)
                async with asyncio.timeout(60):
                    assert (await http.get(server.url)).text == "ok"
            # A slot released twice would allow two concurrent calls.
            connections = server.connections
            await asyncio.gather(*(http.get(server.url) for _ in range(3)))
            assert server.connections == connections, ending

    for ending in ENDINGS:
        asyncio.run(go(ending))


def test_a_call_cancelled_at_any_await_does_not_block_the_next_call() -> None:
    """httpcore's shields block cancel scopes of anyio but not the cancellation of a task."""

    async def go(steps: int) -> bool:
        async with (
            running_keep_alive_server() as server,
            httpx.AsyncClient(transport=SlotTransport(1)) as http,
        ):
            call = asyncio.create_task(http.get(server.url))
            for _ in range(steps):
                await asyncio.sleep(0)
            ended = not call.cancel()
            await asyncio.wait([call])
            async with asyncio.timeout(10):
                assert (await http.get(server.url)).text == "ok"
        return ended

    steps = itertools.count()
    while not asyncio.run(go(next(steps))):
        pass


def test_the_late_response_of_a_cancelled_call_reaches_no_other_call() -> None:
    release = asyncio.Event()

    async def server_script(
        _: ServerRecord, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        path = (await read_request(reader)).first.split()[1]
        if path == b"/first":
            await release.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(path), path))
        await writer.drain()
        return True

    async def client_script(record: ServerRecord, http: httpx.AsyncClient) -> None:
        first = asyncio.create_task(http.get(f"{record.url}first"))
        await wait_until_async(lambda: record.connections == 1)
        first.cancel()
        await asyncio.wait([first])
        release.set()
        for path in ("second", "third"):
            assert (await http.get(f"{record.url}{path}")).text == f"/{path}"

    run_exchange(server_script, client_script)


def test_concurrent_calls_are_limited_and_start_in_order() -> None:
    async def go() -> None:
        async with (
            running_keep_alive_server() as server,
            httpx.AsyncClient(transport=SlotTransport(2)) as http,
        ):
            async with asyncio.TaskGroup() as calls:
                for _ in range(2):
                    calls.create_task(http.get(f"{server.url}/held"))
                await wait_until_async(lambda: len(server.targets) == 2)
                for at in range(10):
                    calls.create_task(http.get(f"{server.url}/{at}"))
                await asyncio.sleep(0)
                server.released.set()
            assert server.targets[2:] == [f"/{at}" for at in range(10)]
            assert (server.connections, server.max_open) == (2, 2)

    asyncio.run(go())


async def five_at_once(server: KeepAliveServer, http: httpx.AsyncClient) -> None:
    async with asyncio.TaskGroup() as calls:
        for _ in range(5):
            calls.create_task(http.get(f"{server.url}/held"))
        await wait_until_async(lambda: len(server.targets) == 5)
        server.released.set()
    assert server.open_connections == 5


def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "KEEP_ALIVE_SECONDS", 0.3)

    async def go() -> None:
        async with (
            running_keep_alive_server() as server,
            httpx.AsyncClient(transport=SlotTransport(5)) as http,
        ):
            await five_at_once(server, http)
            async with asyncio.timeout(60):
                while server.open_connections > 1:
                    await http.get(server.url)
                    await asyncio.sleep(0.01)
            # A connection that the server closes is replaced.
            assert (await http.get(f"{server.url}/bye")).text == "ok"
            await wait_until_async(lambda: server.open_connections == 0)
            assert (await http.get(server.url)).text == "ok"
            await http.aclose()
            await wait_until_async(lambda: server.open_connections == 0)

    asyncio.run(go())


def test_connections_are_reused_per_origin_and_tls_name_and_evicted_for_others() -> None:
    async def go() -> None:
        async with running_keep_alive_server() as here, running_keep_alive_server() as there:
            async with httpx.AsyncClient(transport=SlotTransport(2)) as http:
                for url in (here.url, there.url, here.url, there.url):
                    await http.get(url)
                assert (here.connections, there.connections) == (1, 1)
                async with http.stream("GET", f"{here.url}/endless"):
                    await http.get(there.url)
                    async with http.stream("GET", f"{here.url}/endless"):
                        await wait_until_async(lambda: there.open_connections == 0)
            async with httpx.AsyncClient(transport=SlotTransport(5)) as http:
                before = here.connections
                for name in ("a.example.com", "b.example.com", "a.example.com"):
                    await http.get(here.url, extensions={"sni_hostname": name})
                assert here.connections == before + 2

    asyncio.run(go())


def test_each_event_loop_has_its_own_value() -> None:
    values = PerLoop(object)

    async def visit() -> object:
        first = values.current()
        assert values.current() is first
        return first

    async def leave() -> None:
        first = values.current()
        assert values.pop() is first
        assert values.pop() is None

    assert asyncio.run(visit()) is not asyncio.run(visit())
    asyncio.run(leave())


# --- Certificates and proxies


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


async def tls_server(serve: Any) -> asyncio.Server:
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(CERTIFICATE)
    return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=own)


def test_a_certificate_must_be_trusted_and_match_the_host_name() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(OK)

    async def call(port: int, verify: Callable[[], ssl.SSLContext], name: str) -> str:
        async with httpx.AsyncClient(transport=SlotTransport(1, verify=verify)) as http:
            answer = await http.get(f"https://127.0.0.1:{port}/", extensions={"sni_hostname": name})
            return answer.text

    async def go() -> None:
        server = await tls_server(serve)
        port = server.sockets[0].getsockname()[1]
        assert await call(port, trusting, "records.test") == "ok"
        with pytest.raises(httpx.ConnectError, match="Hostname mismatch"):
            await call(port, trusting, "elsewhere.test")
        with pytest.raises(httpx.ConnectError, match="self-signed certificate"):
            await call(port, certificates, "records.test")
        server.close()

    asyncio.run(go())


def test_an_unanswered_tls_handshake_times_out() -> None:
    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async def go() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with httpx.AsyncClient(transport=SlotTransport(1), timeout=0.1) as http:
            with pytest.raises(httpx.ConnectTimeout):
                await http.get(f"https://127.0.0.1:{port}/")
        over.set()
        server.close()

    over = asyncio.Event()
    asyncio.run(go())


@pytest.fixture
def loaded_contexts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ssl.SSLContext]]:
    contexts: list[ssl.SSLContext] = []

    def load() -> ssl.SSLContext:
        contexts.append(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        return contexts[-1]

    monkeypatch.setattr(httpx, "create_ssl_context", load)
    certificates.cache_clear()
    yield contexts
    certificates.cache_clear()


def test_certificates_are_loaded_once_per_process_and_only_for_https(
    loaded_contexts: list[ssl.SSLContext],
) -> None:
    async def go() -> None:
        async with running_keep_alive_server() as server:
            for url, count in (
                (server.url, 0),
                ("https://127.0.0.1:1/", 1),
                ("https://127.0.0.1:1/", 1),
            ):
                async with HttpClient(Observation("crm", Meter()), connections=2) as http:
                    try:
                        await http.call(http.build_request("GET", url), 10)
                    except httpx.ConnectError:
                        assert count == 1
                assert len(loaded_contexts) == count

    asyncio.run(go())


def test_a_proxy_from_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with running_keep_alive_server() as server:
            monkeypatch.setenv("http_proxy", server.url)
            async with HttpClient(Observation("crm", Meter())) as http:
                await http.call(http.build_request("GET", "http://crm.test/api"), 10)
            assert server.targets == ["http://crm.test/api"]

    asyncio.run(go())


# --- Requests with an unknown outcome


def shop_client(url: str) -> ShopifyShop:
    return ShopifyShop(url, "token", version="2026-10", now=lambda: NOW, timeout_seconds=10)


def read_and_then(then: Callable[[asyncio.StreamWriter], None]) -> ServerScript:
    async def server_script(
        record: ServerRecord, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        record.requests.append(await read_request(reader))
        then(writer)
        await writer.drain()
        return False

    return server_script


def reset(writer: asyncio.StreamWriter) -> None:
    linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
    # SOL_SOCKET, SO_LINGER: reset the connection on close.
    writer.get_extra_info("socket").setsockopt(1, 13, linger)
    writer.transport.abort()


def test_a_write_outcome_is_unknown_once_the_shop_has_read_the_request() -> None:
    """A write that was not sent can be repeated. One that may have arrived must be checked first."""
    packed = gzip.compress(b"{}")
    after_reading: dict[str, ServerScript] = {
        "hangs up": read_and_then(lambda writer: writer.close()),
        "resets": read_and_then(reset),
        "begins to answer": read_and_then(
            lambda writer: writer.write(b"HTTP/1.1 200 OK\r\nContent-")
        ),
        "breaks off": read_and_then(
            lambda writer: writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{")
        ),
        "is no HTTP": read_and_then(
            lambda writer: writer.write(b"\x15\x03\x01\x00\x02\x02\x46\r\n\r\n")
        ),
        "compresses": read_and_then(
            lambda writer: writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
                % len(packed)
                + packed
            )
        ),
        "says too much": read_and_then(
            lambda writer: writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n")
        ),
    }
    wrong: list[object] = []

    async def go() -> None:
        for name, server_script in after_reading.items():
            async with serving(server_script) as record:
                shop = shop_client(record.url)
                failure = (await shop.write("7", WRITES)).failure
                await shop.aclose()
                if failure is None or not failure.outcome_unknown or len(record.requests) != 1:
                    wrong.append((name, failure, len(record.requests)))
        async with serving(always_send(OK)) as record:
            address = record.url
        for url in (address, "http://127.0.0.1:1", address.replace("http:", "https:")):
            shop = shop_client(url)
            failure = (await shop.write("7", WRITES)).failure
            await shop.aclose()
            if failure is None or failure.outcome_unknown or not failure.retryable:
                wrong.append((url, failure))

    asyncio.run(go())
    assert wrong == []


def test_a_failed_tls_handshake_sends_no_request() -> None:
    async def go() -> None:
        async with serving(always_send(b"SSH-2.0-OpenSSH_9.6\r\n")) as record:
            shop = shop_client(record.url.replace("http:", "https:"))
            failure = (await shop.write("7", WRITES)).failure
            await shop.aclose()
            assert failure is not None
            assert (failure.outcome_unknown, failure.retryable) == (False, True)

    asyncio.run(go())


# --- Bodies

QUESTION = Question((Message(Role.USER, "?"),), AnswerSchema("answer", {"type": "object"}))


async def by_audio(url: str) -> None:
    downloader = AudioDownloader(
        now=lambda: NOW,
        limits=AudioLimits(max_megabytes=1),
        guard=audio_guard([url]),
        connections=1,
    )
    try:
        async with downloader.recording(f"{url}1.mp3"):
            pass
    finally:
        await downloader.aclose()


async def by_model(url: str) -> None:
    model = ChatCompletions("key", url, model="m", now=lambda: NOW)
    try:
        await model.ask(QUESTION)
    finally:
        await model.aclose()


async def by_crm(url: str) -> None:
    crm = CrmClient(url, "token", now=lambda: NOW, retrying=ONCE)
    try:
        await crm.sales_list(date(2026, 2, 3))
    finally:
        await crm.aclose()


async def by_speech(url: str) -> None:
    speech = ElevenLabsSpeechToText("a-key-of-tests", url, now=lambda: NOW, at_once=1)
    try:
        await speech.check()
    finally:
        await speech.aclose()


async def by_shop(url: str) -> None:
    shop = shop_client(url)
    try:
        await shop.check()
    finally:
        await shop.aclose()


async def by_registry(url: str) -> None:
    registry = CompanySearch(url, now=lambda: NOW, timeout_seconds=60)
    try:
        await registry.check()
    finally:
        await registry.aclose()


async def by_api(url: str) -> None:
    def ask() -> None:
        api = AutomationApi(url, "token")
        try:
            api.call("GET", "/api/automation/schedules")
        finally:
            api.close()

    await asyncio.to_thread(ask)


CALLERS = (by_audio, by_model, by_crm, by_speech, by_shop, by_registry, by_api)


def decompression_bomb() -> bytes:
    """200 MB of zeros, compressed twice to 2 KB."""
    return gzip.compress(gzip.compress(bytes(200_000_000), 9), 9)


def test_no_client_buffers_more_than_its_limit() -> None:
    """A decompression bomb, a large body and an endless body."""
    packed, wrong = decompression_bomb(), list[object]()
    encoded = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b"
    plays: dict[str, ServerScript] = {
        "twice gzip": always_send(encoded % (b"gzip, gzip", len(packed), packed)),
        "deflate": always_send(encoded % (b"deflate", 2, b"ok")),
        "unknown": always_send(encoded % (b"x-private", 2, b"ok")),
        "announced": always_send(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n" + LARGE),
        "endless": send_endlessly(CHUNKED, b"100000\r\n" + LARGE + b"\r\n"),
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def go() -> None:
        for caller in CALLERS:
            for name, server_script in plays.items():
                async with serving(server_script) as record:
                    try:
                        async with asyncio.timeout(60):
                            await caller(record.url)
                        wrong.append((caller.__name__, name, "no error"))
                    except AutomationError:
                        accepted = record.requests[0].headers.get(b"accept-encoding")
                        if accepted != b"identity":
                            wrong.append((caller.__name__, name, accepted))

    asyncio.run(go())
    assert wrong == []
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 600


def test_an_error_status_is_reported_although_its_body_is_unreadable() -> None:
    async def go() -> None:
        result = b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok"
        async with serving(always_send(result)) as record:
            shop = shop_client(record.url)
            failure = (await shop.write("7", WRITES)).failure
            await shop.aclose()
        assert failure is not None
        assert (failure.kind, failure.retry_after_seconds, failure.outcome_unknown) == (
            "rate_limit",
            7,
            False,
        )

    asyncio.run(go())


# --- Observation


def observed(
    answer: Any, call: Callable[[HttpClient], Awaitable[object]], *, is_trusted: bool = True
) -> Meter:
    meter = Meter()

    async def go() -> None:
        transport = httpx.MockTransport(answer)
        async with HttpClient(
            Observation("crm", meter, is_trusted=is_trusted), transport=transport
        ) as http:
            await call(http)

    asyncio.run(go())
    return meter


async def get(http: HttpClient) -> None:
    await http.call(
        http.build_request("GET", "https://anna:hush@crm.test/api/fiches?token=hush"), 1000
    )


def counted(meter: Meter) -> list[str]:
    return [labels for (name, labels) in meter.drain() if name == "provider_calls_total"]


def test_a_call_is_counted_by_its_status_or_error() -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("timed_out")

    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(3600)
        raise AssertionError("waited to the end")

    async def broken(http: HttpClient) -> None:
        with pytest.raises(httpx.ConnectTimeout):
            await get(http)

    async def cancelled_call(http: HttpClient) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await get(http)

    for status in (200, 302, 404, 503):
        assert counted(observed(lambda _, status=status: httpx.Response(status), get)) == [
            f'provider="crm",status="{status}"'
        ]
    assert counted(observed(fail, broken)) == ['provider="crm",status="ConnectTimeout"']
    assert counted(observed(hang, cancelled_call)) == ['provider="crm",status="cancelled"']


def test_only_trusted_providers_receive_the_request_id() -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("X-Request-Id"))
        assert request.headers["Authorization"] == httpx.BasicAuth("anna", "hush")._auth_header
        return httpx.Response(200)

    with correlated("request-7"):
        observed(answer, get)
        observed(answer, get, is_trusted=False)
    observed(answer, get)
    assert seen == ["request-7", None, None]


def test_a_call_is_logged_without_query_and_credentials(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for is_trusted in (True, False):
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "automation_pipeline"):
            observed(lambda _: httpx.Response(200), get, is_trusted=is_trusted)
        [line] = [record for record in caplog.records if record.getMessage() == "Called a provider"]
        fields = line.__dict__["fields"]
        path = {"path": "/api/fiches"} if is_trusted else {}
        assert fields == {
            "provider": "crm", "method": "GET", "host": "crm.test", **path, "status": "200",
            "seconds": fields["seconds"],
        }  # fmt: skip


def test_no_redirect_is_followed_and_no_cookie_is_kept() -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(302, headers={"Location": "/elsewhere", "Set-Cookie": "a=1; Path=/"})

    async def twice(http: HttpClient) -> None:
        for _ in range(2):
            assert (
                await http.call(http.build_request("GET", "https://crm.test/"), 10)
            ).status == 302

    observed(answer, twice)
    assert [request.url.path for request in requests] == ["/", "/"]
    assert [request.headers.get("Cookie") for request in requests] == [None, None]


def test_an_interrupted_body_closes_the_response() -> None:
    class Broken(httpx.AsyncByteStream):
        is_closed = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"the beginning"
            raise httpx.ReadError("gone")

        async def aclose(self) -> None:
            self.is_closed = True

    body = Broken()

    async def broken(http: HttpClient) -> None:
        with pytest.raises(httpx.ReadError):
            await get(http)

    observed(lambda _: httpx.Response(200, stream=body), broken)
    assert body.is_closed
