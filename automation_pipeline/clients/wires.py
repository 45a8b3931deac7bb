"""What httpcore's connections read from and write to, on asyncio's own transports: nothing waits that need not wait.

httpcore's own streams give way to the event loop at each piece that is written, and set a clock for it: a form in ten
pieces costs more than the rest of its call.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import cast

import httpcore

# What has come and not been read: above it the other side waits.
MOST_UNREAD = 256 * 1024
# How long the first of a host's addresses may be silent before the next is tried as well.
NEXT_ADDRESS_SECONDS = 0.25


class Wires(httpcore.AsyncNetworkBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's own
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> "Wire":
        own = None if local_address is None else (local_address, 0)
        with _told_as(httpcore.ConnectTimeout, httpcore.ConnectError):
            async with asyncio.timeout(timeout):
                end = await _opened(host, port, own)
        for option in socket_options or ():
            end.transport.get_extra_info("socket").setsockopt(*option)
        return Wire(end)


class Wire(httpcore.AsyncNetworkStream):
    def __init__(self, end: "_End") -> None:
        self._end = end

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  httpcore's own
        """Empty at the end."""
        with _told_as(httpcore.ReadTimeout, httpcore.ReadError):
            if not self._end.readable.is_set():
                async with asyncio.timeout(timeout):
                    await self._end.readable.wait()
            return self._end.read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  httpcore's own
        with _told_as(httpcore.WriteTimeout, httpcore.WriteError):
            self._end.write(buffer)
            if not self._end.writable.is_set():
                async with asyncio.timeout(timeout):
                    await self._end.writable.wait()

    async def aclose(self) -> None:
        self._end.transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's own
    ) -> "Wire":
        end, plain = _End(), self._end.transport
        try:
            with _told_as(httpcore.ConnectTimeout, httpcore.ConnectError):
                async with asyncio.timeout(timeout):
                    secret = await asyncio.get_running_loop().start_tls(
                        plain, end, ssl_context, server_hostname=server_hostname
                    )
                if secret is None:
                    raise ConnectionAbortedError("The other side hung up")
        except BaseException:  # a cancellation too leaves no socket open
            plain.abort()
            raise
        end.connection_made(secret)
        return Wire(end)

    def get_extra_info(self, info: str) -> object:
        if info == "is_readable":
            return self._end.readable.is_set()
        return self._end.transport.get_extra_info(info)


class _End(asyncio.Protocol):
    """Our end of a connection. It is `readable` when something has come or nothing will any more, and `writable` while
    the other side keeps up."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.readable, self.writable = asyncio.Event(), asyncio.Event()
        self.writable.set()
        self._come: deque[bytes] = deque()
        self._unread = 0
        self._is_over = False
        self._error: Exception | None = None

    def read(self, most: int) -> bytes:
        if not self._come:
            if self._error is not None:
                raise self._error
            return b""
        piece = self._come.popleft()
        if len(piece) > most:
            self._come.appendleft(piece[most:])
            piece = piece[:most]
        before, self._unread = self._unread, self._unread - len(piece)
        if before > MOST_UNREAD >= self._unread:
            self.transport.resume_reading()
        if not (self._come or self._is_over):
            self.readable.clear()
        return piece

    def write(self, data: bytes) -> None:
        if self._is_over:
            raise self._error or ConnectionResetError("The other side has hung up")
        self.transport.write(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's own is no subclass

    def data_received(self, data: bytes) -> None:
        self._come.append(data)
        before, self._unread = self._unread, self._unread + len(data)
        if self._unread > MOST_UNREAD >= before:
            self.transport.pause_reading()
        self.readable.set()

    def eof_received(self) -> None:
        self._is_over = True
        self.readable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over, self._error = True, exc
        self.readable.set()
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()


async def _opened(host: str, port: int, own: tuple[str, int] | None) -> _End:
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.BaseEventLoop):
        _, end = await loop.create_connection(
            _End, host, port, local_addr=own, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS
        )
    else:  # uvloop, which the API runs on, tries one address after the other
        _, end = await loop.create_connection(_End, host, port, local_addr=own)
    return end


@contextmanager
def _told_as(too_late: type[Exception], broken: type[Exception]) -> Generator[None]:
    """What asyncio says, as httpcore says it."""
    try:
        yield
    except TimeoutError as error:
        raise too_late(str(error)) from error
    except (OSError, UnicodeError) as error:  # a name with a part too long is no text that can be looked up
        raise broken(str(error)) from error
