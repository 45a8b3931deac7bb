"""What is decided about one variant: before the write by the price that is there, and after a call
that failed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.pricing.models.rules import OnDrift, Policy
from automation_pipeline.pricing.models.shop import (
    CallFailure,
    FailureKind,
    FailureSignal,
    Price,
    classify_failure,
)
from automation_pipeline.pricing.rules.runs import (
    MAX_RETRIES,
    AppliedResult,
    ApplyTerms,
    AttemptProgress,
    FailedResult,
    RequeuedResult,
    WorkTarget,
    decide_after_failed_call,
    decide_before_write,
    fail_without_variant,
    overdue_targets,
    requeue_unchanged,
    reversed_target,
    start_of_day,
)
from automation_pipeline_tests.tables import every_case

BEGAN = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
BEFORE, AFTER = Price(1000, "EUR"), Price(900, "EUR")
REFUSES, OVERWRITES = ApplyTerms(OnDrift.REFUSE, None), ApplyTerms(OnDrift.OVERWRITE, None)
BACK, BACK_BY_FORCE = replace(REFUSES, takes_back=True), replace(OVERWRITES, takes_back=True)
LOST = classify_failure(FailureSignal(lost=True), "Nothing came back.")
BUSY = classify_failure(FailureSignal(status=500), "The shop is busy.")
GONE = classify_failure(FailureSignal(status=404), "It is gone.")
HASTE = classify_failure(FailureSignal(status=429), "Too fast.", 5.0)


def target(**changes: object) -> WorkTarget:
    facts = {
        "id": 1,
        "product_id": "1",
        "variant_id": "11",
        "sku": "S",
        "before": BEFORE,
        "after": AFTER,
    }
    state = {
        "writes_compare_at": False,
        "progress": AttemptProgress(),
        "outcome_unknown": False,
        "began_at": BEGAN,
    }
    return WorkTarget(**{**facts, **state, **changes})


@every_case(
    ("seen", "terms", "becomes"),
    [
        (BEFORE, REFUSES, None),
        (AFTER, REFUSES, AppliedResult),
        (Price(1234, "EUR"), REFUSES, FailedResult),
        (Price(1234, "EUR"), OVERWRITES, None),
        (Price(1000, "USD"), REFUSES, FailedResult),
        (Price(1000, "USD"), OVERWRITES, FailedResult),
        (None, OVERWRITES, FailedResult),
        (Price(1000, "EUR", 2000), REFUSES, None),
    ],
)
def test_a_price_is_written_only_over_the_one_that_was_previewed(
    seen: Price | None, terms: ApplyTerms, becomes: type | None
) -> None:
    decided = decide_before_write(target(), seen, Decimal(0), terms)
    assert (None if decided is None else type(decided)) is becomes


@every_case(
    ("seen", "terms", "becomes"),
    [
        (AFTER, BACK, None),
        (BEFORE, BACK, AppliedResult),
        (Price(1234, "EUR"), BACK, FailedResult),
        (Price(1234, "EUR"), BACK_BY_FORCE, None),
        (Price(900, "USD"), BACK_BY_FORCE, FailedResult),
        (None, BACK_BY_FORCE, FailedResult),
    ],
)
def test_a_price_is_taken_back_only_where_nobody_has_edited_it(
    seen: Price | None, terms: ApplyTerms, becomes: type | None
) -> None:
    decided = decide_before_write(reversed_target(target()), seen, Decimal(0), terms)
    assert (None if decided is None else type(decided)) is becomes


def test_what_is_found_done_is_a_change_from_the_former_price() -> None:
    assert decide_before_write(target(), AFTER, Decimal(0), REFUSES) == AppliedResult(
        target(), BEFORE, was_found=True
    )


@every_case(
    ("one", "terms", "words"),
    [
        (target(), REFUSES, "the shop has 12.34 EUR, not 10.00 EUR as was previewed."),
        (
            reversed_target(target()),
            BACK,
            "the shop has 12.34 EUR, not 9.00 EUR as was applied: somebody has edited it",
        ),
    ],
)
def test_a_refusal_for_drift_names_both_prices(
    one: WorkTarget, terms: ApplyTerms, words: str
) -> None:
    decided = decide_before_write(one, Price(1234, "EUR"), Decimal(0), terms)
    assert isinstance(decided, FailedResult)
    assert (decided.failure.kind, decided.failure.retryable) == (FailureKind.CONFLICT, False)
    assert decided.failure.message.startswith("CONFLICT_PRICE_DRIFT: ")
    assert words in decided.failure.message
    assert decided.seen == Price(1234, "EUR")


@every_case(
    ("policy", "used", "failing"),
    [
        (Policy(), 0, None),
        (Policy(max_pct_delta=Decimal("0.10")), 0, None),
        (Policy(max_pct_delta=Decimal("0.09")), 0, "maxPctDelta"),
        (Policy(daily_change_budget_pct=Decimal("0.10")), 0, None),
        (Policy(daily_change_budget_pct=Decimal("0.10")), Decimal("0.05"), "dailyBudget"),
    ],
)
def test_the_guardrails_are_looked_at_with_what_is_spent_of_the_day(
    policy: Policy, used: Decimal, failing: str | None
) -> None:
    decided = decide_before_write(
        target(), BEFORE, Decimal(used), ApplyTerms(OnDrift.REFUSE, policy)
    )
    if failing is None:
        assert decided is None
        return
    assert isinstance(decided, FailedResult)
    assert decided.failure.kind is FailureKind.VALIDATION
    assert failing in decided.failure.message


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6), st.booleans())
def test_nothing_is_written_over_a_price_that_nobody_previewed_unless_the_rule_says_so(
    before: int, after: int, seen: int, overwrites: bool
) -> None:
    one = target(before=Price(before, "EUR"), after=Price(after, "EUR"))
    decided = decide_before_write(
        one, Price(seen, "EUR"), Decimal(0), OVERWRITES if overwrites else REFUSES
    )
    if decided is None:
        assert seen != after
        assert seen == before or overwrites
    else:
        assert isinstance(decided, AppliedResult) == (seen == after)


@given(st.lists(st.sampled_from([LOST, BUSY, HASTE, GONE]), max_size=40), st.integers(0, 9))
def test_a_target_is_given_up_in_the_end_but_not_while_it_is_in_doubt(
    failures: list[CallFailure], seed: int
) -> None:
    one, random, doubted = target(), Random(seed), False
    for failure in failures:
        settled = decide_after_failed_call(one, failure, random)
        doubted = doubted or failure.outcome_unknown
        if isinstance(settled, FailedResult):
            assert failure is GONE or one.progress.attempts == MAX_RETRIES
            assert not doubted
            return
        assert settled.progress.attempts <= MAX_RETRIES
        if settled.final_failure is not None:
            assert (doubted, settled.outcome_unknown) == (True, True)
            return
        assert (settled.outcome_unknown, settled.failure) == (doubted, failure)
        assert settled.wait_seconds >= 1
        one = replace(one, progress=settled.progress, outcome_unknown=settled.outcome_unknown)


@every_case(("price", "kind"), [(900, AppliedResult), (1000, FailedResult), (1234, FailedResult)])
def test_the_last_look_finds_the_price_or_gives_it_up_for_its_doom(
    price: int, kind: type[object]
) -> None:
    doomed = target(final_failure=BUSY, outcome_unknown=True)
    settled = decide_before_write(
        doomed, Price(price, "EUR"), Decimal(0), ApplyTerms(OnDrift.REFUSE, None)
    )
    assert isinstance(settled, kind)
    if isinstance(settled, FailedResult):
        assert (settled.failure, settled.target.outcome_unknown) == (BUSY, False)


def test_a_last_look_that_fails_is_taken_again_unless_that_is_hopeless() -> None:
    doomed = target(final_failure=LOST, outcome_unknown=True)
    again = decide_after_failed_call(doomed, BUSY, Random(1))
    assert isinstance(again, RequeuedResult)
    assert (again.final_failure, again.outcome_unknown, again.wait_seconds > 0) == (
        LOST,
        True,
        True,
    )
    over = decide_after_failed_call(doomed, GONE, Random(1))
    assert isinstance(over, FailedResult)
    assert (over.failure.kind, over.failure.outcome_unknown) == (LOST.kind, True)


def test_who_was_not_tried_is_as_before() -> None:
    one = target(progress=AttemptProgress(2, 1, 5.0), outcome_unknown=True)
    assert requeue_unchanged(one, 7.0) == RequeuedResult(
        one, 7.0, AttemptProgress(2, 1, 5.0), None, outcome_unknown=True
    )


def test_a_target_without_a_variant_is_not_found() -> None:
    failure = fail_without_variant(target(variant_id=None)).failure
    assert (failure.kind, failure.retryable) == (FailureKind.NOT_FOUND, False)


@every_case(
    ("minutes", "waited_seconds", "is_late"),
    [(10, 0.0, False), (10.1, 0.0, True), (14, 300.0, False), (16, 300.0, True)],
)
def test_a_target_has_ten_minutes_besides_the_waits_that_the_shop_asked_for(
    minutes: float, waited_seconds: float, is_late: bool
) -> None:
    one = target(progress=AttemptProgress(1, 3, waited_seconds))
    late = overdue_targets([one], BEGAN + timedelta(minutes=minutes))
    assert [(given_up.failure.kind, given_up.progress) for given_up in late] == [
        (FailureKind.TIMEOUT, one.progress)
    ] * is_late


@every_case(
    ("now", "zone", "began"),
    [
        ("2026-05-04T10:00+00:00", "UTC", "2026-05-04T00:00+00:00"),
        ("2026-05-04T10:00+00:00", "Europe/Paris", "2026-05-03T22:00+00:00"),
        ("2026-05-03T23:00+00:00", "Europe/Paris", "2026-05-03T22:00+00:00"),
        ("2026-05-03T21:59+00:00", "Europe/Paris", "2026-05-02T22:00+00:00"),
        ("2026-03-29T12:00+00:00", "Europe/Paris", "2026-03-28T23:00+00:00"),
        ("2026-10-25T12:00+00:00", "Europe/Paris", "2026-10-24T22:00+00:00"),
        ("2026-09-06T12:00+00:00", "America/Santiago", "2026-09-06T04:00+00:00"),
    ],
)
def test_a_day_begins_where_the_shop_is(now: str, zone: str, began: str) -> None:
    """The last one is a day whose midnight the clocks leave out."""
    assert start_of_day(datetime.fromisoformat(now), zone) == datetime.fromisoformat(began)
