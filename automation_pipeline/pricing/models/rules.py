"""Pricing rules and guardrails: selectors, rules and their versions, policies of projects."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Id, Instant, JsonModel, as_document, parse
from automation_pipeline.pricing.models.shop import (
    FLAG_FIELDS,
    NUMBER_FIELDS,
    VariantField,
    decimals_of,
)
from automation_pipeline.pricing.models.transforms import (
    Amount,
    Currency,
    Flag,
    Names,
    Number,
    Transform,
    Whole,
    ZonedInstant,
    check_entries,
    names_amounts,
    with_ending,
)

MAX_PARTS = 1000
MAX_DEPTH = 10

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


_ORDER_COMPARISONS = frozenset({Comparison.GT, Comparison.GTE, Comparison.LT, Comparison.LTE})
_TEXT_COMPARISONS = frozenset({Comparison.CONTAINS, Comparison.STARTS_WITH, Comparison.ENDS_WITH})


class _Sparse(JsonModel):
    """Omits fields that are None when it is serialised."""

    @model_serializer(mode="wrap")
    def _without_empty_fields(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {
            name: value
            for name, value in cast("dict[str, object]", write(self)).items()
            if value is not None
        }


class PriceBand(_Sparse):
    """Bounds in minor units. A price must satisfy all of them."""

    gt: Amount | None = None
    gte: Amount | None = None
    lt: Amount | None = None
    lte: Amount | None = None
    eq: Amount | None = None
    currency: Currency

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if all(bound is None for bound in (self.gt, self.gte, self.lt, self.lte, self.eq)):
            raise ValueError("must have at least one of gt, gte, lt, lte and eq")
        return self


_Parts = Annotated[tuple["Selector", ...], BeforeValidator(check_entries)]


class Selector(_Sparse):
    """Exactly one kind of selector is set. Only an explicit `all` selects everything."""

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

    @model_validator(mode="before")
    @classmethod
    def _check_kind(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        written = {
            name: value
            for name, value in cast("Mapping[str, object]", given).items()
            if value is not None
        }
        if "field" in written:
            written = {"op": None, "value": None, **written}
        kinds = [name for name in written if name not in {"op", "value"}]
        if len(kinds) != 1:
            raise ValueError(f"must have exactly one of {', '.join(_KINDS)}")
        if "field" not in written and len(written) > 1:
            raise ValueError("has op or value, which go with field only")
        return written

    @field_validator("everything", mode="before")
    @classmethod
    def _check_all(cls, given: object) -> object:
        if given is not True:
            raise ValueError("must be true")
        return given

    @field_validator("op")
    @classmethod
    def _check_op(cls, op: Comparison | None, info: ValidationInfo) -> Comparison | None:
        field: VariantField | None = info.data.get("field")
        if op is None and field is not None:
            raise ValueError("is required")
        if field is not None and op not in _comparisons_of(field):
            raise ValueError(
                f"must be one of {', '.join(sorted(_comparisons_of(field)))} for {field}"
            )
        return op

    @field_validator("value", mode="before")
    @classmethod
    def _check_field_value(cls, value: object, info: ValidationInfo) -> object:
        field: VariantField | None = info.data.get("field")
        op: Comparison | None = info.data.get("op")
        if field is None or op is None:
            return None
        if op is not Comparison.IN:
            return _one_value(field, value)
        if not isinstance(value, list | tuple):
            raise ValueError("must be a list")  # noqa: TRY004 - pydantic reports only ValueError as a field error
        return tuple(
            _one_value(field, entry)
            for entry in cast("list[object]", check_entries(cast("object", value)))
        )


_KINDS = ("all", "sku", "tag", "product", "price", "field", "and", "or", "not")


def _comparisons_of(field: VariantField) -> frozenset[Comparison]:
    if field in FLAG_FIELDS:
        return frozenset({Comparison.EQ, Comparison.NE})
    return frozenset(Comparison) - (
        _TEXT_COMPARISONS if field in NUMBER_FIELDS else _ORDER_COMPARISONS
    )


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


def size_fault(given: object) -> str | None:
    """Return why the selector is too large or too deep. This is checked before parsing, which recurses."""
    level, parts = [given], 0
    for _ in range(MAX_DEPTH):
        parts += len(level)
        if parts > MAX_PARTS:
            return f"must have at most {MAX_PARTS} parts"
        level = [part for one in level for part in _parts_of(one)]
        if not level:
            return None
    return f"must not be nested deeper than {MAX_DEPTH}"


def _parts_of(one: object) -> list[object]:
    if not isinstance(one, Mapping):
        return []
    written = cast("Mapping[str, object]", one)
    listed = [written.get(name) for name in ("and", "or", "all_of", "any_of")]
    single = [written[name] for name in ("not", "opposite_of") if written.get(name) is not None]
    return [
        part
        for entry in listed
        if isinstance(entry, list | tuple)
        for part in cast("list[object]", entry)
    ] + single


def bands_of(selector: Selector) -> list[PriceBand]:
    """Every price band of the selector, at any depth."""
    inner = [*(selector.all_of or ()), *(selector.any_of or ())]
    inner += [selector.opposite_of] if selector.opposite_of else []
    own = [selector.price] if selector.price else []
    return own + [band for part in inner for band in bands_of(part)]


INVALID_RULE = "Invalid pricing rule data"
MAX_COOLDOWN_MINUTES = 30 * 24 * 60


class OnDrift(StrEnum):
    """What to do with a variant whose price in the shop has changed since the preview."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"


class RuleInput(JsonModel):
    """Amounts are in the currency of the rule, which skips variants in other currencies.

    A rule with `ends_at` is a promotion: what it has applied is rolled back at that time.
    """

    name: str = Field(min_length=1, max_length=255)
    description: str | None = Field(default=None, max_length=2000)
    enabled: Flag = True
    selector: Selector
    transform: Transform
    currency: Currency | None = None
    schedule_at: ZonedInstant | None = None
    ends_at: ZonedInstant | None = None
    on_drift: OnDrift = OnDrift.REFUSE
    cooldown_minutes: Annotated[Whole, Field(ge=0, le=MAX_COOLDOWN_MINUTES)] = 0

    @model_validator(mode="before")
    @classmethod
    def _add_currency(cls, given: object) -> object:
        return (
            {"currency": None, **cast("Mapping[str, object]", given)}
            if isinstance(given, Mapping)
            else given
        )

    @field_validator("selector", mode="before")
    @classmethod
    def _check_size(cls, given: object) -> object:
        fault = size_fault(given)
        if fault:
            raise ValueError(fault)
        return given

    @field_validator("currency")
    @classmethod
    def _check_currency(cls, currency: str | None, info: ValidationInfo) -> str | None:
        selector: Selector | None = info.data.get("selector")
        transform: Transform | None = info.data.get("transform")
        fault = (_band_fault(selector, currency) if selector else None) or (
            _transform_fault(transform, currency) if transform else None
        )
        if fault:
            raise ValueError(fault)
        return currency

    @field_validator("ends_at")
    @classmethod
    def _check_end(cls, ends_at: ZonedInstant | None, info: ValidationInfo) -> ZonedInstant | None:
        schedule_at: ZonedInstant | None = info.data.get("schedule_at")
        if ends_at is not None and schedule_at is not None and ends_at <= schedule_at:
            raise ValueError("must lie after scheduleAt")
        return ends_at


def parse_rule(given: Mapping[str, object]) -> RuleInput:
    """Raises InvalidInputError, which names every invalid field."""
    return parse(RuleInput, given, INVALID_RULE)


def canonical(rule: RuleInput) -> str:
    """The fields that affect prices, as one text for all spellings of the same rule."""
    written = as_document(rule)
    deciding = {name: written[name] for name in ("selector", "transform", "currency", "onDrift")}
    return json.dumps(_ordered(deciding), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def version_hash(rule: RuleInput) -> str:
    return hashlib.sha256(canonical(rule).encode()).hexdigest()


def _ordered(value: object) -> object:
    """Sort lists, because the order of a rule's lists has no meaning."""
    if isinstance(value, Mapping):
        return {
            name: _ordered(entry) for name, entry in cast("Mapping[str, object]", value).items()
        }
    if isinstance(value, list | tuple):
        entries = [_ordered(entry) for entry in cast("list[object]", value)]
        return sorted(entries, key=lambda entry: json.dumps(entry, sort_keys=True))
    return value


def _band_fault(selector: Selector, currency: str | None) -> str | None:
    named = {band.currency for band in bands_of(selector)}
    if len(named | {currency or band for band in named}) < 2:
        return None
    return "must be that of all prices in the selector: " + ", ".join(sorted(named))


def _transform_fault(transform: Transform, currency: str | None) -> str | None:
    if currency is None:
        return "is required where the transform names amounts" if names_amounts(transform) else None
    if transform.ending and with_ending(transform.ending, decimals_of(currency)) is None:
        return f"has {decimals_of(currency)} decimals, so that no price ends in {transform.ending}"
    return None


TENANT = "main"
DEFAULT_PROJECT = "default"
MAX_PROJECT_LENGTH = 100


class PricingRule(RuleInput):
    """A change that affects prices increments `version`; a change of the name or the times does not."""

    id: Id
    project_id: str = Field(max_length=MAX_PROJECT_LENGTH)
    version: int
    version_hash: str
    created_by: str
    created_at: Instant
    updated_at: Instant
    deleted_at: Instant | None = None

    @property
    def as_input(self) -> RuleInput:
        return RuleInput.model_validate(
            {name: getattr(self, name) for name in RuleInput.model_fields}
        )


@dataclass(frozen=True)
class RuleReference:
    id: int
    project_id: str
    version: int
    version_hash: str


class RuleVersion(JsonModel):
    """A version of a rule. `rule` is the document that its author submitted."""

    rule_id: Id
    version: int
    version_hash: str
    rule: dict[str, Any] = Field(validation_alias=AliasChoices("rule", "document"))  # Any: JSON
    created_by: str
    created_at: Instant


def input_document(rule: RuleInput) -> dict[str, object]:
    written = as_document(rule)
    names = {field.alias or name for name, field in RuleInput.model_fields.items()}
    return {name: value for name, value in written.items() if name in names}


_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_PROJECT_LENGTH}}}")


def check_project(project_id: str, message: str) -> None:
    if _NAME.fullmatch(project_id) is None:
        fault = f"must be 1 to {MAX_PROJECT_LENGTH} of the letters A to Z, digits, dots, dashes and underscores"
        raise InvalidInputError(message, (("project", fault),))


NEVER_NULL = "cannot be null: omit it to keep it"


def changed_rule(stored: PricingRule, patch: Mapping[str, object]) -> RuleInput:
    """Fields that the patch does not name stay; null clears a field; selector and transform are
    replaced as a whole."""
    document = input_document(stored)
    try:
        return parse_rule({**document, **patch})
    except InvalidInputError as error:
        nulls = {name for name in document if name in patch and patch[name] is None}
        # The error of a currency that cannot be null already names the reason.
        faults = tuple(
            (name, NEVER_NULL if name in nulls - {"currency"} else why)
            for name, why in error.fields
        )
        raise InvalidInputError(INVALID_RULE, faults) from None


INVALID_POLICY = "Invalid pricing policy data"

_NO_AMOUNTS: Mapping[str, int] = {}

Share = Annotated[Number, Field(gt=0, le=1)]
Amounts = Annotated[
    Mapping[str, Amount],
    BeforeValidator(lambda given: {} if given is None else given),
    PlainSerializer(dict, return_type=dict[str, int]),
]


class Policy(JsonModel):
    """Shares are fractions: 0.15 means 15 %. A SKU's own floor or ceiling replaces that of the project."""

    auto_apply: Flag = False
    max_pct_delta: Share | None = None
    floor: Amount | None = None
    ceiling: Amount | None = None
    floors: Amounts = _NO_AMOUNTS
    ceilings: Amounts = _NO_AMOUNTS
    daily_change_budget_pct: Share | None = None
    currency: Annotated[Currency | None, Field(validate_default=True)] = None

    @field_validator("ceiling")
    @classmethod
    def _check_ceiling(cls, ceiling: int | None, info: ValidationInfo) -> int | None:
        floor: int | None = info.data.get("floor")
        if floor is not None and ceiling is not None and ceiling < floor:
            raise ValueError(f"must not be below the floor of {floor}")
        return ceiling

    @field_validator("currency")
    @classmethod
    def _check_currency(cls, currency: str | None, info: ValidationInfo) -> str | None:
        named = [info.data.get(name) for name in ("floor", "ceiling")]
        if currency is None and (
            any(amount is not None for amount in named)
            or info.data.get("floors")
            or info.data.get("ceilings")
        ):
            raise ValueError("is required where the policy names amounts")
        return currency


def parse_policy(given: Mapping[str, object]) -> Policy:
    return parse(Policy, given, INVALID_POLICY)
