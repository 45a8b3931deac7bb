"""The circuit breaker of one shop, as a value that the database keeps, so that every process sees the same.

Refusals for calling too often are counted apart from failures; both streaks end with any proper answer."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

THROTTLES_TO_SLOW_DOWN = 3
THROTTLES_TO_OPEN = 6
FAILURES_TO_OPEN = 5
PAUSE = timedelta(seconds=60)
LONGEST_PAUSE = timedelta(days=1)
# A Retry-After above this is no pause between two calls any more.
LONGEST_TOLD = timedelta(minutes=15)


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Answer(StrEnum):
    """What a call came to. WELL is any proper answer, a refusal of one variant too; FAILED may be tried again."""

    WELL = "well"
    THROTTLED = "throttled"
    FAILED = "failed"


@dataclass(frozen=True)
class Circuit:
    """`until` ends the pause of an open circuit, the patience with the probe of a half-open one, and in a closed one
    the wait that the shop has asked for."""

    state: CircuitState = CircuitState.CLOSED
    throttles: int = 0
    failures: int = 0
    until: datetime | None = None


@dataclass(frozen=True)
class Go:
    """The call may be made; `circuit` is kept first. With `is_probe`, only this one."""

    circuit: Circuit
    is_probe: bool = False


@dataclass(frozen=True)
class NotBefore:
    at: datetime


def ask(circuit: Circuit, now: datetime) -> Go | NotBefore:
    """Whether a call may be made now. An open circuit lets one through when its pause is over, to see."""
    if circuit.until is not None and now < circuit.until:
        return NotBefore(circuit.until)
    if circuit.state is CircuitState.CLOSED:
        return Go(circuit)
    # A probe of which nothing was heard for a whole pause was lost with its process: the next one goes.
    return Go(replace(circuit, state=CircuitState.HALF_OPEN, until=now + PAUSE), is_probe=True)


def after_answer(circuit: Circuit, answer: Answer, now: datetime, told: timedelta | None = None) -> Circuit:
    """`told` is the wait that a refusal came with. Answers to calls from before the opening change nothing."""
    if circuit.state is CircuitState.OPEN:
        return circuit
    if answer is Answer.WELL:
        return replace(Circuit(), until=circuit.until if circuit.state is CircuitState.CLOSED else None)
    throttles = circuit.throttles + 1 if answer is Answer.THROTTLED else 0
    failures = circuit.failures + 1 if answer is Answer.FAILED else 0
    pause = min(max(PAUSE, told or PAUSE), LONGEST_PAUSE)
    counted = replace(circuit, throttles=throttles, failures=failures)
    if circuit.state is CircuitState.HALF_OPEN or _is_too_much(counted, told):
        return replace(counted, state=CircuitState.OPEN, until=now + pause)
    return replace(counted, until=_later(circuit.until, None if told is None else now + told))


def has_opened(before: Circuit, after: Circuit) -> bool:
    """Whether operators are to be told: a failed probe is no news."""
    return before.state is CircuitState.CLOSED and after.state is CircuitState.OPEN


def concurrency(circuit: Circuit, full: int) -> int:
    """Half as many calls at once while the shop refuses, one while it is being tried."""
    if circuit.state is not CircuitState.CLOSED:
        return 1
    return max(full // 2, 1) if circuit.throttles >= THROTTLES_TO_SLOW_DOWN else full


def _is_too_much(circuit: Circuit, told: timedelta | None) -> bool:
    refused_for_long = told is not None and told > LONGEST_TOLD
    return refused_for_long or circuit.throttles >= THROTTLES_TO_OPEN or circuit.failures >= FAILURES_TO_OPEN


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((at for at in (one, other) if at is not None), default=None)
