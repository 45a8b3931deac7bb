"""Middleware of every request: an id, a log line, a limit on its body, and a time limit except for
event streams."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from automation_pipeline.api.bodies import IMPORT_FACTOR, IMPORT_SUFFIX, limited, too_big
from automation_pipeline.api.errors import (
    BUG,
    CORRELATION_ID,
    AmbiguousLengthError,
    TooBigError,
    answer_for,
    correlation_of,
    refusal,
    v1_error_format,
    v1_request_id,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.logs import correlated, correlation_id, log, usable_id

REQUEST_ID = "X-Request-Id"
# Longer paths are cut in the log.
LONGEST_PATH = 300


class RequestMiddleware:
    def __init__(self, app: ASGIApp, *, max_bytes: int, seconds: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = usable_id(headers.get(REQUEST_ID))
        path = scope["path"]
        with (
            correlated(correlation_of(path, headers, request_id)),
            v1_error_format(path, request_id),
        ):
            await _Exchange(scope, receive, send, request_id).run(
                self._app, headers, self._max_bytes, self._seconds
            )


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        self._scope, self._receive, self._send, self._request_id = scope, receive, send, request_id
        self._status: int | None = None
        self._deadline: asyncio.Timeout | None = None

    async def run(self, app: ASGIApp, headers: Headers, max_bytes: int, seconds: float) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(seconds) as self._deadline:
                is_import = self._scope["path"].endswith(IMPORT_SUFFIX)
                body_limit = max_bytes * IMPORT_FACTOR if is_import else max_bytes
                _check_length(headers, body_limit)
                if "\0" in self._scope["path"] or b"%00" in self._scope["query_string"]:
                    raise InvalidInputError(
                        "Invalid request", (("address", "must not hold the character NUL"),)
                    )
                await app(self._scope, limited(self._receive, body_limit), self._answer)
        except AmbiguousLengthError as error:
            answer = answer_for(error)
            answer.headers["Connection"] = "close"
            await self._send_error(answer)
        except (TooBigError, InvalidInputError) as error:
            await self._send_error(answer_for(error))
        except TimeoutError:
            await self._send_error(refusal(504, "TIMEOUT", "The answer took too long"))
        except Exception as error:  # noqa: BLE001  a bug: the client gets a general message, the log gets the traceback
            log(__name__).error("A request failed by a bug", exc_info=error)
            await self._send_error(refusal(500, "INTERNAL_ERROR", BUG))
        finally:
            milliseconds = round((time.monotonic() - started) * 1000, 1)
            about = {
                "method": self._scope["method"],
                "path": self._scope["path"][:LONGEST_PATH],
                "status": self._status,
            }
            log(__name__).info("Request answered", **about, milliseconds=milliseconds)

    async def _answer(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            headers[REQUEST_ID] = self._request_id
            if v1_request_id() is not None:
                headers[CORRELATION_ID] = str(correlation_id())
            headers["X-Content-Type-Options"] = "nosniff"
            if (
                headers.get("content-type", "").startswith("text/event-stream")
                and self._deadline is not None
            ):
                self._deadline.reschedule(None)
        await self._send(message)

    async def _send_error(self, answer: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        """Send an error response, unless the response has started."""
        if self._status is None:
            await answer(self._scope, self._receive, self._answer)


def _check_length(headers: Headers, max_bytes: int) -> None:
    """Refuse a request with two lengths, in which a caller could hide a second request from a proxy
    (request smuggling), and one that announces a body beyond the limit."""
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers and "content-length" in headers:
        raise AmbiguousLengthError("Transfer-Encoding and Content-Length must not be sent together")
    if length.isdigit() and int(length) > max_bytes:
        raise too_big(max_bytes)
