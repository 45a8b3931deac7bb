"""Request bodies: size limits, strict JSON, and the models of endpoints. A body is parsed in a thread,
after the guard has checked the caller's credentials."""

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
# The body of an import may be twice as large as any other.
IMPORT_FACTOR, IMPORT_SUFFIX = 2, "/import"
# Validation can produce an error for each value, and blocks all threads meanwhile.
VALUES_PER_MEGABYTE = 25_000
MAX_LEVELS = 400
MAX_DIGITS = 100
MAX_FORM_FIELDS = 100


def limited(receive: Receive, max_bytes: int) -> Receive:
    """Wrap `receive` to raise TooBigError at the first chunk beyond the limit."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > max_bytes:
            raise too_big(max_bytes)
        return message

    return counted


def too_big(max_bytes: int) -> TooBigError:
    return TooBigError(f"The body is bigger than {max_bytes // MEGABYTE} MB ({max_bytes} bytes)")


def read_object(raw: bytes) -> Mapping[str, object]:
    """Parse a body. Raises InvalidJsonError if it is not JSON, and InvalidInputError if it is not an
    object or contains too many values."""
    try:
        document: object = json.loads(
            raw.decode("utf-8-sig"),
            object_pairs_hook=_unique,
            parse_constant=_reject_constant,
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


# The next four functions reject what Python accepts and other parsers reject or read differently.
def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise InvalidJsonError("Invalid JSON body: an object has the same key twice")
    return document


def _reject_constant(name: str) -> object:
    raise InvalidJsonError(f"Invalid JSON body: {name} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise InvalidJsonError("Invalid JSON body: a number is too large")
    return number


def _short(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise InvalidJsonError("Invalid JSON body: a number is too large")
    return int(text)


def _check_shape(document: object, max_values: int) -> None:
    count, level = 0, [document]
    for _ in range(MAX_LEVELS):
        deeper: list[object] = []
        for value in level:
            if isinstance(value, dict):
                deeper += cast("dict[str, object]", value).values()
            elif isinstance(value, list):
                deeper += cast("list[object]", value)
        level = deeper
        count += len(level)
        if count > max_values:
            raise InvalidInputError(f"The body contains more than {max_values} values")
        if not level:
            return
    raise InvalidInputError(f"The body is nested more than {MAX_LEVELS} levels deep")


async def read_raw(request: Request) -> bytes:
    return await request.body()


RawBody = Annotated[bytes, Depends(read_raw)]
JsonObject = Mapping[str, object]


class JsonBody:
    """A dependency that reads the body of a request, and its description in the OpenAPI document.

    With a `complaint`, which becomes the error message, the endpoint gets the parsed model. Without
    one it gets the JSON object, which a use case parses."""

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
    """Also accepts a form, which Pusher's library sends."""

    def read(self, request: Request, raw: bytes) -> JsonObject:
        if not request.headers.get("content-type", "").startswith(
            "application/x-www-form-urlencoded"
        ):
            return super().read(request, raw)
        text = raw.decode("utf-8", errors="replace")
        try:
            return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS))
        except ValueError:
            raise InvalidInputError(f"The form has more than {MAX_FORM_FIELDS} fields") from None


def json_body(
    model: type[JsonModel],
    complaint: str | None = None,
    *,
    required: bool = True,
    partial: bool = False,
    reader: type[JsonBody] = JsonBody,
    **examples: object,
) -> params.Depends:
    """Declare the body of an endpoint: `Annotated[CancelInput, json_body(CancelInput, "Invalid cancel
    data")]`, or `Annotated[JsonObject, json_body(RuleInput)]` for a body that a use case parses.

    With `partial`, the document describes all fields as optional.
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
