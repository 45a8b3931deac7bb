"""Kinds of values that payloads hold."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictInt, WithJsonSchema

from automation_pipeline.core.json_model import ID_DIGITS, ID_SCHEMA, Id, JsonModel


def _whole_number(given: object) -> object:
    if isinstance(given, str) and re.fullmatch(ID_DIGITS, given):
        return int(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    raise ValueError("must be an id")


KnownId = Annotated[Id, Field(ge=1), BeforeValidator(_whole_number), WithJsonSchema(ID_SCHEMA, mode="validation")]
# One line: a second one would be a second command.
Line = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\r\n]*\S[^\r\n]*$")]
ShortLine = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\r\n]*\S[^\r\n]*$")]
# Never a path.
FileName = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")]
# As catalogues of mods and the games name them.
Key = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:@+-]*$")]
Keep = Annotated[StrictInt, Field(ge=1, le=100, description="How many are kept, the newest.")]
GraceSeconds = Annotated[
    StrictInt, Field(ge=0, le=3600, description="How long players are given before it stops, after the message.")
]


class NoPayload(JsonModel):
    """Nothing is said about it."""
