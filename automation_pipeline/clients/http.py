"""HTTP calls to external systems: the client, its transports, the address guard, bounded bodies,
metrics, and parsing that several clients share (ADR 0020)."""

import asyncio
import logging
import re
import socket
import ssl
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from itertools import chain
from math import isfinite
from typing import Annotated, Generic, TypeAlias, TypedDict, TypeVar, Unpack
from urllib.request import getproxies
from weakref import WeakKeyDictionary

import httpx
from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, TypeAdapter, ValidationError

from automation_pipeline.core.addresses import DEFAULT_PORTS, check_url, is_public
from automation_pipeline.core.errors import InvalidInputError, PermanentError, TransientError
from automation_pipeline.core.logs import correlation_id, log
from automation_pipeline.core.metrics import Meter


def bare_key(key: str | None) -> str:
    """The key without blanks and quotes around it, which copying may add. Empty without a key."""
    text = (key or "").strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].strip()
    return text


def usable_key(key: str | None, provider: str, setting: str) -> str:
    """The bare key. Raises PermanentError, which names the provider and the setting, never the key."""
    text = bare_key(key)
    if not text:
        raise PermanentError(f"{provider} API key not configured (set {setting})")
    if not (text.isascii() and text.isprintable()):
        raise PermanentError(
            f"{provider} API key holds characters that cannot be sent (set {setting})"
        )
    return text


def web_address(text: str, message: str) -> httpx.URL:
    """Raises PermanentError with the message unless the text is an http or https address."""
    try:
        url = httpx.URL(text.strip())
    except httpx.InvalidURL:
        url = httpx.URL()
    # An invalid port would otherwise raise an ExceptionGroup in the event loop.
    is_valid_port = url.port is None or 0 < url.port < 65_536
    if url.scheme not in DEFAULT_PORTS or not url.host or not is_valid_port:
        raise PermanentError(message)
    return url


REQUEST_ID = "X-Request-Id"
# The default of httpx for idle connections.
KEEP_ALIVE_SECONDS = 5.0
MEGABYTE = 1_000_000

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Value = TypeVar("Value")

_log = log(__name__)


# --- Bodies


class BodyRefusedError(httpx.RemoteProtocolError):
    """The client does not read the body. The server has received the request."""


class BodyTooLargeError(BodyRefusedError):
    """The body exceeds the size that the caller allows."""


class EncodedBodyError(BodyRefusedError):
    """The body is compressed although the client requested `identity`. Decoded, it could have any size."""


@dataclass(frozen=True)
class HttpAnswer:
    """A complete response. The body of an error is empty if it could not be read."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


def check_head(response: httpx.Response, max_bytes: int) -> None:
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in {"", "identity"}:
        raise EncodedBodyError(f"it is compressed ({encoding[:40]})")
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > max_bytes):
        raise _too_large(max_bytes)


async def body_pieces(response: httpx.Response, max_bytes: int) -> AsyncIterator[bytes]:
    """The raw body. Raises BodyRefusedError before it yields more than `max_bytes`."""
    check_head(response, max_bytes)
    if response.is_stream_consumed:  # a mock transport has read it
        if len(response.content) > max_bytes:
            raise _too_large(max_bytes)
        yield response.content
        return
    size = 0
    async for piece in response.aiter_raw():
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        yield piece


async def read_beginning(
    response: httpx.Response, max_bytes: int, deadline: float
) -> tuple[bytes, bool]:
    """Read up to `max_bytes` of the body, and return whether that is all of it. `deadline` is a
    time of the event loop. A body that breaks off is not an error, because the caller already has the
    status."""
    body = bytearray()
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout_at(deadline):
            async for piece in body_pieces(response, 2**63):
                body += piece
                if len(body) >= max_bytes:
                    return bytes(body[:max_bytes]), False
            return bytes(body), True
    return bytes(body), False


def read_body_now(response: httpx.Response, max_bytes: int) -> bytes:
    """The whole body, for synchronous callers such as the command line."""
    check_head(response, max_bytes)
    body = bytearray()
    for piece in (response.content,) if response.is_stream_consumed else response.iter_raw():
        body += piece
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
    return bytes(body)


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"it is larger than {max_bytes / MEGABYTE:g} MB")


# --- Connections


@cache
def certificates() -> ssl.SSLContext:
    """The certificates that httpx trusts. Loading takes 20 ms, so it waits for the first https
    call."""
    return httpx.create_ssl_context()


# For plain http, for which httpx would otherwise load the certificates too.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# Scheme, host, port, and the name in the certificate.
Origin: TypeAlias = tuple[str, str, int, str]


@dataclass(eq=False)
class Slot:
    """One connection to one origin, as an httpx transport."""

    origin: Origin
    transport: httpx.AsyncHTTPTransport
    idle_since: float = 0.0


class SlotTransport(httpx.AsyncBaseTransport):
    """At most `slots` concurrent calls, each over a stock transport with one connection.

    A shared pool would poll the socket of every connection at each call. A connection serves one
    origin, because httpcore would reuse it for another name at the same address. After an error or
    a cancellation the connection is closed.
    """

    def __init__(self, slots: int, *, verify: Callable[[], ssl.SSLContext] = certificates) -> None:
        self._slots, self._verify = slots, verify
        self._semaphore = asyncio.Semaphore(slots)
        self._idle: list[Slot] = []  # ordered by last use
        self._busy: set[Slot] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        origin = _origin(request)
        try:
            async with asyncio.timeout(request.extensions.get("timeout", {}).get("pool")):
                await self._semaphore.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout("All connections are busy", request=request) from None
        slot: Slot | None = None
        try:
            slot = await self._take(origin)
            response = await slot.transport.handle_async_request(request)
        except BaseException as error:  # cancellation must free the slot too
            await self.release(slot, is_reusable=False)
            if isinstance(error, UnicodeError):  # a label of the host name is too long
                raise httpx.ConnectError(str(error), request=request) from None
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  the transport is asynchronous
        response.stream = _SlotBody(response.stream, slot, self)
        return response

    async def release(self, slot: Slot | None, *, is_reusable: bool) -> None:
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
            self._semaphore.release()

    async def aclose(self) -> None:
        closing, self._idle = [*self._idle, *self._busy], []
        for slot in closing:
            await slot.transport.aclose()

    async def _take(self, origin: Origin) -> Slot:
        """The most recently used idle slot of the origin, or a new one. Closes slots that have been
        idle for too long."""
        found = next(
            (at for at in range(len(self._idle) - 1, -1, -1) if self._idle[at].origin == origin),
            None,
        )
        slot = self._open(origin) if found is None else self._idle.pop(found)
        self._busy.add(slot)
        too_old = time.monotonic() - KEEP_ALIVE_SECONDS
        while self._idle and (
            self._idle[0].idle_since < too_old or len(self._idle) + len(self._busy) > self._slots
        ):
            await self._idle.pop(0).transport.aclose()
        return slot

    def _open(self, origin: Origin) -> Slot:
        verify = self._verify() if origin[0] == "https" else _NO_CERTIFICATES
        limits = httpx.Limits(
            max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP_ALIVE_SECONDS
        )
        return Slot(origin, httpx.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits))


class _SlotBody(httpx.AsyncByteStream):
    def __init__(self, body: httpx.AsyncByteStream, slot: Slot, transport: SlotTransport) -> None:
        self._body, self._slot, self._transport = body, slot, transport
        self._is_complete = self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            yield piece
        self._is_complete = True

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed, is_reusable = True, False
        try:
            await self._body.aclose()
            is_reusable = self._is_complete and self._is_ready()
        finally:
            await self._transport.release(self._slot, is_reusable=is_reusable)

    def _is_ready(self) -> bool:
        """Whether the connection can serve another call. httpcore would read bytes after a complete
        response as the next response. A cancellation leaves a connection busy, because httpcore's
        shields hold off only the cancellation of anyio's scopes."""
        connections = self._slot.transport._pool.connections  # pyright: ignore[reportPrivateUsage]  there is no public way
        return all(
            one.is_idle() and not one._connection._h11_state.trailing_data[0]  # pyright: ignore  there is no public way
            for one in connections
        )


def _origin(request: httpx.Request) -> Origin:
    url = request.url
    if url.scheme not in DEFAULT_PORTS or not url.host:
        raise httpx.UnsupportedProtocol("Only http and https are supported", request=request)
    host = url.raw_host.decode("ascii")
    name = str(request.extensions.get("sni_hostname") or host)
    return url.scheme, host, url.port or DEFAULT_PORTS[url.scheme], name


# --- Addresses that users configure


class AddressRefusedError(PermanentError):
    """The address, or an address that its name resolves to, is not allowed."""


class NameNotFoundError(TransientError):
    """The host name could not be resolved; another attempt may succeed."""


async def addresses_of(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True)
class Guard:
    """Decides which addresses may be called: the listed origins and nothing else, or without a list
    every public address. Errors call the address `name` and the list `setting`."""

    allowed_origins: Collection[str] = ()
    name: str = "webhookUrl"
    setting: str = "WEBHOOK_ALLOWED_ORIGINS"
    resolve: Resolve = addresses_of

    async def addresses(self, url: httpx.URL) -> Sequence[str]:
        """The IP addresses to connect to, best first. Raises AddressRefusedError if any of them is not
        public."""
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
        if not all(is_public(ip_address(address)) for address in found):
            raise AddressRefusedError(f"{self.name} IP not allowed")
        return found


class GuardedTransport(httpx.AsyncBaseTransport):
    """Checks each request, including redirects, and connects to the address that it checked. The name
    is not resolved again, so it cannot point elsewhere the second time."""

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
        for address in await self._guard.addresses(request.url):
            try:
                return await self._inner.handle_async_request(_pinned(request, address))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                unreachable = error
        raise unreachable or httpx.ConnectError("No address", request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _pinned(request: httpx.Request, address: str) -> httpx.Request:
    """The same request to that address, with the Host header and the certificate name of the URL."""
    extensions = {
        **request.extensions,
        "sni_hostname": request.url.raw_host.decode("ascii").removesuffix("."),
    }
    return httpx.Request(
        request.method,
        request.url if address == request.url.host else request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions=extensions,
    )


# --- The client


@dataclass(frozen=True)
class Observation:
    """The provider whose calls are counted, and the meter. `is_trusted`: the provider gets the
    X-Request-Id, and paths are logged. The path of a user's webhook may be a secret."""

    provider: str
    meter: Meter
    is_trusted: bool = False


def count_call(meter: Meter, provider: str, status: str, seconds: float) -> None:
    meter.count("provider_calls_total", provider=provider, status=status)
    meter.count("provider_call_seconds_total", seconds, provider=provider)


class ClientOptions(TypedDict, total=False):
    base_url: str
    timeout: httpx.Timeout
    trust_env: bool


class HttpClient(httpx.AsyncClient):
    """Counts each call by its status and logs it at debug level. It follows no redirects, keeps no
    cookies and asks for uncompressed bodies. `connections` applies without a `transport`."""

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
        # Without a transport, httpx makes one that uses the proxies of the environment.
        super().__init__(
            transport=transport,
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            headers={"Accept-Encoding": "identity", **(headers or {})},
            **options,
        )
        self._observation = observation

    async def call(self, request: httpx.Request, max_bytes: int) -> HttpAnswer:
        """Sends the request and reads the whole response. Raises BodyRefusedError if the server has the
        request, but its response cannot be read."""
        response = await self.send(request, stream=True)
        try:
            body = b"".join([piece async for piece in body_pieces(response, max_bytes)])
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
        request_id = correlation_id()
        if request_id is not None and self._observation.is_trusted:
            request.headers.setdefault(REQUEST_ID, request_id)
        started, status = time.perf_counter(), "cancelled"
        try:
            response = await super().send(request, stream=stream, **more)  # pyright: ignore[reportArgumentType]  options of httpx
            status = str(response.status_code)
        except Exception as error:  # every error counts
            status = type(error).__name__
            raise
        finally:
            self._record(request, status, time.perf_counter() - started)
        return response

    def _record(self, request: httpx.Request, status: str, seconds: float) -> None:
        provider = self._observation.provider
        count_call(self._observation.meter, provider, status, seconds)
        if _log.isEnabledFor(logging.DEBUG):
            path = {"path": request.url.path} if self._observation.is_trusted else {}
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
    """One value per event loop, because connections and locks belong to the loop that first used
    them."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._values: WeakKeyDictionary[asyncio.AbstractEventLoop, Value] = WeakKeyDictionary()

    def current(self) -> Value:
        loop = asyncio.get_running_loop()
        if loop not in self._values:
            self._values[loop] = self._make()
        return self._values[loop]

    def pop(self) -> Value | None:
        return self._values.pop(asyncio.get_running_loop(), None)


# --- Payloads

MAX_MESSAGE_LENGTH = 500
MAX_CODE_LENGTH = 100

# PostgreSQL stores the character NUL neither in text nor in JSON. After an odd number of
# backslashes, `u0000` is ordinary text.
_ESCAPED_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
_MESSAGE_FIELDS = ("detail", "message", "error", "error_message", "reason", "msg")
_CODE_FIELDS = ("code", "status", "type")
_NESTED_FIELDS = ("detail", "error")
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


class Payload(BaseModel):
    """Types are strict; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def without_nul(body: bytes) -> bytes:
    """The JSON document without NUL characters in its strings."""
    # The membership test is cheap; the expression tries every backslash of the body.
    return _ESCAPED_NUL.sub(rb"\1", body) if rb"\u0000" in body else body


def text_or_none(value: object) -> str | None:
    """For a field that is only recorded: a value of another type counts as missing."""
    return (value.strip() or None) if isinstance(value, str) else None


def number_or_none(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:  # a JSON integer can exceed every float
        return None


LenientText: TypeAlias = Annotated[str | None, BeforeValidator(text_or_none)]
LenientNumber: TypeAlias = Annotated[float | None, BeforeValidator(number_or_none)]


@dataclass(frozen=True)
class ProviderRefusal:
    """The status of a refused call, with the code and message of its body where it has them."""

    status: int
    code: str | None = None
    message: str | None = None

    def sentence(self, failure: str) -> str:
        parts = [f"{failure} status={self.status}"]
        parts += [f"code={self.code}"] if self.code else []
        parts += [f"provider_message={self.message}"] if self.message else []
        return " ".join(parts)


def parse_refusal(status: int, body: bytes, secret: str) -> ProviderRefusal:
    """Code and message are one line each; `secret` is masked in case the provider repeats it."""
    try:
        document = _JSON.validate_json(without_nul(body))
    except ValidationError:
        return ProviderRefusal(status)

    def masked(text: str | None, max_length: int) -> str | None:
        return text and " ".join(text.replace(secret, "***").split())[:max_length]

    return ProviderRefusal(
        status,
        code=masked(_first_text(document, _CODE_FIELDS), MAX_CODE_LENGTH),
        message=masked(_first_text(document, _MESSAGE_FIELDS), MAX_MESSAGE_LENGTH),
    )


def _first_text(value: JsonValue, names: Iterable[str]) -> str | None:
    """The first text under one of the names, outer levels first. Of a list, only the first element
    counts."""
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return None
    texts = (text for name in names if isinstance(text := value.get(name), str) and text.strip())
    inner = (text for name in _NESTED_FIELDS if (text := _first_text(value.get(name), names)))
    return next(chain(texts, inner), None)


def first_fault(error: ValidationError, whole: str = "its top level") -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(map(str, first["loc"])) or whole
