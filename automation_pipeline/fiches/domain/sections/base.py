"""How strictly a section is read: types are taken at their word, bounds are those of our columns, nothing is lost."""

import math
from collections.abc import Iterable
from typing import Annotated, TypeAlias, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

LONGEST_KEY = 500  # PostgreSQL indexes at most 2,704 bytes, and a character takes up to four
LARGEST = 2**31 - 1


class Section(BaseModel):
    """Fields that the CRM adds one day are kept in `rest`."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    def rest(self) -> dict[str, object]:
        """What the models do not know, each at its place; the elements of an array go by their position."""
        unknown: dict[str, object] = {name: plain_json(value) for name, value in (self.model_extra or {}).items()}
        return unknown | _without_empty((name, _rest_of(value)) for name, value in self if name not in unknown)


def _rest_of(value: object) -> dict[str, object]:
    if isinstance(value, Section):
        return value.rest()
    if isinstance(value, tuple):
        elements = cast("tuple[object, ...]", value)
        return _without_empty((str(place), _rest_of(element)) for place, element in enumerate(elements))
    return {}


def _without_empty(named: Iterable[tuple[str, dict[str, object]]]) -> dict[str, object]:
    return {name: rest for name, rest in named if rest}


def plain_json(value: JsonValue) -> JsonValue:
    """The value with null for the numbers that JSON does not have; PostgreSQL refuses them."""
    match value:
        case dict():
            return {name: plain_json(inner) for name, inner in value.items()}
        case list():
            return [plain_json(inner) for inner in value]
        case float():
            return value if math.isfinite(value) else None
        case _:
            return value


def _plain_map(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: plain_json(inner) for name, inner in value.items()}


def _rounded(value: object) -> object:
    return round(value) if isinstance(value, float) and math.isfinite(value) else value


Key: TypeAlias = Annotated[str, Field(max_length=LONGEST_KEY)]
# The CRM's numbers are counts, codes and seconds: parts of one are rounded.
Whole: TypeAlias = Annotated[int, Field(ge=-LARGEST, le=LARGEST), BeforeValidator(_rounded)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=LARGEST), BeforeValidator(_rounded)]
JsonMap: TypeAlias = Annotated[dict[str, JsonValue], AfterValidator(_plain_map)]
TextMap: TypeAlias = dict[Key, str]
