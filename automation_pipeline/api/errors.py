"""Errors as answers: the status, the code and the sentence of each."""

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
from automation_pipeline.core.json_model import answerable, plain_faults
from automation_pipeline.core.logs import correlation_id, log, usable_id
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.enrichment.models import ErrorCode, IdentifierError
from automation_pipeline.storage.database import DatabaseNotReadyError, DatabaseUnavailableError

PREFIX = "/v1/"
CORRELATION_ID = "X-Correlation-Id"
_request_id: ContextVar[str | None] = ContextVar("request_by_contract", default=None)


@contextmanager
def v1_error_format(path: str, request_id: str) -> Generator[None]:
    """Within it, refusals follow the contract of `/v1` if the path is one of the contract's."""
    token = _request_id.set(request_id if path.startswith(PREFIX) else None)
    try:
        yield
    finally:
        _request_id.reset(token)


def v1_request_id() -> str | None:
    """The id of the HTTP request if its path is one of the contract's."""
    return _request_id.get()


def correlation_of(path: str, headers: Headers, request_id: str) -> str:
    """The id of everything that the request causes: the request's own id, unless the contract's
    header gives another."""
    result = headers.get(CORRELATION_ID) if path.startswith(PREFIX) else None
    return usable_id(result or request_id)


# Of a sentence, of the name of a field and of what is wrong with it.
LONGEST_TEXT = 500
BUG = "Something went wrong on our side; the log has the request's id"


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


# The first class that matches decides: narrow ones come first.
VERDICTS: Sequence[tuple[type[AutomationError], int, str]] = (
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
_OF_HTTP: Mapping[int, str] = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}


def refusal(
    status: int, code: str, sentence: str, fields: Sequence[tuple[str, str]] = ()
) -> Response:
    """With at most 50 wrong fields and a count of the others: the caller decides how many there
    are, and how long."""
    sentence = shortened(with_rest(sentence, len(fields)))
    fields = [(shortened(field), shortened(message)) for field, message in fields[:MOST_FAULTS]]
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    sentence = answerable(sentence)
    plain = [(answerable(field), answerable(message)) for field, message in fields]
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
        (status, code) for kind, status, code in VERDICTS if isinstance(error, kind)
    )
    if isinstance(error, IdentifierError):
        status, code = (422 if error.code is ErrorCode.SIREN_SIRET_MISMATCH else 400), error.code
    if status >= 500:
        log(__name__).error("A request could not be answered", error=str(error), status=status)
    fields = error.fields if isinstance(error, InvalidInputError) else ()
    return refusal(status, code, error.outside or str(error), fields)


async def on_known_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AutomationError)  # noqa: S101  registered for nothing else
    if isinstance(error, IllegalMoveError):
        services: Services = request.app.state.services
        services.meter.count("rules_illegal_moves_total", machine=error.machine)
    return answer_for(error)


async def on_invalid_request(_request: Request, error: Exception) -> Response:
    """Wrong parameters in path, query and headers, named as the caller wrote them."""
    assert isinstance(error, RequestValidationError)  # noqa: S101  registered for nothing else
    faults = plain_faults(cast("Sequence[ErrorDetails]", error.errors()))
    fields = tuple((field.partition(".")[2], message) for field, message in faults)
    return refusal(400, "VALIDATION_ERROR", "Invalid request", fields)


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


async def on_http_error(request: Request, error: Exception) -> Response:
    """The framework's own errors: no such route, no such method."""
    assert isinstance(error, HTTPException)  # noqa: S101  registered for nothing else
    sentence = (
        f"Route {request.url.path} not found" if error.status_code == 404 else str(error.detail)
    )
    answered = refusal(error.status_code, _OF_HTTP.get(error.status_code, "HTTP_ERROR"), sentence)
    if error.status_code == 405:
        answered.headers["Allow"] = ", ".join(allowed_methods(request.url.path))
    return answered


Result = TypeVar("Result")


def run_with_timeout(work: Coroutine[object, object, Result], services: Services) -> Result:
    """TimeoutError, which becomes a 504, after the time limit of a request; the work is cancelled."""

    async def in_time() -> Result:
        async with asyncio.timeout(services.settings.api_timeout_seconds):
            return await services.counted(work)

    return asyncio.run(in_time())


_OWN_ERRORS = (
    NotFoundError,
    ConflictError,
    InvalidInputError,
    DatabaseUnavailableError,
    DatabaseNotReadyError,
)


@contextmanager
def upstream_errors() -> Generator[None]:
    """UpstreamError for failures of other systems; all other errors stay as they are."""
    try:
        yield
    except _OWN_ERRORS:
        raise
    except AutomationError as error:
        raise UpstreamError(str(error)) from error
