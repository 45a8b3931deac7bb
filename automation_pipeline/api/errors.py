"""Error responses: the status, code and message of each error."""

import asyncio
from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus
from typing import TypeVar, cast

from fastapi.exceptions import RequestValidationError
from pydantic_core import ErrorDetails
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.api.permissions import allowed_methods
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.clock import SystemClock, iso
from automation_pipeline.core.errors import (
    MOST_FAULTS,
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    TransientError,
    UpstreamError,
    with_rest,
)
from automation_pipeline.core.json_model import escape_surrogates, plain_faults
from automation_pipeline.core.logs import correlation_id, log, usable_id
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.enrichment.models import ErrorCode, IdentifierError
from automation_pipeline.storage.database import DatabaseNotReadyError, DatabaseUnavailableError

PREFIX = "/v1/"
CORRELATION_ID = "X-Correlation-Id"
_request_id: ContextVar[str | None] = ContextVar("v1_request_id", default=None)


@contextmanager
def v1_error_format(path: str, request_id: str) -> Generator[None]:
    """Inside the block, error responses have the format of the `/v1` contract if the path is below `/v1`."""
    token = _request_id.set(request_id if path.startswith(PREFIX) else None)
    try:
        yield
    finally:
        _request_id.reset(token)


def v1_request_id() -> str | None:
    """Return the id of the current HTTP request if its path is below `/v1`, else None."""
    return _request_id.get()


def correlation_of(path: str, headers: Headers, request_id: str) -> str:
    """Return the id of everything that the request causes. It is the request's own id, unless a request
    below `/v1` has the header X-Correlation-Id."""
    given = headers.get(CORRELATION_ID) if path.startswith(PREFIX) else None
    return usable_id(given or request_id)


# Longer messages and field names are cut.
LONGEST_TEXT = 500
BUG = "An internal error occurred; the log has the request's id"


class AuthenticationError(AutomationError):
    """Missing or invalid credentials."""


class AuthorizationError(AutomationError):
    """Valid credentials without the permission."""


class InvalidJsonError(AutomationError):
    """The body is not JSON."""


class AmbiguousLengthError(AutomationError):
    """The request gives the length of its body in two ways."""


class TooBigError(AutomationError):
    """The body is larger than the limit."""


# The first matching class applies, so subclasses come before their bases.
RESPONSES: Sequence[tuple[type[AutomationError], int, str]] = (
    (AuthenticationError, 401, "AUTHENTICATION_ERROR"),
    (AuthorizationError, 403, "AUTHORIZATION_ERROR"),
    (InvalidJsonError, 400, "INVALID_JSON"),
    (AmbiguousLengthError, 400, "VALIDATION_ERROR"),
    (TooBigError, 413, "BODY_TOO_LARGE"),
    (InvalidInputError, 400, "VALIDATION_ERROR"),
    (NotFoundError, 404, "NOT_FOUND"),
    (ConflictError, 409, "CONFLICT"),
    (DatabaseUnavailableError, 503, "DATABASE_ERROR"),
    (DatabaseNotReadyError, 503, "DATABASE_ERROR"),
    (UpstreamError, 502, "EXTERNAL_API_ERROR"),
    (TransientError, 503, "SERVICE_UNAVAILABLE"),
    (PermanentError, 503, "CONFIGURATION_ERROR"),
)
_HTTP_CODES: Mapping[int, str] = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}


def refusal(
    status: int, code: str, sentence: str, fields: Sequence[tuple[str, str]] = ()
) -> Response:
    """Return the error response. It lists at most 50 fields and counts the others, because a caller
    can send any number of wrong fields."""
    sentence = shortened(with_rest(sentence, len(fields)))
    fields = [(shortened(field), shortened(message)) for field, message in fields[:MOST_FAULTS]]
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    sentence = escape_surrogates(sentence)
    plain = [(escape_surrogates(field), escape_surrogates(message)) for field, message in fields]
    if v1_request_id() is not None:
        by_contract = {
            "error": HTTPStatus(status).phrase,
            "code": code,
            "message": sentence,
            "details": [{"field": field, "reason": reason} for field, reason in plain],
            "correlation_id": correlation_id(),
            "request_id": v1_request_id(),
            "timestamp": iso(SystemClock().now()),
        }
        return JSONResponse(by_contract, status, headers=headers)
    document: dict[str, object] = {"success": False, "error": sentence, "code": code}
    if plain:
        document["details"] = [{"field": field, "message": message} for field, message in plain]
    if correlation_id():
        document["requestId"] = correlation_id()
    return JSONResponse(document, status, headers=headers)


def answer_for(error: AutomationError) -> Response:
    status, code = next(
        (status, code) for kind, status, code in RESPONSES if isinstance(error, kind)
    )
    if isinstance(error, IdentifierError):
        status, code = (422 if error.code is ErrorCode.SIREN_SIRET_MISMATCH else 400), error.code
    if status >= 500:
        log(__name__).error("A request could not be answered", error=str(error), status=status)
    fields = error.fields if isinstance(error, InvalidInputError) else ()
    return refusal(status, code, error.public_message or str(error), fields)


async def on_known_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AutomationError)  # noqa: S101  registered for nothing else
    if isinstance(error, IllegalMoveError):
        services: Services = request.app.state.services
        services.meter.count("rules_illegal_moves_total", machine=error.machine)
    return answer_for(error)


async def on_invalid_request(_request: Request, error: Exception) -> Response:
    """Report wrong parameters of the path, the query and headers by the names that the caller used."""
    assert isinstance(error, RequestValidationError)  # noqa: S101  registered for nothing else
    faults = plain_faults(cast("Sequence[ErrorDetails]", error.errors()))
    fields = tuple((field.partition(".")[2], message) for field, message in faults)
    return refusal(400, "VALIDATION_ERROR", "Invalid request", fields)


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


async def on_http_error(request: Request, error: Exception) -> Response:
    """Report errors of the framework: an unknown route or method."""
    assert isinstance(error, HTTPException)  # noqa: S101  registered for nothing else
    sentence = (
        f"Route {request.url.path} not found" if error.status_code == 404 else str(error.detail)
    )
    response = refusal(
        error.status_code, _HTTP_CODES.get(error.status_code, "HTTP_ERROR"), sentence
    )
    if error.status_code == 405:
        response.headers["Allow"] = ", ".join(allowed_methods(request.url.path))
    return response


Result = TypeVar("Result")


def run_with_timeout(work: Coroutine[object, object, Result], services: Services) -> Result:
    """Run the work. After the time limit of a request it is cancelled, and TimeoutError becomes a 504."""

    async def limited() -> Result:
        async with asyncio.timeout(services.settings.api_timeout_seconds):
            return await services.counted(work)

    return asyncio.run(limited())


_OWN_ERRORS = (
    NotFoundError,
    ConflictError,
    InvalidInputError,
    DatabaseUnavailableError,
    DatabaseNotReadyError,
)


@contextmanager
def upstream_errors() -> Generator[None]:
    """Raise failures of external systems as UpstreamError, which becomes a 502. Errors of this system stay."""
    try:
        yield
    except _OWN_ERRORS:
        raise
    except AutomationError as error:
        raise UpstreamError(str(error)) from error
