"""What a rule makes of a price: the worked results of the reference, each reason to skip, each
warning."""

from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.shop import Price
from automation_pipeline.pricing.models.transforms import (
    PriceOutcome,
    Skip,
    Warn,
)
from automation_pipeline.pricing.rules.evaluation import price
from automation_pipeline_tests.pricing.rules.rules import rule, variant
from automation_pipeline_tests.tables import every_case


def priced(before: int, transform: dict[str, object], **facts: object) -> PriceOutcome:
    return price(rule(transform, currency=facts.get("currency", "EUR")), variant(before, **facts))


@every_case(
    ("before", "transform", "after", "applied"),
    [
        (1000, {"op": "percent", "value": -10}, 900, ()),
        (1000, {"op": "percent", "value": -50, "floor": 750}, 750, ("floor:750",)),
        (1000, {"op": "percent", "value": 100, "ceiling": 1500}, 1500, ("ceiling:1500",)),
        (1000, {"op": "set", "value": 1234, "round": "nearest_99"}, 1199, ()),
        (1000, {"op": "set", "value": 1201, "round": "nearest_99"}, 1199, ()),
        (1000, {"op": "percent", "value": -10, "ceiling": 950, "round": "nearest_99"}, 899, ()),
        (
            1000,
            {"op": "set", "value": 980, "ceiling": 950, "round": "nearest_99"},
            950,
            ("ceiling:950",),
        ),
        (1005, {"op": "percent", "value": -50}, 503, ()),
        (
            10_000,
            {"op": "set", "value": 20_000, "maxChangePercent": 10},
            11_000,
            ("maxChange:11000",),
        ),
        (
            10_000,
            {"op": "set", "value": 20_000, "floor": 15_000, "maxChangePercent": 10},
            15_000,
            ("maxChange:11000", "floor:15000"),
        ),
        (1000, {"op": "percent", "value": -33.333, "precision": 0, "round": "nearest"}, 700, ()),
        (1000, {"op": "percent", "value": -33.333, "precision": 0}, 700, ()),
        (1000, {"op": "absolute", "value": 250}, 1250, ()),
        (1000, {"op": "absolute", "value": -2000, "floor": 100}, 100, ("floor:100",)),
        (1000, {"op": "absolute", "value": -2000, "allowZero": True}, 0, ("zero:0",)),
        (1000, {"op": "multiply", "factor": 1.5}, 1500, ()),
        (333, {"op": "percent", "value": -50, "maxChangePercent": 10}, 300, ("maxChange:300",)),
        (1000, {"op": "percent", "value": 0.1, "round": "up", "precision": 1}, 1010, ()),
        (1000, {"op": "percent", "value": -0.1, "round": "down", "precision": 0}, 900, ()),
        (50, {"op": "percent", "value": -15, "round": "down", "ending": ".99"}, 42, ()),
    ],
)
def test_the_worked_results(
    before: int, transform: dict[str, object], after: int, applied: tuple[str, ...]
) -> None:
    outcome = priced(before, transform)
    assert outcome.after == Price(after, "EUR")
    assert outcome.trace is not None
    assert outcome.trace.constraints.applied == applied


def test_units_follow_the_currency() -> None:
    halved = {"op": "percent", "value": -50, "precision": 0, "round": "nearest"}
    after = [
        priced(before, halved, currency=currency).after
        for before, currency in ((1299, "JPY"), (2999, "KWD"))
    ]
    assert after == [Price(650, "JPY"), Price(1000, "KWD")]


def test_a_price_may_start_from_the_struck_through_one() -> None:
    back = priced(800, {"op": "from_compare_at", "compareAt": None}, compare_at=1000)
    reduced = priced(1000, {"op": "from_compare_at", "value": -30}, compare_at=1000)
    assert (back.after, back.writes_compare_at) == (Price(1000, "EUR", None), True)
    assert reduced.after == Price(700, "EUR", 1000)


def test_a_margin_over_the_cost_is_kept_to_the_unit() -> None:
    outcome = priced(1000, {"op": "percent", "value": -50, "marginOverCostPercent": 15}, cost=555)
    assert outcome.after == Price(639, "EUR")
    assert outcome.trace is not None
    assert outcome.trace.constraints.applied == ("margin:639",)


@every_case(
    ("told", "compare_at", "writes"),
    [
        ({}, 1500, False),
        ({"compareAt": "untouched"}, 1500, False),
        ({"compareAt": None}, None, True),
        ({"compareAt": 2000}, 2000, True),
        ({"compareAt": "before"}, 1000, True),
    ],
)
def test_the_compare_at_price_is_left_cleared_or_set(
    told: dict[str, object], compare_at: int | None, *, writes: bool
) -> None:
    outcome = priced(1000, {"op": "percent", "value": -10, **told}, compare_at=1500)
    assert outcome.after == Price(900, "EUR", compare_at)
    assert outcome.writes_compare_at is writes


def test_a_change_of_the_compare_at_price_alone_is_a_change() -> None:
    outcome = priced(1000, {"op": "percent", "value": 0, "compareAt": None}, compare_at=1500)
    assert (outcome.after, outcome.skipped) == (Price(1000, "EUR", None), None)


@every_case(
    ("facts", "transform", "skip"),
    [
        ({"is_active": False}, {"op": "percent", "value": 5}, Skip.NOT_ACTIVE),
        ({"amount": None}, {"op": "percent", "value": 5}, Skip.NO_PRICE),
        ({"amount": 0}, {"op": "set", "value": 500}, Skip.ZERO_PRICE),
        ({"currency": "USD"}, {"op": "percent", "value": 5}, Skip.OTHER_CURRENCY),
        ({}, {"op": "from_compare_at"}, Skip.NO_COMPARE_AT),
        ({}, {"op": "percent", "value": 5, "marginOverCostPercent": 5}, Skip.NO_COST),
        (
            {"cost": 900},
            {"op": "set", "value": 5, "marginOverCostPercent": 20, "ceiling": 1000},
            Skip.LIMITS_CONFLICT,
        ),
        ({}, {"op": "absolute", "value": -2000}, Skip.NO_PRICE_LEFT),
        ({}, {"op": "absolute", "value": -1000}, Skip.NO_PRICE_LEFT),
        (
            {"amount": 30},
            {"op": "percent", "value": -1, "precision": 0, "round": "down"},
            Skip.NO_PRICE_LEFT,
        ),
        ({"amount": 1299}, {"op": "percent", "value": 0.02}, Skip.NO_CHANGE),
        ({"amount": 1299}, {"op": "set", "value": 1234, "floor": 1299}, Skip.NO_CHANGE),
        ({"compare_at": 9}, {"op": "set", "value": 1000, "compareAt": 9}, Skip.NO_CHANGE),
    ],
)
def test_what_is_left_alone_says_why(
    facts: dict[str, object], transform: dict[str, object], skip: Skip
) -> None:
    outcome = price(rule(transform), variant(**facts))
    assert (outcome.skipped, outcome.after) == (skip, None)
    assert skip.why.endswith(".")


def test_an_ending_that_the_currency_does_not_have_is_left_alone() -> None:
    rule_of_any_shop = rule({"op": "percent", "value": 5, "ending": ".99"}, currency=None)
    assert price(rule_of_any_shop, variant(1000, currency="JPY")).skipped is Skip.NO_SUCH_ENDING
    assert price(rule_of_any_shop, variant(1000)).after == Price(1099, "EUR")


@every_case(
    ("facts", "transform", "warnings"),
    [
        (
            {},
            {"op": "set", "value": 980, "ceiling": 950, "round": "nearest_99"},
            (Warn.ENDING_LOST,),
        ),
        (
            {},
            {"op": "set", "value": 980, "floor": 1500, "maxChangePercent": 10},
            (Warn.CHANGE_OVER_MAXIMUM, Warn.DIRECTION_REVERSED),
        ),
        (
            {"amount": 0},
            {"op": "set", "value": 50, "maxChangePercent": 10, "allowZero": True},
            (Warn.CHANGE_NOT_MEASURED,),
        ),
        ({"compare_at": 1500}, {"op": "set", "value": 1500}, (Warn.COMPARE_AT_NOT_ABOVE,)),
        ({"cost": 901}, {"op": "percent", "value": -10}, (Warn.BELOW_COST,)),
        (
            {"amount": 50},
            {"op": "percent", "value": -15, "ending": ".99", "round": "nearest"},
            (Warn.DIRECTION_REVERSED,),
        ),
        (
            {"amount": 50},
            {"op": "percent", "value": -15, "ending": ".99", "round": "down"},
            (Warn.ENDING_LOST,),
        ),
        (
            {"amount": 1100},
            {"op": "percent", "value": 5, "ceiling": 1050},
            (Warn.DIRECTION_REVERSED,),
        ),
        ({"cost": 900, "compare_at": 1000}, {"op": "percent", "value": -10}, ()),
    ],
)
def test_what_a_person_should_look_at_is_a_warning(
    facts: dict[str, object], transform: dict[str, object], warnings: tuple[Warn, ...]
) -> None:
    outcome = price(rule(transform), variant(**facts))
    assert outcome.warnings == warnings
    assert all(warning.words.endswith(".") for warning in warnings)


def test_the_trace_tells_what_each_part_did() -> None:
    outcome = priced(
        1000, {"op": "percent", "value": -33.333, "floor": 750, "round": "nearest", "precision": 0}
    )
    assert outcome.trace is not None
    assert as_document(outcome.trace) == {
        "operation": "percent",
        "inputPrice": 1000,
        "intermediatePrice": 666.67,
        "roundedPrice": 700,
        "constraints": {
            "floor": 750,
            "ceiling": None,
            "lowestChange": None,
            "highestChange": None,
            "margin": None,
            "applied": ["floor:750"],
        },
        "finalPrice": 750,
    }
