"""What may be taken back, in which order, and what the run is then."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.pricing.models.rules import OnDrift
from automation_pipeline.pricing.models.runs import PricingRunState, TargetState
from automation_pipeline.pricing.models.shop import Price
from automation_pipeline.pricing.rules.runs import (
    AppliedResult,
    ApplyTerms,
    AttemptProgress,
    FailedResult,
    WorkTarget,
    after_rollback,
    decide_before_write,
    reversed_target,
    targets_to_roll_back,
)
from automation_pipeline_tests.tables import every_case

T0 = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


def test_all_applied_targets_or_the_chosen_ones_are_rolled_back() -> None:
    assert targets_to_roll_back(PricingRunState.PARTIAL, [1, 3]) == [1, 3]
    assert targets_to_roll_back(PricingRunState.PARTIAL, [1, 3], [3, 3]) == [3]


@every_case(
    "state", sorted(set(PricingRunState) - {PricingRunState.APPLIED, PricingRunState.PARTIAL})
)
def test_only_what_was_applied_can_be_rolled_back(state: PricingRunState) -> None:
    with pytest.raises(ConflictError, match=f"A run that is {state} cannot be rolled back"):
        targets_to_roll_back(state, [1])


def test_a_chosen_target_that_is_not_applied_is_named() -> None:
    with pytest.raises(InvalidInputError) as refused:
        targets_to_roll_back(PricingRunState.PARTIAL, [1, 3], [1, 2, 9])
    assert [problem for _, problem in refused.value.fields] == [
        "2 is not an applied target of the run",
        "9 is not an applied target of the run",
    ]


@every_case(
    ("run", "states", "status", "rollback_state"),
    [
        ("APPLIED", "ROLLED_BACK ROLLED_BACK", "ROLLED_BACK", "DONE"),
        ("PARTIAL", "ROLLED_BACK FAILED", "ROLLED_BACK", "DONE"),
        ("APPLIED", "ROLLED_BACK APPLIED", "APPLIED", "PARTIAL"),
        ("PARTIAL", "ROLLED_BACK APPLIED FAILED", "PARTIAL", "PARTIAL"),
        ("APPLIED", "APPLIED", "APPLIED", "NONE"),
        ("APPLIED", "", "ROLLED_BACK", "DONE"),
    ],
)
def test_a_run_is_rolled_back_when_nothing_is_applied_any_more(
    run: str, states: str, status: str, rollback_state: str
) -> None:
    after = after_rollback(PricingRunState(run), [TargetState(state) for state in states.split()])
    assert after == (status, rollback_state)


@every_case(
    ("seen", "force", "what"),
    [
        (Price(900, "EUR"), False, "write"),
        (Price(1000, "EUR"), False, "found"),
        (Price(950, "EUR"), False, "left"),
        (Price(950, "EUR"), True, "write"),
        (Price(900, "USD"), True, "left"),
        (None, True, "left"),
    ],
)
def test_a_price_is_taken_back_by_applying_the_former_one(
    seen: Price | None, force: bool, what: str
) -> None:
    applied = WorkTarget(
        1,
        "p",
        "v",
        None,
        Price(1000, "EUR"),
        Price(900, "EUR"),
        False,
        AttemptProgress(),
        False,
        T0,
    )
    target = reversed_target(applied)
    assert (target.after, reversed_target(target)) == (Price(1000, "EUR"), applied)
    terms = ApplyTerms(OnDrift.OVERWRITE if force else OnDrift.REFUSE, None, takes_back=True)
    decided = decide_before_write(target, seen, Decimal(0), terms)
    assert (
        type(decided) is {"write": type(None), "found": AppliedResult, "left": FailedResult}[what]
    )
