"""What connections are made of, on real sockets: in the clear and with TLS, and servers that dawdle and break off."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
import uvloop

from automation_pipeline.clients import wires
from automation_pipeline.clients.connections import Connections
from automation_pipeline.clients.wires import Wire, open_wire
from automation_pipeline_tests.waiting import come_true

# Signed by itself, for the name records.test, and its key.
CERTIFICATE = Path(__file__).with_name("records_test.pem")
LARGE = b"0123456789abcdef" * 65_536
KINDS = ["clear", "secret"]

Go = Callable[[Coroutine[object, object, None]], None]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, *, secret: bool = False) -> AsyncGenerator[int]:
    """The port of a server that does this with each connection."""
    certified = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certified.load_cert_chain(CERTIFICATE)
    lines: list[asyncio.StreamWriter] = []

    async def line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(writer)  # nobody else remembers one that is not read from
        await serve(reader, writer)

    server = await asyncio.start_server(line, "127.0.0.1", 0, ssl=certified if secret else None)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in lines:
            writer.close()


@asynccontextmanager
async def wired(serve: Serve, *, secret: bool = False) -> AsyncGenerator[Wire]:
    async with serving(serve, secret=secret) as port:
        certified = trusting() if secret else None
        wire = await open_wire("127.0.0.1", port, 10, secret=certified, name="records.test")
        try:
            yield wire
        finally:
            wire.close()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Neither reads nor writes."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
        await writer.drain()
    writer.close()


async def everything_of(wire: Wire) -> bytes:
    heard = bytearray()
    while piece := await wire.read(10):
        heard += piece
    return bytes(heard)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop])
def go(request: pytest.FixtureRequest) -> Go:
    """On the loop of a run's steps, and on the API's."""

    def run(work: Coroutine[object, object, None]) -> None:
        async def soon() -> None:
            async with asyncio.timeout(60):
                await work

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(soon())

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_arrives_and_what_comes_back_is_read_to_its_end(go: Go, kind: str) -> None:
    async def work() -> None:
        async with wired(echo, secret=kind == "secret") as wire:
            async with asyncio.TaskGroup() as both:
                both.create_task(wire.write(LARGE, 10))
                heard = both.create_task(exactly(wire, len(LARGE)))
            assert heard.result() == LARGE

    async def exactly(wire: Wire, size: int) -> bytes:
        heard = bytearray()
        while len(heard) < size:
            heard += await wire.read(10)
        return bytes(heard)

    go(work())


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_before_the_end_is_read_before_the_end(go: Go, kind: str) -> None:
    async def tell(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(LARGE)
        writer.close()

    async def work() -> None:
        async with wired(tell, secret=kind == "secret") as wire:
            assert await everything_of(wire) == LARGE
            assert wire.is_readable
            assert await wire.read(10) == b""

    go(work())


def test_what_nobody_reads_stays_with_the_other_side(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires, "MOST_UNREAD", 1_000)
    written = 0

    async def tell(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        for _ in range(64):
            writer.write(LARGE)
            await writer.drain()
            written += len(LARGE)
        writer.close()

    async def work() -> None:
        async with wired(tell) as wire:
            first = await wire.read(10)
            for _ in range(100):
                await asyncio.sleep(0)
            before = written
            assert before < 64 * len(LARGE)
            assert len(await everything_of(wire)) == 64 * len(LARGE) - len(first)

    go(work())


def test_a_writer_waits_for_a_side_that_does_not_read_and_not_for_ever(go: Go) -> None:
    async def work() -> None:
        async with wired(hold) as wire:
            with pytest.raises(httpx.WriteTimeout):
                await wire.write(64 * LARGE, 0.2)

    go(work())


def test_a_reader_waits_as_long_as_it_is_told(go: Go) -> None:
    async def work() -> None:
        async with wired(hold) as wire:
            with pytest.raises(httpx.ReadTimeout):
                await wire.read(0.05)

    go(work())


def test_a_reader_that_is_cancelled_can_read_again(go: Go) -> None:
    async def work() -> None:
        async with wired(echo) as wire:
            reading = asyncio.create_task(wire.read(10))
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await wire.write(b"again", 10)
            assert await wire.read(10) == b"again"

    go(work())


def test_a_connection_that_breaks_is_told_to_whoever_reads_and_writes(go: Go) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
        writer.get_extra_info("socket").setsockopt(1, 13, linger)  # SOL_SOCKET, SO_LINGER: a reset, no goodbye
        writer.transport.abort()

    async def work() -> None:
        async with wired(reset) as wire:
            await wire.write(b"?", 10)
            with pytest.raises(httpx.ReadError):
                await wire.read(10)
            with pytest.raises(httpx.WriteError):
                await wire.write(b"?", 10)

    go(work())


def test_one_that_the_other_side_ended_while_much_was_on_its_way_can_be_closed(go: Go) -> None:
    arrived = 0

    async def hear_out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        arrived += len(await reader.read(1))
        writer.write_eof()
        await ended.wait()
        while piece := await reader.read(65_536):
            arrived += len(piece)

    async def work() -> None:
        async with wired(hear_out) as wire:
            writing = asyncio.create_task(wire.write(16 * LARGE, 10))
            await come_true(lambda: wire.is_readable)
            ended.set()
            await writing
            assert await wire.read(10) == b""
            await come_true(lambda: arrived == 16 * len(LARGE))
            wire.close()
            wire.close()

    ended = asyncio.Event()
    go(work())


def test_nobody_there_is_a_connection_error(go: Go) -> None:
    async def work() -> None:
        async with serving(hold) as port:
            pass
        with pytest.raises(httpx.ConnectError):
            await open_wire("127.0.0.1", port, 10)

    go(work())


def test_a_certificate_for_another_name_is_refused_and_the_connection_closed(go: Go) -> None:
    open_ones = 0

    async def count(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        nonlocal open_ones
        open_ones += 1
        await reader.read()
        open_ones -= 1

    async def work() -> None:
        async with serving(count, secret=True) as port:
            with pytest.raises(httpx.ConnectError, match="Hostname mismatch"):
                await open_wire("127.0.0.1", port, 10, secret=trusting(), name="elsewhere.test")
            await come_true(lambda: open_ones == 0)

    go(work())


def test_a_server_that_never_answers_the_handshake_is_given_up(go: Go) -> None:
    async def work() -> None:
        async with serving(hold) as port:
            with pytest.raises(httpx.ConnectTimeout):
                await open_wire("127.0.0.1", port, 0.05, secret=trusting(), name="records.test")

    go(work())


@pytest.mark.parametrize("kind", KINDS)
def test_calls_go_over_them_and_none_over_one_that_spoke_unasked(go: Go, kind: str) -> None:
    opened = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE) + LARGE)
                if opened == 1:
                    await heard.wait()
                    writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
                    await writer.drain()

    async def work() -> None:
        kept = Connections(1, verify=trusting)
        async with serving(answer, secret=kind == "secret") as port, httpx.AsyncClient(transport=kept) as http:
            for _ in range(3):
                request = http.build_request("GET", f"{'https' if kind == 'secret' else 'http'}://127.0.0.1:{port}/")
                request.extensions["sni_hostname"] = "records.test"
                told = await http.send(request)
                assert (told.status_code, told.content) == (200, LARGE)
                if opened == 1:
                    heard.set()
                    await come_true(lambda: all(not idle.can_be_used for idle in kept._idle))
        assert opened == 2

    heard = asyncio.Event()
    go(work())
