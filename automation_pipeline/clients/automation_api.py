"""Our own HTTP API on another machine: its refusals become the errors that the stages there have
raised."""

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import cast

import httpx

from automation_pipeline.clients.http import MEGABYTE, BodyRefusedError, read_body_now
from automation_pipeline.core.addresses import origin_of
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OutdatedError,
    PermanentError,
    TransientError,
    UpstreamError,
)
from automation_pipeline.core.logs import correlation_id

CONNECT_SECONDS = 10.0
# The report of a run, or ten thousand outcomes.
MOST_BYTES = 100 * MEGABYTE
# Longer than an answer may take there: it is the API that should say that it took too long.
ANSWER_SECONDS = 90.0
# Asked once more when the answer was lost on its way; whether the request arrived, nobody knows.
_LOST = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.ReadTimeout)

Query = Mapping[str, object]
Document = Mapping[str, object]


class ApiAccessError(PermanentError):
    """The API does not let us do that."""


class AutomationApi:
    """`get` and `post` are safe to repeat; what is posted has a key by which it is done once."""

    def __init__(
        self, url: str, token: str, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._origin = origin_of(url)
        try:
            headers = httpx.Headers(
                {"Authorization": f"Bearer {token}", "Accept": "application/json"}
            )
        except UnicodeEncodeError:
            raise InvalidInputError(
                "The token for the API holds characters that no token has."
            ) from None
        headers["Accept-Encoding"] = "identity"
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            headers=headers,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            transport=transport,
        )

    def get(self, path: str, query: Query | None = None) -> Document:
        return self._ask("GET", path, query=query, repeatable=True)

    def post(
        self,
        path: str,
        body: Document | None = None,
        *,
        query: Query | None = None,
        repeatable: bool = True,
    ) -> Document:
        return self._ask("POST", path, query=query, body=body, repeatable=repeatable)

    def put(self, path: str, body: Document) -> Document:
        return self._ask("PUT", path, body=body)

    def patch(self, path: str, body: Document) -> Document:
        return self._ask("PATCH", path, body=body)

    def delete(self, path: str) -> Document:
        return self._ask("DELETE", path)

    def close(self) -> None:
        self._http.close()

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Document | None = None,
        repeatable: bool = False,
    ) -> Document:
        headers = {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" and repeatable else {}
        if correlation_id():
            headers["X-Request-Id"] = str(correlation_id())
        request = self._http.build_request(
            method, path, params=_params(query), json=body, headers=headers
        )
        try:
            status, answered = self._sent(request, repeatable=repeatable)
        except BodyRefusedError as error:
            raise UpstreamError(
                f"The answer of the API at {self._origin} cannot be read: {error}."
            ) from None
        except httpx.TimeoutException:
            raise TransientError(f"The API at {self._origin} did not answer in time.") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            kind = type(error).__name__
            raise TransientError(
                f"The API at {self._origin} could not be reached ({kind})."
            ) from None
        return self._understood(status, answered)

    def _sent(self, request: httpx.Request, *, repeatable: bool) -> tuple[int, bytes]:
        if repeatable:
            try:
                return self._answer(request)
            except BodyRefusedError:
                raise
            except _LOST:
                pass  # once more, and then its error counts
        return self._answer(request)

    def _answer(self, request: httpx.Request) -> tuple[int, bytes]:
        with closing(self._http.send(request, stream=True)) as response:
            return response.status_code, read_body_now(response, MOST_BYTES)

    def _understood(self, status: int, body: bytes) -> Document:
        if status == httpx.codes.NO_CONTENT.value:
            return {}
        try:
            document: object = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise UpstreamError(
                f"What answers at {self._origin} is not our API: {status}, and no JSON."
            )
        told = cast("Document", document)
        if 200 <= status < 300 or "checks" in told:  # /health/ready answers 503 with what it found
            return told
        if not isinstance(told.get("error"), str):
            raise UpstreamError(f"What answers at {self._origin} is not our API: {status}.")
        # Where the contract of the enrichment is spoken, `error` is only the name of the status.
        raise self._refusal(status, str(told.get("message", told["error"])), told)

    def _refusal(self, status: int, sentence: str, told: Document) -> AutomationError:
        plain = sentence.rstrip(".")
        if status in {401, 403}:
            return ApiAccessError(f"The API at {self._origin} refuses our token: {plain}.")
        if status in {400, 413, 422}:
            return InvalidInputError(sentence, _fields(told))
        known = {
            404: NotFoundError,
            409: ConflictError,
            412: OutdatedError,
            502: UpstreamError,
        }.get(status)
        if known is not None:
            return known(sentence)
        if told.get("code") == "CONFIGURATION_ERROR":
            return PermanentError(sentence)
        request_id = told.get("requestId") or told.get("request_id")
        request = f" (request {request_id})" if status == 500 and request_id else ""
        return TransientError(f"{sentence}{request}")


def _params(query: Query | None) -> Mapping[str, str | list[str]]:
    """Lists are repeated; what is None is left out."""
    return {name: _param(value) for name, value in (query or {}).items() if value is not None}


def _param(value: object) -> str | list[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return [str(one) for one in cast("Sequence[object]", value)]
    return str(value)


def _fields(told: Document) -> tuple[tuple[str, str], ...]:
    details = cast("Sequence[Mapping[str, str]]", told.get("details") or ())
    return tuple(
        (one.get("field", ""), one.get("message") or one.get("reason", "")) for one in details
    )
