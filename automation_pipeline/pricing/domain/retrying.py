"""What becomes of a target after a failed call: another one, and when, or the dead letters.

Waits that the shop asks for are counted apart, with bounds of their own; beyond those they cost an attempt."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random

from automation_pipeline.core.retry import MINIMUM_WAIT_SECONDS, Backoff
from automation_pipeline.pricing.domain.failures import Failure, FailureKind

MAX_RETRIES = 3
MOST_RATE_LIMIT_WAITS = 10
LONGEST_RATE_LIMIT_SECONDS = 15 * 60.0
# A shop that asks for more than a day is not coming back to this run.
LONGEST_WAIT_SECONDS = 24 * 60 * 60.0
CALL_TIMEOUT_SECONDS = 30.0
TARGET_TIMEOUT = timedelta(minutes=10)

RETRY_BACKOFF = Backoff(base_seconds=2, cap_seconds=64, multiplier=2, jitter=0.2)
RATE_LIMIT_BACKOFF = Backoff(base_seconds=16, cap_seconds=64, multiplier=2, jitter=0.2)
# On top of what the shop told, so that all who wait do not come back in one moment.
_MOST_ON_TOP = 0.2


@dataclass(frozen=True)
class Progress:
    """How far a target has come in its present cycle. `attempts` counts retries: the call under way is one more."""

    attempts: int = 0
    rate_limit_waits: int = 0
    rate_limit_seconds: float = 0.0


@dataclass(frozen=True)
class TryAgain:
    """The target goes back to QUEUED. `pauses_shop`: every other target of the shop waits as long."""

    wait_seconds: float
    progress: Progress
    pauses_shop: bool = False


@dataclass(frozen=True)
class GiveUp:
    """The target becomes FAILED, a dead letter."""

    failure: Failure
    progress: Progress


def after_failure(failure: Failure, progress: Progress, random: Random) -> TryAgain | GiveUp:
    told = failure.retry_after_seconds
    if not failure.retryable or (told is not None and told > LONGEST_WAIT_SECONDS):
        return GiveUp(failure, progress)
    if failure.kind is not FailureKind.RATE_LIMIT:
        return _spending_an_attempt(failure, progress, random)
    wait = rate_limit_wait(told, progress.rate_limit_waits, random)
    waited = progress.rate_limit_seconds + wait
    if progress.rate_limit_waits >= MOST_RATE_LIMIT_WAITS or waited > LONGEST_RATE_LIMIT_SECONDS:
        return _spending_an_attempt(failure, progress, random)
    counted = replace(progress, rate_limit_waits=progress.rate_limit_waits + 1, rate_limit_seconds=waited)
    return TryAgain(wait, counted, pauses_shop=True)


def _spending_an_attempt(failure: Failure, progress: Progress, random: Random) -> TryAgain | GiveUp:
    if progress.attempts >= MAX_RETRIES:
        return GiveUp(failure, progress)
    attempts = progress.attempts + 1
    wait = RETRY_BACKOFF.delay(attempts, random)
    if failure.retry_after_seconds is not None:
        wait = max(wait, rate_limit_wait(failure.retry_after_seconds, 0, random))
    return TryAgain(wait, replace(progress, attempts=attempts), pauses_shop=failure.kind is FailureKind.RATE_LIMIT)


def rate_limit_wait(told: float | None, waits: int, random: Random) -> float:
    """Never less than the shop told, up to a fifth more; untold 16, 32, 64 s. `waits` counts those already made."""
    if told is None:
        return RATE_LIMIT_BACKOFF.delay(waits + 1, random)
    return max(told, MINIMUM_WAIT_SECONDS) * (1 + random.uniform(0, _MOST_ON_TOP))


def throttle_seconds(requested: float, available: float, restore_rate: float) -> float | None:
    """Until a bucket of points holds what a query asks for; None when the bucket does not say how fast it fills."""
    if restore_rate <= 0:
        return None
    return max((requested - available) / restore_rate, MINIMUM_WAIT_SECONDS)


def reads_first(progress: Progress, *, outcome_unknown: bool) -> bool:
    """Whether the price in the shop is read before it is written: an earlier call may have written it."""
    return outcome_unknown or progress.attempts > 0


def is_overdue(began_at: datetime, now: datetime, waited_for_shop: timedelta) -> bool:
    """Whether a target has taken too long in its present cycle, the waits that the shop asked for left out."""
    return now - began_at - waited_for_shop > TARGET_TIMEOUT
