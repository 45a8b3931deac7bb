"""When a shop is left alone, for how long, and how it is tried again."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from automation_pipeline.pricing.models.shop import CircuitState
from automation_pipeline.pricing.rules.pacing import (
    CallKind,
    CallOutcome,
    CallPermit,
    Circuit,
    NotBefore,
    Streak,
    after_answer,
    concurrency,
    has_opened,
    request_permit,
)
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)
MINUTE = timedelta(seconds=60)
# Capital letters are writes, small ones are reads: W well, T throttled, F failed.
LETTERS = {"w": CallOutcome.WELL, "t": CallOutcome.THROTTLED, "f": CallOutcome.FAILED}
CLOSED = Circuit()
SIX_REFUSED_WRITES = {CallKind.WRITE: Streak(throttles=6)}
OPEN = Circuit(CircuitState.OPEN, SIX_REFUSED_WRITES, NOW + MINUTE, CallKind.WRITE)
HALF_OPEN = replace(OPEN, state=CircuitState.HALF_OPEN)


def after(answers: str, circuit: Circuit = CLOSED) -> Circuit:
    for letter in answers:
        kind = CallKind.WRITE if letter.isupper() else CallKind.READ
        circuit = after_answer(circuit, kind, LETTERS[letter.lower()], NOW)
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
    assert {answers: after(answers).state.value for answers in cases} == cases


def test_a_success_of_another_kind_does_not_close_a_circuit_that_writes_opened() -> None:
    read = after("w", HALF_OPEN)
    assert read.state is CircuitState.HALF_OPEN
    assert isinstance(request_permit(read, NOW), CallPermit)
    assert after("T", read).state is CircuitState.OPEN
    assert after("W", read) == CLOSED


def test_an_open_circuit_lets_nobody_call_for_a_minute_and_then_one() -> None:
    opened = after("TTTTTT")
    assert has_opened(Circuit(), opened)
    assert request_permit(opened, NOW + timedelta(seconds=59)) == NotBefore(NOW + MINUTE)
    probe = request_permit(opened, NOW + MINUTE)
    assert isinstance(probe, CallPermit)
    assert probe.is_probe
    assert probe.circuit.state is CircuitState.HALF_OPEN
    assert request_permit(probe.circuit, NOW + MINUTE) == NotBefore(NOW + 2 * MINUTE)


@every_case("answer", [CallOutcome.THROTTLED, CallOutcome.FAILED])
def test_a_probe_that_fails_opens_it_again_without_news(answer: CallOutcome) -> None:
    again = after_answer(HALF_OPEN, CallKind.WRITE, answer, NOW)
    assert (again.state, again.until) == (CircuitState.OPEN, NOW + MINUTE)
    assert not has_opened(HALF_OPEN, again)


def test_a_probe_that_is_answered_closes_it() -> None:
    assert after("W", HALF_OPEN) == CLOSED


def test_a_probe_that_was_lost_does_not_keep_it_half_open() -> None:
    lost = Circuit(CircuitState.HALF_OPEN, until=NOW)
    assert isinstance(request_permit(lost, NOW), CallPermit)


def test_late_answers_do_not_change_an_open_circuit() -> None:
    assert after("WTF", OPEN) == OPEN


def test_a_wait_that_the_shop_tells_holds_everybody_up() -> None:
    refused = after_answer(CLOSED, CallKind.READ, CallOutcome.THROTTLED, NOW, timedelta(seconds=2))
    assert refused.state is CircuitState.CLOSED
    assert request_permit(refused, NOW) == NotBefore(NOW + timedelta(seconds=2))
    shorter = after_answer(refused, CallKind.READ, CallOutcome.THROTTLED, NOW, timedelta(seconds=1))
    assert request_permit(shorter, NOW) == NotBefore(NOW + timedelta(seconds=2))
    assert request_permit(
        after_answer(shorter, CallKind.READ, CallOutcome.WELL, NOW), NOW + timedelta(seconds=2)
    ) == CallPermit(replace(Circuit(), until=NOW + timedelta(seconds=2)))


@every_case(
    ("told", "state", "pause"),
    [
        (timedelta(minutes=15), "closed", timedelta(minutes=15)),
        (timedelta(minutes=16), "open", timedelta(minutes=16)),
        (timedelta(days=9), "open", timedelta(days=1)),
    ],
)
def test_a_long_wait_opens_it_at_once_and_as_long(
    told: timedelta, state: str, pause: timedelta
) -> None:
    circuit = after_answer(CLOSED, CallKind.READ, CallOutcome.THROTTLED, NOW, told)
    assert (circuit.state, circuit.until) == (state, NOW + pause)


def test_refusals_in_a_row_halve_the_calls_at_once() -> None:
    assert [concurrency(throttles, 5) for throttles in (0, 2, 3, 6)] == [5, 5, 2, 2]
    assert concurrency(6, 1) == 1
