"""Calls to addresses that people configure: webhooks, and HTTPS calls of organisations' jobs."""

import asyncio
import json
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

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
from automation_pipeline.core.addresses import check_https_url, is_listed, origin_of
from automation_pipeline.core.errors import InvalidInputError, TransientError
from automation_pipeline.core.masking import MASK, masked_text
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.core.webhooks import WebhookAnswer
from automation_pipeline.org_jobs.models.service_payloads import ORIGINS_SETTING
from automation_pipeline.org_jobs.ports import HttpsAnswer, HttpsRequest

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

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
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
            timeout=httpx.Timeout(
                self._timeout_seconds, connect=min(self._timeout_seconds, CONNECT_SECONDS)
            ),
            transport=GuardedTransport(self._guard, verify=self._verify),
            trust_env=False,
        )

    async def _follow(
        self, http: HttpClient, request: httpx.Request, deadline: float
    ) -> WebhookAnswer:
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

    async def _read(self, answer: httpx.Response, deadline: float) -> WebhookAnswer:
        wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
        return WebhookAnswer(answer.status_code, await _beginning(answer, deadline), wait)


async def _beginning(answer: httpx.Response, deadline: float) -> str:
    """What a database can keep of it: text without NUL. Whoever has answered its status has the
    message, and would take it twice: a body that breaks off, or does not end in time, takes nothing
    of that back."""
    said, _ = await read_beginning(
        answer, 4 * MOST_CHARACTERS, deadline
    )  # the longest character has four bytes
    return said.decode("utf-8", errors="replace").replace("\0", "")[:MOST_CHARACTERS]


# A part of a secret that is as short as this may be any word.
_SHORTEST_PART = 6


class HttpsReceiverSilentError(TransientError):
    """The receiver did not answer this time."""


@dataclass(frozen=True)
class HttpsGuard(Guard):
    """`exceptions` are origins that are called wherever they are, and over plain HTTP too."""

    name: str = "url"
    setting: str = ORIGINS_SETTING
    exceptions: Collection[str] = ()

    async def places(self, url: httpx.URL) -> Sequence[str]:
        if is_listed(str(url), self.exceptions):
            return [url.raw_host.decode("ascii")]
        try:
            check_https_url(str(url), self.exceptions, name=self.name, setting=self.setting)
        except InvalidInputError as error:
            raise AddressRefusedError(str(error)) from None
        return await super().places(url)


class HttpsCallClient:
    """A connection a call: it may be used from any event loop."""

    def __init__(
        self, guard: HttpsGuard, *, verify: ssl.SSLContext | None = None, meter: Meter | None = None
    ) -> None:
        self._guard = guard
        self._verify = (lambda: verify) if verify else certificates
        self._meter = meter or Meter()

    async def call(self, request: HttpsRequest) -> HttpsAnswer:
        """No error is chained: httpx's own carry the address, whose path may be a secret."""
        try:
            async with self._http(request.timeout_seconds) as http:
                deadline = asyncio.get_running_loop().time() + request.timeout_seconds
                return await self._follow(http, _built(http, request), request.secrets, deadline)
        except (httpx.InvalidURL, UnicodeError):
            raise InvalidInputError("The address or a header cannot be sent as it is.") from None
        except AddressRefusedError as error:
            raise InvalidInputError(str(error)) from None
        except (TimeoutError, httpx.TimeoutException):
            wait = f"{request.timeout_seconds:g}"
            raise HttpsReceiverSilentError(
                f"{origin_of(request.url)} did not answer within {wait} s."
            ) from None
        except httpx.HTTPError as error:
            kind = type(error).__name__
            raise HttpsReceiverSilentError(
                f"{origin_of(request.url)} could not be reached ({kind})."
            ) from None

    def _http(self, seconds: float) -> HttpClient:
        # A proxy of the environment would look names up behind our back.
        return HttpClient(
            Observation("https-call", self._meter),
            headers={"User-Agent": "automation-pipeline", "Accept": "*/*"},
            timeout=httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
            transport=GuardedTransport(self._guard, verify=self._verify),
            trust_env=False,
        )

    async def _follow(
        self, http: HttpClient, request: httpx.Request, secrets: Collection[str], deadline: float
    ) -> HttpsAnswer:
        for redirects in range(MOST_REDIRECTS + 1):
            async with asyncio.timeout_at(deadline):
                answer = await http.send(request, stream=True)
            try:
                onward = answer.next_request
                if onward is None or redirects == MOST_REDIRECTS or not _stays(request, onward):
                    return HttpsAnswer(
                        answer.status_code, await _https_beginning(answer, secrets, deadline)
                    )
                request = onward
            finally:
                await answer.aclose()
        raise AssertionError("the last round returns")


def _built(http: HttpClient, request: HttpsRequest) -> httpx.Request:
    return http.build_request(
        request.method, request.url, content=request.body, headers=request.headers
    )


def _stays(request: httpx.Request, onward: httpx.Request) -> bool:
    """The same method at the same origin: nobody else is told the secrets in its headers."""
    return onward.method == request.method and origin_of(str(onward.url)) == origin_of(
        str(request.url)
    )


async def _https_beginning(
    answer: httpx.Response, secrets: Collection[str], deadline: float
) -> str:
    """What a database can keep of it: text without NUL. Whoever has answered its status has done
    what was asked, and would do it again: a body that breaks off, or does not end in time, takes
    nothing of that back."""
    hidden = _shapes(secrets)
    most = 4 * (
        MOST_CHARACTERS + max(map(len, hidden), default=0)
    )  # the longest character has four bytes
    said, is_whole = await read_beginning(answer, most, deadline)
    text = said.decode("utf-8", errors="replace").replace("\0", "")
    for one in hidden:
        text = text.replace(one, MASK)
    return masked_text(text if is_whole else _without_half(text, hidden), MOST_CHARACTERS)


def _without_half(text: str, hidden: Sequence[str]) -> str:
    """Its end may be the first half of a secret."""
    longest = max(map(len, hidden), default=0)
    for start in range(max(len(text) - longest + 1, 0), len(text)):
        if any(one.startswith(text[start:]) for one in hidden):
            return text[:start]
    return text


def _shapes(secrets: Iterable[str]) -> list[str]:
    """How an answer may repeat them, the longest first: as they are, in JSON, in an address,
    without `Bearer`."""
    whole = {secret for secret in secrets if secret}
    parts = whole | {
        part for secret in whole for part in secret.split() if len(part) >= _SHORTEST_PART
    }
    shapes = {
        shape
        for part in parts
        for shape in (part, json.dumps(part)[1:-1], quote(part), quote(part, safe=""))
    }
    return sorted(shapes, key=len, reverse=True)
