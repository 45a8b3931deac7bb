"""Amounts, failure classification, the leaky bucket and the circuit breaker."""

import heapq
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.models.shop import (
    PRICE_DRIFT,
    BucketStatus,
    CallCosts,
    CircuitState,
    FailureKind,
    FailureSignal,
    Price,
    classify_failure,
    decimals_of,
    format_amount,
    is_currency,
    parse_amount,
    price_of,
    price_text,
    round_half_up,
)
from automation_pipeline.pricing.rules.pacing import (
    RESERVATION_LIFETIME,
    SPARE_SHARE,
    CallKind,
    CallOutcome,
    CallPermit,
    Circuit,
    LeakyBucket,
    Streak,
    after_answer,
    concurrency,
    default_bucket,
    has_opened,
    refund_points,
    request_permit,
    reserve_points,
    sync_bucket,
    without_probe,
)
from automation_pipeline_tests.cases import every_case


@every_case(("currency", "decimals"), [("EUR", 2), ("JPY", 0), ("KWD", 3), ("ZZZ", 2)])
def test_number_of_decimals_per_currency(currency: str, decimals: int) -> None:
    assert decimals_of(currency) == decimals


@every_case(
    ("text", "currency", "amount"),
    [
        ("19.99", "EUR", 1999),
        ("19.9", "EUR", 1990),
        ("19", "EUR", 1900),
        ("0.00", "EUR", 0),
        ("1299", "JPY", 1299),
        ("1299.00", "JPY", 1299),
        ("1.234", "KWD", 1234),
        (" 5.00 ", "EUR", 500),
        ("10.005", "EUR", 1001),
        ("-3.50", "EUR", -350),
    ],
)
def test_an_amount_is_parsed_to_minor_units(text: str, currency: str, amount: int) -> None:
    assert parse_amount(text, currency) == amount


@every_case("text", ["", "abc", "1,99", "1e3", "NaN", "1_000", "١٢", "--1", "1.", "9" * 40])
def test_an_invalid_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not an amount of EUR"):
        parse_amount(text, "EUR")


@given(st.integers(-(10**12), 10**12), st.sampled_from(["EUR", "JPY", "KWD"]))
@settings(max_examples=50, deadline=None)
def test_a_written_value_round_trips(amount: int, currency: str) -> None:
    assert parse_amount(format_amount(amount, currency), currency) == amount


@every_case(
    ("number", "nearest"),
    [("502.5", 503), ("503.5", 504), ("0.5", 1), ("0.4999", 0), ("-0.5", -1), ("7", 7)],
)
def test_amounts_round_half_up(number: str, nearest: int) -> None:
    assert round_half_up(Decimal(number)) == nearest


def test_amounts_are_formatted_with_their_currency() -> None:
    assert (price_text(5, "EUR"), price_text(1299, "JPY"), price_text(1, "KWD")) == (
        "0.05 EUR",
        "1299 JPY",
        "0.001 KWD",
    )


@every_case(("text", "ok"), [("EUR", True), ("eur", False), ("EURO", False), ("", False)])
def test_a_currency_code_has_three_capital_letters(text: str, *, ok: bool) -> None:
    assert is_currency(text) is ok


def test_compare_at_prices_are_compared_on_request_only() -> None:
    price, other = Price(1299, "EUR", 1599), Price(1299, "EUR")
    assert price.equals(other, with_compare_at=False)
    assert not price.equals(other, with_compare_at=True)
    assert not price.equals(Price(1299, "USD", 1599), with_compare_at=False)


@every_case("compare_at", [None, 1599])
def test_a_stored_price_reads_back_the_same(compare_at: int | None) -> None:
    price = Price(1299, "USD", compare_at)
    assert vars(price) == {
        "unit_amount": 1299,
        "currency": "USD",
        "compare_at": compare_at,
    }
    assert price_of(vars(price)) == price


@every_case(
    ("signal", "kind", "retryable"),
    [
        (FailureSignal(status=429), "rate_limit", True),
        (FailureSignal(status=200, code="THROTTLED"), "rate_limit", True),
        (FailureSignal(code="429"), "rate_limit", True),
        (FailureSignal(code="ECONNRESET"), "network", True),
        (FailureSignal(code="ETIMEDOUT"), "network", True),
        (FailureSignal(code="ENOTFOUND"), "network", True),
        (FailureSignal(code="econnrefused"), "network", True),
        (FailureSignal(lost=True), "network", True),
        (FailureSignal(status=408), "network", True),
        (FailureSignal(status=500), "server", True),
        (FailureSignal(status=503), "server", True),
        (FailureSignal(status=599), "server", True),
        (FailureSignal(status=200, code="INTERNAL_SERVER_ERROR"), "server", True),
        (FailureSignal(status=400), "validation", False),
        (FailureSignal(status=418), "validation", False),
        (FailureSignal(status=422), "validation", False),
        (FailureSignal(status=401), "authentication", False),
        (FailureSignal(status=403), "authorization", False),
        (FailureSignal(status=200, code="ACCESS_DENIED"), "authorization", False),
        (FailureSignal(status=404), "not_found", False),
        (FailureSignal(status=410), "not_found", False),
        (FailureSignal(status=409), "conflict", False),
        (FailureSignal(code=PRICE_DRIFT), "conflict", False),
        (FailureSignal(status=402), "shop_closed", False),
        (FailureSignal(status=423), "shop_closed", False),
        (
            FailureSignal(status=200, code="NEGATIVE_PRICE_VALUE", user_error=True),
            "validation",
            False,
        ),
        (
            FailureSignal(status=200, code="PRODUCT_DOES_NOT_EXIST", user_error=True),
            "not_found",
            False,
        ),
        (FailureSignal(), "unknown", False),
        (FailureSignal(status=302), "unknown", False),
        (FailureSignal(status=404, retryable=True), "not_found", True),
        (FailureSignal(status=500, retryable=False), "server", False),
    ],
)
def test_a_failure_has_a_kind_and_is_retryable_or_not(
    signal: FailureSignal, kind: str, *, retryable: bool
) -> None:
    failure = classify_failure(signal, "It failed.")
    assert (failure.kind, failure.retryable, failure.message) == (kind, retryable, "It failed.")


@every_case(
    ("signal", "unknown"),
    [
        (FailureSignal(lost=True), True),
        (FailureSignal(code="ETIMEDOUT", lost=True), True),
        (FailureSignal(status=502), True),
        (FailureSignal(status=408), True),
        (FailureSignal(code="ECONNREFUSED"), False),
        (FailureSignal(status=429), False),
        (FailureSignal(status=404), False),
    ],
)
def test_a_call_that_may_have_arrived_has_an_unknown_outcome(
    signal: FailureSignal, *, unknown: bool
) -> None:
    assert classify_failure(signal, "").outcome_unknown is unknown


def test_a_read_costs_a_fixed_number_of_points_and_more_for_each_price() -> None:
    assert CallCosts(page=753, each_price=2, write=10, prices=1).reading(250) == 501
    assert CallCosts(page=753, each_price=2, write=10).reading(3) == 6


def test_only_failures_of_the_whole_shop_are_critical() -> None:
    critical = {
        status
        for status in range(400, 600)
        if classify_failure(FailureSignal(status=status), "").is_critical
    }
    assert critical == {401, 402, 423}


def test_failure_kinds_include_those_of_reports() -> None:
    assert {
        "rate_limit",
        "network",
        "server",
        "validation",
        "authentication",
        "authorization",
    } < set(FailureKind)


NOW = datetime(2026, 5, 4, tzinfo=UTC)
STANDARD = BucketStatus(2000, 2000, 100)
AT_ONCE = 5


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def full(**changes: Any) -> LeakyBucket:
    facts = {
        "available": 2000.0,
        "maximum": 2000.0,
        "restore_rate": 100.0,
        "pending": 0.0,
        "measured_at": NOW,
    } | changes
    return LeakyBucket(**facts)


def test_the_default_bucket_is_that_of_the_smallest_plan() -> None:
    assert default_bucket(NOW) == LeakyBucket(1000, 1000, 50, 0, NOW)


@every_case(
    ("available", "cost", "seconds"),
    [(2000, 10, 0.0), (70, 10, 0.0), (60, 10, 0.1), (0, 10, 0.7), (-40, 10, 1.1), (560, 1000, 5.0)],
)
def test_a_call_waits_for_its_points_and_the_spare_share(
    available: float, cost: float, seconds: float
) -> None:
    bucket, wait = reserve_points(full(available=available), cost, NOW)
    assert wait == pytest.approx(seconds)
    assert (bucket.available, bucket.pending) == (available - cost, cost)


def test_points_are_restored_up_to_the_maximum() -> None:
    bucket, wait = reserve_points(full(available=-100.0), 10, after(3))
    assert (bucket.available, wait) == (pytest.approx(190), 0.0)
    bucket, _ = reserve_points(full(available=1990.0), 10, after(3))
    assert bucket == full(available=1990.0, pending=10.0, measured_at=after(3))
    bucket, _ = reserve_points(full(available=100.0), 10, after(-3))
    assert bucket.available == 90


def test_a_synced_bucket_subtracts_other_reservations() -> None:
    bucket = sync_bucket(
        full(available=500.0, pending=30.0),
        10,
        BucketStatus(1800, 1000, 50),
        since=NOW,
        now=after(1),
    )
    assert bucket == LeakyBucket(1780, 1000, 50, 20, after(1), after(1))


@every_case(("reported", "available"), [(1800, 600), (100, 80)])
def test_a_stale_bucket_status_does_not_raise_the_estimate(
    reported: float, available: float
) -> None:
    estimated = replace(full(available=500.0, pending=30.0), synced_at=after(0.5))
    bucket = sync_bucket(estimated, 10, BucketStatus(reported, 2000, 100), since=NOW, now=after(1))
    assert bucket.available == available


def test_an_answer_that_started_after_the_last_status_raises_the_estimate() -> None:
    estimated = replace(full(available=500.0), synced_at=NOW)
    synced = sync_bucket(estimated, 10, BucketStatus(1800, 2000, 100), since=NOW, now=after(1))
    assert synced.available == 1800


def test_an_answer_without_bucket_status_keeps_the_points_spent() -> None:
    assert sync_bucket(
        full(available=500.0, pending=10.0), 10, None, since=NOW, now=after(1)
    ) == LeakyBucket(600, 2000, 100, 0, after(1))
    for invalid in (BucketStatus(1, 1, 0), BucketStatus(1, 0, 1)):
        unchanged = sync_bucket(
            full(available=500.0, pending=10.0), 10, invalid, since=NOW, now=NOW
        )
        assert unchanged == full(available=500.0)


def test_reservations_of_other_calls_withhold_at_most_half_of_the_bucket() -> None:
    synced = sync_bucket(
        full(pending=1500.0), 10, BucketStatus(1800, 2000, 100), since=NOW, now=NOW
    )
    assert (synced.available, synced.pending) == (800, 1000)
    smallest = sync_bucket(full(), 10, BucketStatus(1, 1, 1), since=NOW, now=NOW)
    assert smallest == LeakyBucket(1, 1, 1, 0, NOW, NOW)
    empty = sync_bucket(full(pending=5.0), 10, BucketStatus(1800, 2000, 100), since=NOW, now=NOW)
    assert (empty.available, empty.pending) == (1800, 0)


def test_a_refund_restores_the_reserved_points() -> None:
    reserved, _ = reserve_points(full(available=500.0), 40, NOW)
    assert refund_points(reserved, 40, NOW) == full(available=500.0)
    assert refund_points(full(available=500.0, pending=5.0), 10, NOW).pending == 0


def test_reservations_of_killed_processes_expire() -> None:
    later = NOW + RESERVATION_LIFETIME
    assert reserve_points(full(pending=700.0), 10, later)[0].pending == 710
    later += timedelta(seconds=1)
    assert reserve_points(full(pending=700.0), 10, later)[0].pending == 10
    assert reserve_points(full(pending=700.0), 10, after(1))[0].pending == 710


class RealBucket:
    """The bucket in the shop, which throttles calls that cost more than it holds."""

    def __init__(self, bucket: BucketStatus) -> None:
        self.level, self.bucket, self.at, self.refused, self.spent = (
            bucket.available,
            bucket,
            0.0,
            0,
            0.0,
        )

    def take(self, cost: float, at: float) -> BucketStatus:
        filled = self.level + (at - self.at) * self.bucket.restore_rate
        self.level, self.at = min(filled, self.bucket.maximum), at
        if self.level < cost:
            self.refused += 1
        else:
            self.level -= cost
            self.spent += cost
        return BucketStatus(self.level, self.bucket.maximum, self.bucket.restore_rate)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 0.5),
            st.floats(0, 0.5) | st.floats(2, 5),
            st.sampled_from([1.0, 5.0, 10.0]),
        ),
        min_size=100,
        max_size=400,
    ),
    st.sampled_from([0.0, 300.0, 2000.0]),
)
def test_calls_are_never_throttled_and_use_the_available_points(
    calls: list[tuple[float, float, float]], initial_points: float
) -> None:
    """Five concurrent calls with arbitrary latencies; answers arrive in any order."""
    shop = RealBucket(BucketStatus(initial_points, 2000, 100))
    bucket = full(available=initial_points)
    events = [(0.0, number, "begin") for number in range(AT_ONCE)]
    costs, result, turns = {}, {}, {}
    left, number, ended = list(calls), AT_ONCE, 0.0
    while events:
        at, which, what = heapq.heappop(events)
        if what == "begin":
            if not left:
                continue
            outbound, inbound, cost = left.pop()
            bucket, wait = reserve_points(bucket, cost, after(at))
            costs[which], turns[which] = (cost, inbound), after(at + wait)
            heapq.heappush(events, (at + wait + outbound, which, "arrive"))
        elif what == "arrive":
            result[which] = shop.take(costs[which][0], at)
            heapq.heappush(events, (at + costs[which][1], which, "answer"))
        else:
            ended = at
            bucket = sync_bucket(
                bucket, costs[which][0], result[which], since=turns[which], now=after(at)
            )
            number += 1
            heapq.heappush(events, (at, number, "begin"))
    assert shop.refused == 0
    needed = max(shop.spent - initial_points + SPARE_SHARE * 2000, 0.0) / 100
    latency = sum(outbound + inbound for outbound, inbound, _ in calls) / AT_ONCE + 6.0
    assert ended <= needed + latency + 1.0


NOON = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)
MINUTE = timedelta(seconds=60)
# Uppercase letters are writes, lowercase letters are reads: W succeeded, T throttled, F failed.
LETTERS = {"w": CallOutcome.SUCCEEDED, "t": CallOutcome.THROTTLED, "f": CallOutcome.FAILED}
CLOSED = Circuit()
SIX_REFUSED_WRITES = {CallKind.WRITE: Streak(throttles=6)}
OPEN = Circuit(CircuitState.OPEN, SIX_REFUSED_WRITES, NOON + MINUTE, CallKind.WRITE)
HALF_OPEN = replace(OPEN, state=CircuitState.HALF_OPEN)


def after_answers(answers: str, circuit: Circuit = CLOSED) -> Circuit:
    for letter in answers:
        kind = CallKind.WRITE if letter.isupper() else CallKind.READ
        circuit = after_answer(circuit, kind, LETTERS[letter.lower()], NOON)
    return circuit


def test_streaks_of_one_kind_of_call_open_the_circuit() -> None:
    cases = {
        "TTTTT": "closed",
        "TTTTTT": "open",
        "tttttt": "open",
        "TTTTTWT": "closed",
        "TTTTTFT": "closed",
        "FFFF": "closed",
        "FFFFF": "open",
        "FFFFWF": "closed",
        "FFFFTF": "closed",
        "wTwTwTwTwTwT": "open",  # the read before each write succeeds
        "wFwFwFwFwF": "open",
        "tttTTT": "closed",
        "fffFF": "closed",
    }
    assert {answers: after_answers(answers).state.value for answers in cases} == cases


def test_a_success_of_another_kind_does_not_close_a_circuit_that_writes_opened() -> None:
    read = after_answers("w", HALF_OPEN)
    assert read.state is CircuitState.HALF_OPEN
    assert isinstance(request_permit(read, NOON), CallPermit)
    assert after_answers("T", read).state is CircuitState.OPEN
    assert after_answers("W", read) == CLOSED


def test_an_open_circuit_allows_one_probe_after_a_minute() -> None:
    opened = after_answers("TTTTTT")
    assert opened == OPEN
    assert has_opened(Circuit(), opened)
    assert request_permit(opened, NOON + timedelta(seconds=59)) == NOON + MINUTE
    probe = request_permit(opened, NOON + MINUTE)
    assert probe == CallPermit(replace(HALF_OPEN, until=NOON + 2 * MINUTE), is_probe=True)
    assert request_permit(probe.circuit, NOON + MINUTE) == NOON + 2 * MINUTE


@every_case("answer", [CallOutcome.THROTTLED, CallOutcome.FAILED])
def test_a_failed_probe_reopens_the_circuit_without_an_event(answer: CallOutcome) -> None:
    again = after_answer(HALF_OPEN, CallKind.READ, answer, NOON, timedelta(seconds=5))
    streak = Streak(int(answer is CallOutcome.THROTTLED), int(answer is CallOutcome.FAILED))
    assert again == replace(OPEN, streaks={**SIX_REFUSED_WRITES, CallKind.READ: streak})
    assert not has_opened(HALF_OPEN, again)
    assert not has_opened(CLOSED, CLOSED)


def test_a_probe_that_was_not_sent_is_left_to_the_next_call() -> None:
    now = NOON + 1.5 * MINUTE
    probe = replace(HALF_OPEN, until=NOON + 2 * MINUTE)
    reopened = replace(OPEN, until=now)
    newer = replace(HALF_OPEN, until=NOON + 3 * MINUTE)
    almost_newer = replace(newer, until=NOON + 3 * MINUTE - timedelta(seconds=1))
    after_read = replace(HALF_OPEN, until=None)
    for circuit, expected in (
        (probe, reopened),
        (almost_newer, reopened),
        (newer, newer),
        (after_read, after_read),
        (CLOSED, CLOSED),
        (OPEN, OPEN),
    ):
        assert without_probe(circuit, probe, now) == expected
    assert without_probe(probe, after_read, now) == probe


def test_a_circuit_shows_its_longest_streaks() -> None:
    streaks = {CallKind.READ: Streak(2, 0), CallKind.WRITE: Streak(1, 4)}
    circuit = Circuit(streaks=streaks)
    assert (circuit.throttles, circuit.failures) == (2, 4)
    assert (CLOSED.throttles, CLOSED.failures) == (0, 0)


def test_a_successful_probe_closes_the_circuit() -> None:
    assert after_answers("W", HALF_OPEN) == CLOSED


def test_a_lost_probe_is_followed_by_another() -> None:
    lost = Circuit(CircuitState.HALF_OPEN, until=NOON)
    assert isinstance(request_permit(lost, NOON), CallPermit)


def test_late_answers_do_not_change_an_open_circuit() -> None:
    assert after_answers("WTF", OPEN) == OPEN


def test_a_retry_after_delays_every_call() -> None:
    refused = after_answer(CLOSED, CallKind.READ, CallOutcome.THROTTLED, NOON, timedelta(seconds=2))
    assert refused.state is CircuitState.CLOSED
    assert request_permit(refused, NOON) == NOON + timedelta(seconds=2)
    shorter = after_answer(
        refused, CallKind.READ, CallOutcome.THROTTLED, NOON, timedelta(seconds=1)
    )
    assert request_permit(shorter, NOON) == NOON + timedelta(seconds=2)
    assert request_permit(
        after_answer(shorter, CallKind.READ, CallOutcome.SUCCEEDED, NOON),
        NOON + timedelta(seconds=2),
    ) == CallPermit(replace(Circuit(), until=NOON + timedelta(seconds=2)))


@every_case(
    ("retry_after", "state", "pause"),
    [
        (timedelta(minutes=15), "closed", timedelta(minutes=15)),
        (timedelta(minutes=16), "open", timedelta(minutes=16)),
        (timedelta(days=9), "open", timedelta(days=1)),
    ],
)
def test_a_retry_after_above_15_minutes_opens_the_circuit(
    retry_after: timedelta, state: str, pause: timedelta
) -> None:
    circuit = after_answer(CLOSED, CallKind.READ, CallOutcome.THROTTLED, NOON, retry_after)
    assert (circuit.state, circuit.until) == (state, NOON + pause)


def test_consecutive_throttles_halve_the_concurrency() -> None:
    assert [concurrency(throttles, 5) for throttles in (0, 2, 3, 6)] == [5, 5, 2, 2]
    assert concurrency(6, 1) == 1
