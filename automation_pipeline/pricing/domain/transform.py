"""What a rule does to a price, and the limits it keeps, as people write it. How it is done is in `evaluation`."""

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, cast

from pydantic import Field, ValidationInfo, field_validator, model_validator

from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.pricing.domain.field_rules import (
    PRICE_BEFORE,
    UNTOUCHED,
    Amount,
    CompareAt,
    Ending,
    Flag,
    Number,
    Whole,
)
from automation_pipeline.pricing.domain.rounding import Round

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
    """Amounts are minor units. `from_compare_at` starts from the struck-through price, `value` percent off or on it.

    `margin_over_cost_percent` is counted on the cost: 15 keeps the price at or above 1.15 times the cost.
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
    def _in_our_words(cls, given: object) -> object:
        """Other spellings are read; and a field that is missing can be named only if it is there."""
        if not isinstance(given, Mapping):
            return given
        written = {"value": None, "factor": None, **cast("Mapping[str, object]", given)}
        if "ceil" in written and "ceiling" not in written:
            written["ceiling"] = written.pop("ceil")
        if written.get("round") == "nearest_99" and written.get("ending") is None:
            written |= {"round": Round.NEAREST, "ending": ".99"}
        wants_rounding = written.get("ending") is not None or written.get("precision") is not None
        if wants_rounding and "round" not in written:
            written["round"] = Round.NEAREST
        return written

    @field_validator("value")
    @classmethod
    def _suits_the_operation(cls, value: Decimal | None, info: ValidationInfo) -> Decimal | None:
        op: Operation | None = info.data.get("op")
        if op is None:
            return value
        if value is None:
            if op in _NEED_A_VALUE:
                raise ValueError(f"is required for {op}")
            return None
        fault = _amount_fault(op, value) if op in IN_MINOR_UNITS else _percent_fault(op, value)
        if fault is None and op is Operation.SET and value == 0 and not info.data.get("allow_zero"):
            fault = "must be at least 1 unless allowZero is true"
        if fault is not None:
            raise ValueError(fault)
        return value

    @field_validator("factor")
    @classmethod
    def _goes_with_multiply(cls, factor: Decimal | None, info: ValidationInfo) -> Decimal | None:
        op: Operation | None = info.data.get("op")
        if op is Operation.MULTIPLY and factor is None:
            raise ValueError("is required for multiply")
        if op not in {Operation.MULTIPLY, None} and factor is not None:
            raise ValueError("goes with multiply only")
        return factor

    @field_validator("ceiling")
    @classmethod
    def _is_not_below_the_floor(cls, ceiling: int | None, info: ValidationInfo) -> int | None:
        floor: int | None = info.data.get("floor")
        if floor is not None and ceiling is not None and ceiling < floor:
            raise ValueError(f"must not be below the floor of {floor}")
        return ceiling

    @field_validator("precision")
    @classmethod
    def _goes_without_an_ending(cls, precision: int | None, info: ValidationInfo) -> int | None:
        if precision is not None and info.data.get("ending") is not None:
            raise ValueError("cannot go with an ending")
        return precision

    @field_validator("round")
    @classmethod
    def _is_a_way_to_the_ending(cls, way: Round, info: ValidationInfo) -> Round:
        if way is Round.NONE and info.data.get("ending") is not None:
            raise ValueError("must be up, down or nearest with an ending")
        return way


def names_amounts(transform: Transform) -> bool:
    """Whether it holds amounts, which mean nothing without a currency."""
    if transform.op in IN_MINOR_UNITS or transform.floor is not None or transform.ceiling is not None:
        return True
    return transform.compare_at not in {UNTOUCHED, PRICE_BEFORE, None}


def _amount_fault(op: Operation, value: Decimal) -> str | None:
    if value != int(value):
        return "must be a whole number of minor units, such as 1299 for 12.99"
    return "must be at least 0" if op is Operation.SET and value < 0 else None


def _percent_fault(op: Operation, value: Decimal) -> str | None:
    if op is Operation.MULTIPLY:
        return "does not go with multiply, which has a factor"
    return None if _ALL < value <= _LARGEST_PERCENT else f"must be more than {_ALL} and at most {_LARGEST_PERCENT}"
