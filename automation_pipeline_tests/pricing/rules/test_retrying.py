"""Four calls at most, 2, 4 and 8 seconds apart; waits that the shop asks for are counted apart,
within bounds."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.core.retry import retry_after_seconds
from automation_pipeline.pricing.events import apply_key
from automation_pipeline.pricing.models.runs import (
    PricingRunState,
    TargetState,
    final_run_state,
    success_rate,
)
from automation_pipeline.pricing.models.shop import (
    CallFailure,
    FailureSignal,
    classify_failure,
)
from automation_pipeline.pricing.rules.runs import (
    RATE_LIMIT_BACKOFF,
    RETRY_BACKOFF,
    AttemptProgress,
    RetryTarget,
    decide_retry,
    is_overdue,
    rate_limit_wait,
    throttle_seconds,
)
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


class Middle(Random):
    """Draws the middle of every range: no jitter."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def failure(status: int, told: float | None = None) -> CallFailure:
    return classify_failure(FailureSignal(status=status), f"{status}", told)


def again(decision: RetryTarget | None) -> RetryTarget:
    assert decision is not None
    return decision


def test_a_target_that_always_fails_is_called_four_times_and_given_up() -> None:
    progress, at, times, keys = AttemptProgress(), 0.0, [], []
    while True:
        times.append(at)
        keys.append(apply_key("r", "t", 0, progress.attempts))
        decision = decide_retry(failure(500), progress, Middle())
        if decision is None:
            break
        at, progress = at + decision.wait_seconds, decision.progress
    assert times == [0, 2, 6, 14]
    assert progress.attempts == 3
    assert keys == ["r:t:apply:0.0", "r:t:apply:0.1", "r:t:apply:0.2", "r:t:apply:0.3"]


def worked_on(*answers: int) -> tuple[TargetState, int, list[float]]:
    """How a target ends that the shop answers so: its state, its attempts, and the waits
    between."""
    progress, waits = AttemptProgress(), list[float]()
    for status in answers:
        if status == 200:
            return TargetState.APPLIED, progress.attempts, waits
        decision = decide_retry(failure(status), progress, Middle())
        if decision is None:
            return TargetState.FAILED, progress.attempts, waits
        waits.append(decision.wait_seconds)
        progress = decision.progress
    return TargetState.QUEUED, progress.attempts, waits


def test_the_run_of_the_reference_ends_as_it_says() -> None:
    ends = [worked_on(200), worked_on(500, 500, 200), worked_on(404)]
    assert ends == [
        (TargetState.APPLIED, 0, []),
        (TargetState.APPLIED, 2, [2, 4]),
        (TargetState.FAILED, 0, []),
    ]
    assert final_run_state(state for state, _, _ in ends) is PricingRunState.PARTIAL
    rate = success_rate(2, 1)
    assert rate is not None
    assert round(rate, 3) == Decimal("0.667")


def test_waits_for_the_shop_cost_no_attempt() -> None:
    told = retry_after_seconds("2.0", NOW)
    decision = again(decide_retry(failure(429, told), AttemptProgress(), Random(1)))
    assert 2 <= decision.wait_seconds <= 2.4
    assert (decision.progress.attempts, decision.progress.rate_limit_waits) == (0, 1)


def test_untold_waits_for_the_shop_are_16_32_and_64_seconds() -> None:
    progress, waits = AttemptProgress(), []
    for _ in range(4):
        decision = again(decide_retry(failure(429), progress, Middle()))
        waits.append(decision.wait_seconds)
        progress = decision.progress
    assert waits == [16, 32, 64, 64]


def test_the_eleventh_wait_for_the_shop_costs_an_attempt_and_still_lasts_as_told() -> None:
    progress = AttemptProgress(rate_limit_waits=10, rate_limit_seconds=20)
    decision = again(decide_retry(failure(429, 30.0), progress, Random(1)))
    assert decision.progress == AttemptProgress(
        attempts=1, rate_limit_waits=10, rate_limit_seconds=20
    )
    assert decision.wait_seconds >= 30


def test_more_than_a_quarter_of_an_hour_of_such_waits_costs_attempts() -> None:
    progress = AttemptProgress(rate_limit_waits=2, rate_limit_seconds=899)
    assert again(decide_retry(failure(429, 2.0), progress, Middle())).progress.attempts == 1
    hour = again(decide_retry(failure(429, 3600.0), AttemptProgress(), Middle()))
    assert hour.progress.attempts == 1
    assert hour.wait_seconds >= 3600


def test_a_target_that_is_only_refused_is_given_up_in_the_end() -> None:
    progress, calls = AttemptProgress(), 1
    while (decision := decide_retry(failure(429, 1.0), progress, Random(2))) is not None:
        progress, calls = decision.progress, calls + 1
    assert calls == 1 + 10 + 3


def test_a_shop_that_asks_for_days_is_given_up() -> None:
    assert decide_retry(failure(429, 90_000.0), AttemptProgress(), Middle()) is None
    assert decide_retry(failure(429, 86_400.0), AttemptProgress(), Middle()) is not None


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
def test_a_header_is_never_undercut(header: str | None, lowest: float, highest: float) -> None:
    told = retry_after_seconds(header, NOW)
    waits = [rate_limit_wait(told, 0, Random(seed)) for seed in range(30)]
    assert all(lowest <= wait <= highest for wait in waits)


@every_case(
    ("requested", "available", "rate", "seconds"),
    [(10, 2, 100, 1.0), (1000, 0, 100, 10.0), (10, 50, 100, 1.0), (10, 2, 0, None)],
)
def test_a_bucket_says_when_it_is_full_enough(
    requested: float, available: float, rate: float, seconds: float | None
) -> None:
    assert throttle_seconds(requested, available, rate) == seconds


@given(st.integers(1, 40), st.integers())
@settings(max_examples=60, deadline=None)
def test_jitter_is_a_fifth_and_never_beyond_the_cap(n: int, seed: int) -> None:
    for backoff in (RETRY_BACKOFF, RATE_LIMIT_BACKOFF):
        nominal = min(backoff.base_seconds * 2 ** (n - 1), 64)
        wait = backoff.delay(n, Random(seed))
        assert nominal * 0.8 <= wait <= min(nominal * 1.2, 64)


def test_a_target_may_take_ten_minutes_without_the_waits_for_the_shop() -> None:
    begun = NOW - timedelta(minutes=12)
    assert is_overdue(begun, NOW, 60.0)
    assert not is_overdue(begun, NOW, 120.0)
