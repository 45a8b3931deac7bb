"""The base of the values that people write and read as JSON: camelCase outside, snake_case inside, nothing unknown."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from automation_pipeline.core.errors import InvalidInputError


class JsonModel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _can_be_stored(cls, given: object) -> object:
        if any(isinstance(text, str) and "\0" in text for text in _entries(given)):
            raise ValueError("must not hold the character NUL")
        return given


def _entries(given: object) -> Sequence[object]:
    return cast("Sequence[object]", given) if isinstance(given, list | tuple) else (given,)


def _iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


LARGEST_ID = 2**63 - 1

Id = Annotated[int, Field(le=LARGEST_ID), PlainSerializer(str, return_type=str, when_used="json")]
Instant = Annotated[datetime, PlainSerializer(_iso, return_type=str, when_used="json")]

Model = TypeVar("Model", bound=JsonModel)


def parse(model: type[Model], given: Mapping[str, object], complaint: str) -> Model:
    """The value, or InvalidInputError that names every field at fault."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise InvalidInputError(complaint, field_errors(error)) from None


_PLAINLY = {
    "extra_forbidden": "is not a known field",
    "missing": "is required",
    "tuple_type": "should be a list",
}


def field_errors(error: ValidationError) -> tuple[tuple[str, str], ...]:
    """Where and why; a complaint about the whole carries no field."""
    return tuple(
        (
            ".".join(str(part) for part in problem["loc"]),
            _PLAINLY.get(problem["type"], problem["msg"].removeprefix("Value error, ").removeprefix("Input ")),
        )
        for problem in error.errors(include_url=False, include_input=False)
    )
