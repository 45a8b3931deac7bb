"""The client for addresses that users configure: webhooks, and HTTPS calls of organisations' jobs."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
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

if TYPE_CHECKING:  # org_jobs only for its jobs
    from automation_pipeline.org_jobs.ports import HttpsAnswer, HttpsRequest

MAX_REDIRECTS = 3
MAX_CHARACTERS = 1000
CONNECT_SECONDS = 10.0
UTF8_BYTES_PER_CHARACTER = 4
# A shorter part of a secret may be an ordinary word.
MIN_SECRET_PART_LENGTH = 6


# Decides from a redirect's status, the request and the next request whether to send the next one.
MayFollow = Callable[[int, httpx.Request, httpx.Request], bool]


class _Sender:
    """Sends a request over a connection of its own, so that it works in any event loop."""

    def __init__(
        self, provider: str, guard: Guard, verify: ssl.SSLContext | None, meter: Meter | None
    ) -> None:
        self._observation = Observation(provider, meter or Meter())
        self._guard = guard
        self._verify = (lambda: verify) if verify else certificates

    @asynccontextmanager
    async def response(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_seconds: float,
        may_follow: MayFollow,
    ) -> AsyncGenerator[tuple[httpx.Response, float]]:
        """The response after at most MAX_REDIRECTS redirects, each of which `may_follow` permits, and
        the deadline for its body. Raises httpx.InvalidURL and UnicodeError for what cannot be sent.

        No error is chained: httpx's errors contain the address, whose path may be a secret."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        try:
            http = HttpClient(
                self._observation,
                headers={"User-Agent": "automation-pipeline", "Accept": "*/*"},
                timeout=httpx.Timeout(
                    timeout_seconds, connect=min(timeout_seconds, CONNECT_SECONDS)
                ),
                transport=GuardedTransport(self._guard, verify=self._verify),
                # A proxy of the environment would resolve names without the guard.
                trust_env=False,
            )
            async with http:
                request = http.build_request(method, url, content=body, headers=headers)
                for redirects in range(MAX_REDIRECTS + 1):
                    async with asyncio.timeout_at(deadline):
                        response = await http.send(request, stream=True)
                    try:
                        redirect = response.next_request
                        if (
                            redirect is None
                            or redirects == MAX_REDIRECTS
                            or not may_follow(response.status_code, request, redirect)
                        ):
                            yield response, deadline
                            return
                        request = redirect
                    finally:
                        await response.aclose()
        except (TimeoutError, httpx.TimeoutException):
            message = f"{origin_of(url)} did not answer within {timeout_seconds:g} s."
            raise TransientError(message) from None
        except httpx.HTTPError as error:
            message = f"{origin_of(url)} could not be reached ({type(error).__name__})."
            raise TransientError(message) from None


async def _storable_beginning(
    response: httpx.Response, max_characters: int, deadline: float
) -> tuple[str, bool]:
    """Text without NUL, and whether it is complete. A body that breaks off is not an error: a receiver
    that sent its status has processed the message and would process it twice."""
    max_bytes = UTF8_BYTES_PER_CHARACTER * max_characters
    body, is_complete = await read_beginning(response, max_bytes, deadline)
    return body.decode("utf-8", errors="replace").replace("\0", ""), is_complete


class WebhookClient:
    """Delivers webhooks: `core.webhooks` decides what to send, and when to send it again."""

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
        self._now = now
        self._timeout_seconds = timeout_seconds
        self._sender = _Sender("webhook", guard or Guard(allowed_origins), verify, meter)

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        sending = self._sender.response(
            "POST",
            url,
            body=body,
            headers=headers,
            timeout_seconds=self._timeout_seconds,
            may_follow=_keeps_post,
        )
        try:
            async with sending as (response, deadline):
                wait = retry_after_seconds(response.headers.get("Retry-After"), self._now())
                text, _ = await _storable_beginning(response, MAX_CHARACTERS, deadline)
                return WebhookAnswer(response.status_code, text[:MAX_CHARACTERS], wait)
        except (httpx.InvalidURL, UnicodeError):
            raise AddressRefusedError("Invalid webhookUrl format") from None


def _keeps_post(status: int, request: httpx.Request, redirect: httpx.Request) -> bool:
    """Other statuses turn a POST into a GET without its body. A redirect must not drop TLS."""
    drops_tls = request.url.scheme == "https" != redirect.url.scheme
    return status in {307, 308} and not drops_tls


@dataclass(frozen=True)
class HttpsGuard(Guard):
    """Requires https to a public address. Origins in `exceptions` may be private and use http."""

    name: str = "url"
    setting: str = "ORG_JOBS_HTTPS_ALLOWED_ORIGINS"
    exceptions: Collection[str] = ()

    async def addresses(self, url: httpx.URL) -> Sequence[str]:
        if is_listed(str(url), self.exceptions):
            return [url.raw_host.decode("ascii")]
        try:
            check_https_url(str(url), self.exceptions, name=self.name, setting=self.setting)
        except InvalidInputError as error:
            raise AddressRefusedError(str(error)) from None
        return await super().addresses(url)


class HttpsCallClient:
    """Sends the HTTPS calls of organisations' jobs. It implements `org_jobs.ports.HttpsCaller`."""

    def __init__(
        self, guard: HttpsGuard, *, verify: ssl.SSLContext | None = None, meter: Meter | None = None
    ) -> None:
        self._sender = _Sender("https-call", guard, verify, meter)

    async def call(self, request: "HttpsRequest") -> "HttpsAnswer":
        from automation_pipeline.org_jobs.ports import HttpsAnswer  # noqa: PLC0415  only for its jobs

        sending = self._sender.response(
            request.method,
            request.url,
            body=request.body,
            headers=request.headers,
            timeout_seconds=request.timeout_seconds,
            may_follow=_keeps_origin,
        )
        try:
            async with sending as (response, deadline):
                text = await _masked_beginning(response, request.secrets, deadline)
                return HttpsAnswer(response.status_code, text)
        except (httpx.InvalidURL, UnicodeError):
            raise InvalidInputError("The address or a header cannot be sent as it is.") from None
        except AddressRefusedError as error:
            raise InvalidInputError(str(error)) from None


def _keeps_origin(_status: int, request: httpx.Request, redirect: httpx.Request) -> bool:
    """The same method at the same origin, because the headers may contain secrets."""
    is_same_origin = origin_of(str(redirect.url)) == origin_of(str(request.url))
    return redirect.method == request.method and is_same_origin


async def _masked_beginning(
    response: httpx.Response, secrets: Collection[str], deadline: float
) -> str:
    hidden = _secret_forms(secrets)
    longest = max(map(len, hidden), default=0)
    text, is_complete = await _storable_beginning(response, MAX_CHARACTERS + longest, deadline)
    for secret in hidden:
        text = text.replace(secret, MASK)
    return masked_text(text if is_complete else _without_partial(text, hidden), MAX_CHARACTERS)


def _without_partial(text: str, hidden: Sequence[str]) -> str:
    """Removes the beginning of a secret from the end of the text."""
    longest = max(map(len, hidden), default=0)
    for start in range(max(len(text) - longest + 1, 0), len(text)):
        if any(secret.startswith(text[start:]) for secret in hidden):
            return text[:start]
    return text


def _secret_forms(secrets: Iterable[str]) -> list[str]:
    """The forms in which an answer may repeat a secret, longest first: as it is, JSON-escaped,
    URL-quoted, or without `Bearer`."""
    whole = {secret for secret in secrets if secret}
    parts = whole | {
        part for secret in whole for part in secret.split() if len(part) >= MIN_SECRET_PART_LENGTH
    }
    forms = {
        form
        for part in parts
        for form in (part, json.dumps(part)[1:-1], quote(part), quote(part, safe=""))
    }
    return sorted(forms, key=len, reverse=True)
