"""An HTTP server in the event loop of the test that tracks its connections. The path selects the response."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

HEAD = "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n"
PIECE = bytes(100_000)


@dataclass
class KeepAliveServer:
    """`targets` are those of the requests, in order. `connections` counts all connections ever opened,
    and `max_open` is the largest number of open ones. Requests of `/held` wait for `released`."""

    url: str = ""
    connections: int = 0
    open_connections: int = 0
    max_open: int = 0
    targets: list[str] = field(default_factory=list[str])
    local_addresses: list[str] = field(default_factory=list[str])
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections, self.open_connections = self.connections + 1, self.open_connections + 1
        self.max_open = max(self.max_open, self.open_connections)
        self.local_addresses.append(writer.get_extra_info("sockname")[0])
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._handle_request(reader, writer):
                    pass
        finally:
            self.open_connections -= 1
            writer.close()

    async def _handle_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection is kept."""
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.targets.append(target)
        page: Callable[[asyncio.StreamWriter], Awaitable[bool]] = {
            "/drop": _drop,
            "/cut": _cut,
            "/endless": _endless,
            "/bye": _respond_and_close,
            "/held": self._wait_for_release,
        }.get(target, _respond)
        return await page(writer)

    async def _wait_for_release(self, writer: asyncio.StreamWriter) -> bool:
        await self.released.wait()
        return await _respond(writer)


@asynccontextmanager
async def running_keep_alive_server(host: str = "127.0.0.1") -> AsyncGenerator[KeepAliveServer]:
    keep_alive_server = KeepAliveServer()
    server = await asyncio.start_server(keep_alive_server.handle, host, 0)
    keep_alive_server.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield keep_alive_server
    finally:
        server.close()


async def _respond(writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD.format(2).encode() + b"ok")
    await writer.drain()
    return True


async def _respond_and_close(writer: asyncio.StreamWriter) -> bool:
    """Closes the connection without a `Connection: close` header."""
    await _respond(writer)
    return False


async def _drop(_: asyncio.StreamWriter) -> bool:
    return False


async def _cut(writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD.format(5000).encode() + b"the beginning")
    await writer.drain()
    return False


async def _endless(writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD.format(10**12).encode())
    while not writer.is_closing():
        writer.write(PIECE)
        await writer.drain()
    return False
