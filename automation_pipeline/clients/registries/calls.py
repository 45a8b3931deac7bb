"""What the clients of the registers share: one call with its limits and errors, and lenient fields."""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar, cast

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from automation_pipeline.clients.http import (
    MEGABYTE,
    BodyRefusedError,
    HttpClient,
    Observation,
    PerLoop,
)
from automation_pipeline.clients.payloads import without_nul
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.enrichment.models import ErrorCode, SourceError
from automation_pipeline.enrichment.rules.normalisation import is_masked

# The normalisation makes a text of any scalar. A list or an object is a format error.
LenientText = str | int | float | bool | None
Document = dict[str, object]


class RegistryPayload(BaseModel):
    """Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @property
    def has_masked_value(self) -> bool:
        """Whether the register masks any value, at any depth."""
        return _has_masked_value(self)


class RegistryFormatError(Exception):
    """The answer is not in the agreed format. The text does not quote the answer."""


Kind = TypeVar("Kind", bound=BaseModel)


def parse_answer(kind: type[Kind], body: bytes | None) -> tuple[Kind, Document]:
    """The payload and the document that it was read from."""
    if body is None:
        raise RegistryFormatError("it is larger than 1 MB, or compressed")
    try:
        document = cast("object", from_json(without_nul(body), allow_inf_nan=False))
        # A number such as 1e999 becomes infinity, which the database cannot store.
        json.dumps(document, allow_nan=False)
    except ValueError:
        raise RegistryFormatError("it is not JSON") from None
    try:
        return kind.model_validate(document), cast("Document", document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "its top level"
        raise RegistryFormatError(f"unexpected value at {where}") from None


def without_entries(names: Collection[str], value: object) -> object:
    """The document without the entries of these names, at any depth."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return {name: without_entries(names, inner) for name, inner in entries if name not in names}
    if isinstance(value, list):
        return [without_entries(names, inner) for inner in cast("list[object]", value)]
    return value


def _has_masked_value(value: object) -> bool:
    if isinstance(value, BaseModel):
        return any(_has_masked_value(getattr(value, name)) for name in type(value).model_fields)
    if isinstance(value, list | tuple):
        return any(map(_has_masked_value, cast("list[object]", value)))
    return is_masked(value)


MAX_BYTES = MEGABYTE
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
_RETRYABLE = frozenset(
    {ErrorCode.TIMEOUT, ErrorCode.SOURCE_UNAVAILABLE, ErrorCode.RATE_LIMIT, ErrorCode.UPSTREAM_5XX}
)


@dataclass(frozen=True)
class RegistryInfo:
    """The names of a register: in messages, in metrics, and of its settings."""

    name: str
    provider: str
    address_setting: str
    access_settings: str


@dataclass(frozen=True)
class RegistryAnswer:
    """`body` is None if it is larger than MAX_BYTES or compressed."""

    status: int
    body: bytes | None
    retry_after_seconds: float | None = None


class RegistryHttp:
    """Makes calls, with connections per event loop. Redirects are not followed."""

    def __init__(
        self,
        info: RegistryInfo,
        base_url: str,
        *,
        now: Callable[[], datetime],
        timeout_seconds: float,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._info, self._base_url = info, base_url.rstrip("/")
        self._now, self._timeout_seconds = now, timeout_seconds
        self._meter, self._transport = meter or Meter(), transport
        self._clients = PerLoop(self._client)

    def _client(self) -> HttpClient:
        return HttpClient(
            Observation(self._info.provider, self._meter, is_trusted=True),
            headers={"Accept": "application/json", "User-Agent": USER_AGENT},
            timeout=httpx.Timeout(self._timeout_seconds, pool=None),
            transport=self._transport,
        )

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, token: str | None = None
    ) -> RegistryAnswer | SourceError:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        url = self._base_url + path
        return await self._call(
            lambda client: client.build_request("GET", url, params=params, headers=headers)
        )

    async def post(self, path: str, document: Mapping[str, str]) -> RegistryAnswer | SourceError:
        return await self._call(
            lambda client: client.build_request("POST", self._base_url + path, json=document)
        )

    async def aclose(self) -> None:
        client = self._clients.pop()
        if client is not None:
            await client.aclose()

    async def _call(
        self, build: Callable[[HttpClient], httpx.Request]
    ) -> RegistryAnswer | SourceError:
        """Errors become values, because httpx's errors contain the headers with the token."""
        name, setting = self._info.name, self._info.address_setting
        try:
            async with asyncio.timeout(self._timeout_seconds):
                client = self._clients.current()
                return await self._send(client, build(client))
        except (TimeoutError, httpx.TimeoutException):
            return failed(
                ErrorCode.TIMEOUT, f"{name} did not answer within {self._timeout_seconds:g} s."
            )
        except httpx.HTTPError as error:
            how = f"{type(error).__name__}; check {setting}"
            return failed(ErrorCode.SOURCE_UNAVAILABLE, f"{name} could not be reached ({how}).")
        except (UnicodeError, httpx.InvalidURL):
            return failed(
                ErrorCode.SOURCE_UNAVAILABLE, f"{name} cannot be looked up (check {setting})."
            )

    async def _send(self, client: HttpClient, request: httpx.Request) -> RegistryAnswer:
        try:
            answer = await client.call(request, MAX_BYTES)
        except BodyRefusedError:
            return RegistryAnswer(200, None)
        wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
        return RegistryAnswer(answer.status, answer.body, wait)

    def refusal(self, answer: RegistryAnswer, hint: str = "") -> SourceError:
        """The error for a status other than 200."""
        status, info = answer.status, self._info
        fallback = (ErrorCode.UPSTREAM_5XX, "is in trouble") if status >= 500 else None
        code, problem = (
            _BY_STATUS.get(status)
            or fallback
            or (ErrorCode.INTERNAL_ERROR, "answers as nobody expects")
        )
        if code is ErrorCode.AUTH_ERROR:
            hint = hint or f"check {info.access_settings}"
        elif status not in _BY_STATUS and status < 500:
            hint = hint or f"check {info.address_setting}"
        message = f"{info.name} {problem} (status {status}{'; ' if hint else ''}{hint})."
        return failed(code, message, status, answer.retry_after_seconds)

    def not_understood(self, problem: str) -> SourceError:
        message = f"The answer of {self._info.name} is not understood: {problem}."
        return failed(ErrorCode.INTERNAL_ERROR, message, 200)


def failed(
    code: ErrorCode, message: str, status: int | None = None, retry_after: float | None = None
) -> SourceError:
    return SourceError(
        error_code=code,
        message=message,
        http_status=status,
        retryable=code in _RETRYABLE,
        retry_after_seconds=retry_after,
    )


def raise_source_error(error: SourceError | None) -> None:
    """Raises TransientError for a retryable error, else PermanentError."""
    if error is None:
        return
    if error.retryable:
        raise TransientError(error.message, retry_after_seconds=error.retry_after_seconds)
    raise PermanentError(error.message)
