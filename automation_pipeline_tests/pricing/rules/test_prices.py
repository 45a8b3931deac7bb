"""Prices computed from rules, and guardrails that block them."""

from collections import Counter
from decimal import Decimal
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.rules import Policy, parse_policy
from automation_pipeline.pricing.models.runs import BLOCKED
from automation_pipeline.pricing.models.shop import Price, Variant
from automation_pipeline.pricing.models.transforms import (
    Lattice,
    PriceOutcome,
    Round,
    Skip,
    Warn,
    multiples,
    rounded,
    with_ending,
)
from automation_pipeline.pricing.rules.evaluation import (
    ExcludedVariant,
    GuardrailCheck,
    PlannedTarget,
    PlanTally,
    check_document,
    clamp,
    compile_selector,
    explain_plan,
    failing_guardrails,
    limits_of,
    plan_target,
    price,
    share_of_change,
    used_budget,
)
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.pricing.rules.rules import (
    any_selector,
    any_transform,
    any_variant,
    rule,
    selector,
    variant,
)


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
        (1000, {"op": "absolute", "value": -1000, "allowZero": True}, 0, ()),
        (1000, {"op": "set", "value": 950, "ceiling": 950}, 950, ()),
        (
            1000,
            {"op": "absolute", "value": -2000, "maxChangePercent": 150, "allowZero": True},
            0,
            ("maxChange:0",),
        ),
        (1000, {"op": "set", "value": 950, "floor": 950}, 950, ()),
        (1000, {"op": "set", "value": 1100, "maxChangePercent": 10}, 1100, ()),
        (1000, {"op": "multiply", "factor": 1.5}, 1500, ()),
        (333, {"op": "percent", "value": -50, "maxChangePercent": 10}, 300, ("maxChange:300",)),
        (1000, {"op": "percent", "value": 0.1, "round": "up", "precision": 1}, 1010, ()),
        (1000, {"op": "percent", "value": -0.1, "round": "down", "precision": 0}, 900, ()),
        (50, {"op": "percent", "value": -15, "round": "down", "ending": ".99"}, 42, ()),
    ],
)
def test_documented_price_results(
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


def test_a_transform_may_start_from_the_compare_at_price() -> None:
    back = priced(800, {"op": "from_compare_at", "compareAt": None}, compare_at=1000)
    reduced = priced(1000, {"op": "from_compare_at", "value": -30}, compare_at=1000)
    assert (back.after, back.writes_compare_at) == (Price(1000, "EUR", None), True)
    assert reduced.after == Price(700, "EUR", 1000)


def test_a_price_keeps_the_minimum_margin_to_the_minor_unit() -> None:
    outcome = priced(1000, {"op": "percent", "value": -50, "marginOverCostPercent": 15}, cost=555)
    assert outcome.after == Price(639, "EUR")
    assert outcome.trace is not None
    assert outcome.trace.constraints.applied == ("margin:639",)


@every_case(
    ("option", "compare_at", "writes"),
    [
        ({}, 1500, False),
        ({"compareAt": "untouched"}, 1500, False),
        ({"compareAt": None}, None, True),
        ({"compareAt": 2000}, 2000, True),
        ({"compareAt": "before"}, 1000, True),
    ],
)
def test_the_compare_at_price_is_kept_cleared_or_set(
    option: dict[str, object], compare_at: int | None, *, writes: bool
) -> None:
    outcome = priced(1000, {"op": "percent", "value": -10, **option}, compare_at=1500)
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
def test_each_skipped_variant_has_a_reason(
    facts: dict[str, object], transform: dict[str, object], skip: Skip
) -> None:
    outcome = price(rule(transform), variant(**facts))
    assert (outcome.skipped, outcome.after) == (skip, None)
    assert skip.why.endswith(".")


def test_a_variant_whose_currency_lacks_the_ending_is_skipped() -> None:
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
        ({}, {"op": "set", "value": 1100, "maxChangePercent": 10}, ()),
        ({}, {"op": "set", "value": 900, "maxChangePercent": 10}, ()),
    ],
)
def test_unusual_prices_have_warnings(
    facts: dict[str, object], transform: dict[str, object], warnings: tuple[Warn, ...]
) -> None:
    outcome = price(rule(transform), variant(**facts))
    assert outcome.warnings == warnings
    assert all(warning.sentence.endswith(".") for warning in warnings)


def test_the_trace_lists_every_pricing_step() -> None:
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


@given(any_transform(), any_variant)
@settings(max_examples=300, deadline=None)
def test_no_price_exceeds_the_limits_of_its_rule(given: dict[str, object], it: Variant) -> None:
    parsed = rule(given)
    transform = parsed.transform
    outcome = price(parsed, it)
    assert (outcome.after is None) is (outcome.skipped is not None)
    if outcome.after is None or outcome.before is None:
        return
    after = outcome.after.unit_amount
    assert after >= (0 if transform.allow_zero else 1)
    assert transform.floor is None or after >= transform.floor
    assert transform.ceiling is None or after <= transform.ceiling
    margin = transform.margin_over_cost_percent
    assert margin is None or it.cost is None or after * 100 >= it.cost * (100 + margin)
    assert outcome.after.currency == it.currency == "EUR"
    assert outcome.after != outcome.before


@given(any_transform(), any_variant)
@settings(max_examples=100, deadline=None)
def test_a_change_stays_within_its_maximum_unless_a_hard_limit_applies(
    given: dict[str, object], it: Variant
) -> None:
    outcome = price(rule(given), it)
    maximum = rule(given).transform.max_change_percent
    if outcome.after is None or outcome.trace is None or maximum is None or not it.amount:
        return
    forced = any(
        not applied.startswith("maxChange") for applied in outcome.trace.constraints.applied
    )
    assert forced or abs(outcome.after.unit_amount - it.amount) * 100 <= it.amount * maximum


@given(any_transform(), any_variant)
@settings(max_examples=100, deadline=None)
def test_pricing_is_deterministic(given: dict[str, object], it: Variant) -> None:
    assert price(rule(given), it) == price(rule(given), it)


@given(any_transform(), any_variant)
@settings(max_examples=100, deadline=None)
def test_clamping_is_idempotent(given: dict[str, object], it: Variant) -> None:
    limits = limits_of(rule(given).transform, it.amount or 0, it.cost)
    if limits.conflict:
        assert price(rule(given), it).skipped in set(Skip)
        return
    amount, _ = clamp(limits, it.amount or 0)
    hard = (limits.floor, limits.ceiling, limits.margin)
    if not any(bound == amount for bound in hard):
        assert clamp(limits, amount) == (amount, [])


TENTH_OFF = rule({"op": "percent", "value": -10})
policies = st.none() | st.sampled_from(
    [
        parse_policy(given)
        for given in ({"maxPctDelta": 0.05}, {"floor": 500, "currency": "EUR"}, {"autoApply": True})
    ]
)


def test_a_changed_price_is_a_target() -> None:
    plan = plan_target(price(TENTH_OFF, variant(1000)), None, Decimal(0))
    assert isinstance(plan, PlannedTarget)
    assert (plan.before.unit_amount, plan.after.unit_amount) == (1000, 900)


@every_case(("amount", "reason", "is_listed"), [(None, "no_price", True), (1, "no_change", False)])
def test_an_unchanged_price_is_skipped(amount: int | None, reason: str, is_listed: bool) -> None:
    plan = plan_target(price(TENTH_OFF, variant(amount)), None, Decimal(0))
    assert isinstance(plan, ExcludedVariant)
    assert (plan.reason, plan.is_listed, plan.checks) == (reason, is_listed, ())


@every_case(("used", "is_blocked"), [("0", False), ("0.1", False), ("0.11", True)])
def test_a_blocked_variant_lists_the_failed_guardrails(used: str, is_blocked: bool) -> None:
    policy = parse_policy({"dailyChangeBudgetPct": 0.2, "maxPctDelta": 0.5})
    plan = plan_target(price(TENTH_OFF, variant(1000)), policy, Decimal(used))
    assert isinstance(plan, ExcludedVariant) == is_blocked
    if isinstance(plan, ExcludedVariant):
        assert (plan.reason, [check.name for check in plan.checks]) == (BLOCKED, ["dailyBudget"])
        assert plan.proposed is not None
        assert plan.proposed.unit_amount == 900


def test_facts_are_stored_as_json() -> None:
    facts = {
        "deltaPct": Decimal(1) / 3,
        "limit": Decimal("0.15"),
        "used": Decimal(0),
        "floor": 10**12,
        "currency": "EUR",
    }
    assert check_document(GuardrailCheck("a check", facts)) == {
        "name": "a check",
        "ok": False,
        "deltaPct": 0.333333,
        "limit": 0.15,
        "used": 0,
        "floor": 10**12,
        "currency": "EUR",
    }


def test_targets_skipped_and_blocked_variants_are_matched() -> None:
    tally = PlanTally(targets=2, blocked=3, skips=Counter(no_change=4, no_price=1))
    assert (tally.skipped, tally.matched) == (5, 10)
    limit = parse_policy({"maxPctDelta": 0.05})
    tally.count(plan_target(price(TENTH_OFF, variant(1000)), limit, Decimal(0)))
    assert (tally.targets, tally.blocked, tally.products) == (2, 4, {"p1"})


@given(st.lists(any_variant, max_size=12), policies)
def test_every_variant_is_a_target_or_skipped_or_blocked(
    variants: list[Variant], policy: Policy | None
) -> None:
    tally = PlanTally()
    plans = [plan_target(price(TENTH_OFF, one), policy, Decimal(0)) for one in variants]
    for plan in plans:
        tally.count(plan)
    result = explain_plan(TENTH_OFF, tally, [7])
    assert (
        result["matchedVariants"] == len(variants) == tally.targets + tally.skipped + tally.blocked
    )
    assert tally.targets == sum(isinstance(plan, PlannedTarget) for plan in plans)
    assert (
        sum(cast("dict[str, int]", result["skippedByReason"]).values()) == result["skippedTargets"]
    )
    assert result["matchedProducts"] == len({one.product_id for one in variants})
    assert result["conflicts"] == ["7"]


def failing(policy: dict[str, object], current: int, proposed: int, **facts: object) -> list[str]:
    used = Decimal(str(facts.get("used", 0)))
    price = Price(current, str(facts.get("currency", "EUR")))
    sku = str(facts.get("sku", "a"))
    checks = failing_guardrails(parse_policy(policy), sku, price, proposed, used)
    return [check.name for check in checks]


@every_case(
    ("policy", "current", "proposed", "names"),
    [
        ({}, 1000, 1, []),
        ({"maxPctDelta": 0.15}, 1000, 1150, []),
        ({"maxPctDelta": 0.15}, 1000, 1151, ["maxPctDelta"]),
        ({"maxPctDelta": 0.15}, 1000, 849, ["maxPctDelta"]),
        ({"maxPctDelta": 0.15}, 0, 99_999, []),
        ({"floor": 500, "currency": "EUR"}, 1000, 500, []),
        ({"floor": 500, "currency": "EUR"}, 1000, 499, ["floor"]),
        ({"ceiling": 1500, "currency": "EUR"}, 1000, 1500, []),
        ({"ceiling": 1500, "currency": "EUR"}, 1000, 1501, ["ceiling"]),
        ({"floor": 500, "floors": {"a": 900}, "currency": "EUR"}, 1000, 800, ["floor"]),
        ({"floor": 500, "floors": {"b": 900}, "currency": "EUR"}, 1000, 800, []),
        ({"ceilings": {"a": 900}, "currency": "EUR"}, 1000, 950, ["ceiling"]),
        ({"floor": 500, "ceiling": 900, "currency": "USD"}, 1000, 700, ["currency"]),
        (
            {"maxPctDelta": 0.1, "floor": 900, "currency": "EUR"},
            1000,
            500,
            ["maxPctDelta", "floor"],
        ),
    ],
)
def test_a_price_outside_a_guardrail_is_blocked(
    policy: dict[str, object], current: int, proposed: int, names: list[str]
) -> None:
    assert failing(policy, current, proposed) == names


def test_a_floor_may_equal_the_ceiling() -> None:
    fixed = {"floor": 500, "ceiling": 500}
    policy = parse_policy({**fixed, "currency": "EUR"})
    transform = rule({"op": "percent", "value": 1, **fixed}).transform
    assert (policy.ceiling, transform.ceiling) == (500, 500)


def test_the_daily_budget_is_reduced_by_earlier_changes() -> None:
    policy = parse_policy({"dailyChangeBudgetPct": 0.25})
    (check,) = failing_guardrails(policy, "a", Price(1000, "EUR"), 1200, Decimal("0.10"))
    assert (check.facts["deltaPct"], check.facts["remaining"]) == (Decimal("0.2"), Decimal("0.15"))
    assert failing({"dailyChangeBudgetPct": 0.25}, 1000, 1150, used="0.10") == []
    assert failing({"dailyChangeBudgetPct": 0.25}, 1000, 1001, used=3) == ["dailyBudget"]


def test_a_change_from_zero_counts_as_100_percent() -> None:
    assert (share_of_change(0, 100), share_of_change(0, 0)) == (1, 0)
    assert failing({"dailyChangeBudgetPct": 0.99}, 0, 100) == ["dailyBudget"]


def test_the_used_budget_is_the_sum_of_the_days_changes() -> None:
    assert used_budget([(1000, 900), (900, 990), (0, 0)]) == Decimal("0.2")


@every_case(
    ("policy", "field", "fault"),
    [
        ({"maxPctDelta": 15}, "maxPctDelta", "must be at most 1"),
        ({"floor": 500}, "currency", "is required where the policy names amounts"),
        ({"floors": {"a": 5}}, "currency", "is required where the policy names amounts"),
        (
            {"floor": 5, "ceiling": 4, "currency": "EUR"},
            "ceiling",
            "must not be below the floor of 5",
        ),
        (
            {"floors": {"a": 0.5}, "currency": "EUR"},
            "floors.a",
            "must be a whole number of minor units, such as 1299 for 12.99",
        ),
        ({"autoApply": "yes"}, "autoApply", "must be true or false"),
    ],
)
def test_each_invalid_field_of_a_policy_is_named(
    policy: dict[str, object], field: str, fault: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_policy(policy)
    assert dict(refused.value.fields) == {field: fault}


@every_case(
    ("exact", "way", "lattice", "result"),
    [
        ("502.5", Round.NONE, multiples(2, 2), 503),
        ("502.5", Round.NEAREST, multiples(2, 2), 503),
        ("502.4", Round.UP, multiples(2, 2), 503),
        ("502.6", Round.DOWN, multiples(2, 2), 502),
        ("666.67", Round.NEAREST, multiples(0, 2), 700),
        ("650", Round.NEAREST, multiples(0, 2), 700),
        ("641", Round.NEAREST, multiples(1, 2), 640),
        ("1299", Round.NEAREST, multiples(0, 0), 1299),
        ("1299.4", Round.NEAREST, multiples(2, 0), 1299),
        ("1234", Round.NEAREST, multiples(0, 3), 1000),
        ("-1000", Round.UP, multiples(0, 2), -1000),
    ],
)
def test_a_price_is_rounded_to_its_unit(
    exact: str, way: Round, lattice: Lattice, result: int
) -> None:
    assert rounded(Decimal(exact), way, lattice) == result


@every_case(
    ("exact", "way", "ending", "result"),
    [
        (1234, Round.NEAREST, ".99", 1199),
        (1201, Round.NEAREST, ".99", 1199),
        (1249, Round.NEAREST, ".99", 1299),
        (1250, Round.NEAREST, ".99", 1299),
        (1299, Round.UP, ".99", 1299),
        (1300, Round.UP, ".99", 1399),
        (1298, Round.DOWN, ".99", 1199),
        (30, Round.DOWN, ".99", 30),
        (1234, Round.NEAREST, "9.99", 999),
        (1600, Round.NEAREST, "9.99", 1999),
        (1234, Round.NEAREST, ".9", 1190),
        (1234, Round.UP, ".00", 1300),
        (-500, Round.NEAREST, ".99", -500),
        (0, Round.NEAREST, ".99", 0),
    ],
)
def test_a_price_gets_the_configured_ending(
    exact: int, way: Round, ending: str, result: int
) -> None:
    lattice = with_ending(ending, 2)
    assert lattice is not None
    assert rounded(Decimal(exact), way, lattice) == result


@every_case(
    ("ending", "decimals", "lattice"),
    [
        ("99", 0, Lattice(100, 99)),
        ("9", 0, Lattice(10, 9)),
        (".99", 3, Lattice(1000, 990)),
        (".990", 3, Lattice(1000, 990)),
        (".99", 0, None),
        ("99", 2, None),
        (".990", 2, None),
    ],
)
def test_an_ending_has_the_decimals_of_its_currency(
    ending: str, decimals: int, lattice: Lattice | None
) -> None:
    assert with_ending(ending, decimals) == lattice


lattices = st.sampled_from(
    [multiples(0, 2), multiples(1, 2), multiples(2, 2), Lattice(100, 99), Lattice(1000, 995)]
)
exacts = st.decimals(-10_000, 1_000_000, places=4)


@given(exacts, st.sampled_from(Round), lattices)
@settings(max_examples=100, deadline=None)
def test_rounding_is_idempotent(exact: Decimal, way: Round, lattice: Lattice) -> None:
    once = rounded(exact, way, lattice)
    assert rounded(Decimal(once), way, lattice) == once
    assert way is Round.NONE or once <= 0 or lattice.contains(once) or once < lattice.first


@given(exacts, lattices)
@settings(max_examples=100, deadline=None)
def test_rounding_down_never_goes_up(exact: Decimal, lattice: Lattice) -> None:
    assert exact <= 0 or rounded(exact, Round.DOWN, lattice) <= exact


@given(exacts.filter(lambda exact: exact > 1000), lattices)
@settings(max_examples=50, deadline=None)
def test_rounding_to_nearest_picks_the_closest_price(exact: Decimal, lattice: Lattice) -> None:
    down, nearest, up = (
        rounded(exact, way, lattice) for way in (Round.DOWN, Round.NEAREST, Round.UP)
    )
    assert down <= exact <= up
    assert nearest == (up if up - exact <= exact - down else down)


SHIRT = variant(
    1500,
    sku="SH-1",
    compare_at=2000,
    tags=("Summer", "shirts"),
    vendor="Acme Ltd",
    product_type="Shirt",
    inventory=3,
)


@every_case(
    ("given", "picked"),
    [
        ({"all": True}, True),
        ({"sku": ["x", "SH-1"]}, True),
        ({"sku": "sh-1"}, False),
        ({"product": "p1"}, True),
        ({"product": "p2"}, False),
        ({"tag": "summer"}, True),
        ({"tag": ["winter", "SHIRTS"]}, True),
        ({"tag": "summ"}, False),
        ({"price": {"gte": 1500, "lt": 1501, "currency": "EUR"}}, True),
        ({"price": {"gt": 1500, "currency": "EUR"}}, False),
        ({"price": {"lte": 1499, "currency": "EUR"}}, False),
        ({"price": {"eq": 1500, "currency": "EUR"}}, True),
        ({"price": {"eq": 1499, "currency": "EUR"}}, False),
        ({"price": {"gte": 0, "currency": "USD"}}, False),
        ({"field": "vendor", "op": "eq", "value": "acme ltd"}, True),
        ({"field": "vendor", "op": "ne", "value": "acme ltd"}, False),
        ({"field": "vendor", "op": "contains", "value": "CME"}, True),
        ({"field": "vendor", "op": "startsWith", "value": "acme"}, True),
        ({"field": "vendor", "op": "endsWith", "value": "acme"}, False),
        ({"field": "productType", "op": "in", "value": ["hat", "shirt"]}, True),
        ({"field": "barcode", "op": "eq", "value": "1"}, False),
        ({"field": "barcode", "op": "ne", "value": "1"}, True),
        ({"field": "inventory", "op": "gt", "value": 2}, True),
        ({"field": "inventory", "op": "lte", "value": 2}, False),
        ({"field": "inventory", "op": "in", "value": [3, 4]}, True),
        ({"field": "onSale", "op": "eq", "value": True}, True),
        ({"field": "onSale", "op": "ne", "value": True}, False),
        ({"and": [{"sku": "SH-1"}, {"tag": "winter"}]}, False),
        ({"or": [{"sku": "SH-1"}, {"tag": "winter"}]}, True),
        ({"not": {"tag": "winter"}}, True),
    ],
)
def test_variants_matched_per_selector(given: dict[str, object], *, picked: bool) -> None:
    assert compile_selector(selector(given))(SHIRT) is picked


@every_case("op", ["lt", "gte", "eq", "in"])
def test_a_variant_without_the_field_does_not_match(op: str) -> None:
    value = [1] if op == "in" else 1
    picked = compile_selector(selector({"field": "inventory", "op": op, "value": value}))
    assert not picked(variant(inventory=None))


def test_a_variant_without_a_price_matches_no_price_band() -> None:
    assert not compile_selector(selector({"price": {"gte": 0, "currency": "EUR"}}))(variant(None))


@given(any_selector, any_selector, any_variant)
@settings(max_examples=80, deadline=None)
def test_selectors_obey_boolean_algebra(
    one: dict[str, object], other: dict[str, object], it: Variant
) -> None:
    def matches(given: dict[str, object]) -> bool:
        return compile_selector(selector(given))(it)

    first, second = matches(one), matches(other)
    assert matches({"not": {"not": one}}) is first
    assert matches({"not": one}) is not first
    assert matches({"and": [one, other]}) is (first and second) is matches({"and": [other, one]})
    assert matches({"or": [one, other]}) is (first or second) is matches({"or": [other, one]})
    assert matches({"not": {"and": [one, other]}}) is matches(
        {"or": [{"not": one}, {"not": other}]}
    )
    assert (
        matches({"and": [one]}) is matches({"or": [one]}) is matches({"and": [one, one]}) is first
    )


@given(st.lists(any_variant, max_size=5), any_selector)
@settings(max_examples=30, deadline=None)
def test_a_selector_and_its_negation_partition_the_variants(
    some: list[Variant], given: dict[str, object]
) -> None:
    assert all(
        compile_selector(selector(given))(it) != compile_selector(selector({"not": given}))(it)
        for it in some
    )
