"""One call of a register: its limits, errors and payload fields."""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar, cast

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from automation_pipeline.clients.crm import without_nul
from automation_pipeline.clients.http import (
    MEGABYTE,
    BodyRefusedError,
    HttpClient,
    Observation,
    PerLoop,
)
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.enrichment.models import ErrorCode, SourceError
from automation_pipeline.enrichment.rules.normalisation import is_masked

# What a field may hold: normalising makes a text of it. A list or an object in its place is another
# schema.
LenientText = str | int | float | bool | None
Document = dict[str, object]


class RegistryPayload(BaseModel):
    """Whatever else is in the answer is left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @property
    def masks(self) -> bool:
        """Whether anything in it, at any depth, is masked."""
        return _masks(self)


class RegistryFormatError(Exception):
    """The text says what is wrong, without what was answered."""


Kind = TypeVar("Kind", bound=BaseModel)


def read(kind: type[Kind], body: bytes | None) -> tuple[Kind, Document]:
    """The answer in our words, and as it is."""
    if body is None:
        raise RegistryFormatError("it is larger than 1 MB, or compressed")
    try:
        document = cast("object", from_json(without_nul(body), allow_inf_nan=False))
        # A number that nobody can hold, such as 1e999, cannot be kept either.
        json.dumps(document, allow_nan=False)
    except ValueError:
        raise RegistryFormatError("it is not JSON") from None
    try:
        return kind.model_validate(document), cast("Document", document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "its top level"
        raise RegistryFormatError(f"unexpected value at {where}") from None


def without(names: Collection[str], value: object) -> object:
    """The document without the entries of these names, at any depth."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return {name: without(names, inner) for name, inner in entries if name not in names}
    if isinstance(value, list):
        return [without(names, inner) for inner in cast("list[object]", value)]
    return value


def _masks(value: object) -> bool:
    if isinstance(value, BaseModel):
        return any(_masks(getattr(value, name)) for name in type(value).model_fields)
    if isinstance(value, list | tuple):
        return any(map(_masks, cast("list[object]", value)))
    return is_masked(value)


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
_MAY_PASS = frozenset(
    {ErrorCode.TIMEOUT, ErrorCode.SOURCE_UNAVAILABLE, ErrorCode.RATE_LIMIT, ErrorCode.UPSTREAM_5XX}
)


@dataclass(frozen=True)
class RegistryInfo:
    """How a registry is called: in sentences, by the meter, and by the settings that are to be
    looked at."""

    name: str
    provider: str
    address_setting: str
    access_settings: str


@dataclass(frozen=True)
class RegistryAnswer:
    """`body` is None where it is larger than we read, or compressed."""

    status: int
    body: bytes | None
    retry_after_seconds: float | None = None


class RegistryHttp:
    """Connections of each event loop's own. Redirects are not followed: who answers with one is not
    who we asked."""

    def __init__(
        self,
        registered: RegistryInfo,
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
    ) -> RegistryAnswer | SourceError:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        url = self._base_url + path
        return await self._heard(
            lambda client: client.build_request("GET", url, params=params, headers=headers)
        )

    async def post(self, path: str, document: Mapping[str, str]) -> RegistryAnswer | SourceError:
        return await self._heard(
            lambda client: client.build_request("POST", self._base_url + path, json=document)
        )

    async def aclose(self) -> None:
        client = self._clients.taken()
        if client is not None:
            await client.aclose()

    async def _heard(
        self, question: Callable[[HttpClient], httpx.Request]
    ) -> RegistryAnswer | SourceError:
        """No error is kept: httpx's own carry the headers, and the token with them."""
        name, setting = self._registered.name, self._registered.address_setting
        try:
            async with asyncio.timeout(self._timeout_seconds):
                client = self._clients.here()
                return await self._answer(client, question(client))
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

    async def _answer(self, client: HttpClient, request: httpx.Request) -> RegistryAnswer:
        try:
            answer = await client.call(request, MOST_BYTES)
        except BodyRefusedError:
            return RegistryAnswer(200, None)
        wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
        return RegistryAnswer(answer.status, answer.body, wait)

    def refusal(self, answer: RegistryAnswer, hint: str = "") -> SourceError:
        """What a status other than 200 says."""
        status, named = answer.status, self._registered
        fallback = (ErrorCode.UPSTREAM_5XX, "is in trouble") if status >= 500 else None
        code, does = (
            _BY_STATUS.get(status)
            or fallback
            or (ErrorCode.INTERNAL_ERROR, "answers as nobody expects")
        )
        if code is ErrorCode.AUTH_ERROR:
            hint = hint or f"check {named.access_settings}"
        elif status not in _BY_STATUS and status < 500:
            hint = hint or f"check {named.address_setting}"
        said = f"{named.name} {does} (status {status}{'; ' if hint else ''}{hint})."
        return failed(code, said, status, answer.retry_after_seconds)

    def not_understood(self, problem: str) -> SourceError:
        message = f"The answer of {self._registered.name} is not understood: {problem}."
        return failed(ErrorCode.INTERNAL_ERROR, message, 200)


def failed(
    code: ErrorCode, message: str, status: int | None = None, retry_after: float | None = None
) -> SourceError:
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
