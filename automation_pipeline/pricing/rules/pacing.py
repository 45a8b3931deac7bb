"""When the shop may be called: circuit breaker and leaky bucket."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from automation_pipeline.pricing.models.shop import BucketStatus

THROTTLES_TO_SLOW_DOWN = 3
THROTTLES_TO_OPEN = 6
FAILURES_TO_OPEN = 5
CIRCUIT_PAUSE = timedelta(seconds=60)
MAX_CIRCUIT_PAUSE = timedelta(days=1)
# A Retry-After above this is no pause between two calls any more.
MAX_RETRY_AFTER = timedelta(minutes=15)


class CircuitState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CallOutcome(StrEnum):
    """What a call came to. WELL is any proper answer, a refusal of one variant too; FAILED may be
    tried again."""

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
    """`until` ends the pause of an open circuit, the patience with the probe of a half-open one,
    and in a closed one the wait that the shop has asked for. `opened_by` is the kind of call whose
    success closes the circuit."""

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
class CallPermit:
    """The call may be made; `circuit` is kept first. With `is_probe`, only this one."""

    circuit: Circuit
    is_probe: bool = False


@dataclass(frozen=True)
class NotBefore:
    at: datetime


def request_permit(circuit: Circuit, now: datetime) -> CallPermit | NotBefore:
    """Whether a call may be made now. An open circuit lets one through when its pause is over, to
    see."""
    if circuit.until is not None and now < circuit.until:
        return NotBefore(circuit.until)
    if circuit.state is CircuitState.CLOSED:
        return CallPermit(circuit)
    # A probe without an answer for a whole pause was lost with its process: the next one goes.
    return CallPermit(
        replace(circuit, state=CircuitState.HALF_OPEN, until=now + CIRCUIT_PAUSE), is_probe=True
    )


def without_probe(circuit: Circuit, probe: Circuit, now: datetime) -> Circuit:
    """The probe that `ask` let through was not sent: the next call is one, at once. `probe` is the
    circuit that `ask` returned with it."""
    if circuit.state is not CircuitState.HALF_OPEN or circuit.until is None or probe.until is None:
        return circuit
    is_of_another = circuit.until >= probe.until + CIRCUIT_PAUSE
    return circuit if is_of_another else replace(circuit, state=CircuitState.OPEN, until=now)


def after_answer(
    circuit: Circuit,
    kind: CallKind,
    answer: CallOutcome,
    now: datetime,
    retry_after: timedelta | None = None,
) -> Circuit:
    """`retry_after` is the wait that a refusal came with. Answers to calls from before the opening
    change nothing."""
    if circuit.state is CircuitState.OPEN:
        return circuit
    if answer is CallOutcome.WELL:
        return _after_success(circuit, kind)
    before = circuit.streaks.get(kind, Streak())
    streak = Streak(
        throttles=before.throttles + 1 if answer is CallOutcome.THROTTLED else 0,
        failures=before.failures + 1 if answer is CallOutcome.FAILED else 0,
    )
    counted = replace(circuit, streaks={**circuit.streaks, kind: streak})
    if circuit.state is CircuitState.HALF_OPEN or _is_too_much(streak, retry_after):
        pause = min(max(CIRCUIT_PAUSE, retry_after or CIRCUIT_PAUSE), MAX_CIRCUIT_PAUSE)
        opened_by = circuit.opened_by if circuit.state is CircuitState.HALF_OPEN else kind
        return replace(counted, state=CircuitState.OPEN, until=now + pause, opened_by=opened_by)
    return replace(
        counted, until=_later(circuit.until, None if retry_after is None else now + retry_after)
    )


def _after_success(circuit: Circuit, kind: CallKind) -> Circuit:
    if circuit.state is CircuitState.CLOSED:
        return replace(
            circuit,
            streaks={other: known for other, known in circuit.streaks.items() if other != kind},
        )
    if circuit.opened_by in {kind, None}:
        return Circuit()
    return replace(
        circuit, until=None
    )  # a read went well, but writes opened the circuit: the next call is a probe too


def has_opened(before: Circuit, after: Circuit) -> bool:
    """Whether operators are to be told: a failed probe is no news."""
    return before.state is CircuitState.CLOSED and after.state is CircuitState.OPEN


def concurrency(throttles: int, full: int) -> int:
    """Half as many calls at once while the shop refuses one after the other."""
    return max(full // 2, 1) if throttles >= THROTTLES_TO_SLOW_DOWN else full


def _is_too_much(streak: Streak, retry_after: timedelta | None) -> bool:
    is_refused_for_long = retry_after is not None and retry_after > MAX_RETRY_AFTER
    return (
        is_refused_for_long
        or streak.throttles >= THROTTLES_TO_OPEN
        or streak.failures >= FAILURES_TO_OPEN
    )


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((at for at in (one, other) if at is not None), default=None)


# What a shop has that has not told of itself yet: the smallest plan.
DEFAULT_BUCKET = BucketStatus(available=1000, maximum=1000, restore_rate=50)
# Answers come in another order than calls: so much of the bucket is left alone.
SPARE_SHARE = 0.03
# Promises of processes that were killed take no more than this from those that are at work.
MAX_PENDING_SHARE = 0.5
# They are forgotten when nothing was heard for so long.
FORGOTTEN_AFTER = timedelta(seconds=60)


@dataclass(frozen=True)
class LeakyBucket:
    """`available` is what is left at `measured_at` once every promise is kept, and may be less than
    nothing; `pending` is what is promised to calls that were not heard of yet; `heard_at` is when
    the shop last told."""

    available: float
    maximum: float
    restore_rate: float
    pending: float
    measured_at: datetime
    heard_at: datetime | None = None


def default_bucket(now: datetime) -> LeakyBucket:
    return LeakyBucket(
        DEFAULT_BUCKET.available, DEFAULT_BUCKET.maximum, DEFAULT_BUCKET.restore_rate, 0.0, now
    )


def reserve_points(tank: LeakyBucket, cost: float, now: datetime) -> tuple[LeakyBucket, float]:
    """The tank with `cost` taken out, and in how many seconds the call may go."""
    filled = _filled(tank, now)
    if now - tank.measured_at > FORGOTTEN_AFTER:
        filled = replace(filled, pending=0.0)
    left = filled.available - cost
    lacking = max(_spare(filled) - left, 0.0)
    return replace(
        filled, available=left, pending=filled.pending + cost
    ), lacking / filled.restore_rate


def refund_points(tank: LeakyBucket, cost: float, now: datetime) -> LeakyBucket:
    """A promise that is not wanted any more."""
    filled = _filled(tank, now)
    return replace(
        filled, available=filled.available + cost, pending=max(filled.pending - cost, 0.0)
    )


def sync_bucket(
    tank: LeakyBucket, cost: float, told: BucketStatus | None, *, since: datetime, now: datetime
) -> LeakyBucket:
    """After the answer to a call of that cost, which had its turn at `since`. What the shop tells
    is taken for the truth, less the other promises; but it may have been on its way for long: if
    another answer was heard meanwhile, it is not believed that there is more than we reckon."""
    filled = _filled(tank, now)
    pending = min(max(tank.pending - cost, 0.0), MAX_PENDING_SHARE * tank.maximum)
    if told is None or told.restore_rate <= 0 or told.maximum <= 0:
        return replace(filled, pending=pending)
    left = told.available - pending
    if tank.heard_at is not None and tank.heard_at > since:
        left = min(left, filled.available)
    return LeakyBucket(left, told.maximum, told.restore_rate, pending, now, heard_at=now)


def _spare(tank: LeakyBucket) -> float:
    return SPARE_SHARE * tank.maximum


def _filled(tank: LeakyBucket, now: datetime) -> LeakyBucket:
    seconds = max((now - tank.measured_at).total_seconds(), 0.0)
    return replace(
        tank,
        available=min(tank.available + seconds * tank.restore_rate, tank.maximum),
        measured_at=now,
    )
