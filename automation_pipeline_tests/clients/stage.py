"""A server that plays what a test has it play, byte for byte, and keeps what it heard."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx

from automation_pipeline.clients.http import SlotTransport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Play = Callable[["Stage", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
Talk = Callable[["Stage", httpx.AsyncClient], Coroutine[object, object, None]]


class Heard(NamedTuple):
    first: bytes
    headers: dict[bytes, bytes]
    body: bytes


@dataclass
class Stage:
    """`lines`: all connections that ever were; `open_ones`: those of now; `heard`: whole calls in
    their order; `scraps`: what was said and was no whole call."""

    url: str = ""
    lines: int = 0
    open_ones: int = 0
    heard: list[Heard] = field(default_factory=list[Heard])
    scraps: bytes = b""


@asynccontextmanager
async def staged(play: Play, host: str = "127.0.0.1") -> AsyncGenerator[Stage]:
    """A server that plays for each call, as long as the play says that the connection is kept."""
    stage = Stage()

    async def line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stage.lines, stage.open_ones = stage.lines + 1, stage.open_ones + 1
        try:
            while await play(stage, reader, writer):
                pass
        except asyncio.IncompleteReadError as error:
            stage.scraps += error.partial
        except ConnectionError:
            pass
        finally:
            stage.open_ones -= 1
            writer.close()

    server = await asyncio.start_server(line, host, 0)
    stage.url = (
        f"http://{f'[{host}]' if ':' in host else host}:{server.sockets[0].getsockname()[1]}/"
    )
    try:
        yield stage
    finally:
        server.close()


def meet(play: Play, talk: Talk, host: str = "127.0.0.1") -> None:
    async def go() -> None:
        async with (
            asyncio.timeout(60),
            staged(play, host) as stage,
            httpx.AsyncClient(transport=SlotTransport(1), timeout=30) as http,
        ):
            await talk(stage, http)

    asyncio.run(go())


def saying(answer: bytes, *, hangs_up: bool = False) -> Play:
    async def play(
        stage: Stage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        stage.heard.append(await heard(reader))
        writer.write(answer)
        await writer.drain()
        return not hangs_up

    return play


def endlessly(beginning: bytes, again: bytes) -> Play:
    async def play(
        stage: Stage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        stage.heard.append(await heard(reader))
        writer.write(beginning)
        while not writer.is_closing():
            writer.write(again)
            await writer.drain()
        return False

    return play


async def heard(reader: asyncio.StreamReader) -> Heard:
    first, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    headers = {name.lower(): value for name, value in (line.split(b": ", 1) for line in lines)}
    if headers.get(b"transfer-encoding") == b"chunked":
        return Heard(first, headers, await unchunked(reader))
    return Heard(first, headers, await reader.readexactly(int(headers.get(b"content-length", 0))))


async def unchunked(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
        body += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
    assert await reader.readexactly(2) == b"\r\n"
    return bytes(body)


def in_pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return body()
