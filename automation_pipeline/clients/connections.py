"""Kept connections, at most so many at once, as a transport of httpx: a call costs the same however many there are.

httpx's own pool asks the socket of each of them, twice a call: with fifty, that is six sevenths of what a call costs.
"""

import asyncio
import ssl
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from functools import cache
from typing import TypeAlias, cast
from urllib.request import getproxies

import httpcore
import httpx

from automation_pipeline.clients.wires import Wires

# As httpx does unless it is told otherwise.
KEPT_SECONDS = 5.0

Connection: TypeAlias = httpcore.AsyncHTTPConnection
Place: TypeAlias = tuple[bytes, bytes, int, object]

_FAILURES = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)
_AS_HTTPX: dict[type[Exception], type[httpx.TransportError]] = {
    httpcore.ConnectTimeout: httpx.ConnectTimeout,
    httpcore.ReadTimeout: httpx.ReadTimeout,
    httpcore.WriteTimeout: httpx.WriteTimeout,
    httpcore.ConnectError: httpx.ConnectError,
    httpcore.ReadError: httpx.ReadError,
    httpcore.WriteError: httpx.WriteError,
    httpcore.LocalProtocolError: httpx.LocalProtocolError,
    httpcore.RemoteProtocolError: httpx.RemoteProtocolError,
}


@cache
def certificates() -> ssl.SSLContext:
    """Those that httpx trusts. Loading them takes as long as dozens of calls: once a process, at its first https."""
    return httpx.create_ssl_context()


def straight(most: int) -> "Connections | None":
    """None where the environment names a proxy: that is for httpx's own transport."""
    return None if getproxies().keys() & {"http", "https", "all"} else Connections(most)


class Connections(httpx.AsyncBaseTransport):
    """HTTP/1.1, no proxies. Whoever comes when `most` connections are busy waits in line. A connection only ever serves
    one place: scheme, host and port, and the name that its certificate is for."""

    def __init__(self, most: int, *, verify: Callable[[], ssl.SSLContext] = certificates) -> None:
        self._most = most
        self._verify = verify
        self._wires = Wires()
        self._line = asyncio.Semaphore(most)
        self._busy: set[Connection] = set()
        # All that are idle, with their ends, the oldest first; and those of each place, the oldest first.
        self._idle: OrderedDict[Connection, tuple[Place, float]] = OrderedDict()
        self._idle_at: dict[Place, deque[Connection]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        wish = _wish(request)
        origin = wish.url.origin
        place = (origin.scheme, origin.host, origin.port, request.extensions.get("sni_hostname"))
        await self._turn(request)
        connection: Connection | None = None
        try:
            while (connection := self._newest(place)) is not None and connection.has_expired():
                await connection.aclose()
            connection = connection or self._made(origin)
            self._busy.add(connection)
            while (superfluous := self._superfluous()) is not None:
                await superfluous.aclose()
            answer = await connection.handle_async_request(wish)
        except BaseException as error:  # a cancellation too gives the connection back
            await self._give_back(connection, place)
            if isinstance(error, _FAILURES):
                raise _as_httpx(error) from error
            raise
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer, lambda: self._give_back(connection, place)),
            extensions=cast("dict[str, object]", answer.extensions),
        )

    async def aclose(self) -> None:
        """Those that are busy are closed too."""
        closing = [*self._idle, *self._busy]
        self._idle.clear()
        self._idle_at.clear()
        for connection in closing:
            await connection.aclose()

    async def _turn(self, request: httpx.Request) -> None:
        seconds = cast("dict[str, float | None]", request.extensions.get("timeout", {})).get("pool")
        if not self._line.locked():
            await self._line.acquire()
            return
        try:
            async with asyncio.timeout(seconds):
                await self._line.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout("Every connection stayed busy", request=request) from None

    def _newest(self, place: Place) -> Connection | None:
        """Of the idle ones there, which are one less: so those that are not needed grow old."""
        there = self._idle_at.get(place)
        return self._taken(place, there.pop()) if there else None

    def _superfluous(self) -> Connection | None:
        """The oldest of the idle ones, which are one less: when it is too old or they are too many."""
        if not self._idle:
            return None
        place, ends_at = next(iter(self._idle.values()))
        if time.monotonic() <= ends_at and len(self._idle) + len(self._busy) <= self._most:
            return None
        return self._taken(place, self._idle_at[place].popleft())

    def _taken(self, place: Place, connection: Connection) -> Connection:
        if not self._idle_at[place]:
            del self._idle_at[place]
        del self._idle[connection]
        return connection

    def _made(self, origin: httpcore.Origin) -> Connection:
        certified = self._verify() if origin.scheme == b"https" else None
        return Connection(origin, ssl_context=certified, keepalive_expiry=KEPT_SECONDS, network_backend=self._wires)

    async def _give_back(self, connection: Connection | None, place: Place) -> None:
        try:
            if connection is None or connection.is_closed():
                return
            if connection.is_idle():
                self._idle[connection] = place, time.monotonic() + KEPT_SECONDS
                self._idle_at.setdefault(place, deque()).append(connection)
            else:
                await connection.aclose()
        finally:
            if connection is not None:
                self._busy.discard(connection)
            self._line.release()


class _Body(httpx.AsyncByteStream):
    """Gives its connection back when it is closed, at whatever place it has been left."""

    def __init__(self, answer: httpcore.Response, give_back: Callable[[], Awaitable[None]]) -> None:
        self._answer = answer
        self._give_back = give_back
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in cast("AsyncIterable[bytes]", self._answer.stream):
                yield piece
        except BaseException as error:  # the same
            await self.aclose()
            if isinstance(error, _FAILURES):
                raise _as_httpx(error) from error
            raise

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._answer.aclose()
        finally:
            await self._give_back()


def _wish(request: httpx.Request) -> httpcore.Request:
    url = request.url
    if url.scheme not in {"http", "https"} or not url.host:
        raise httpx.UnsupportedProtocol("Only addresses of http and https have a connection", request=request)
    return httpcore.Request(
        request.method,
        httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=cast("AsyncIterable[bytes]", request.stream),
        extensions=request.extensions,
    )


def _as_httpx(error: Exception) -> httpx.TransportError:
    return _AS_HTTPX.get(type(error), httpx.TransportError)(str(error))
