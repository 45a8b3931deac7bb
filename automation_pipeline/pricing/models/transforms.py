"""Price transforms: fields, rounding, operations, and the outcome for one variant."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
    model_validator,
)

from automation_pipeline.core.json_model import Instant, JsonModel
from automation_pipeline.pricing.models.shop import (
    LARGEST_AMOUNT,
    Price,
    Variant,
    is_currency,
    round_half_up,
)

MAX_NAMES = 10_000
MAX_DECIMALS = 6
# With these bounds all arithmetic on rules and prices is exact in Python's 28 decimal digits.
LARGEST_NUMBER = Decimal(LARGEST_AMOUNT)

Untouched = Literal["untouched"]
PriceBefore = Literal["before"]
UNTOUCHED: Untouched = "untouched"
PRICE_BEFORE: PriceBefore = "before"

_DIGITS = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?")
_ENDING = re.compile(r"[0-9]{0,3}(\.[0-9]{1,3})?")
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt _].*)?", re.DOTALL)
_SUCH_AS = "such as 2026-05-04T02:00:00Z"


def _number(given: object) -> Decimal:
    """A float is converted through its shortest representation: 0.1 is exactly 0.1."""
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float | Decimal | str)
        or (isinstance(given, str) and not _DIGITS.fullmatch(given))
    ):
        raise ValueError("must be a number")
    number = Decimal(repr(given) if isinstance(given, float) else given)
    if not number.is_finite():
        raise ValueError("must be a finite number")
    if abs(number) > LARGEST_NUMBER:
        raise ValueError(f"must lie between -{LARGEST_AMOUNT} and {LARGEST_AMOUNT}")
    if number != round(number, MAX_DECIMALS):
        raise ValueError(f"must have at most {MAX_DECIMALS} decimals")
    return number


def _json_number(number: Decimal) -> int | float:
    """10, 10.0 and "10" have the same JSON form."""
    return int(number) if number == int(number) else float(number)


def _amount(given: object) -> int:
    number = _number(given)
    if number != int(number):
        raise ValueError("must be a whole number of minor units, such as 1299 for 12.99")
    if number < 0:
        raise ValueError("must be at least 0")
    return int(number)


def _currency(text: str) -> str:
    if not is_currency(text):
        raise ValueError("must be a currency of three capital letters, such as EUR")
    return text


def check_entries(given: object) -> object:
    """Check the number of entries before they are validated, because pydantic counts only valid ones."""
    entries = cast("list[object]", given) if isinstance(given, list | tuple) else [given]
    if not 0 < len(entries) <= MAX_NAMES:
        raise ValueError(f"must have 1 to {MAX_NAMES} entries")
    return cast("object", given)


def _names(given: object) -> object:
    """A single text is a list of one. Duplicates and surrounding blanks are removed."""
    if isinstance(given, str):
        return _names([given])
    if not isinstance(given, list | tuple):
        return given
    entries = [
        entry.strip() if isinstance(entry, str) else entry for entry in cast("list[object]", given)
    ]
    if "" in entries:
        raise ValueError("must not hold an empty text")
    is_text = all(isinstance(entry, str) for entry in entries)
    return list(dict.fromkeys(entries)) if is_text else entries


def _compare_at(given: object) -> object:
    if given is None or (isinstance(given, str) and given in {UNTOUCHED, PRICE_BEFORE}):
        return given
    try:
        return _amount(given)
    except ValueError:
        raise ValueError(
            'must be null to clear it, a whole number of minor units to set it, or "before" for the price so far'
        ) from None


def _ending(given: object) -> object:
    if given is None:
        return None
    if not isinstance(given, str) or not given or not _ENDING.fullmatch(given):
        raise ValueError('must be the ending of prices, as a text such as ".99"')
    return given.removeprefix("0") if given.startswith("0.") else given


def _date_and_time(given: object) -> object:
    """Refuses numbers, which pydantic would read as seconds or milliseconds since 1970."""
    if isinstance(given, datetime) or (isinstance(given, str) and _ISO.fullmatch(given)):
        return given
    raise ValueError(f"must be a date and time with its time zone, {_SUCH_AS}")


def _in_utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(f"must have a time zone, {_SUCH_AS}")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the calendar") from None


Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
Exact = Annotated[Decimal, PlainSerializer(_json_number, when_used="json")]
Number = Annotated[Exact, BeforeValidator(_number)]
Amount = Annotated[int, BeforeValidator(_amount)]
Currency = Annotated[str, AfterValidator(_currency)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names), BeforeValidator(check_entries)]
CompareAt = Annotated[int | Untouched | PriceBefore | None, BeforeValidator(_compare_at)]
Ending = Annotated[str | None, BeforeValidator(_ending)]
ZonedInstant = Annotated[Instant, AfterValidator(_in_utc), BeforeValidator(_date_and_time)]


class Round(StrEnum):
    NONE = "none"
    UP = "up"
    DOWN = "down"
    NEAREST = "nearest"


@dataclass(frozen=True)
class Lattice:
    """The allowed prices `first`, `first + step`, `first + 2 * step` ..., in minor units."""

    step: int
    first: int = 0

    def contains(self, amount: int) -> bool:
        return amount >= self.first and (amount - self.first) % self.step == 0


def multiples(precision: int, decimals: int) -> Lattice:
    """`precision` is a number of decimals. It cannot exceed the decimals of the currency."""
    return Lattice(10 ** max(decimals - precision, 0))


def with_ending(ending: str, decimals: int) -> Lattice | None:
    """The prices with this ending, or None if the ending does not have the currency's decimals."""
    whole, _, cents = ending.partition(".")
    if bool(cents) != bool(decimals) or len(cents) > decimals:
        return None
    return Lattice(
        step=10 ** (len(whole) + decimals), first=int(whole + cents.ljust(decimals, "0"))
    )


_ROUNDERS: dict[Round, Callable[[Decimal], int]] = {
    Round.UP: math.ceil,
    Round.DOWN: math.floor,
    Round.NEAREST: lambda steps: math.floor(steps + Decimal("0.5")),
}


def rounded(exact: Decimal, way: Round, lattice: Lattice) -> int:
    """Between two equally near prices, NEAREST returns the higher one. An amount of zero or less is
    never rounded up to a price. Below the first price of the lattice, DOWN returns the exact price
    without its fraction of a minor unit."""
    if way is Round.NONE or exact <= 0:
        return round_half_up(exact)
    steps = _ROUNDERS[way]((exact - lattice.first) / lattice.step)
    if steps < 0 and way is Round.DOWN:
        return math.floor(exact)
    return lattice.first + lattice.step * max(steps, 0)


_LARGEST_PERCENT = 10_000
_LARGEST_FACTOR = 1000
_ALL = Decimal(-100)


class Operation(StrEnum):
    PERCENT = "percent"
    ABSOLUTE = "absolute"
    SET = "set"
    MULTIPLY = "multiply"
    FROM_COMPARE_AT = "from_compare_at"


IN_MINOR_UNITS = frozenset({Operation.ABSOLUTE, Operation.SET})
_NEED_A_VALUE = frozenset({Operation.PERCENT, *IN_MINOR_UNITS})


class Transform(JsonModel):
    """Amounts are minor units. `from_compare_at` starts from the struck-through price and changes it
    by `value` percent.

    `margin_over_cost_percent` is a share of the cost: 15 keeps the price at or above 1.15 times the
    cost.
    """

    op: Operation
    allow_zero: Flag = False
    value: Number | None = None
    factor: Annotated[Number | None, Field(gt=0, le=_LARGEST_FACTOR)] = None
    compare_at: CompareAt = UNTOUCHED
    floor: Amount | None = None
    ceiling: Amount | None = None
    max_change_percent: Annotated[Number | None, Field(gt=0, le=_LARGEST_PERCENT)] = None
    margin_over_cost_percent: Annotated[Number | None, Field(ge=0, le=_LARGEST_PERCENT)] = None
    ending: Ending = None
    precision: Annotated[Whole | None, Field(ge=0, le=4)] = None
    round: Round = Round.NONE

    @model_validator(mode="before")
    @classmethod
    def _normalise_spellings(cls, given: object) -> object:
        """Accepts other spellings. A missing field is set to None, so that its validator runs."""
        if not isinstance(given, Mapping):
            return given
        written = {"value": None, "factor": None, **cast("Mapping[str, object]", given)}
        if "ceil" in written and "ceiling" not in written:
            written["ceiling"] = written.pop("ceil")
        if written.get("round") == "nearest_99" and written.get("ending") is None:
            written |= {"round": Round.NEAREST, "ending": ".99"}
        is_rounded = written.get("ending") is not None or written.get("precision") is not None
        if is_rounded and "round" not in written:
            written["round"] = Round.NEAREST
        return written

    @field_validator("value")
    @classmethod
    def _check_value(cls, value: Decimal | None, info: ValidationInfo) -> Decimal | None:
        op: Operation | None = info.data.get("op")
        if op is None:
            return value
        if value is None:
            if op in _NEED_A_VALUE:
                raise ValueError(f"is required for {op}")
            return None
        is_set, in_units = op is Operation.SET, op in IN_MINOR_UNITS
        faults = (
            (op is Operation.MULTIPLY, "does not go with multiply, which has a factor"),
            (
                not in_units and not _ALL < value <= _LARGEST_PERCENT,
                f"must be more than {_ALL} and at most {_LARGEST_PERCENT}",
            ),
            (
                in_units and value != int(value),
                "must be a whole number of minor units, such as 1299 for 12.99",
            ),
            (is_set and value < 0, "must be at least 0"),
            (
                is_set and value == 0 and not info.data.get("allow_zero"),
                "must be at least 1 unless allowZero is true",
            ),
        )
        for applies, fault in faults:
            if applies:
                raise ValueError(fault)
        return value

    @field_validator("factor")
    @classmethod
    def _check_factor(cls, factor: Decimal | None, info: ValidationInfo) -> Decimal | None:
        op: Operation | None = info.data.get("op")
        if op is Operation.MULTIPLY and factor is None:
            raise ValueError("is required for multiply")
        if op not in {Operation.MULTIPLY, None} and factor is not None:
            raise ValueError("goes with multiply only")
        return factor

    @field_validator("ceiling")
    @classmethod
    def _check_ceiling(cls, ceiling: int | None, info: ValidationInfo) -> int | None:
        floor: int | None = info.data.get("floor")
        if floor is not None and ceiling is not None and ceiling < floor:
            raise ValueError(f"must not be below the floor of {floor}")
        return ceiling

    @field_validator("precision")
    @classmethod
    def _check_precision(cls, precision: int | None, info: ValidationInfo) -> int | None:
        if precision is not None and info.data.get("ending") is not None:
            raise ValueError("cannot go with an ending")
        return precision

    @field_validator("round")
    @classmethod
    def _check_round(cls, way: Round, info: ValidationInfo) -> Round:
        if way is Round.NONE and info.data.get("ending") is not None:
            raise ValueError("must be up, down or nearest with an ending")
        return way


def names_amounts(transform: Transform) -> bool:
    if (
        transform.op in IN_MINOR_UNITS
        or transform.floor is not None
        or transform.ceiling is not None
    ):
        return True
    return transform.compare_at not in {UNTOUCHED, PRICE_BEFORE, None}


class Skip(StrEnum):
    """Why a rule skips a variant. The values are stored, so they never change. `why` explains the
    reason to people."""

    NOT_ACTIVE = "not_active"
    NO_PRICE = "no_price"
    ZERO_PRICE = "zero_price"
    OTHER_CURRENCY = "other_currency"
    NO_COMPARE_AT = "no_compare_at"
    NO_COST = "no_cost"
    NO_SUCH_ENDING = "no_such_ending"
    LIMITS_CONFLICT = "limits_conflict"
    NO_PRICE_LEFT = "no_price_left"
    NO_CHANGE = "no_change"

    @property
    def why(self) -> str:
        return _SKIP_TEXTS[self]


_SKIP_TEXTS = {
    Skip.NOT_ACTIVE: "Its product is not on sale in the shop.",
    Skip.NO_PRICE: "It has no price.",
    Skip.ZERO_PRICE: "Its price is zero, and the rule does not allow zero.",
    Skip.OTHER_CURRENCY: "It is priced in another currency than the rule.",
    Skip.NO_COMPARE_AT: "It has no compare-at price to start from.",
    Skip.NO_COST: "The shop has no cost for it, so the margin cannot be checked.",
    Skip.NO_SUCH_ENDING: "No price in its currency has the ending of the rule.",
    Skip.LIMITS_CONFLICT: "Its margin needs more than the rule's ceiling allows.",
    Skip.NO_PRICE_LEFT: "The rule would leave no price above zero.",
    Skip.NO_CHANGE: "The rule does not change its price.",
}


class Warn(StrEnum):
    """A warning for the approver. `sentence` is its text."""

    ENDING_LOST = "ending_lost"
    CHANGE_OVER_MAXIMUM = "change_over_maximum"
    CHANGE_NOT_MEASURED = "change_not_measured"
    COMPARE_AT_NOT_ABOVE = "compare_at_not_above"
    BELOW_COST = "below_cost"
    DIRECTION_REVERSED = "direction_reversed"

    @property
    def sentence(self) -> str:
        return _WARNING_TEXTS[self]


_WARNING_TEXTS = {
    Warn.ENDING_LOST: "A limit, or a price below the smallest with that ending, overrides the rounding.",
    Warn.CHANGE_OVER_MAXIMUM: "The floor, the ceiling or the margin forces a larger change than the rule's maximum.",
    Warn.CHANGE_NOT_MEASURED: "From a price of zero the maximum change cannot be measured: it was not applied.",
    Warn.COMPARE_AT_NOT_ABOVE: "The compare-at price is not above the price: the shop shows no reduction.",
    Warn.BELOW_COST: "The price lies below the cost.",
    Warn.DIRECTION_REVERSED: "Rounding or a limit turned a discount into an increase, or an increase into a discount.",
}


class TraceConstraints(JsonModel):
    """The limits of one variant in minor units. `applied` lists those that changed its price, in
    order."""

    floor: int | None
    ceiling: int | None
    lowest_change: int | None
    highest_change: int | None
    margin: int | None
    applied: tuple[str, ...]


class PriceTrace(JsonModel):
    """The steps by which the rule changed one price."""

    operation: Operation
    input_price: int
    intermediate_price: Exact
    rounded_price: int
    constraints: TraceConstraints
    final_price: int


@dataclass(frozen=True, kw_only=True)
class PriceOutcome:
    """`after` is None exactly for a skipped variant. The compare-at price is only written if the
    rule changes it."""

    variant: Variant
    before: Price | None
    after: Price | None = None
    writes_compare_at: bool = False
    trace: PriceTrace | None = None
    warnings: tuple[Warn, ...] = ()
    skipped: Skip | None = None
