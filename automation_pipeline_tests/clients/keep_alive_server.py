"""An HTTP server in the event loop of the test that tracks its connections. The path selects the response."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

HEAD = "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n"
PIECE = bytes(100_000)


@dataclass
class KeepAliveServer:
    """`asked`: request targets in order. `lines`: total connections. `opened`: open connections.
    `most`: maximum of open connections. `places`: local addresses of the connections."""

    url: str = ""
    lines: int = 0
    opened: int = 0
    most: int = 0
    asked: list[str] = field(default_factory=list[str])
    places: list[str] = field(default_factory=list[str])
    held: asyncio.Event = field(default_factory=asyncio.Event)

    async def line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lines, self.opened = self.lines + 1, self.opened + 1
        self.most = max(self.most, self.opened)
        self.places.append(writer.get_extra_info("sockname")[0])
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answered(reader, writer):
                    pass
        finally:
            self.opened -= 1
            writer.close()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection is kept."""
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.asked.append(target)
        page: Callable[[asyncio.StreamWriter], Awaitable[bool]] = {
            "/drop": _drop,
            "/cut": _cut,
            "/endless": _endless,
            "/bye": _bye,
            "/held": self._held,
        }.get(target, _fine)
        return await page(writer)

    async def _held(self, writer: asyncio.StreamWriter) -> bool:
        await self.held.wait()
        return await _fine(writer)


@asynccontextmanager
async def answering(host: str = "127.0.0.1") -> AsyncGenerator[KeepAliveServer]:
    board = KeepAliveServer()
    server = await asyncio.start_server(board.line, host, 0)
    board.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield board
    finally:
        server.close()


async def _fine(writer: asyncio.StreamWriter) -> bool:
    writer.write(HEAD.format(2).encode() + b"ok")
    await writer.drain()
    return True


async def _bye(writer: asyncio.StreamWriter) -> bool:
    """Closes the connection without a `Connection: close` header."""
    await _fine(writer)
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
