"""The circuit breaker of one shop, as a value in the database, so that every process sees the same state.

Reads and writes have streaks of their own: a read that succeeds says nothing about writes. Within a kind of call,
refusals for calling too often are counted apart from failures, and any proper answer ends both streaks."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

THROTTLES_TO_SLOW_DOWN = 3
THROTTLES_TO_OPEN = 6
FAILURES_TO_OPEN = 5
PAUSE = timedelta(seconds=60)
LONGEST_PAUSE = timedelta(days=1)
# A Retry-After above this is no pause between two calls any more.
LONGEST_RETRY_AFTER = timedelta(minutes=15)


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Answer(StrEnum):
    """What a call came to. WELL is any proper answer, a refusal of one variant too; FAILED may be tried again."""

    WELL = "well"
    THROTTLED = "throttled"
    FAILED = "failed"


class CallKind(StrEnum):
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True)
class Streak:
    """How many calls of one kind were refused or failed in a row."""

    throttles: int = 0
    failures: int = 0


@dataclass(frozen=True)
class Circuit:
    """`until` ends the pause of an open circuit, the patience with the probe of a half-open one, and in a closed one
    the wait that the shop has asked for. `opened_by` is the kind of call whose success closes the circuit."""

    state: CircuitState = CircuitState.CLOSED
    streaks: Mapping[CallKind, Streak] = field(default_factory=dict[CallKind, Streak])
    until: datetime | None = None
    opened_by: CallKind | None = None

    @property
    def throttles(self) -> int:
        return max((streak.throttles for streak in self.streaks.values()), default=0)

    @property
    def failures(self) -> int:
        return max((streak.failures for streak in self.streaks.values()), default=0)


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
    # A probe without an answer for a whole pause was lost with its process: the next one goes.
    return Go(replace(circuit, state=CircuitState.HALF_OPEN, until=now + PAUSE), is_probe=True)


def without_probe(circuit: Circuit, probe: Circuit, now: datetime) -> Circuit:
    """The probe that `ask` let through was not sent: the next call is one, at once. `probe` is the circuit that `ask`
    returned with it."""
    if circuit.state is not CircuitState.HALF_OPEN or circuit.until is None or probe.until is None:
        return circuit
    is_of_another = circuit.until >= probe.until + PAUSE
    return circuit if is_of_another else replace(circuit, state=CircuitState.OPEN, until=now)


def after_answer(
    circuit: Circuit, kind: CallKind, answer: Answer, now: datetime, retry_after: timedelta | None = None
) -> Circuit:
    """`retry_after` is the wait that a refusal came with. Answers to calls from before the opening change nothing."""
    if circuit.state is CircuitState.OPEN:
        return circuit
    if answer is Answer.WELL:
        return _after_success(circuit, kind)
    before = circuit.streaks.get(kind, Streak())
    streak = Streak(
        throttles=before.throttles + 1 if answer is Answer.THROTTLED else 0,
        failures=before.failures + 1 if answer is Answer.FAILED else 0,
    )
    counted = replace(circuit, streaks={**circuit.streaks, kind: streak})
    if circuit.state is CircuitState.HALF_OPEN or _is_too_much(streak, retry_after):
        pause = min(max(PAUSE, retry_after or PAUSE), LONGEST_PAUSE)
        opened_by = circuit.opened_by if circuit.state is CircuitState.HALF_OPEN else kind
        return replace(counted, state=CircuitState.OPEN, until=now + pause, opened_by=opened_by)
    return replace(counted, until=_later(circuit.until, None if retry_after is None else now + retry_after))


def _after_success(circuit: Circuit, kind: CallKind) -> Circuit:
    if circuit.state is CircuitState.CLOSED:
        return replace(circuit, streaks={other: known for other, known in circuit.streaks.items() if other != kind})
    if circuit.opened_by in {kind, None}:
        return Circuit()
    return replace(circuit, until=None)  # a read went well, but writes opened the circuit: the next call is a probe too


def has_opened(before: Circuit, after: Circuit) -> bool:
    """Whether operators are to be told: a failed probe is no news."""
    return before.state is CircuitState.CLOSED and after.state is CircuitState.OPEN


def concurrency(throttles: int, full: int) -> int:
    """Half as many calls at once while the shop refuses one after the other."""
    return max(full // 2, 1) if throttles >= THROTTLES_TO_SLOW_DOWN else full


def _is_too_much(streak: Streak, retry_after: timedelta | None) -> bool:
    is_refused_for_long = retry_after is not None and retry_after > LONGEST_RETRY_AFTER
    return is_refused_for_long or streak.throttles >= THROTTLES_TO_OPEN or streak.failures >= FAILURES_TO_OPEN


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((at for at in (one, other) if at is not None), default=None)
