"""Which variants a rule is about, as people write it. Who is picked by it is decided in `selecting`."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self, cast

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
)
from pydantic import model_validator as checked

from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.pricing.domain.field_rules import Amount, Currency, Names, some
from automation_pipeline.pricing.domain.variant import FLAG_FIELDS, NUMBER_FIELDS, VariantField

MOST_PARTS = 1000
DEEPEST = 10

FieldValue = bool | int | str | tuple[int, ...] | tuple[str, ...]


class Comparison(StrEnum):
    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    CONTAINS = "contains"
    STARTS_WITH = "startsWith"
    ENDS_WITH = "endsWith"


_ORDERS = frozenset({Comparison.GT, Comparison.GTE, Comparison.LT, Comparison.LTE})
_LOOKS = frozenset({Comparison.CONTAINS, Comparison.STARTS_WITH, Comparison.ENDS_WITH})


class _Sparse(JsonModel):
    """Written without the fields that say nothing."""

    @model_serializer(mode="wrap")
    def _without_empty_fields(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {name: value for name, value in cast("dict[str, object]", write(self)).items() if value is not None}


class PriceBand(_Sparse):
    """Bounds in minor units; all that are given hold together."""

    gt: Amount | None = None
    gte: Amount | None = None
    lt: Amount | None = None
    lte: Amount | None = None
    eq: Amount | None = None
    currency: Currency

    @checked(mode="after")
    def _bounds_something(self) -> Self:
        bounds = (self.gt, self.gte, self.lt, self.lte, self.eq)
        if all(bound is None for bound in bounds):
            raise ValueError("must have at least one of gt, gte, lt, lte and eq")
        return self


_Parts = Annotated[tuple["Selector", ...], BeforeValidator(some)]


class Selector(_Sparse):
    """Exactly one of its kinds. Nothing means everything but `all`, said aloud."""

    everything: Literal[True] | None = Field(default=None, alias="all")
    sku: Names | None = None
    tag: Names | None = None
    product: Names | None = None
    price: PriceBand | None = None
    field: VariantField | None = None
    op: Comparison | None = None
    value: FieldValue | None = None
    all_of: _Parts | None = Field(default=None, alias="and")
    any_of: _Parts | None = Field(default=None, alias="or")
    opposite_of: "Selector | None" = Field(default=None, alias="not")

    @checked(mode="before")
    @classmethod
    def _says_one_thing(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        written = {name: value for name, value in cast("Mapping[str, object]", given).items() if value is not None}
        if "field" in written:
            written = {"op": None, "value": None, **written}
        kinds = [name for name in written if name not in {"op", "value"}]
        if len(kinds) != 1:
            raise ValueError(f"must say exactly one of {', '.join(_KINDS)}")
        if "field" not in written and len(written) > 1:
            raise ValueError("has op or value, which go with field only")
        return written

    @field_validator("everything", mode="before")
    @classmethod
    def _is_said_aloud(cls, given: object) -> object:
        if given is not True:
            raise ValueError("must be true")
        return given

    @field_validator("op")
    @classmethod
    def _can_be_asked_of_the_field(cls, op: Comparison | None, info: ValidationInfo) -> Comparison | None:
        field: VariantField | None = info.data.get("field")
        if op is None and field is not None:
            raise ValueError("is required")
        if field is not None and op not in _comparisons_of(field):
            raise ValueError(f"must be one of {', '.join(sorted(_comparisons_of(field)))} for {field}")
        return op

    @field_validator("value", mode="before")
    @classmethod
    def _is_of_the_fields_kind(cls, value: object, info: ValidationInfo) -> object:
        field: VariantField | None = info.data.get("field")
        op: Comparison | None = info.data.get("op")
        if field is None or op is None:
            return None
        if op is not Comparison.IN:
            return _one_value(field, value)
        if not isinstance(value, list | tuple):
            raise ValueError("must be a list")  # noqa: TRY004 - pydantic reads only this kind as a complaint
        return tuple(_one_value(field, entry) for entry in cast("list[object]", some(cast("object", value))))


_KINDS = ("all", "sku", "tag", "product", "price", "field", "and", "or", "not")


def _comparisons_of(field: VariantField) -> frozenset[Comparison]:
    if field in FLAG_FIELDS:
        return frozenset({Comparison.EQ, Comparison.NE})
    return frozenset(Comparison) - (_LOOKS if field in NUMBER_FIELDS else _ORDERS)


def _one_value(field: VariantField, value: object) -> bool | int | str:
    if field in FLAG_FIELDS:
        if isinstance(value, bool):
            return value
        raise ValueError("must be true or false")
    if field in NUMBER_FIELDS:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise ValueError("must be a whole number")
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError("must be a text that is not empty")


def too_wild(given: object) -> str | None:
    """Why a selector, as it was written, is too deep or too large to be looked at."""
    level, parts = [given], 0
    for _ in range(DEEPEST):
        parts += len(level)
        if parts > MOST_PARTS:
            return f"must have at most {MOST_PARTS} parts"
        level = [part for one in level for part in _parts_of(one)]
        if not level:
            return None
    return f"must not be nested deeper than {DEEPEST}"


def _parts_of(one: object) -> list[object]:
    if not isinstance(one, Mapping):
        return []
    written = cast("Mapping[str, object]", one)
    listed = [written.get(name) for name in ("and", "or", "all_of", "any_of")]
    single = [written[name] for name in ("not", "opposite_of") if written.get(name) is not None]
    return [
        part for entry in listed if isinstance(entry, list | tuple) for part in cast("list[object]", entry)
    ] + single


def bands_of(selector: Selector) -> list[PriceBand]:
    """Every price band in it, however deep."""
    inner = [*(selector.all_of or ()), *(selector.any_of or ())]
    inner += [selector.opposite_of] if selector.opposite_of else []
    own = [selector.price] if selector.price else []
    return own + [band for part in inner for band in bands_of(part)]
