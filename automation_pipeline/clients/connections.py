"""Kept connections, at most so many at once, as a transport of httpx: a call costs the same however many there are.

httpx's own pool asks the socket of each of them, twice a call: with fifty, that is six sevenths of what a call costs.
"""

import asyncio
import ssl
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from functools import cache
from urllib.request import getproxies

import httpx

from automation_pipeline.clients.http11 import Connection, Place, patience_of

# As httpx does unless it is told otherwise.
KEPT_SECONDS = 5.0


@cache
def certificates() -> ssl.SSLContext:
    """Those that httpx trusts. Loading them takes as long as dozens of calls: once a process, at its first https."""
    trusted = httpx.create_ssl_context()
    trusted.set_alpn_protocols(["http/1.1"])
    return trusted


def straight(most: int) -> "Connections | None":
    """None where the environment names a proxy: that is for httpx's own transport."""
    return None if getproxies().keys() & {"http", "https", "all"} else Connections(most)


class Connections(httpx.AsyncBaseTransport):
    """HTTP/1.1, no proxies. Whoever comes when `most` connections are busy waits in line. A connection only ever serves
    one place: scheme, host and port, and the name that its certificate is for."""

    def __init__(self, most: int, *, verify: Callable[[], ssl.SSLContext] = certificates) -> None:
        self._most = most
        self._verify = verify
        self._line = asyncio.Semaphore(most)
        self._busy: set[Connection] = set()
        # All that are idle, with their ends, the oldest first; and those of each place, the oldest first.
        self._idle: OrderedDict[Connection, float] = OrderedDict()
        self._idle_at: dict[Place, deque[Connection]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        place = _place(request)
        await self._turn(request)
        connection: Connection | None = None
        try:
            connection = self._newest(place) or await self._made(place, request)
            self._busy.add(connection)
            self._close_superfluous()
            answer = await connection.call(request)
        except BaseException:  # a cancellation too gives the connection back
            self._give_back(connection)
            raise
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(connection, patience_of(request).get("read"), self._give_back),
            extensions={"http_version": b"HTTP/" + answer.version, "reason_phrase": answer.reason},
        )

    async def aclose(self) -> None:
        """Those that are busy are closed too."""
        closing = [*self._idle, *self._busy]
        self._idle.clear()
        self._idle_at.clear()
        for connection in closing:
            connection.close()

    async def _turn(self, request: httpx.Request) -> None:
        if not self._line.locked():
            await self._line.acquire()
            return
        try:
            async with asyncio.timeout(patience_of(request).get("pool")):
                await self._line.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout("Every connection stayed busy", request=request) from None

    def _newest(self, place: Place) -> Connection | None:
        """Of the idle ones there, which are one less: so those that are not needed grow old."""
        while there := self._idle_at.get(place):
            connection = there.pop()
            if self._taken(connection) >= time.monotonic() and connection.can_be_used:
                return connection
            connection.close()
        return None

    def _close_superfluous(self) -> None:
        """Of the idle ones, the oldest, while it is too old or they are too many."""
        while self._idle:
            oldest, ends_at = next(iter(self._idle.items()))
            if time.monotonic() <= ends_at and len(self._idle) + len(self._busy) <= self._most:
                return
            self._idle_at[oldest.place].popleft()
            self._taken(oldest)
            oldest.close()

    def _taken(self, connection: Connection) -> float:
        """When it would have been too old."""
        if not self._idle_at[connection.place]:
            del self._idle_at[connection.place]
        return self._idle.pop(connection)

    async def _made(self, place: Place, request: httpx.Request) -> Connection:
        certified = self._verify() if place.is_secret else None
        return await Connection.open(place, certified, patience_of(request).get("connect"))

    def _give_back(self, connection: Connection | None) -> None:
        self._line.release()
        if connection is None:
            return
        self._busy.discard(connection)
        if connection.can_be_used:
            self._idle[connection] = time.monotonic() + KEPT_SECONDS
            self._idle_at.setdefault(connection.place, deque()).append(connection)
        else:
            connection.close()


class _Body(httpx.AsyncByteStream):
    """Gives its connection back when it is closed, at whatever place it has been left."""

    def __init__(
        self, connection: Connection, seconds: float | None, give_back: Callable[[Connection | None], None]
    ) -> None:
        self._connection = connection
        self._seconds = seconds
        self._give_back = give_back
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._connection.body(self._seconds):
                yield piece
        except BaseException:  # the same
            await self.aclose()
            raise

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._give_back(self._connection)


def _place(request: httpx.Request) -> Place:
    url = request.url
    if url.scheme not in {"http", "https"} or not url.host:
        raise httpx.UnsupportedProtocol("Only addresses of http and https have a connection", request=request)
    host, is_secret = url.raw_host.decode("ascii"), url.scheme == "https"
    name = str(request.extensions.get("sni_hostname") or host)
    return Place(host, url.port or (443 if is_secret else 80), name, is_secret)
