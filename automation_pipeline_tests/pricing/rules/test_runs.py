"""Decisions about runs and targets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.pricing import events as keys
from automation_pipeline.pricing.events import apply_key
from automation_pipeline.pricing.models.rules import OnDrift, Policy
from automation_pipeline.pricing.models.runs import (
    FIRST_RUN_STATE,
    FIRST_TARGET_STATE,
    RULE_RUN,
    RULE_TARGET,
    PricingRunState,
    RuleRun,
    RunError,
    TargetCounts,
    TargetState,
    final_run_state,
    run_error,
    success_rate,
)
from automation_pipeline.pricing.models.shop import (
    CallFailure,
    FailureKind,
    FailureSignal,
    Price,
    classify_failure,
)
from automation_pipeline.pricing.rules.runs import (
    MAX_RETRIES,
    RATE_LIMIT_BACKOFF,
    RETRY_BACKOFF,
    AppliedResult,
    ApplyTerms,
    AttemptProgress,
    DuePriceRules,
    FailedResult,
    PlannedRule,
    RequeuedResult,
    RetryTarget,
    WorkTarget,
    after_rollback,
    approval_fault,
    cooldown_end,
    decide_after_failed_call,
    decide_before_write,
    decide_retry,
    drift_action,
    due_action,
    fail_without_variant,
    is_overdue,
    overdue_targets,
    rate_limit_wait,
    requeue_unchanged,
    reversed_target,
    stale_fault,
    start_of_day,
    targets_to_roll_back,
    throttle_seconds,
)
from automation_pipeline_tests.cases import every_case

NOW = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


@every_case(
    ("rule_hash", "age", "reason"),
    [
        ("h", timedelta(minutes=15), None),
        (
            "h",
            timedelta(minutes=15, seconds=1),
            "The preview is older than 15 minutes: preview the rule again.",
        ),
        ("other", timedelta(0), "The rule was changed after the preview: preview it again."),
    ],
)
def test_a_preview_is_stale_after_15_minutes_or_a_rule_change(
    rule_hash: str, age: timedelta, reason: str | None
) -> None:
    assert stale_fault("h", rule_hash, NOW - age, NOW) == reason


@every_case(
    ("auto_apply", "approved_by", "fault"),
    [
        (True, None, None),
        (False, None, "The run must be approved first."),
        (False, "ann", "The run must be approved by a person other than its creator."),
        (False, "bob", "The run must be approved by a person other than the author of its rule."),
        (False, "cyd", None),
    ],
)
def test_a_run_needs_the_approval_of_a_second_person(
    approved_by: str | None, fault: str | None, *, auto_apply: bool
) -> None:
    faults = approval_fault(
        auto_apply=auto_apply, created_by="ann", written_by="bob", approved_by=approved_by
    )
    assert faults == fault


@every_case(
    ("minutes_ago", "cooldown", "cooldown_left"),
    [(None, 60, None), (30, 0, None), (30, 60, 30), (60, 60, None)],
)
def test_a_rule_has_a_cooldown_after_it_is_applied(
    minutes_ago: int | None, cooldown: int, cooldown_left: int | None
) -> None:
    last = None if minutes_ago is None else NOW - timedelta(minutes=minutes_ago)
    until = None if cooldown_left is None else NOW + timedelta(minutes=cooldown_left)
    assert cooldown_end(last, cooldown, NOW) == until


HOUR = timedelta(hours=1)


@every_case(
    ("starts", "ends", "enabled", "applied", "what"),
    [
        (None, None, True, False, None),
        (HOUR, None, True, False, None),
        (-HOUR, None, True, False, "start"),
        (timedelta(0), HOUR, True, False, "start"),
        (-HOUR, None, False, False, None),
        (None, HOUR, True, True, None),
        (None, timedelta(0), True, True, "end"),
        (None, -HOUR, False, True, "end"),
        (None, -HOUR, True, False, None),
        (-2 * HOUR, -HOUR, True, False, "missed"),
        (-2 * HOUR, -HOUR, True, True, "end"),
    ],
)
def test_due_action_of_a_planned_rule(
    starts: timedelta | None,
    ends: timedelta | None,
    what: str | None,
    *,
    enabled: bool,
    applied: bool,
) -> None:
    rule = PlannedRule(
        id=1,
        project_id="default",
        version=1,
        version_hash="h",
        enabled=enabled,
        schedule_at=None if starts is None else NOW + starts,
        ends_at=None if ends is None else NOW + ends,
        is_applied=applied,
    )
    assert due_action(rule, NOW) == what


@every_case(
    ("report", "words"),
    [
        (DuePriceRules(), "No rule is due."),
        (DuePriceRules(started=(7,)), "Started run 7."),
        (
            DuePriceRules(started=(7, 8), put_off=(3,)),
            "Started runs 7, 8. Postponed until the open run ends: rule 3.",
        ),
        (
            DuePriceRules(ended=(9, 4)),
            "The promotion of runs 9, 4 is over: the run will be rolled back.",
        ),
        (DuePriceRules(missed=(2,)), "Not started, because the promotion is over: rule 2."),
        (DuePriceRules(before=(2,)), "Not started again for the same time: rule 2."),
        (
            DuePriceRules(started=tuple(range(1, 13))),
            "Started runs 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more.",
        ),
    ],
)
def test_the_summary_of_a_tick(report: DuePriceRules, words: str) -> None:
    assert str(report) == words


BEFORE, AFTER, EDITED = Price(1000, "EUR", 1500), Price(900, "EUR"), Price(950, "EUR")


@every_case(
    ("observed", "on_drift", "writes_compare_at", "step"),
    [
        (BEFORE, "refuse", True, "write"),
        (AFTER, "refuse", True, "done"),
        (EDITED, "refuse", True, "refuse"),
        (EDITED, "overwrite", True, "write"),
        (Price(1000, "EUR", 1400), "refuse", True, "refuse"),
        (Price(1000, "EUR", 1400), "refuse", False, "write"),
        (Price(900, "EUR", 1500), "refuse", True, "refuse"),
        (Price(900, "EUR", 1500), "refuse", False, "done"),
        (Price(1000, "USD", 1500), "overwrite", True, "refuse"),
    ],
)
def test_drift_action_per_observed_price(
    observed: Price, on_drift: str, step: str, *, writes_compare_at: bool
) -> None:
    assert (
        drift_action(
            observed, BEFORE, AFTER, OnDrift(on_drift), writes_compare_at=writes_compare_at
        )
        == step
    )


BEGAN = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
TEN_EUROS, NINE_EUROS = Price(1000, "EUR"), Price(900, "EUR")
REFUSE_DRIFT, OVERWRITE_DRIFT = (
    ApplyTerms(OnDrift.REFUSE, None),
    ApplyTerms(OnDrift.OVERWRITE, None),
)
ROLLBACK, FORCED_ROLLBACK = (
    replace(REFUSE_DRIFT, is_rollback=True),
    replace(OVERWRITE_DRIFT, is_rollback=True),
)
LOST = classify_failure(FailureSignal(lost=True), "Nothing came back.")
BUSY = classify_failure(FailureSignal(status=500), "The shop is busy.")
GONE = classify_failure(FailureSignal(status=404), "It is gone.")
THROTTLED = classify_failure(FailureSignal(status=429), "Too fast.", 5.0)


def target(**changes: object) -> WorkTarget:
    facts = {
        "id": 1,
        "product_id": "1",
        "variant_id": "11",
        "sku": "S",
        "before": TEN_EUROS,
        "after": NINE_EUROS,
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
        (TEN_EUROS, REFUSE_DRIFT, None),
        (NINE_EUROS, REFUSE_DRIFT, AppliedResult),
        (Price(1234, "EUR"), REFUSE_DRIFT, FailedResult),
        (Price(1234, "EUR"), OVERWRITE_DRIFT, None),
        (Price(1000, "USD"), REFUSE_DRIFT, FailedResult),
        (Price(1000, "USD"), OVERWRITE_DRIFT, FailedResult),
        (None, OVERWRITE_DRIFT, FailedResult),
        (Price(1000, "EUR", 2000), REFUSE_DRIFT, None),
    ],
)
def test_decision_before_a_write_per_observed_price(
    seen: Price | None, terms: ApplyTerms, becomes: type | None
) -> None:
    decided = decide_before_write(target(), seen, Decimal(0), terms)
    assert (None if decided is None else type(decided)) is becomes


@every_case(
    ("seen", "terms", "becomes"),
    [
        (NINE_EUROS, ROLLBACK, None),
        (TEN_EUROS, ROLLBACK, AppliedResult),
        (Price(1234, "EUR"), ROLLBACK, FailedResult),
        (Price(1234, "EUR"), FORCED_ROLLBACK, None),
        (Price(900, "USD"), FORCED_ROLLBACK, FailedResult),
        (None, FORCED_ROLLBACK, FailedResult),
    ],
)
def test_an_edited_price_is_rolled_back_only_by_force(
    seen: Price | None, terms: ApplyTerms, becomes: type | None
) -> None:
    decided = decide_before_write(reversed_target(target()), seen, Decimal(0), terms)
    assert (None if decided is None else type(decided)) is becomes


def test_a_price_found_applied_is_a_change_from_the_former_price() -> None:
    assert decide_before_write(target(), NINE_EUROS, Decimal(0), REFUSE_DRIFT) == AppliedResult(
        target(), TEN_EUROS, was_found=True
    )


@every_case(
    ("one", "terms", "words"),
    [
        (target(), REFUSE_DRIFT, "the shop has 12.34 EUR, not 10.00 EUR as was previewed."),
        (
            reversed_target(target()),
            ROLLBACK,
            "the shop has 12.34 EUR, not 9.00 EUR as was applied: it was edited",
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
def test_guardrails_before_a_write_include_the_used_daily_budget(
    policy: Policy, used: Decimal, failing: str | None
) -> None:
    decided = decide_before_write(
        target(), TEN_EUROS, Decimal(used), ApplyTerms(OnDrift.REFUSE, policy)
    )
    if failing is None:
        assert decided is None
        return
    assert isinstance(decided, FailedResult)
    assert (decided.failure.kind, decided.failure.retryable) == (FailureKind.VALIDATION, False)
    assert decided.failure.message.startswith(f"The project's guardrails block it: {failing} (")
    assert (decided.seen, decided.progress) == (TEN_EUROS, AttemptProgress())


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6), st.booleans())
def test_only_an_overwriting_rule_replaces_a_drifted_price(
    before: int, after: int, seen: int, overwrites: bool
) -> None:
    one = target(before=Price(before, "EUR"), after=Price(after, "EUR"))
    decided = decide_before_write(
        one, Price(seen, "EUR"), Decimal(0), OVERWRITE_DRIFT if overwrites else REFUSE_DRIFT
    )
    if decided is None:
        assert seen != after
        assert seen == before or overwrites
    else:
        assert isinstance(decided, AppliedResult) == (seen == after)


@given(st.lists(st.sampled_from([LOST, BUSY, THROTTLED, GONE]), max_size=40), st.integers(0, 9))
def test_a_target_does_not_fail_while_its_outcome_is_unknown(
    failures: list[CallFailure], seed: int
) -> None:
    one, random, was_unknown = target(), Random(seed), False
    for failure in failures:
        settled = decide_after_failed_call(one, failure, random)
        was_unknown = was_unknown or failure.outcome_unknown
        if isinstance(settled, FailedResult):
            assert failure is GONE or one.progress.attempts == MAX_RETRIES
            assert not was_unknown
            return
        assert settled.progress.attempts <= MAX_RETRIES
        if settled.final_failure is not None:
            assert (was_unknown, settled.outcome_unknown) == (True, True)
            return
        assert (settled.outcome_unknown, settled.failure) == (was_unknown, failure)
        assert settled.wait_seconds >= 1
        one = replace(one, progress=settled.progress, outcome_unknown=settled.outcome_unknown)


@every_case(("price", "kind"), [(900, AppliedResult), (1000, FailedResult), (1234, FailedResult)])
def test_the_final_read_finds_the_price_or_fails_the_target(price: int, kind: type[object]) -> None:
    failed_target = target(final_failure=BUSY, outcome_unknown=True)
    settled = decide_before_write(
        failed_target, Price(price, "EUR"), Decimal(0), ApplyTerms(OnDrift.REFUSE, None)
    )
    assert isinstance(settled, kind)
    if isinstance(settled, FailedResult):
        known = replace(failed_target, outcome_unknown=False)
        assert settled == FailedResult(known, BUSY, known.progress, Price(price, "EUR"))


def test_a_failed_final_read_is_repeated_unless_the_error_is_permanent() -> None:
    failed_target = target(final_failure=LOST, outcome_unknown=True)
    for failure, wait in ((BUSY, 2.0), (replace(BUSY, retry_after_seconds=30.0), 30.0)):
        assert decide_after_failed_call(failed_target, failure, NoJitter()) == RequeuedResult(
            failed_target,
            wait,
            failed_target.progress,
            failure,
            outcome_unknown=True,
            final_failure=LOST,
        )
    over = decide_after_failed_call(failed_target, GONE, Random(1))
    assert isinstance(over, FailedResult)
    assert (over.failure.kind, over.failure.outcome_unknown) == (LOST.kind, True)


def test_a_throttled_target_waits_for_its_next_call() -> None:
    one = target(outcome_unknown=True)
    decided = decide_after_failed_call(one, THROTTLED, NoJitter())
    assert decided == RequeuedResult(
        one, 5.5, AttemptProgress(0, 1, 5.5), THROTTLED, outcome_unknown=True
    )


def test_a_permanent_failure_with_a_known_outcome_fails_the_target() -> None:
    one = target(progress=AttemptProgress(1, 2, 3.0))
    assert decide_after_failed_call(one, GONE, NoJitter()) == FailedResult(one, GONE, one.progress)


def test_an_untried_target_is_requeued_unchanged() -> None:
    one = target(progress=AttemptProgress(2, 1, 5.0), outcome_unknown=True)
    assert requeue_unchanged(one, 7.0) == RequeuedResult(
        one, 7.0, AttemptProgress(2, 1, 5.0), None, outcome_unknown=True
    )


def test_a_target_without_a_variant_is_not_found() -> None:
    one = target(variant_id=None)
    failure = CallFailure(FailureKind.NOT_FOUND, "It has no variant of the shop.", retryable=False)
    assert fail_without_variant(one) == FailedResult(one, failure, one.progress)
    missing = decide_before_write(one, None, Decimal(0), REFUSE_DRIFT)
    assert isinstance(missing, FailedResult)
    assert missing.failure == replace(
        failure, message="The variant, or its price, is not in the shop any more."
    )


@every_case(
    ("minutes", "waited_seconds", "is_late"),
    [(10, 0.0, False), (10.1, 0.0, True), (14, 300.0, False), (16, 300.0, True)],
)
def test_a_target_times_out_after_ten_minutes_excluding_rate_limit_waits(
    minutes: float, waited_seconds: float, is_late: bool
) -> None:
    one = target(progress=AttemptProgress(1, 3, waited_seconds))
    late = overdue_targets([one], BEGAN + timedelta(minutes=minutes))
    failure = CallFailure(FailureKind.TIMEOUT, "It took longer than ten minutes.", retryable=False)
    assert late == [FailedResult(one, failure, one.progress)] * is_late


def test_an_overdue_target_with_an_unknown_outcome_is_read_once_more() -> None:
    unknown = target(outcome_unknown=True)
    [again] = overdue_targets([unknown], BEGAN + timedelta(minutes=11))
    assert isinstance(again, RequeuedResult)
    assert again.final_failure is not None
    assert again == RequeuedResult(
        unknown,
        0.0,
        unknown.progress,
        None,
        outcome_unknown=True,
        final_failure=again.final_failure,
    )
    assert again.final_failure.kind is FailureKind.TIMEOUT
    assert again.was_tried
    last = replace(unknown, final_failure=LOST)
    assert overdue_targets([last], BEGAN + timedelta(minutes=11)) == [
        FailedResult(last, LOST, last.progress)
    ]


@every_case(("failure", "waits"), [(BUSY, False), (LOST, True)])
def test_after_the_last_attempt_a_price_that_may_be_written_is_read_once_more(
    failure: CallFailure, *, waits: bool
) -> None:
    """A call without an answer may still take effect; a call with a server error has ended."""
    one = target(progress=AttemptProgress(attempts=MAX_RETRIES))
    again = decide_after_failed_call(one, failure, NoJitter())
    assert again == RequeuedResult(
        one, 2.0 if waits else 0.0, one.progress, None, outcome_unknown=True, final_failure=failure
    )


def test_only_a_call_or_a_new_final_failure_is_an_attempt() -> None:
    one = target()
    assert not requeue_unchanged(one).was_tried
    assert replace(requeue_unchanged(one), failure=BUSY).was_tried
    assert replace(requeue_unchanged(one), final_failure=BUSY).was_tried
    assert not requeue_unchanged(target(final_failure=BUSY)).was_tried


@every_case(
    ("now", "zone", "day_start"),
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
def test_a_day_starts_at_midnight_in_the_time_zone_of_the_shop(
    now: str, zone: str, day_start: str
) -> None:
    """In the last case, the clock change skips midnight."""
    assert start_of_day(datetime.fromisoformat(now), zone) == datetime.fromisoformat(day_start)


class NoJitter(Random):
    """Returns the middle of every range, which means no jitter."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def failure(status: int, retry_after: float | None = None) -> CallFailure:
    return classify_failure(FailureSignal(status=status), f"{status}", retry_after)


def not_none(decision: RetryTarget | None) -> RetryTarget:
    assert decision is not None
    return decision


def test_a_target_that_always_fails_is_called_four_times() -> None:
    progress, at, times, keys = AttemptProgress(), 0.0, [], []
    while True:
        times.append(at)
        keys.append(apply_key("r", "t", 0, progress.attempts))
        decision = decide_retry(failure(500), progress, NoJitter())
        if decision is None:
            break
        at, progress = at + decision.wait_seconds, decision.progress
    assert times == [0, 2, 6, 14]
    assert progress.attempts == 3
    assert keys == ["r:t:apply:0.0", "r:t:apply:0.1", "r:t:apply:0.2", "r:t:apply:0.3"]


def process_answers(*answers: int) -> tuple[TargetState, int, list[float]]:
    """The final state, attempts and waits of a target that gets these answers."""
    progress, waits = AttemptProgress(), list[float]()
    for status in answers:
        if status == 200:
            return TargetState.APPLIED, progress.attempts, waits
        decision = decide_retry(failure(status), progress, NoJitter())
        if decision is None:
            return TargetState.FAILED, progress.attempts, waits
        waits.append(decision.wait_seconds)
        progress = decision.progress
    return TargetState.QUEUED, progress.attempts, waits


def test_the_documented_example_run_ends_partial() -> None:
    ends = [process_answers(200), process_answers(500, 500, 200), process_answers(404)]
    assert ends == [
        (TargetState.APPLIED, 0, []),
        (TargetState.APPLIED, 2, [2, 4]),
        (TargetState.FAILED, 0, []),
    ]
    assert final_run_state(state for state, _, _ in ends) is PricingRunState.PARTIAL
    rate = success_rate(2, 1)
    assert rate is not None
    assert round(rate, 3) == Decimal("0.667")


def test_a_rate_limit_wait_uses_no_attempt() -> None:
    result = retry_after_seconds("2.0", NOW)
    decision = not_none(decide_retry(failure(429, result), AttemptProgress(), Random(1)))
    assert 2 <= decision.wait_seconds <= 2.4
    assert (decision.progress.attempts, decision.progress.rate_limit_waits) == (0, 1)


def test_rate_limit_waits_without_retry_after_are_16_32_and_64_seconds() -> None:
    progress, waits = AttemptProgress(), []
    for _ in range(4):
        decision = not_none(decide_retry(failure(429), progress, NoJitter()))
        waits.append(decision.wait_seconds)
        progress = decision.progress
    assert waits == [16, 32, 64, 64]


def test_the_eleventh_rate_limit_wait_uses_an_attempt() -> None:
    progress = AttemptProgress(rate_limit_waits=10, rate_limit_seconds=20)
    decision = not_none(decide_retry(failure(429, 30.0), progress, Random(1)))
    assert decision.progress == AttemptProgress(
        attempts=1, rate_limit_waits=10, rate_limit_seconds=20
    )
    assert decision.wait_seconds >= 30


def test_the_tenth_rate_limit_wait_uses_no_attempt() -> None:
    progress = AttemptProgress(attempts=1, rate_limit_waits=9, rate_limit_seconds=20)
    decision = not_none(decide_retry(failure(429, 30.0), progress, NoJitter()))
    assert decision == RetryTarget(33.0, AttemptProgress(1, 10, 53.0))


def test_a_retry_waits_at_least_as_long_as_the_shop_asks_for() -> None:
    short, long = (
        not_none(decide_retry(failure(503, seconds), AttemptProgress(), NoJitter()))
        for seconds in (1.0, 100.0)
    )
    assert (short.wait_seconds, long.wait_seconds) == (2.0, pytest.approx(110.0))
    assert short.progress == long.progress == AttemptProgress(attempts=1)


def test_rate_limit_waits_above_15_minutes_use_attempts() -> None:
    progress = AttemptProgress(rate_limit_waits=2, rate_limit_seconds=899)
    assert not_none(decide_retry(failure(429, 2.0), progress, NoJitter())).progress.attempts == 1
    hour = not_none(decide_retry(failure(429, 3600.0), AttemptProgress(), NoJitter()))
    assert hour.progress.attempts == 1
    assert hour.wait_seconds >= 3600


def test_a_target_that_is_always_throttled_fails_after_14_calls() -> None:
    progress, calls = AttemptProgress(), 1
    while (decision := decide_retry(failure(429, 1.0), progress, Random(2))) is not None:
        progress, calls = decision.progress, calls + 1
    assert calls == 1 + 10 + 3


def test_a_retry_after_above_one_day_fails_the_target() -> None:
    assert decide_retry(failure(429, 90_000.0), AttemptProgress(), NoJitter()) is None
    assert decide_retry(failure(429, 86_400.0), AttemptProgress(), NoJitter()) is not None


@every_case(
    ("header", "lowest", "highest"),
    [
        ("2.0", 2, 2.4),
        ("30", 30, 36),
        ("0", 1, 1.2),
        ("-5", 12.8, 19.2),
        ("abc", 12.8, 19.2),
        ("", 12.8, 19.2),
        (None, 12.8, 19.2),
        ("Mon, 04 May 2026 02:00:10 GMT", 10, 12),
        ("Mon, 04 May 2026 01:00:00 GMT", 1, 1.2),
        ("3600", 3600, 4320),
    ],
)
def test_a_wait_is_at_least_the_retry_after_header(
    header: str | None, lowest: float, highest: float
) -> None:
    result = retry_after_seconds(header, NOW)
    waits = [rate_limit_wait(result, 0, Random(seed)) for seed in range(30)]
    assert all(lowest <= wait <= highest for wait in waits)


@every_case(
    ("requested", "available", "rate", "seconds"),
    [
        (10, 2, 100, 1.0),
        (1000, 500, 100, 5.0),
        (1000, 0, 100, 10.0),
        (10, 50, 100, 1.0),
        (10, 2, 0, None),
    ],
)
def test_throttle_seconds_until_the_bucket_has_enough_points(
    requested: float, available: float, rate: float, seconds: float | None
) -> None:
    assert throttle_seconds(requested, available, rate) == seconds


@given(st.integers(1, 40), st.integers())
@settings(max_examples=60, deadline=None)
def test_jitter_is_20_percent_and_never_exceeds_the_cap(n: int, seed: int) -> None:
    for backoff in (RETRY_BACKOFF, RATE_LIMIT_BACKOFF):
        nominal = min(backoff.base_seconds * 2 ** (n - 1), 64)
        wait = backoff.delay(n, Random(seed))
        assert nominal * 0.8 <= wait <= min(nominal * 1.2, 64)


def test_a_target_is_overdue_after_ten_minutes_excluding_waits() -> None:
    started = NOW - timedelta(minutes=12)
    assert is_overdue(started, NOW, 60.0)
    assert not is_overdue(started, NOW, 120.0)


T0 = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


def test_all_applied_targets_or_the_chosen_ones_are_rolled_back() -> None:
    assert targets_to_roll_back(PricingRunState.PARTIAL, [1, 3]) == [1, 3]
    assert targets_to_roll_back(PricingRunState.PARTIAL, [1, 3], [3, 3]) == [3]


@every_case(
    "state", sorted(set(PricingRunState) - {PricingRunState.APPLIED, PricingRunState.PARTIAL})
)
def test_only_applied_and_partial_runs_can_be_rolled_back(state: PricingRunState) -> None:
    with pytest.raises(ConflictError, match=f"A run that is {state} cannot be rolled back"):
        targets_to_roll_back(state, [1])


def test_the_error_names_chosen_targets_that_are_not_applied() -> None:
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
def test_a_run_is_rolled_back_when_no_target_is_applied(
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
def test_a_rollback_applies_the_former_price(seen: Price | None, force: bool, what: str) -> None:
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
    terms = ApplyTerms(OnDrift.OVERWRITE if force else OnDrift.REFUSE, None, is_rollback=True)
    decided = decide_before_write(target, seen, Decimal(0), terms)
    assert (
        type(decided) is {"write": type(None), "found": AppliedResult, "left": FailedResult}[what]
    )


LEGAL_RUN_MOVES = {
    ("PREVIEW", "QUEUED"),
    ("QUEUED", "APPLYING"),
    ("APPLYING", "APPLIED"),
    ("APPLYING", "PARTIAL"),
    ("APPLYING", "FAILED"),
    ("PARTIAL", "APPLYING"),
    ("FAILED", "APPLYING"),
    ("APPLIED", "ROLLED_BACK"),
    ("PARTIAL", "ROLLED_BACK"),
}
LEGAL_TARGET_MOVES = {
    ("PREVIEW", "QUEUED"),
    ("QUEUED", "APPLYING"),
    ("APPLYING", "APPLIED"),
    ("APPLYING", "QUEUED"),
    ("APPLYING", "FAILED"),
    ("FAILED", "QUEUED"),
    ("APPLIED", "ROLLED_BACK"),
}


@every_case(("frm", "to"), list(product(PricingRunState, PricingRunState)))
def test_a_run_allows_only_legal_transitions(frm: PricingRunState, to: PricingRunState) -> None:
    if (frm, to) in LEGAL_RUN_MOVES:
        assert RULE_RUN.move(frm, to) is to
        return
    with pytest.raises(IllegalMoveError, match=f"A rule run cannot move from {frm} to {to}"):
        RULE_RUN.move(frm, to)


@every_case(("frm", "to"), list(product(TargetState, TargetState)))
def test_a_target_allows_only_legal_transitions(frm: TargetState, to: TargetState) -> None:
    if (frm, to) in LEGAL_TARGET_MOVES:
        assert RULE_TARGET.move(frm, to) is to
        return
    with pytest.raises(IllegalMoveError, match=f"A rule target cannot move from {frm} to {to}"):
        RULE_TARGET.move(frm, to)


def test_preview_is_the_first_and_rolled_back_the_terminal_state() -> None:
    assert (FIRST_RUN_STATE, FIRST_TARGET_STATE) == (PricingRunState.PREVIEW, TargetState.PREVIEW)
    assert RULE_RUN.terminal == {PricingRunState.ROLLED_BACK}
    assert RULE_TARGET.terminal == {TargetState.ROLLED_BACK}


@every_case(
    ("targets", "ends_as"),
    [
        ("", "APPLIED"),
        ("PREVIEW", "APPLIED"),
        ("APPLIED APPLIED", "APPLIED"),
        ("APPLIED FAILED", "PARTIAL"),
        ("FAILED FAILED", "FAILED"),
        ("APPLIED ROLLED_BACK", "APPLIED"),
        ("APPLIED FAILED QUEUED", None),
        ("APPLYING", None),
    ],
)
def test_the_final_state_of_a_run_follows_its_targets(targets: str, ends_as: str | None) -> None:
    assert final_run_state(TargetState(state) for state in targets.split()) == ends_as


def test_a_failed_run_has_an_error() -> None:
    assert run_error(PricingRunState.FAILED, was_critical=True) is RunError.CRITICAL
    assert run_error(PricingRunState.FAILED, was_critical=False) is RunError.ALL_TARGETS_FAILED
    assert run_error(PricingRunState.PARTIAL, was_critical=True) is None


def test_rolled_back_targets_count_as_succeeded_and_cancelled_ones_not_at_all() -> None:
    counts = TargetCounts(preview=1, applied=1, rolled_back=1, failed=3, cancelled=2)
    assert (counts.succeeded, counts.not_cancelled, counts.total) == (2, 1, 6)
    assert counts.success_rate == 0.6667
    assert counts.states == {
        TargetState.PREVIEW,
        TargetState.APPLIED,
        TargetState.ROLLED_BACK,
        TargetState.FAILED,
    }


def test_without_tried_targets_there_is_no_success_rate() -> None:
    assert success_rate(0, 0) is None
    assert TargetCounts(queued=1).success_rate is None
    assert as_document(TargetCounts()) == dict.fromkeys(
        ("preview", "queued", "applying", "applied", "failed", "rolledBack", "cancelled"), 0
    )


def test_queue_time_and_apply_time_are_separate() -> None:
    run = RuleRun.model_construct(
        queued_at=T0,
        started_at=T0 + timedelta(seconds=2),
        finished_at=T0 + timedelta(seconds=33.24),
    )
    assert (run.queue_ms, run.apply_ms) == (2000, 31240)
    waiting = RuleRun.model_construct(queued_at=T0, started_at=None, finished_at=None)
    assert (waiting.queue_ms, waiting.apply_ms) == (None, None)


AT = datetime(2026, 5, 4, 2, 0, 0, 500, tzinfo=UTC)


def test_each_attempt_of_each_cycle_has_a_unique_key() -> None:
    created = {
        keys.apply_key("r", "t", cycle, attempts) for cycle in range(3) for attempts in range(4)
    }
    assert len(created) == 12
    assert keys.apply_key("r1", "t1", 1, 2) == "r1:t1:apply:1.2"


def test_documented_key_formats() -> None:
    assert keys.rollback_key("r1", "t1", 1) == "r1:t1:rollback:1"
    assert keys.mismatch_key("r1", "t1", "5m") == "r1:t1:mismatch:5m"
    assert keys.run_event_key("r1", "completed", 0) == "r1:completed:0"
    assert keys.request_key("r1", 2) == "rule-run-r1-2"
    assert keys.schedule_key("7", AT) == "rule-schedule-7-1777860000000"
    assert keys.promotion_end_key("r1", AT) == "rule-run-r1-end-1777860000000"
    assert keys.circuit_key("shop", AT) == "circuit:shop:1777860000000"
