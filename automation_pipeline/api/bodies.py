"""Bodies of requests: the limit of their size, strict JSON, and the models that endpoints take. A body
is parsed in a thread, after the guard has checked the caller's credentials."""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated, cast
from urllib.parse import parse_qsl

from fastapi import Depends, params
from starlette.requests import Request
from starlette.types import Message, Receive

from automation_pipeline.api.errors import InvalidJsonError, TooBigError
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel, parse

MEGABYTE = 1_000_000
# An import may be twice as big as any other body.
IMPORT_FACTOR, IMPORT_SUFFIX = 2, "/import"
# Validation can produce an error for each value, and holds the interpreter while it does.
VALUES_PER_MEGABYTE = 25_000
MOST_LEVELS = 400
MOST_DIGITS = 100
MOST_FORM_FIELDS = 100


def limited(receive: Receive, most_bytes: int) -> Receive:
    """TooBigError at the first piece beyond the limit; the rest is not buffered."""
    got = 0

    async def counted() -> Message:
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        if got > most_bytes:
            raise too_big(most_bytes)
        return message

    return counted


def too_big(most_bytes: int) -> TooBigError:
    return TooBigError(f"The body is bigger than {most_bytes // MEGABYTE} MB ({most_bytes} bytes)")


def read_object(raw: bytes) -> Mapping[str, object]:
    """The JSON object in a body. InvalidJsonError: it is not JSON. InvalidInputError: it is not an
    object, or it contains too many values."""
    try:
        document: object = json.loads(
            raw.decode("utf-8-sig"),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_short,
        )
    except UnicodeDecodeError:
        raise InvalidJsonError("Invalid JSON body: it is not UTF-8") from None
    except (ValueError, RecursionError):
        raise InvalidJsonError("Invalid JSON body") from None
    if not isinstance(document, dict):
        raise InvalidInputError("The body must be a JSON object")
    given = cast("dict[str, object]", document)
    _check_shape(given, VALUES_PER_MEGABYTE * max(1, -(-len(raw) // MEGABYTE)))
    return given


# Python accepts what these four refuse; other parsers reject it or read it differently.
def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise InvalidJsonError("Invalid JSON body: an object has the same key twice")
    return made


def _refuse(name: str) -> object:
    raise InvalidJsonError(f"Invalid JSON body: {name} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise InvalidJsonError("Invalid JSON body: a number is too large")
    return number


def _short(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise InvalidJsonError("Invalid JSON body: a number is too large")
    return int(text)


def _check_shape(document: object, most_values: int) -> None:
    count, level = 0, [document]
    for _ in range(MOST_LEVELS):
        deeper: list[object] = []
        for value in level:
            if isinstance(value, dict):
                deeper += cast("dict[str, object]", value).values()
            elif isinstance(value, list):
                deeper += cast("list[object]", value)
        level = deeper
        count += len(level)
        if count > most_values:
            raise InvalidInputError(f"The body holds more than {most_values} values")
        if not level:
            return
    raise InvalidInputError(f"The body is nested more than {MOST_LEVELS} levels deep")


async def read_raw(request: Request) -> bytes:
    return await request.body()


RawBody = Annotated[bytes, Depends(read_raw)]
JsonObject = Mapping[str, object]


class JsonBody:
    """Reads the body of a request, and describes it in the OpenAPI document. With a complaint, it
    parses the body into the model; without one, it gives the JSON object, which a use case parses."""

    def __init__(
        self,
        model: type[JsonModel],
        complaint: str | None,
        description: Mapping[str, object],
        *,
        required: bool,
    ) -> None:
        self.model, self._complaint, self._required = model, complaint, required
        self.openapi = {"requestBody": {"required": required, "content": description}}

    # Not async, so that FastAPI calls it in a thread.
    def __call__(self, request: Request, raw: RawBody) -> JsonModel | JsonObject:
        return self.parsed(self.read(request, raw))

    def parsed(self, given: JsonObject) -> JsonModel | JsonObject:
        return given if self._complaint is None else parse(self.model, given, self._complaint)

    def read(self, _request: Request, raw: bytes) -> JsonObject:
        return read_object(raw) if raw or self._required else {}


class FormOrJson(JsonBody):
    """Pusher's own library sends a form."""

    def read(self, request: Request, raw: bytes) -> JsonObject:
        if not request.headers.get("content-type", "").startswith(
            "application/x-www-form-urlencoded"
        ):
            return super().read(request, raw)
        text = raw.decode("utf-8", errors="replace")
        try:
            return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FORM_FIELDS))
        except ValueError:
            raise InvalidInputError(f"The form has more than {MOST_FORM_FIELDS} fields") from None


def json_body(
    model: type[JsonModel],
    complaint: str | None = None,
    *,
    required: bool = True,
    partial: bool = False,
    reader: type[JsonBody] = JsonBody,
    **examples: object,
) -> params.Depends:
    """For `Annotated`: `Annotated[CancelInput, json_body(CancelInput, "Invalid cancel data")]`, or
    `Annotated[JsonObject, json_body(RuleInput)]` for a body that a use case parses.

    `partial`: all fields are optional.
    """
    schema: dict[str, object] = model.model_json_schema(
        by_alias=True, ref_template="#/components/schemas/{model}"
    )
    if partial:
        schema = {**schema, "required": [], "title": f"{model.__name__}Change"}
    content: dict[str, object] = {"schema": schema}
    if examples:
        content["examples"] = {name: {"value": value} for name, value in examples.items()}
    return params.Depends(
        reader(model, complaint, {"application/json": content}, required=required)
    )
