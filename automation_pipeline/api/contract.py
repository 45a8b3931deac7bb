"""What `/v1` answers where something is wrong: by the contract of the enrichment, not as the rest
of the API does."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus

from starlette.datastructures import Headers

from automation_pipeline.core.clock import SystemClock, iso
from automation_pipeline.core.logs import correlation_id, usable_id

PREFIX = "/v1/"
CORRELATION_ID = "X-Correlation-Id"
_request_id: ContextVar[str | None] = ContextVar("request_by_contract", default=None)


@contextmanager
def answering_by_contract(path: str, request_id: str) -> Generator[None]:
    """Whatever is refused meanwhile, where the path is one of the contract's."""
    token = _request_id.set(request_id if path.startswith(PREFIX) else None)
    try:
        yield
    finally:
        _request_id.reset(token)


def request_by_contract() -> str | None:
    """The id of the HTTP request, if it is one of the contract's."""
    return _request_id.get()


def correlation_of(path: str, headers: Headers, request_id: str) -> str:
    """What ties together all that the request sets off: its own id, unless the contract's header
    says another."""
    said = headers.get(CORRELATION_ID) if path.startswith(PREFIX) else None
    return usable_id(said or request_id)


def contract_error(
    status: int, code: str, sentence: str, fields: Sequence[tuple[str, str]]
) -> dict[str, object]:
    return {
        "error": HTTPStatus(status).phrase,
        "code": code,
        "message": sentence,
        "details": [{"field": field, "reason": reason} for field, reason in fields],
        "correlation_id": correlation_id(),
        "request_id": request_by_contract(),
        "timestamp": iso(SystemClock().now()),
    }
