"""HTTP calls to other systems: client, transports, address guard, bounded reader, observation (ADR
0020)."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from typing import Generic, NamedTuple, TypedDict, TypeVar, Unpack
from urllib.request import getproxies
from weakref import WeakKeyDictionary

import httpx

from automation_pipeline.core.addresses import DEFAULT_PORTS, check_url, is_public
from automation_pipeline.core.errors import InvalidInputError, PermanentError, TransientError
from automation_pipeline.core.logs import correlation_id, log
from automation_pipeline.core.metrics import Meter


def bare_key(key: str | None) -> str:
    """The key without what copying leaves around it: blanks and one pair of quotes. Empty when
    there is none."""
    text = (key or "").strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].strip()
    return text


def usable_key(key: str | None, provider: str, setting: str) -> str:
    """The bare key; PermanentError, which names provider and setting but not the key: there is none
    to send."""
    text = bare_key(key)
    if not text:
        raise PermanentError(f"{provider} API key not configured (set {setting})")
    if not (text.isascii() and text.isprintable()):
        raise PermanentError(
            f"{provider} API key holds characters that cannot be sent (set {setting})"
        )
    return text


REQUEST_ID = "X-Request-Id"
# Stock httpx keeps an idle connection as long.
KEEP_ALIVE_SECONDS = 5.0
MEGABYTE = 1_000_000

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Value = TypeVar("Value")

_log = log(__name__)


# --- Bodies


class BodyRefusedError(httpx.RemoteProtocolError):
    """The body is not read. A request that caused it has arrived."""


class BodyTooLargeError(BodyRefusedError):
    """The body is larger than the client allows."""


class EncodedBodyError(BodyRefusedError):
    """The body is compressed although the client asked for identity: it could become any size."""


@dataclass(frozen=True)
class HttpAnswer:
    """A whole answer. The body of a refusal is empty when it was not read: its status says
    enough."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


def check_head(response: httpx.Response, most_bytes: int) -> None:
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in {"", "identity"}:
        raise EncodedBodyError(f"it is compressed ({encoding[:40]})")
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > most_bytes):
        raise _too_large(most_bytes)


async def body_pieces(response: httpx.Response, most_bytes: int) -> AsyncIterator[bytes]:
    """The raw body. BodyRefusedError before more than `most_bytes` are given out."""
    check_head(response, most_bytes)
    if response.is_stream_consumed:  # a transport without a network made it whole
        if len(response.content) > most_bytes:
            raise _too_large(most_bytes)
        yield response.content
        return
    size = 0
    async for piece in response.aiter_raw():
        size += len(piece)
        if size > most_bytes:
            raise _too_large(most_bytes)
        yield piece


async def read_body(response: httpx.Response, most_bytes: int) -> bytes:
    return b"".join([piece async for piece in body_pieces(response, most_bytes)])


async def read_beginning(
    response: httpx.Response, most_bytes: int, deadline: float
) -> tuple[bytes, bool]:
    """At most so much of the body, and whether that is all. What breaks off, or is not there by the
    deadline of the event loop, counts as read: the caller has its status already."""
    body = bytearray()
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout_at(deadline):
            async for piece in body_pieces(response, 2**63):
                body += piece
                if len(body) >= most_bytes:
                    return bytes(body[:most_bytes]), False
            return bytes(body), True
    return bytes(body), False


def read_body_now(response: httpx.Response, most_bytes: int) -> bytes:
    """`read_body` for the command line, which has no event loop."""
    check_head(response, most_bytes)
    body = bytearray()
    for piece in (response.content,) if response.is_stream_consumed else response.iter_raw():
        body += piece
        if len(body) > most_bytes:
            raise _too_large(most_bytes)
    return bytes(body)


def _too_large(most_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"it is larger than {most_bytes / MEGABYTE:g} MB")


# --- Connections


@cache
def certificates() -> ssl.SSLContext:
    """The certificates that httpx trusts, loaded at the first https call of a process: that takes
    20 ms."""
    return httpx.create_ssl_context()


@cache
def _no_certificates() -> ssl.SSLContext:
    """For transports that only speak http; httpx would load the certificates for them too."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Origin(NamedTuple):
    """Where a connection leads to. `name` is the one in the certificate."""

    scheme: str
    host: str
    port: int
    name: str


@dataclass(eq=False)
class Slot:
    """One connection of one place, as a transport of httpx."""

    place: Origin
    transport: httpx.AsyncHTTPTransport
    idle_since: float = field(default=0.0)


class SlotTransport(httpx.AsyncBaseTransport):
    """At most `slots` calls at once, each over a stock transport with one connection. A pool that
    all calls share asks every connection's socket at every call. A connection serves one place:
    httpcore alone would use one again for another name at the same address. After an error or a
    cancelled call the connection is closed."""

    def __init__(self, slots: int, *, verify: Callable[[], ssl.SSLContext] = certificates) -> None:
        self._slots, self._verify = slots, verify
        self._turns = asyncio.Semaphore(slots)
        self._idle: list[Slot] = []  # the last one used is the last
        self._busy: set[Slot] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        place = _place(request)
        await self._take_turn(request)
        slot: Slot | None = None
        try:
            slot = await self._take(place)
            response = await slot.transport.handle_async_request(request)
        except BaseException as error:  # a cancelled call too frees its slot
            await self.give_back(slot, is_reusable=False)
            if isinstance(error, UnicodeError):  # a part of a name that is too long to be looked up
                raise httpx.ConnectError(str(error), request=request) from None
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  of an asynchronous transport
        response.stream = _SlotBody(response.stream, slot, self)
        return response

    async def give_back(self, slot: Slot | None, *, is_reusable: bool) -> None:
        try:
            if slot is None:
                return
            self._busy.discard(slot)
            if is_reusable:
                slot.idle_since = time.monotonic()
                self._idle.append(slot)
            else:
                await slot.transport.aclose()
        finally:
            self._turns.release()

    async def aclose(self) -> None:
        closing, self._idle = [*self._idle, *self._busy], []
        for slot in closing:
            await slot.transport.aclose()

    async def _take_turn(self, request: httpx.Request) -> None:
        try:
            async with asyncio.timeout(request.extensions.get("timeout", {}).get("pool")):
                await self._turns.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout("Every connection stayed busy", request=request) from None

    async def _take(self, place: Origin) -> Slot:
        """The idle slot of the place that was used last, or a new one. Slots that no call needs
        grow old and are closed."""
        found = next(
            (at for at in range(len(self._idle) - 1, -1, -1) if self._idle[at].place == place), None
        )
        slot = self._made(place) if found is None else self._idle.pop(found)
        self._busy.add(slot)
        too_old = time.monotonic() - KEEP_ALIVE_SECONDS
        while self._idle and (
            self._idle[0].idle_since < too_old or len(self._idle) + len(self._busy) > self._slots
        ):
            await self._idle.pop(0).transport.aclose()
        return slot

    def _made(self, place: Origin) -> Slot:
        verify = self._verify() if place.scheme == "https" else _no_certificates()
        limits = httpx.Limits(
            max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP_ALIVE_SECONDS
        )
        return Slot(place, httpx.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits))


class _SlotBody(httpx.AsyncByteStream):
    """Gives its slot back when it is closed."""

    def __init__(self, body: httpx.AsyncByteStream, slot: Slot, transport: SlotTransport) -> None:
        self._body, self._slot, self._transport = body, slot, transport
        self._is_whole = self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            yield piece
        self._is_whole = True

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._body.aclose()
        finally:
            is_reusable = self._is_whole and not _has_leftover(self._slot.transport)
            await self._transport.give_back(self._slot, is_reusable=is_reusable)


def _has_leftover(transport: httpx.AsyncHTTPTransport) -> bool:
    """Bytes that came behind a whole answer. httpcore would take them for the answer to the next
    call."""
    kept = transport._pool.connections  # pyright: ignore[reportPrivateUsage]  nothing public tells
    return any(one._connection._h11_state.trailing_data[0] for one in kept)  # pyright: ignore  the same


def _place(request: httpx.Request) -> Origin:
    url = request.url
    if url.scheme not in DEFAULT_PORTS or not url.host:
        raise httpx.UnsupportedProtocol(
            "Only addresses of http and https have a connection", request=request
        )
    host = url.raw_host.decode("ascii")
    name = str(request.extensions.get("sni_hostname") or host)
    return Origin(url.scheme, host, url.port or DEFAULT_PORTS[url.scheme], name)


# --- Addresses that others choose


class AddressRefusedError(PermanentError):
    """The address, or where it leads, is not one that we call."""


class NameNotFoundError(TransientError):
    """The host has no address this time."""


async def addresses_of(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True)
class Guard:
    """What may be called. With origins listed: those, wherever they are, and nothing else. `name`
    is what errors call the address, `setting` the list."""

    allowed_origins: Collection[str] = ()
    name: str = "webhookUrl"
    setting: str = "WEBHOOK_ALLOWED_ORIGINS"
    resolve: Resolve = addresses_of

    async def places(self, url: httpx.URL) -> Sequence[str]:
        """Where to connect to, best first. AddressRefusedError if any place is one that we do not
        call."""
        try:
            check_url(str(url), self.allowed_origins, name=self.name, setting=self.setting)
        except InvalidInputError as error:
            raise AddressRefusedError(str(error)) from None
        host = url.raw_host.decode("ascii")
        if self.allowed_origins:
            return [host]
        try:
            found = await self.resolve(host, url.port or DEFAULT_PORTS[url.scheme])
        except (OSError, UnicodeError):
            raise NameNotFoundError("The host's name could not be resolved") from None
        if not found:
            raise NameNotFoundError("The host's name has no address")
        if not all(is_public(ip_address(place)) for place in found):
            raise AddressRefusedError(f"{self.name} IP not allowed")
        return found


class GuardedTransport(httpx.AsyncBaseTransport):
    """Checks every request, and so every redirect that a client follows. It connects to the address
    that it has checked: the name is not looked up again, so it cannot lead elsewhere the second
    time."""

    def __init__(
        self,
        guard: Guard,
        *,
        connections: int = 100,
        verify: Callable[[], ssl.SSLContext] = certificates,
        inner: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._guard = guard
        self._inner = inner or SlotTransport(connections, verify=verify)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        unreachable: httpx.TransportError | None = None
        for place in await self._guard.places(request.url):
            try:
                return await self._inner.handle_async_request(_pinned(request, place))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                unreachable = error
        raise unreachable or httpx.ConnectError("No address", request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _pinned(request: httpx.Request, place: str) -> httpx.Request:
    """The same request to that place. The Host header and the name in the certificate stay those of
    the address."""
    extensions = {
        **request.extensions,
        "sni_hostname": request.url.raw_host.decode("ascii").removesuffix("."),
    }
    return httpx.Request(
        request.method,
        request.url if place == request.url.host else request.url.copy_with(host=place),
        headers=request.headers,
        stream=request.stream,
        extensions=extensions,
    )


# --- The client


@dataclass(frozen=True)
class Observation:
    """Whose calls are counted, and where. `tells_id`: the provider is ours to tell which request
    its call belongs to; a host whose address others chose is told nothing, and its path, which may
    be a secret, is not logged."""

    provider: str
    meter: Meter
    tells_id: bool = False


class ClientOptions(TypedDict, total=False):
    base_url: str
    timeout: httpx.Timeout
    trust_env: bool


class HttpClient(httpx.AsyncClient):
    """Counts each call by its answer, and logs it at the level of debugging. It follows no
    redirects, keeps no cookies, and asks for bodies that are not compressed. `connections`: at
    once, unless `transport` says."""

    def __init__(
        self,
        observation: Observation,
        *,
        connections: int = 100,
        transport: httpx.AsyncBaseTransport | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        if transport is None and not getproxies().keys() & {"http", "https", "all"}:
            transport = SlotTransport(connections)
        # Without a transport httpx makes its own, which goes by the proxies of the environment.
        super().__init__(
            transport=transport,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            headers={"Accept-Encoding": "identity", **(headers or {})},
            **options,
        )
        self._observation = observation

    async def call(self, request: httpx.Request, most_bytes: int) -> HttpAnswer:
        """One call with its whole answer. BodyRefusedError: it has arrived, but its answer cannot
        be read."""
        response = await self.send(request, stream=True)
        try:
            body = await read_body(response, most_bytes)
        except BodyRefusedError:
            if response.is_success:
                raise
            body = b""
        finally:
            await response.aclose()
        return HttpAnswer(response.status_code, response.headers, body)

    async def send(
        self, request: httpx.Request, *, stream: bool = False, **more: object
    ) -> httpx.Response:
        given = correlation_id()
        if given is not None and self._observation.tells_id:
            request.headers.setdefault(REQUEST_ID, given)
        began, status = time.perf_counter(), "error"
        try:
            response = await super().send(request, stream=stream, **more)  # pyright: ignore[reportArgumentType]  its own options
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        except Exception as error:  # whatever it is: counted, and raised on
            status = type(error).__name__
            raise
        else:
            status = str(response.status_code)
        finally:
            self._record(request, status, time.perf_counter() - began)
        return response

    def _record(self, request: httpx.Request, status: str, seconds: float) -> None:
        provider, meter = self._observation.provider, self._observation.meter
        meter.count("provider_calls_total", provider=provider, status=status)
        meter.count("provider_call_seconds_total", seconds, provider=provider)
        if not _log.isEnabledFor(logging.DEBUG):
            return
        path = {"path": request.url.path} if self._observation.tells_id else {}
        _log.debug(
            "Called a provider",
            provider=provider,
            method=request.method,
            host=request.url.host,
            **path,
            status=status,
            seconds=round(seconds, 3),
        )


class PerLoop(Generic[Value]):
    """One value per event loop: connections and locks belong to the loop in which they were first
    used."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, Value] = WeakKeyDictionary()

    def here(self) -> Value:
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = self._make()
        return self._made[loop]

    def taken(self) -> Value | None:
        """The value of the running loop, which has none from now on."""
        return self._made.pop(asyncio.get_running_loop(), None)
