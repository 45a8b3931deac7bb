"""Webhooks over HTTP: one POST, only to where we may call, and only the beginning of what the receiver says is read."""

import asyncio
import ssl
from collections.abc import Callable, Collection, Mapping
from datetime import datetime

import httpx

from automation_pipeline.clients.http import (
    AddressRefusedError,
    Guard,
    GuardedTransport,
    HttpClient,
    Observation,
    certificates,
    read_beginning,
)
from automation_pipeline.core.addresses import origin_of
from automation_pipeline.core.delivery import Answer
from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.meter import Meter
from automation_pipeline.core.retry import retry_after_seconds

MOST_REDIRECTS = 3
MOST_CHARACTERS = 1000
CONNECT_SECONDS = 10.0
# The others would turn our POST into a GET without its body.
_KEEPS_THE_POST = frozenset({307, 308})


class ReceiverSilentError(TransientError):
    """The receiver did not answer this time."""


class WebhookClient:
    """A connection a message: it may be used from any event loop."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        allowed_origins: Collection[str] = (),
        timeout_seconds: float = 10.0,
        guard: Guard | None = None,
        verify: ssl.SSLContext | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._meter = meter or Meter()
        self._now = now
        self._guard = guard or Guard(allowed_origins)
        self._timeout_seconds = timeout_seconds
        self._verify = (lambda: verify) if verify else certificates

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """No error is chained: httpx's own carry the address, whose path may be a secret."""
        try:
            async with self._http() as http:
                deadline = asyncio.get_running_loop().time() + self._timeout_seconds
                request = http.build_request("POST", url, content=body, headers=headers)
                return await self._follow(http, request, deadline)
        except (httpx.InvalidURL, UnicodeError):
            raise AddressRefusedError("Invalid webhookUrl format") from None
        except (TimeoutError, httpx.TimeoutException):
            wait = f"{self._timeout_seconds:g}"
            raise ReceiverSilentError(f"{origin_of(url)} did not answer within {wait} s") from None
        except httpx.HTTPError as error:
            kind = type(error).__name__
            raise ReceiverSilentError(f"{origin_of(url)} could not be reached ({kind})") from None

    def _http(self) -> HttpClient:
        # A proxy of the environment would look names up behind our back.
        return HttpClient(
            Observation("webhook", self._meter),
            headers={"User-Agent": "automation-pipeline", "Accept": "*/*"},
            timeout=httpx.Timeout(self._timeout_seconds, connect=min(self._timeout_seconds, CONNECT_SECONDS)),
            transport=GuardedTransport(self._guard, verify=self._verify),
            trust_env=False,
        )

    async def _follow(self, http: HttpClient, request: httpx.Request, deadline: float) -> Answer:
        for redirects in range(MOST_REDIRECTS + 1):
            async with asyncio.timeout_at(deadline):
                answer = await http.send(request, stream=True)
            try:
                onward = answer.next_request if answer.status_code in _KEEPS_THE_POST else None
                unveiled = onward is not None and request.url.scheme == "https" != onward.url.scheme
                if onward is None or unveiled or redirects == MOST_REDIRECTS:
                    return await self._read(answer, deadline)
                request = onward
            finally:
                await answer.aclose()
        raise AssertionError("the last round returns")

    async def _read(self, answer: httpx.Response, deadline: float) -> Answer:
        wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
        return Answer(answer.status_code, await _beginning(answer, deadline), wait)


async def _beginning(answer: httpx.Response, deadline: float) -> str:
    """What a database can keep of it: text without NUL. Whoever has answered its status has the message, and would take
    it twice: a body that breaks off, or does not end in time, takes nothing of that back."""
    said, _ = await read_beginning(answer, 4 * MOST_CHARACTERS, deadline)  # the longest character has four bytes
    return said.decode("utf-8", errors="replace").replace("\0", "")[:MOST_CHARACTERS]
