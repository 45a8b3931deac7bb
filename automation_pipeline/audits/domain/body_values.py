"""Kinds of values in the bodies that are about audits."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from automation_pipeline.core.json_model import ID_DIGITS, ID_SCHEMA, LARGEST_ID


def _number_or_digits(given: object) -> object:
    """Ids are texts in what we answer, and numbers in what some callers send: to JSON, 11.0 is a whole one."""
    if (isinstance(given, str) and re.fullmatch(ID_DIGITS, given)) or (isinstance(given, float) and given.is_integer()):
        return int(given)
    if type(given) is not int:
        raise ValueError("must be a whole number, or its digits as a text")
    return given


SentId = Annotated[int, Field(ge=1, le=LARGEST_ID), BeforeValidator(_number_or_digits), WithJsonSchema(ID_SCHEMA)]
TriggerSource = Annotated[str, Field(min_length=1, max_length=50)]
UserId = Annotated[str, Field(min_length=1, max_length=200)]
