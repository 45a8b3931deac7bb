"""What connections read from and write to, on asyncio's own transports: nothing waits that need not wait."""

import asyncio
import ssl
from collections import deque
from typing import cast

import httpx

# What has come and not been read: above it the other side waits.
MOST_UNREAD = 256 * 1024
# How long the first of a host's addresses may be silent before the next is tried as well.
NEXT_ADDRESS_SECONDS = 0.25


async def open_wire(
    host: str,
    port: int,
    seconds: float | None = None,
    *,
    secret: ssl.SSLContext | None = None,
    name: str | None = None,
) -> "Wire":
    """With TLS where `secret` is given; `name` is what the other side's certificate must be for."""
    try:
        async with asyncio.timeout(seconds):
            return Wire(await _opened(host, port, secret, (name or host) if secret else None))
    except TimeoutError as error:
        raise httpx.ConnectTimeout(str(error)) from error
    except (OSError, UnicodeError) as error:  # a name with a part too long is no text that can be looked up
        raise httpx.ConnectError(str(error)) from error


class Wire:
    def __init__(self, end: "_End") -> None:
        self._end = end

    @property
    def is_readable(self) -> bool:
        """Something has come, or nothing will any more."""
        return self._end.readable.is_set()

    async def read(self, seconds: float | None = None) -> bytes:
        """What has come, at least a byte; empty at the end."""
        try:
            if not self._end.readable.is_set():
                async with asyncio.timeout(seconds):
                    await self._end.readable.wait()
            return self._end.read()
        except TimeoutError as error:
            raise httpx.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ReadError(str(error)) from error

    async def write(self, data: bytes, seconds: float | None = None) -> None:
        try:
            self._end.write(data)
            if not self._end.writable.is_set():
                async with asyncio.timeout(seconds):
                    await self._end.writable.wait()
        except TimeoutError as error:
            raise httpx.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpx.WriteError(str(error)) from error

    def close(self) -> None:
        if not self._end.is_lost:  # asyncio's own transports cannot bear it twice
            self._end.transport.abort()


class _End(asyncio.Protocol):
    """Our end of a connection. It is `readable` when something has come or nothing will any more, and `writable` while
    the other side keeps up."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.readable, self.writable = asyncio.Event(), asyncio.Event()
        self.writable.set()
        self._come: deque[bytes] = deque()
        self._unread = 0
        self._is_over = self.is_lost = False
        self._error: Exception | None = None

    def read(self) -> bytes:
        if not self._come:
            if self._error is not None:
                raise self._error
            return b""
        piece = self._come.popleft()
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
        self._is_over = self.is_lost = True
        self._error = exc
        self.readable.set()
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()


async def _opened(host: str, port: int, secret: ssl.SSLContext | None, name: str | None) -> _End:
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.BaseEventLoop):
        _, end = await loop.create_connection(
            _End, host, port, ssl=secret, server_hostname=name, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS
        )
    else:  # uvloop, which the API runs on, tries one address after the other
        _, end = await loop.create_connection(_End, host, port, ssl=secret, server_hostname=name)
    return end
