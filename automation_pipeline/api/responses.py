"""Envelopes of answers, and how refusals are documented."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import JSONResponse, Response

from automation_pipeline.core.events import LogLevel
from automation_pipeline.core.json_model import Instant, JsonModel

Data = TypeVar("Data")


class CamelModel(BaseModel):
    """Of answers whose fields are in camel case."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class Answer(BaseModel, Generic[Data]):
    success: Literal[True] = True
    data: Data


class Listing(Answer[list[Data]], Generic[Data]):
    """A page of a list: `count` entries of it are here."""

    count: int
    limit: int
    offset: int


class Following(Answer[list[Data]], Generic[Data]):
    """A part of a list: what follows is asked for by the id of its last entry."""

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
    """`data` is JSON, a model, or a list of models."""
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
    """A page of a list that is gone through by the id of the last entry."""
    return answer(entries, count=len(entries), limit=limit)


def listed(entries: Sequence[object], limit: int, offset: int) -> Response:
    return answer(entries, count=len(entries), limit=limit, offset=offset)


def answer_with(status: int = 200, **fields: object) -> Response:
    """An answer whose fields are next to `success`."""
    return JSONResponse({"success": True, **fields}, status)


_REFUSALS: Mapping[int, str] = {
    400: "What was sent cannot be accepted; `details` names the fields",
    401: "No credentials, or none that are valid",
    403: "The permission is missing",
    404: "There is no such thing, or it is not for the caller to see",
    405: "The path is not called so",
    409: "The state of things forbids it, or the idempotency key was used for something else",
    412: "It was changed since the caller looked at it",
    413: "The body is too big",
    422: "The numbers are of different companies",
    502: "The CRM or the shop does not answer, or not with anything usable",
    503: "The database or another service that is needed is away or not configured",
    504: "The answer took too long",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, object]]:
    return {status: {"model": Refusal, "description": _REFUSALS[status]} for status in statuses}


# What may happen to any request with credentials.
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
    """`count` lines of `total` are here."""

    count: int
    total: int
    limit: int
    offset: int
