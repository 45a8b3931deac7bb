"""Envelopes of responses, and the description of error responses."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import JSONResponse, Response

from automation_pipeline.core.events import LogLevel
from automation_pipeline.core.json_model import Instant, JsonModel

Data = TypeVar("Data")


class CamelModel(BaseModel):
    """The base of responses with fields in camel case."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class Answer(BaseModel, Generic[Data]):
    success: Literal[True] = True
    data: Data


class Listing(Answer[list[Data]], Generic[Data]):
    """A page of a list with `count` entries."""

    count: int
    limit: int
    offset: int


class Following(Answer[list[Data]], Generic[Data]):
    """A page of a list. The id of its last entry is the `after` of the next page."""

    count: int
    limit: int


class FieldFault(BaseModel):
    field: str = Field(examples=["timeOfDay"])
    message: str = Field(examples=["is required"])


class Refusal(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {"success": False, "error": "Run 12 not found", "code": "NOT_FOUND"}
        }
    )

    success: Literal[False] = False
    error: str
    code: str
    details: list[FieldFault] | None = None
    requestId: str | None = None  # noqa: N815  its name in JSON


class Done(BaseModel):
    success: Literal[True] = True
    message: str


def answer(
    data: object, *, status: int = 200, headers: Mapping[str, str] | None = None, **fields: object
) -> Response:
    """Return a response in the envelope. `data` is JSON, a model, or a list of models."""
    shown = (
        [_document(one) for one in cast("Sequence[object]", data)]
        if isinstance(data, list | tuple)
        else _document(data)
    )
    return JSONResponse(
        {"success": True, "data": shown, **fields}, status, headers=dict(headers or {})
    )


def _document(value: object) -> object:
    return value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value


def following(entries: Sequence[JsonModel], limit: int) -> Response:
    """Return a page of a list that is read by the id of the last entry."""
    return answer(entries, count=len(entries), limit=limit)


def listed(entries: Sequence[object], limit: int, offset: int) -> Response:
    return answer(entries, count=len(entries), limit=limit, offset=offset)


def answer_with(status: int = 200, **fields: object) -> Response:
    """Return a response with its fields next to `success`."""
    return JSONResponse({"success": True, **fields}, status)


_REFUSALS: Mapping[int, str] = {
    400: "The request is invalid; `details` names the fields",
    401: "Missing or invalid credentials",
    403: "The permission is missing",
    404: "The object does not exist, or the caller may not see it",
    409: "The current state forbids the action, or the idempotency key was used for another request",
    413: "The body is too large",
    422: "The numbers are of different companies",
    502: "The CRM or the shop does not answer, or its answer cannot be read",
    503: "The database or another required service is unavailable or not configured",
    504: "The request took too long",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, object]]:
    return {status: {"model": Refusal, "description": _REFUSALS[status]} for status in statuses}


# The error responses of every request with credentials.
COMMON = refusals(400, 401, 403, 413, 503, 504)


class WorkflowLine(BaseModel):
    id: str
    workflow: str
    level: LogLevel
    entity_type: str
    entity_id: str
    trace_id: str
    dagster_run_id: str | None
    step_name: str | None
    message: str
    data: dict[str, Any]  # Any: JSON
    created_at: Instant


class WorkflowLines(Answer[list[WorkflowLine]]):
    """A page with `count` of the `total` lines."""

    count: int
    total: int
    limit: int
    offset: int
