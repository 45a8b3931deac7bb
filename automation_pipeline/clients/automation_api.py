"""The client of this system's own HTTP API, for the command line. It turns error responses back into
the errors that the use cases of the server raised."""

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
    PermanentError,
    TransientError,
    UpstreamError,
)
from automation_pipeline.core.logs import correlation_id

CONNECT_SECONDS = 10.0
# The largest responses are the report of a run and ten thousand outcomes.
MAX_BYTES = 100 * MEGABYTE
# Longer than the time limit of the API itself, so that the API reports its own timeouts.
ANSWER_SECONDS = 90.0
# Errors after which it is unknown whether the request arrived. The client repeats it once.
_LOST_ANSWER = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.ReadTimeout)

Document = Mapping[str, object]


class AutomationApi:
    """Repeatable POST requests have an idempotency key."""

    def __init__(
        self, url: str, token: str, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._origin = origin_of(url)
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            headers=headers,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            transport=transport,
        )

    def close(self) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Document | None = None,
        body: Document | None = None,
        repeatable: bool = True,
    ) -> Document:
        """Return the JSON object of the response; an error status raises the error that the API
        reports. A GET and a `repeatable` POST are sent again when the response is lost."""
        repeatable = repeatable and method in {"GET", "POST"}
        headers = {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" and repeatable else {}
        if correlation_id():
            headers["X-Request-Id"] = str(correlation_id())
        # A list becomes a repeated parameter.
        given = (query or {}).items()
        params = {name: _param(value) for name, value in given if value is not None}
        request = self._http.build_request(method, path, params=params, json=body, headers=headers)
        try:
            status, answer = self._send(request, repeatable=repeatable)
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
        return self._parse(status, answer)

    def _send(self, request: httpx.Request, *, repeatable: bool) -> tuple[int, bytes]:
        try:
            with closing(self._http.send(request, stream=True)) as response:
                return response.status_code, read_body_now(response, MAX_BYTES)
        except _LOST_ANSWER as error:
            if not repeatable or isinstance(error, BodyRefusedError):
                raise
        return self._send(request, repeatable=False)

    def _parse(self, status: int, body: bytes) -> Document:
        if status == httpx.codes.NO_CONTENT.value:
            return {}
        try:
            document: object = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise UpstreamError(
                f"What answers at {self._origin} is not the API of this system: {status}, and no JSON."
            )
        answer = cast("Document", document)
        if 200 <= status < 300 or "checks" in answer:  # /health/ready answers 503 with its findings
            return answer
        if not isinstance(answer.get("error"), str):
            raise UpstreamError(
                f"What answers at {self._origin} is not the API of this system: {status}."
            )
        # In the contract of enrichment, `error` is only the name of the status.
        raise self._refusal(status, str(answer.get("message", answer["error"])), answer)

    def _refusal(self, status: int, sentence: str, answer: Document) -> AutomationError:
        plain = sentence.rstrip(".")
        if status in {401, 403}:
            return PermanentError(f"The API at {self._origin} refuses the token: {plain}.")
        if status in {400, 413, 422}:
            details = cast("Sequence[Mapping[str, str]]", answer.get("details") or ())
            fields = (
                (one.get("field", ""), one.get("message") or one.get("reason", ""))
                for one in details
            )
            return InvalidInputError(sentence, tuple(fields))
        known = {404: NotFoundError, 409: ConflictError, 502: UpstreamError}.get(status)
        if known is not None:
            return known(sentence)
        if answer.get("code") == "CONFIGURATION_ERROR":
            return PermanentError(sentence)
        request_id = answer.get("requestId") or answer.get("request_id")
        request = f" (request {request_id})" if status == 500 and request_id else ""
        return TransientError(f"{sentence}{request}")


def _param(value: object) -> str | list[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return [str(one) for one in cast("Sequence[object]", value)]
    return str(value)
