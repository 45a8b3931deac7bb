"""Guardrails block, and say which one and by how much."""

from decimal import Decimal

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.models.rules import parse_policy
from automation_pipeline.pricing.models.shop import Price
from automation_pipeline.pricing.rules.evaluation import (
    check_guardrails,
    failing_guardrails,
    used_budget,
)
from automation_pipeline_tests.tables import every_case


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


def test_the_budget_of_the_day_is_what_is_left_of_it() -> None:
    policy = parse_policy({"dailyChangeBudgetPct": 0.25})
    (check,) = check_guardrails(policy, "a", Price(1000, "EUR"), 1200, Decimal("0.10"))
    assert not check.ok
    assert (check.facts["deltaPct"], check.facts["remaining"]) == (Decimal("0.2"), Decimal("0.15"))
    assert failing({"dailyChangeBudgetPct": 0.25}, 1000, 1150, used="0.10") == []
    assert failing({"dailyChangeBudgetPct": 0.25}, 1000, 1001, used=3) == ["dailyBudget"]


def test_from_zero_the_change_is_told_as_all_of_it() -> None:
    (check,) = check_guardrails(parse_policy({"maxPctDelta": 0.15}), None, Price(0, "EUR"), 100)
    assert (check.ok, check.facts["deltaPct"]) == (True, 1)


def test_what_was_used_is_the_sum_of_the_days_changes() -> None:
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
def test_each_fault_of_a_policy_is_named(policy: dict[str, object], field: str, fault: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_policy(policy)
    assert dict(refused.value.fields) == {field: fault}
