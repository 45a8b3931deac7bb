"""Whatever a rule says, its limits hold."""

from hypothesis import given, settings

from automation_pipeline.pricing.models.shop import Variant
from automation_pipeline.pricing.models.transforms import Skip
from automation_pipeline.pricing.rules.evaluation import (
    limits_of,
    price,
    within,
)
from automation_pipeline_tests.pricing.rules.rules import any_transform, any_variant, rule


@given(any_transform(), any_variant)
@settings(max_examples=300, deadline=None)
def test_no_rule_gets_past_its_limits(given: dict[str, object], it: Variant) -> None:
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
def test_a_change_is_within_its_maximum_unless_a_hard_limit_forces_it(
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
def test_the_same_rule_makes_the_same_of_the_same(given: dict[str, object], it: Variant) -> None:
    assert price(rule(given), it) == price(rule(given), it)


@given(any_transform(), any_variant)
@settings(max_examples=100, deadline=None)
def test_a_price_inside_all_limits_is_not_moved_again(
    given: dict[str, object], it: Variant
) -> None:
    limits = limits_of(rule(given).transform, it.amount or 0, it.cost)
    if limits.conflict:
        assert price(rule(given), it).skipped in set(Skip)
        return
    amount, _ = within(limits, it.amount or 0)
    hard = (limits.floor, limits.ceiling, limits.margin)
    if not any(bound == amount for bound in hard):
        assert within(limits, amount) == (amount, [])
