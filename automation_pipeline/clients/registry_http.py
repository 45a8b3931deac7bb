"""One call of a company registry over HTTP. Whatever becomes of it is a value; what it says is in the *_payloads.py."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import httpx

from automation_pipeline.clients.http import MEGABYTE, BodyRefusedError, HttpClient, Observation, PerLoop
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.meter import Meter
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.enrichment.domain.record import SourceError
from automation_pipeline.enrichment.domain.vocabulary import ErrorCode

MOST_BYTES = MEGABYTE
USER_AGENT = "automation-pipeline (company enrichment)"

_BY_STATUS: Mapping[int, tuple[ErrorCode, str]] = {
    400: (ErrorCode.INTERNAL_ERROR, "refuses our question"),
    401: (ErrorCode.AUTH_ERROR, "does not accept our credentials"),
    403: (ErrorCode.FORBIDDEN, "does not let us ask for this"),
    404: (ErrorCode.NOT_FOUND, "does not know the company"),
    408: (ErrorCode.SOURCE_UNAVAILABLE, "gave up waiting for our question"),
    409: (ErrorCode.SOURCE_UNAVAILABLE, "is still busy with the same question"),
    422: (ErrorCode.INTERNAL_ERROR, "refuses our question"),
    429: (ErrorCode.RATE_LIMIT, "was asked too often"),
    451: (ErrorCode.FORBIDDEN, "may not tell us for legal reasons"),
}
_MAY_PASS = frozenset({ErrorCode.TIMEOUT, ErrorCode.SOURCE_UNAVAILABLE, ErrorCode.RATE_LIMIT, ErrorCode.UPSTREAM_5XX})


@dataclass(frozen=True)
class Registered:
    """How a registry is called: in sentences, by the meter, and by the settings that are to be looked at."""

    name: str
    provider: str
    address_setting: str
    access_settings: str


@dataclass(frozen=True)
class Answer:
    """`body` is None where it is larger than we read, or compressed."""

    status: int
    body: bytes | None
    retry_after_seconds: float | None = None


class RegistryHttp:
    """Connections of each event loop's own. Redirects are not followed: who answers with one is not who we asked."""

    def __init__(
        self,
        registered: Registered,
        base_url: str,
        *,
        now: Callable[[], datetime],
        timeout_seconds: float,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._registered, self._base_url = registered, base_url.rstrip("/")
        self._now, self._timeout_seconds = now, timeout_seconds
        self._meter, self._transport = meter or Meter(), transport
        self._clients = PerLoop(self._client)

    def _client(self) -> HttpClient:
        return HttpClient(
            Observation(self._registered.provider, self._meter, tells_id=True),
            headers={"Accept": "application/json", "User-Agent": USER_AGENT},
            timeout=httpx.Timeout(self._timeout_seconds, pool=None),
            transport=self._transport,
        )

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, token: str | None = None
    ) -> Answer | SourceError:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        url = self._base_url + path
        return await self._heard(lambda client: client.build_request("GET", url, params=params, headers=headers))

    async def post(self, path: str, document: Mapping[str, str]) -> Answer | SourceError:
        return await self._heard(lambda client: client.build_request("POST", self._base_url + path, json=document))

    async def aclose(self) -> None:
        client = self._clients.taken()
        if client is not None:
            await client.aclose()

    async def _heard(self, question: Callable[[HttpClient], httpx.Request]) -> Answer | SourceError:
        """No error is kept: httpx's own carry the headers, and the token with them."""
        name, setting = self._registered.name, self._registered.address_setting
        try:
            async with asyncio.timeout(self._timeout_seconds):
                client = self._clients.here()
                return await self._answer(client, question(client))
        except (TimeoutError, httpx.TimeoutException):
            return failed(ErrorCode.TIMEOUT, f"{name} did not answer within {self._timeout_seconds:g} s.")
        except httpx.HTTPError as error:
            how = f"{type(error).__name__}; check {setting}"
            return failed(ErrorCode.SOURCE_UNAVAILABLE, f"{name} could not be reached ({how}).")
        except (UnicodeError, httpx.InvalidURL):
            return failed(ErrorCode.SOURCE_UNAVAILABLE, f"{name} cannot be looked up (check {setting}).")

    async def _answer(self, client: HttpClient, request: httpx.Request) -> Answer:
        try:
            answer = await client.call(request, MOST_BYTES)
        except BodyRefusedError:
            return Answer(200, None)
        wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
        return Answer(answer.status, answer.body, wait)

    def refusal(self, answer: Answer, hint: str = "") -> SourceError:
        """What a status other than 200 says."""
        status, named = answer.status, self._registered
        fallback = (ErrorCode.UPSTREAM_5XX, "is in trouble") if status >= 500 else None
        code, does = _BY_STATUS.get(status) or fallback or (ErrorCode.INTERNAL_ERROR, "answers as nobody expects")
        if code is ErrorCode.AUTH_ERROR:
            hint = hint or f"check {named.access_settings}"
        elif status not in _BY_STATUS and status < 500:
            hint = hint or f"check {named.address_setting}"
        said = f"{named.name} {does} (status {status}{'; ' if hint else ''}{hint})."
        return failed(code, said, status, answer.retry_after_seconds)

    def not_understood(self, problem: str) -> SourceError:
        message = f"The answer of {self._registered.name} is not understood: {problem}."
        return failed(ErrorCode.INTERNAL_ERROR, message, 200)


def failed(code: ErrorCode, message: str, status: int | None = None, retry_after: float | None = None) -> SourceError:
    return SourceError(
        error_code=code,
        message=message,
        http_status=status,
        retryable=code in _MAY_PASS,
        retry_after_seconds=retry_after,
    )


def raise_if_wrong(error: SourceError | None) -> None:
    """What a check raises: TransientError for what may pass by itself, else PermanentError."""
    if error is None:
        return
    if error.retryable:
        raise TransientError(error.message, retry_after_seconds=error.retry_after_seconds)
    raise PermanentError(error.message)
