"""What a transform must be, with each fault where it is."""

from decimal import Decimal

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.models.transforms import Round, names_amounts
from automation_pipeline_tests.pricing.rules.rules import rule
from automation_pipeline_tests.tables import every_case

COMPARE_AT = 'must be null to clear it, a whole number of minor units to set it, or "before" for the price so far'


@every_case(
    ("given", "field", "fault"),
    [
        ({"op": "percent"}, "value", "is required for percent"),
        ({"op": "set"}, "value", "is required for set"),
        ({"op": "multiply"}, "factor", "is required for multiply"),
        ({"op": "multiply", "factor": 0}, "factor", "must be more than 0"),
        (
            {"op": "multiply", "factor": 2, "value": 5},
            "value",
            "does not go with multiply, which has a factor",
        ),
        ({"op": "percent", "value": 5, "factor": 2}, "factor", "goes with multiply only"),
        ({"op": "percent", "value": -100}, "value", "must be more than -100 and at most 10000"),
        ({"op": "percent", "value": "NaN"}, "value", "must be a number"),
        ({"op": "percent", "value": float("nan")}, "value", "must be a finite number"),
        ({"op": "percent", "value": float("inf")}, "value", "must be a finite number"),
        ({"op": "percent", "value": True}, "value", "must be a number"),
        ({"op": "percent", "value": "1_0"}, "value", "must be a number"),
        ({"op": "percent", "value": [1]}, "value", "must be a number"),
        ({"op": "percent", "value": "0.1234567"}, "value", "must have at most 6 decimals"),
        ({"op": "percent", "value": 10**5000}, "value", f"must lie between -{10**12} and {10**12}"),
        (
            {"op": "set", "value": 9.99},
            "value",
            "must be a whole number of minor units, such as 1299 for 12.99",
        ),
        ({"op": "set", "value": -1}, "value", "must be at least 0"),
        ({"op": "set", "value": 0}, "value", "must be at least 1 unless allowZero is true"),
        (
            {"op": "set", "value": 5, "floor": 9.99},
            "floor",
            "must be a whole number of minor units, such as 1299 for 12.99",
        ),
        (
            {"op": "set", "value": 5, "floor": 10, "ceiling": 9},
            "ceiling",
            "must not be below the floor of 10",
        ),
        (
            {"op": "set", "value": 5, "floor": 10, "ceil": 9},
            "ceiling",
            "must not be below the floor of 10",
        ),
        ({"op": "set", "value": 5, "ceil": 9, "ceiling": 8}, "ceil", "is not a known field"),
        (
            {"op": "set", "value": 5, "maxChangePercent": 0},
            "maxChangePercent",
            "must be more than 0",
        ),
        (
            {"op": "set", "value": 5, "marginOverCostPercent": -1},
            "marginOverCostPercent",
            "must be at least 0",
        ),
        ({"op": "set", "value": 5, "precision": 5}, "precision", "must be at most 4"),
        (
            {"op": "set", "value": 5, "ending": ".99", "precision": 1},
            "precision",
            "cannot go with an ending",
        ),
        (
            {"op": "set", "value": 5, "ending": ".99", "round": "none"},
            "round",
            "must be up, down or nearest with an ending",
        ),
        (
            {"op": "set", "value": 5, "ending": 0.99},
            "ending",
            'must be how prices end, as a text such as ".99"',
        ),
        (
            {"op": "set", "value": 5, "ending": "99 cents"},
            "ending",
            'must be how prices end, as a text such as ".99"',
        ),
        (
            {"op": "set", "value": 5, "round": "nearest_95"},
            "round",
            "must be 'none', 'up', 'down' or 'nearest'",
        ),
        ({"op": "set", "value": 5, "compareAt": -1}, "compareAt", COMPARE_AT),
        ({"op": "set", "value": 5, "compareAt": ["before"]}, "compareAt", COMPARE_AT),
        ({"op": "set", "value": 5, "allowZero": 1}, "allowZero", "must be true or false"),
    ],
)
def test_each_fault_is_named_where_it_is(given: dict[str, object], field: str, fault: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        rule(given)
    assert dict(refused.value.fields) == {f"transform.{field}": fault}


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(InvalidInputError) as refused:
        rule({"op": "percentage", "value": 5})
    assert dict(refused.value.fields)["transform.op"].startswith(
        "must be 'percent', 'absolute', 'set'"
    )


def test_numbers_are_decimals_however_they_are_written() -> None:
    written = [
        rule({"op": "percent", "value": value}).transform.value for value in (0.1, "0.1", "0.10")
    ]
    assert written == [Decimal("0.1")] * 3


def test_other_spellings_are_read() -> None:
    transform = rule({"op": "percent", "value": 5, "ceil": 900, "round": "nearest_99"}).transform
    assert (transform.ceiling, transform.round, transform.ending) == (900, Round.NEAREST, ".99")
    assert rule({"op": "percent", "value": 5, "ending": "0.95"}).transform.ending == ".95"


@every_case(
    ("told", "way"),
    [
        ({"ending": ".95"}, Round.NEAREST),
        ({"precision": 0}, Round.NEAREST),
        ({"precision": 1, "round": "up"}, Round.UP),
        ({"precision": 1, "round": "none"}, Round.NONE),
        ({"precision": None, "ending": None}, Round.NONE),
        ({}, Round.NONE),
    ],
)
def test_an_ending_or_a_precision_without_a_way_goes_to_the_nearest(
    told: dict[str, object], way: Round
) -> None:
    assert rule({"op": "percent", "value": 5, **told}).transform.round is way


@every_case(
    ("given", "named"),
    [
        ({"op": "percent", "value": 5}, False),
        ({"op": "percent", "value": 5, "compareAt": None}, False),
        ({"op": "percent", "value": 5, "compareAt": "before"}, False),
        ({"op": "percent", "value": 5, "compareAt": 500}, True),
        ({"op": "multiply", "factor": 2, "floor": 0}, True),
        ({"op": "absolute", "value": 5}, True),
    ],
)
def test_what_holds_amounts_needs_a_currency(given: dict[str, object], *, named: bool) -> None:
    assert names_amounts(rule(given).transform) is named
