"""What becomes of a variant, and that the account of all of them adds up."""

from decimal import Decimal
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.pricing.models.rules import Policy, parse_policy
from automation_pipeline.pricing.models.runs import BLOCKED
from automation_pipeline.pricing.models.shop import Variant
from automation_pipeline.pricing.rules.evaluation import (
    ExcludedVariant,
    GuardrailCheck,
    PlannedTarget,
    PlanTally,
    check_document,
    explain_plan,
    plan_target,
    price,
)
from automation_pipeline_tests.pricing.rules.rules import any_variant, rule, variant
from automation_pipeline_tests.tables import every_case

TENTH_OFF = rule({"op": "percent", "value": -10})
policies = st.none() | st.sampled_from(
    [
        parse_policy(given)
        for given in ({"maxPctDelta": 0.05}, {"floor": 500, "currency": "EUR"}, {"autoApply": True})
    ]
)


def test_a_price_that_changes_is_a_target() -> None:
    plan = plan_target(price(TENTH_OFF, variant(1000)), None, Decimal(0))
    assert isinstance(plan, PlannedTarget)
    assert (plan.before.unit_amount, plan.after.unit_amount) == (1000, 900)


@every_case(("amount", "reason", "is_listed"), [(None, "no_price", True), (1, "no_change", False)])
def test_what_does_not_change_is_left_alone(
    amount: int | None, reason: str, is_listed: bool
) -> None:
    plan = plan_target(price(TENTH_OFF, variant(amount)), None, Decimal(0))
    assert isinstance(plan, ExcludedVariant)
    assert (plan.reason, plan.is_listed, plan.checks) == (reason, is_listed, ())


@every_case(("used", "is_blocked"), [("0", False), ("0.1", False), ("0.11", True)])
def test_a_guardrail_blocks_with_the_checks_that_fail(used: str, is_blocked: bool) -> None:
    policy = parse_policy({"dailyChangeBudgetPct": 0.2, "maxPctDelta": 0.5})
    plan = plan_target(price(TENTH_OFF, variant(1000)), policy, Decimal(used))
    assert isinstance(plan, ExcludedVariant) == is_blocked
    if isinstance(plan, ExcludedVariant):
        assert (plan.reason, [check.name for check in plan.checks]) == (BLOCKED, ["dailyBudget"])
        assert plan.proposed is not None
        assert plan.proposed.unit_amount == 900


def test_facts_are_told_as_json_can_hold_them() -> None:
    facts = {
        "deltaPct": Decimal(1) / 3,
        "limit": Decimal("0.15"),
        "used": Decimal(0),
        "floor": 10**12,
        "currency": "EUR",
    }
    assert check_document(GuardrailCheck("a check", ok=False, facts=facts)) == {
        "name": "a check",
        "ok": False,
        "deltaPct": 0.333333,
        "limit": 0.15,
        "used": 0,
        "floor": 10**12,
        "currency": "EUR",
    }


@given(st.lists(any_variant, max_size=12), policies)
def test_every_variant_is_counted_once(variants: list[Variant], policy: Policy | None) -> None:
    tally = PlanTally()
    plans = [plan_target(price(TENTH_OFF, one), policy, Decimal(0)) for one in variants]
    for plan in plans:
        tally.count(plan)
    told = explain_plan(TENTH_OFF, tally, [7])
    assert told["matchedVariants"] == len(variants) == tally.targets + tally.skipped + tally.blocked
    assert tally.targets == sum(isinstance(plan, PlannedTarget) for plan in plans)
    assert sum(cast("dict[str, int]", told["skippedByReason"]).values()) == told["skippedTargets"]
    assert told["matchedProducts"] == len({one.product_id for one in variants})
    assert told["conflicts"] == ["7"]
