"""Decide when the shop may be called: a circuit breaker and a leaky bucket."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from automation_pipeline.pricing.models.shop import BucketStatus, CircuitState

THROTTLES_TO_SLOW_DOWN = 3
THROTTLES_TO_OPEN = 6
FAILURES_TO_OPEN = 5
CIRCUIT_PAUSE = timedelta(seconds=60)
MAX_CIRCUIT_PAUSE = timedelta(days=1)
# A longer Retry-After opens the circuit.
MAX_RETRY_AFTER = timedelta(minutes=15)


class CallOutcome(StrEnum):
    """SUCCEEDED is any valid answer, including a refusal of one variant; FAILED is retryable."""

    SUCCEEDED = "succeeded"
    THROTTLED = "throttled"
    FAILED = "failed"


class CallKind(StrEnum):
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True)
class Streak:
    throttles: int = 0
    failures: int = 0


@dataclass(frozen=True)
class Circuit:
    """Before `until` no call may be made: an open circuit pauses, a half-open circuit waits for its
    probe, and a closed circuit waits as long as the shop asks for. `opened_by` is the kind of call
    whose success closes the circuit."""

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
    """The call may be made after `circuit` is stored. While a probe is in flight, no other call may
    be made."""

    circuit: Circuit
    is_probe: bool = False


def request_permit(circuit: Circuit, now: datetime) -> CallPermit | datetime:
    """Return the permit for a call now, or the time before which no call may be made. After its
    pause, an open circuit allows one probe."""
    if circuit.until is not None and now < circuit.until:
        return circuit.until
    if circuit.state is CircuitState.CLOSED:
        return CallPermit(circuit)
    # A probe without an answer for a whole pause is lost, for example with its process.
    return CallPermit(
        replace(circuit, state=CircuitState.HALF_OPEN, until=now + CIRCUIT_PAUSE), is_probe=True
    )


def without_probe(circuit: Circuit, probe: Circuit, now: datetime) -> Circuit:
    """Let the next call be the probe, because this one was not sent. `probe` is the circuit that
    `request_permit` returned for it."""
    if circuit.state is not CircuitState.HALF_OPEN or circuit.until is None or probe.until is None:
        return circuit
    is_newer_probe = circuit.until >= probe.until + CIRCUIT_PAUSE
    return circuit if is_newer_probe else replace(circuit, state=CircuitState.OPEN, until=now)


def after_answer(
    circuit: Circuit,
    kind: CallKind,
    answer: CallOutcome,
    now: datetime,
    retry_after: timedelta | None = None,
) -> Circuit:
    """`retry_after` is the wait that the shop asked for when it refused the call. While the circuit
    is open, answers to earlier calls change nothing."""
    if circuit.state is CircuitState.OPEN:
        return circuit
    if answer is CallOutcome.SUCCEEDED:
        return _after_success(circuit, kind)
    before = circuit.streaks.get(kind, Streak())
    streak = Streak(
        throttles=before.throttles + 1 if answer is CallOutcome.THROTTLED else 0,
        failures=before.failures + 1 if answer is CallOutcome.FAILED else 0,
    )
    counted = replace(circuit, streaks={**circuit.streaks, kind: streak})
    is_half_open = circuit.state is CircuitState.HALF_OPEN
    if is_half_open or _must_open(streak, retry_after):
        pause = min(max(CIRCUIT_PAUSE, retry_after or CIRCUIT_PAUSE), MAX_CIRCUIT_PAUSE)
        opened_by = circuit.opened_by if is_half_open else kind
        return replace(counted, state=CircuitState.OPEN, until=now + pause, opened_by=opened_by)
    if retry_after is None:
        return counted
    return replace(counted, until=max(now + retry_after, circuit.until or now))


def _after_success(circuit: Circuit, kind: CallKind) -> Circuit:
    if circuit.state is CircuitState.CLOSED:
        others = {other: known for other, known in circuit.streaks.items() if other != kind}
        return replace(circuit, streaks=others)
    if circuit.opened_by in {kind, None}:
        return Circuit()
    # A read succeeded, but writes opened the circuit: the next call is a probe too.
    return replace(circuit, until=None)


def has_opened(before: Circuit, after: Circuit) -> bool:
    """Whether operators are notified. A failed probe does not notify them again."""
    return before.state is CircuitState.CLOSED and after.state is CircuitState.OPEN


def concurrency(throttles: int, full: int) -> int:
    """Halve the concurrency after a few consecutive refusals."""
    return max(full // 2, 1) if throttles >= THROTTLES_TO_SLOW_DOWN else full


def _must_open(streak: Streak, retry_after: timedelta | None) -> bool:
    is_refused_for_long = retry_after is not None and retry_after > MAX_RETRY_AFTER
    return (
        is_refused_for_long
        or streak.throttles >= THROTTLES_TO_OPEN
        or streak.failures >= FAILURES_TO_OPEN
    )


# The bucket of the smallest plan, for a shop that has not answered yet.
DEFAULT_BUCKET = BucketStatus(available=1000, maximum=1000, restore_rate=50)
# This share of the bucket stays unused, because answers can arrive in another order than the calls.
SPARE_SHARE = 0.03
# Reservations of killed processes can withhold at most this share of the bucket.
MAX_PENDING_SHARE = 0.5
# Reservations expire when no call was made for this time.
RESERVATION_LIFETIME = timedelta(seconds=60)


@dataclass(frozen=True)
class LeakyBucket:
    """`available` are the points at `measured_at` minus those of all reserved calls; it may be
    negative. `pending` are the points of calls without an answer yet. `synced_at` is when the shop
    last reported its own figures."""

    available: float
    maximum: float
    restore_rate: float
    pending: float
    measured_at: datetime
    synced_at: datetime | None = None


def default_bucket(now: datetime) -> LeakyBucket:
    return LeakyBucket(**vars(DEFAULT_BUCKET), pending=0.0, measured_at=now)


def reserve_points(bucket: LeakyBucket, cost: float, now: datetime) -> tuple[LeakyBucket, float]:
    """Return the bucket with the points reserved, and the seconds until the call may start."""
    filled = _refilled(bucket, now)
    if now - bucket.measured_at > RESERVATION_LIFETIME:
        filled = replace(filled, pending=0.0)
    left = filled.available - cost
    lacking = max(SPARE_SHARE * filled.maximum - left, 0.0)
    reserved = replace(filled, available=left, pending=filled.pending + cost)
    return reserved, lacking / filled.restore_rate


def refund_points(bucket: LeakyBucket, cost: float, now: datetime) -> LeakyBucket:
    filled = _refilled(bucket, now)
    return replace(
        filled, available=filled.available + cost, pending=max(filled.pending - cost, 0.0)
    )


def sync_bucket(
    bucket: LeakyBucket,
    cost: float,
    status: BucketStatus | None,
    *,
    since: datetime,
    now: datetime,
) -> LeakyBucket:
    """Update the bucket after the answer to a call that cost `cost` and started at `since`. The new
    estimate is the shop's own figure minus the other reservations. The figure may be outdated: if
    another answer arrived after `since`, it cannot raise the estimate."""
    filled = _refilled(bucket, now)
    pending = min(max(bucket.pending - cost, 0.0), MAX_PENDING_SHARE * bucket.maximum)
    if status is None or status.restore_rate <= 0 or status.maximum <= 0:
        return replace(filled, pending=pending)
    left = status.available - pending
    if bucket.synced_at is not None and bucket.synced_at > since:
        left = min(left, filled.available)
    return LeakyBucket(left, status.maximum, status.restore_rate, pending, now, synced_at=now)


def _refilled(bucket: LeakyBucket, now: datetime) -> LeakyBucket:
    seconds = max((now - bucket.measured_at).total_seconds(), 0.0)
    available = min(bucket.available + seconds * bucket.restore_rate, bucket.maximum)
    return replace(bucket, available=available, measured_at=now)
