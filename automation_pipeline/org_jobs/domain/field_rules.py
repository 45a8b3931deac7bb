"""What single fields must be, whatever they are fields of. Each rule answers the value as it is kept."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from automation_pipeline.core.json_model import ID_DIGITS, ID_SCHEMA, Id, Instant

LONGEST_NAME = 200

_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt _].*)?", re.DOTALL)
_SUCH_AS = "such as 2026-05-04T02:00:00Z"


def _name(text: str) -> str:
    bare = text.strip()
    if not bare:
        raise ValueError("must not be empty")
    if len(bare) > LONGEST_NAME:
        raise ValueError(f"must have at most {LONGEST_NAME} characters")
    return bare


def _number_or_digits(given: object) -> object:
    is_number = isinstance(given, int) and not isinstance(given, bool)
    if not is_number and not (isinstance(given, str) and re.fullmatch(ID_DIGITS, given)):
        raise ValueError("must be a whole number, or its digits as a string")
    return given


def _written_out(given: object) -> object:
    """Pydantic takes bare numbers, and texts of them, for seconds or milliseconds since 1970."""
    if isinstance(given, datetime) or (isinstance(given, str) and _ISO.fullmatch(given)):
        return given
    raise ValueError(f"must be a date and time with its time zone, {_SUCH_AS}")


def _in_utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(f"must say its time zone, {_SUCH_AS}")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the calendar") from None


Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
Name = Annotated[str, AfterValidator(_name)]
KnownId = Annotated[Id, Field(ge=1), BeforeValidator(_number_or_digits), WithJsonSchema(ID_SCHEMA, mode="validation")]
ZonedInstant = Annotated[Instant, AfterValidator(_in_utc), BeforeValidator(_written_out)]
