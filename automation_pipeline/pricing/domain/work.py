"""What becomes of one variant at the hands of the worker: decided before the write, and after a call that failed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from zoneinfo import ZoneInfo

from automation_pipeline.core.wall_clock import FIRST_PASS, instant_of, wall_time
from automation_pipeline.pricing.domain.drift import Step, before_rollback, before_write
from automation_pipeline.pricing.domain.failures import PRICE_DRIFT, Failure, FailureKind, Signal, classified
from automation_pipeline.pricing.domain.money import Price, in_words
from automation_pipeline.pricing.domain.policy import Check, Policy, guarded
from automation_pipeline.pricing.domain.retrying import RETRY_BACKOFF, Progress, TryAgain, after_failure, is_overdue
from automation_pipeline.pricing.domain.rule import OnDrift


@dataclass(frozen=True)
class WorkTarget:
    """A variant whose price is to be changed, and how far that has come in the present cycle. One with a `doom` is
    given up for that, but for a last look whether one of its calls has written the price after all."""

    id: int
    product_id: str
    variant_id: str | None
    sku: str | None
    before: Price
    after: Price
    writes_compare_at: bool
    progress: Progress
    outcome_unknown: bool
    began_at: datetime
    doom: Failure | None = None


@dataclass(frozen=True)
class Terms:
    """What a run is worked under: its rule's word on drift, and its project's guardrails, if it has any. One that
    `takes_back` has its targets turned round: they go back from `before`, which was applied, to `after`."""

    on_drift: OnDrift
    policy: Policy | None
    takes_back: bool = False


@dataclass(frozen=True)
class Applied:
    """The shop has the price. `seen` is what it had before; `was_found`: nothing was written now."""

    target: WorkTarget
    seen: Price
    was_found: bool = False
    request_id: str | None = None
    duration_ms: int | None = None


@dataclass(frozen=True)
class PutBack:
    """It waits for another call; with a `doom`, for one that only looks. Without a failure nothing was tried, and
    nothing is counted."""

    target: WorkTarget
    wait_seconds: float
    progress: Progress
    failure: Failure | None = None
    outcome_unknown: bool = False
    doom: Failure | None = None

    @property
    def was_tried(self) -> bool:
        return self.failure is not None or (self.doom is not None and self.target.doom is None)


@dataclass(frozen=True)
class GivenUp:
    """A dead letter."""

    target: WorkTarget
    failure: Failure
    progress: Progress
    seen: Price | None = None


Settled = Applied | PutBack | GivenUp


def before_writing(target: WorkTarget, seen: Price | None, used: Decimal, terms: Terms) -> Applied | GivenUp | None:
    """None: it is to be written. `seen` is its price in the shop now, `used` what of its daily budget is spent."""
    if seen is None:
        words = "The variant, or its price, is not in the shop any more."
        return _given_up(target, FailureKind.NOT_FOUND, words)
    step = _step(target, seen, terms)
    if step is Step.DONE:
        return Applied(target, target.before, was_found=True)
    if target.doom is not None:
        return GivenUp(replace(target, outcome_unknown=False), target.doom, target.progress, seen)
    if step is Step.REFUSE:
        return _drifted(target, seen, terms)
    return _blocked(target, seen, used, terms.policy)


def after_failed_call(target: WorkTarget, failure: Failure, random: Random) -> PutBack | GivenUp:
    """A call that only reads leaves what is known of earlier writes as it was. What may have been written is not given
    up before somebody has looked."""
    unknown = target.outcome_unknown or failure.outcome_unknown
    if target.doom is not None:
        return _after_failed_look(target, target.doom, failure, random)
    decided = after_failure(failure, target.progress, random)
    if isinstance(decided, TryAgain):
        return PutBack(target, decided.wait_seconds, decided.progress, failure, unknown)
    if unknown:
        # After an error of its own the shop has done with the call; a call whose answer was lost may be on its way.
        wait = 0.0 if failure.kind is FailureKind.SERVER else RETRY_BACKOFF.delay(1, random)
        return _doomed(target, decided.failure, decided.progress, wait)
    return GivenUp(target, decided.failure, decided.progress)


def deferred(target: WorkTarget, wait_seconds: float = 0.0) -> PutBack:
    return PutBack(target, wait_seconds, target.progress, None, target.outcome_unknown, target.doom)


def without_variant(target: WorkTarget) -> GivenUp:
    return _given_up(target, FailureKind.NOT_FOUND, "It names no variant of the shop.")


def overdue(targets: Sequence[WorkTarget], now: datetime) -> list[PutBack | GivenUp]:
    """Those that have taken too long. The last look has as much time again."""
    late = Failure(FailureKind.TIMEOUT, "It took longer than ten minutes.", retryable=False)
    return [
        _too_late(target, late)
        for target in targets
        if is_overdue(target.began_at, now, timedelta(seconds=target.progress.rate_limit_seconds))
    ]


def day_began(now: datetime, zone: str) -> datetime:
    """The instant at which the present day of the zone began."""
    its_zone = ZoneInfo(zone)
    midnight = wall_time(now, its_zone).replace(hour=0, minute=0, second=0, microsecond=0)
    return instant_of(midnight, its_zone, FIRST_PASS).astimezone(UTC)


def _too_late(target: WorkTarget, late: Failure) -> PutBack | GivenUp:
    if target.doom is None and target.outcome_unknown:
        return _doomed(target, late, target.progress, 0.0)
    return GivenUp(target, target.doom or late, target.progress)


def _doomed(target: WorkTarget, doom: Failure, progress: Progress, wait_seconds: float) -> PutBack:
    return PutBack(target, wait_seconds, progress, outcome_unknown=True, doom=doom)


def _after_failed_look(target: WorkTarget, doom: Failure, failure: Failure, random: Random) -> PutBack | GivenUp:
    if not failure.retryable:
        return GivenUp(target, replace(doom, outcome_unknown=True), target.progress)
    wait = max(RETRY_BACKOFF.delay(1, random), failure.retry_after_seconds or 0.0)
    return PutBack(target, wait, target.progress, failure, outcome_unknown=True, doom=doom)


def _step(target: WorkTarget, seen: Price, terms: Terms) -> Step:
    with_compare_at = target.writes_compare_at
    if not terms.takes_back:
        return before_write(seen, target.before, target.after, terms.on_drift, writes_compare_at=with_compare_at)
    is_forced = terms.on_drift is OnDrift.OVERWRITE
    return before_rollback(seen, target.after, target.before, writes_compare_at=with_compare_at, force=is_forced)


def _drifted(target: WorkTarget, seen: Price, terms: Terms) -> GivenUp:
    how = "was applied: somebody has edited it since" if terms.takes_back else "was previewed"
    words = (
        f"{PRICE_DRIFT}: the shop has {in_words(seen.unit_amount, seen.currency)}, "
        f"not {in_words(target.before.unit_amount, target.before.currency)} as {how}."
    )
    return GivenUp(target, classified(Signal(code=PRICE_DRIFT), words), target.progress, seen)


def _blocked(target: WorkTarget, seen: Price, used: Decimal, policy: Policy | None) -> GivenUp | None:
    if policy is None:
        return None
    failing = guarded(policy, target.sku, seen, target.after.unit_amount, used).failing
    if not failing:
        return None
    words = f"The project's guardrails block it: {', '.join(_named(check) for check in failing)}."
    return GivenUp(target, Failure(FailureKind.VALIDATION, words, retryable=False), target.progress, seen)


def _named(check: Check) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in check.facts.items())
    return f"{check.name} ({facts})"


def _given_up(target: WorkTarget, kind: FailureKind, words: str) -> GivenUp:
    return GivenUp(target, Failure(kind, words, retryable=False), target.progress)
