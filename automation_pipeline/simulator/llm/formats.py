"""`response_format`: free text, any JSON object, or JSON of a schema."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from automation_pipeline.simulator.llm.errors import RefusedError, missing, wrong
from automation_pipeline.simulator.llm.messages import Message
from automation_pipeline.simulator.llm.schema import Schema, strict_problem

KINDS = ("text", "json_object", "json_schema")


@dataclass(frozen=True)
class Format:
    kind: str = "text"
    schema: Schema | None = None


def read_format(posted: object, messages: Sequence[Message]) -> Format:
    """Raises RefusedError."""
    if posted is None:
        return Format()
    fields = cast("dict[str, object]", posted) if isinstance(posted, dict) else {}
    kind = fields.get("type")
    if kind not in KINDS:
        raise wrong("response_format.type", f"one of {', '.join(KINDS)}")
    if kind == "json_object" and not any("json" in message.text.lower() for message in messages):
        raise RefusedError(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            "messages",
        )
    return Format(str(kind), _schema(fields.get("json_schema")) if kind == "json_schema" else None)


def _schema(posted: object) -> Schema:
    if not isinstance(posted, dict):
        raise missing("response_format.json_schema")
    described = cast("dict[str, object]", posted)
    name = described.get("name")
    if name is None:
        raise missing("response_format.json_schema.name")
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]{1,64}", name, re.ASCII):
        raise wrong(
            "response_format.json_schema.name", "at most 64 letters, digits, underscores and dashes"
        )
    schema = described.get("schema", {})
    if not isinstance(schema, dict):
        raise wrong("response_format.json_schema.schema", "an object", code="invalid_type")
    fields = cast("Schema", schema)
    problem = strict_problem(fields) if described.get("strict") is True else None
    if described.get("strict") is True and fields.get("type") != "object":
        problem = "schema must be a JSON Schema of 'type: \"object\"'."
    if problem:
        raise RefusedError(
            f"Invalid schema for response_format '{name}': {problem}", "response_format"
        )
    return fields
