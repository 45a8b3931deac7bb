"""A scripted HTTP server that sends exact bytes and stores the requests."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx

from automation_pipeline.clients.http import SlotTransport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

ServerScript = Callable[
    ["ServerRecord", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]
]
ClientScript = Callable[["ServerRecord", httpx.AsyncClient], Coroutine[object, object, None]]


class ReceivedRequest(NamedTuple):
    first: bytes
    headers: dict[bytes, bytes]
    body: bytes


@dataclass
class ServerRecord:
    """`connections` counts all connections ever opened. `requests` has the complete requests, in
    order, and `incomplete` the bytes of incomplete ones."""

    url: str = ""
    connections: int = 0
    open_connections: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    incomplete: bytes = b""


@asynccontextmanager
async def serving(
    server_script: ServerScript, host: str = "127.0.0.1"
) -> AsyncGenerator[ServerRecord]:
    """Calls `server_script` per request until it returns False, then closes the connection."""
    record = ServerRecord()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        record.connections, record.open_connections = (
            record.connections + 1,
            record.open_connections + 1,
        )
        try:
            while await server_script(record, reader, writer):
                pass
        except asyncio.IncompleteReadError as error:
            record.incomplete += error.partial
        except ConnectionError:
            pass
        finally:
            record.open_connections -= 1
            writer.close()

    server = await asyncio.start_server(handle, host, 0)
    record.url = (
        f"http://{f'[{host}]' if ':' in host else host}:{server.sockets[0].getsockname()[1]}/"
    )
    try:
        yield record
    finally:
        server.close()


def run_exchange(
    server_script: ServerScript, client_script: ClientScript, host: str = "127.0.0.1"
) -> None:
    async def go() -> None:
        async with (
            asyncio.timeout(60),
            serving(server_script, host) as record,
            httpx.AsyncClient(transport=SlotTransport(1), timeout=30) as http,
        ):
            await client_script(record, http)

    asyncio.run(go())


def always_send(answer: bytes, *, closes: bool = False) -> ServerScript:
    async def server_script(
        record: ServerRecord, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        record.requests.append(await read_request(reader))
        writer.write(answer)
        await writer.drain()
        return not closes

    return server_script


def send_endlessly(beginning: bytes, again: bytes) -> ServerScript:
    async def server_script(
        record: ServerRecord, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        record.requests.append(await read_request(reader))
        writer.write(beginning)
        while not writer.is_closing():
            writer.write(again)
            await writer.drain()
        return False

    return server_script


async def read_request(reader: asyncio.StreamReader) -> ReceivedRequest:
    first, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    headers = {name.lower(): value for name, value in (line.split(b": ", 1) for line in lines)}
    if headers.get(b"transfer-encoding") == b"chunked":
        return ReceivedRequest(first, headers, await unchunked(reader))
    return ReceivedRequest(
        first, headers, await reader.readexactly(int(headers.get(b"content-length", 0)))
    )


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
