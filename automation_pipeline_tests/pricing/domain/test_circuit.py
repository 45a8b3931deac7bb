"""When a shop is left alone, for how long, and how it is tried again."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.pricing.domain.circuit import (
    Answer,
    Circuit,
    CircuitState,
    Go,
    NotBefore,
    after_answer,
    ask,
    concurrency,
    has_opened,
)

NOW = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)
MINUTE = timedelta(seconds=60)
LETTERS = {"W": Answer.WELL, "T": Answer.THROTTLED, "F": Answer.FAILED}
CLOSED = Circuit()
OPEN = Circuit(CircuitState.OPEN, throttles=6, until=NOW + MINUTE)


def after(answers: str, circuit: Circuit = CLOSED) -> Circuit:
    for letter in answers:
        circuit = after_answer(circuit, LETTERS[letter], NOW)
    return circuit


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ("TTTTT", "closed"),
        ("TTTTTT", "open"),
        ("TTTTTWT", "closed"),
        ("TTTTTFT", "closed"),
        ("FFFF", "closed"),
        ("FFFFF", "open"),
        ("FFFFWF", "closed"),
        ("FFFFTF", "closed"),
    ],
)
def test_streaks_open_the_circuit(answers: str, state: str) -> None:
    assert after(answers).state == state


def test_an_open_circuit_lets_nobody_call_for_a_minute_and_then_one() -> None:
    opened = after("TTTTTT")
    assert has_opened(Circuit(), opened)
    assert ask(opened, NOW + timedelta(seconds=59)) == NotBefore(NOW + MINUTE)
    probe = ask(opened, NOW + MINUTE)
    assert isinstance(probe, Go)
    assert probe.is_probe
    assert probe.circuit.state is CircuitState.HALF_OPEN
    assert ask(probe.circuit, NOW + MINUTE) == NotBefore(NOW + 2 * MINUTE)


@pytest.mark.parametrize("answer", [Answer.THROTTLED, Answer.FAILED])
def test_a_probe_that_fails_opens_it_again_without_news(answer: Answer) -> None:
    probing = Circuit(CircuitState.HALF_OPEN, throttles=6, until=NOW + MINUTE)
    again = after_answer(probing, answer, NOW)
    assert (again.state, again.until) == (CircuitState.OPEN, NOW + MINUTE)
    assert not has_opened(probing, again)


def test_a_probe_that_is_answered_closes_it() -> None:
    assert after("W", Circuit(CircuitState.HALF_OPEN, throttles=6, until=NOW + MINUTE)) == Circuit()


def test_a_probe_that_was_lost_does_not_keep_it_half_open() -> None:
    lost = Circuit(CircuitState.HALF_OPEN, until=NOW)
    assert isinstance(ask(lost, NOW), Go)


def test_late_answers_do_not_change_an_open_circuit() -> None:
    assert after("WTF", OPEN) == OPEN


def test_a_wait_that_the_shop_tells_holds_everybody_up() -> None:
    refused = after_answer(Circuit(), Answer.THROTTLED, NOW, timedelta(seconds=2))
    assert refused.state is CircuitState.CLOSED
    assert ask(refused, NOW) == NotBefore(NOW + timedelta(seconds=2))
    shorter = after_answer(refused, Answer.THROTTLED, NOW, timedelta(seconds=1))
    assert ask(shorter, NOW) == NotBefore(NOW + timedelta(seconds=2))
    assert ask(after_answer(shorter, Answer.WELL, NOW), NOW + timedelta(seconds=2)) == Go(
        replace(Circuit(), until=NOW + timedelta(seconds=2))
    )


@pytest.mark.parametrize(
    ("told", "state", "pause"),
    [
        (timedelta(minutes=15), "closed", timedelta(minutes=15)),
        (timedelta(minutes=16), "open", timedelta(minutes=16)),
        (timedelta(days=9), "open", timedelta(days=1)),
    ],
)
def test_a_long_wait_opens_it_at_once_and_as_long(told: timedelta, state: str, pause: timedelta) -> None:
    circuit = after_answer(Circuit(), Answer.THROTTLED, NOW, told)
    assert (circuit.state, circuit.until) == (state, NOW + pause)


@pytest.mark.parametrize(("answers", "calls"), [("", 5), ("TT", 5), ("TTT", 2), ("TTTW", 5), ("TTTTTT", 1)])
def test_refusals_slow_the_calls_down(answers: str, calls: int) -> None:
    assert concurrency(after(answers), 5) == calls
    assert concurrency(after(answers), 1) == 1
