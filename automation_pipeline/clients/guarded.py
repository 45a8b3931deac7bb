"""A transport for addresses that others chose: it looks the name up itself, refuses what is not public, and connects to
the very address that it has checked. A name cannot lead elsewhere the second time, since there is none."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

from automation_pipeline.clients.connections import Connections, certificates
from automation_pipeline.core.addresses import DEFAULT_PORTS, check_url, is_public
from automation_pipeline.core.errors import InvalidInputError, PermanentError, TransientError

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class AddressRefusedError(PermanentError):
    """The address, or where it leads, is not one that we call."""


class NameNotFoundError(TransientError):
    """Its host has no address, this time."""


async def addresses_of(host: str, port: int) -> list[str]:
    """The system's own answer."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True)
class Guard:
    """What may be called. With origins listed: those, wherever they are, and nothing else. `name` is what errors call
    the address, `setting` the list."""

    allowed_origins: Collection[str] = ()
    name: str = "webhookUrl"
    setting: str = "WEBHOOK_ALLOWED_ORIGINS"
    resolve: Resolve = addresses_of

    async def places(self, url: httpx.URL) -> Sequence[str]:
        """Where to connect to, best first. AddressRefusedError if any place is one that we do not call."""
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
    """Every request is checked, and so is every redirect that a client follows through it."""

    def __init__(
        self,
        guard: Guard,
        *,
        connections: int = 100,
        verify: Callable[[], ssl.SSLContext] = certificates,
        inner: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._guard = guard
        # A kept one serves the name that it was opened for: the next request to its address may be for another.
        self._inner = inner or Connections(connections, verify=verify)

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
    """The same request to that place: the Host header and the name in its certificate stay those of the address."""
    extensions = {**request.extensions, "sni_hostname": request.url.raw_host.decode("ascii").removesuffix(".")}
    return httpx.Request(
        request.method,
        request.url if place == request.url.host else request.url.copy_with(host=place),
        headers=request.headers,
        stream=request.stream,
        extensions=extensions,
    )
