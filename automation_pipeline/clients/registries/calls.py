"""Shared parts of the register clients: one call with its limits and errors, and lenient fields."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, NotRequired, TypedDict, TypeVar, cast

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
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.enrichment.models import ErrorCode, SourceError, SourceRecord
from automation_pipeline.enrichment.rules.normalisation import is_masked

# The normalisation converts any scalar to text. A list or an object is a format error.
LenientText = str | int | float | bool | None
Document = dict[str, object]


class RegistryPayload(BaseModel):
    """Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class RegistryFormatError(Exception):
    """The response is not in the agreed format. The message does not quote the response."""


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


def has_masked_value(value: object) -> bool:
    """Whether the register masks any value of the payload, at any depth."""
    if isinstance(value, BaseModel):
        return any(has_masked_value(getattr(value, name)) for name in type(value).model_fields)
    if isinstance(value, list | tuple):
        return any(map(has_masked_value, cast("list[object]", value)))
    return is_masked(value)


MAX_BYTES = MEGABYTE
USER_AGENT = "automation-pipeline (company enrichment)"

_BY_STATUS: Mapping[int, tuple[ErrorCode, str]] = {
    400: (ErrorCode.INTERNAL_ERROR, "refuses the request"),
    401: (ErrorCode.AUTH_ERROR, "does not accept the credentials"),
    403: (ErrorCode.FORBIDDEN, "does not permit the request"),
    404: (ErrorCode.NOT_FOUND, "does not know the company"),
    408: (ErrorCode.SOURCE_UNAVAILABLE, "gave up waiting for the request"),
    409: (ErrorCode.SOURCE_UNAVAILABLE, "is still busy with the same request"),
    422: (ErrorCode.INTERNAL_ERROR, "refuses the request"),
    429: (ErrorCode.RATE_LIMIT, "was called too often"),
    451: (ErrorCode.FORBIDDEN, "must not answer for legal reasons"),
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


class RegistryCallError(Exception):
    """A call that failed, with the value that `RegistryClient.fetch` returns for it."""

    def __init__(self, error: SourceError) -> None:
        super().__init__(error.message)
        self.error = error


def call_error(
    code: ErrorCode, message: str, status: int | None = None, retry_after: float | None = None
) -> RegistryCallError:
    return RegistryCallError(
        SourceError(
            error_code=code,
            message=message,
            http_status=status,
            retryable=code in _RETRYABLE,
            retry_after_seconds=retry_after,
        )
    )


def check_error(error: SourceError) -> AutomationError:
    """The error that `check` of a client raises: TransientError if it is retryable, else PermanentError."""
    if error.retryable:
        return TransientError(error.message, retry_after_seconds=error.retry_after_seconds)
    return PermanentError(error.message)


class ConnectionOptions(TypedDict):
    """The options of `RegistryClient`, for the clients that add some."""

    now: Callable[[], datetime]
    timeout_seconds: NotRequired[float]
    meter: NotRequired[Meter | None]
    transport: NotRequired[httpx.AsyncBaseTransport | None]


class RegistryClient(ABC):
    """The base of the clients. It has connections per event loop, and follows no redirects."""

    info: ClassVar[RegistryInfo]

    def __init__(
        self,
        base_url: str,
        *,
        now: Callable[[], datetime],
        timeout_seconds: float = 5.0,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._now, self._timeout_seconds = now, timeout_seconds
        self._meter, self._transport = meter or Meter(), transport
        self._clients = PerLoop(self._open)

    def _open(self) -> HttpClient:
        return HttpClient(
            Observation(self.info.provider, self._meter, is_trusted=True),
            headers={"Accept": "application/json", "User-Agent": USER_AGENT},
            timeout=httpx.Timeout(self._timeout_seconds, pool=None),
            transport=self._transport,
        )

    async def fetch(self, siren: str, siret: str | None) -> SourceRecord | SourceError:
        try:
            return await self._record(siren, siret)
        except RegistryCallError as failure:
            return failure.error
        except RegistryFormatError as problem:
            message = f"The answer of {self.info.name} is not understood: {problem}."
            return call_error(ErrorCode.INTERNAL_ERROR, message, 200).error

    @abstractmethod
    async def _record(self, siren: str, siret: str | None) -> SourceRecord:
        """Raises RegistryCallError or RegistryFormatError."""

    async def aclose(self) -> None:
        client = self._clients.pop()
        if client is not None:
            await client.aclose()

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> RegistryAnswer:
        """Return any response. Raises RegistryCallError without a response. No error is chained,
        because httpx's errors contain the headers with the token."""
        name, setting = self.info.name, self.info.address_setting
        headers = {"Authorization": f"Bearer {token}"} if token else None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                client, url = self._clients.current(), self._base_url + path
                request = client.build_request(
                    method, url, params=params, json=json, headers=headers
                )
                answer = await client.call(request, MAX_BYTES)
        except (TimeoutError, httpx.TimeoutException):
            message = f"{name} did not answer within {self._timeout_seconds:g} s."
            raise call_error(ErrorCode.TIMEOUT, message) from None
        except BodyRefusedError:
            return RegistryAnswer(200, None)
        except httpx.HTTPError as error:
            message = f"{name} could not be reached ({type(error).__name__}; check {setting})."
            raise call_error(ErrorCode.SOURCE_UNAVAILABLE, message) from None
        except (UnicodeError, httpx.InvalidURL):
            message = f"{name} cannot be looked up (check {setting})."
            raise call_error(ErrorCode.SOURCE_UNAVAILABLE, message) from None
        wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
        return RegistryAnswer(answer.status, answer.body, wait)

    def refusal(self, answer: RegistryAnswer, hint: str = "") -> RegistryCallError:
        """The error for a status other than 200."""
        status, info = answer.status, self.info
        if status in _BY_STATUS:
            code, problem = _BY_STATUS[status]
        elif status >= 500:
            code, problem = ErrorCode.UPSTREAM_5XX, "is in trouble"
        else:
            code, problem = ErrorCode.INTERNAL_ERROR, "gave an unexpected answer"
            hint = hint or f"check {info.address_setting}"
        if code is ErrorCode.AUTH_ERROR:
            hint = hint or f"check {info.access_settings}"
        message = f"{info.name} {problem} (status {status}{'; ' if hint else ''}{hint})."
        return call_error(code, message, status, answer.retry_after_seconds)
