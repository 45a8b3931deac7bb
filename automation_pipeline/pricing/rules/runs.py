"""Decisions about runs and targets: staleness, approval, promotions, drift, retries, rollback."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from random import Random
from zoneinfo import ZoneInfo

from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.retry import MINIMUM_WAIT_SECONDS, Backoff
from automation_pipeline.core.scheduling.zones import FIRST_PASS, instant_of, wall_time
from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.pricing.models.rules import OnDrift, Policy, RuleReference
from automation_pipeline.pricing.models.runs import (
    RULE_RUN,
    PricingRunState,
    RollbackState,
    TargetState,
)
from automation_pipeline.pricing.models.shop import (
    PRICE_DRIFT,
    CallFailure,
    FailureKind,
    FailureSignal,
    Price,
    classify_failure,
    price_text,
)
from automation_pipeline.pricing.rules.evaluation import check_text, failing_guardrails

PREVIEW_LIFETIME = timedelta(minutes=15)


def stale_fault(
    previewed_hash: str, rule_hash: str, previewed_at: datetime, now: datetime
) -> str | None:
    """Why a preview can no longer be applied. Drifted prices are detected separately, before each
    write."""
    if previewed_hash != rule_hash:
        return "The rule was changed after the preview: preview it again."
    if now - previewed_at > PREVIEW_LIFETIME:
        minutes = PREVIEW_LIFETIME.seconds // 60
        return f"The preview is older than {minutes} minutes: preview the rule again."
    return None


def approval_fault(
    *, auto_apply: bool, created_by: str, written_by: str | None, approved_by: str | None
) -> str | None:
    """Why a run may not be applied yet. Unless the project has `autoApply`, a second person must
    approve it, who neither created the run nor wrote its version of the rule."""
    if auto_apply:
        return None
    if approved_by is None:
        return "The run must be approved first."
    if approved_by == created_by:
        return "The run must be approved by a person other than its creator."
    if approved_by == written_by:
        return "The run must be approved by a person other than the author of its rule."
    return None


def cooldown_end(
    last_applied_at: datetime | None, cooldown_minutes: int, now: datetime
) -> datetime | None:
    """Return when the rule may be applied again, or None if it may be applied now."""
    if last_applied_at is None:
        return None
    until = last_applied_at + timedelta(minutes=cooldown_minutes)
    return until if now < until else None


# A rollback at the end of a promotion is not retried for edited prices and deleted variants. Every
# other failure is considered transient.
PERMANENT_FAILURES = frozenset({FailureKind.CONFLICT, FailureKind.NOT_FOUND})
RETRY_END_AFTER = timedelta(minutes=10)


class PromotionOverError(ConflictError):
    """The promotion is over: its prices would be rolled back as soon as they are applied."""


class DueAction(StrEnum):
    START = "start"
    END = "end"
    # The promotion started and ended during an outage.
    MISSED = "missed"


@dataclass(frozen=True)
class PlannedRule(RuleReference):
    """`schedule_at` is None once the scheduled run exists. `is_applied`: prices of the rule are in
    the shop."""

    enabled: bool
    schedule_at: datetime | None
    ends_at: datetime | None
    is_applied: bool


def due_action(rule: PlannedRule, now: datetime) -> DueAction | None:
    """The promotion of a disabled rule ends too; otherwise its prices would stay forever."""
    is_over = rule.ends_at is not None and rule.ends_at <= now
    if rule.is_applied and is_over:
        return DueAction.END
    if rule.schedule_at is None or rule.schedule_at > now or not rule.enabled:
        return None
    return DueAction.MISSED if is_over else DueAction.START


MAX_NAMED_RULES = 10


@dataclass(frozen=True, kw_only=True)
class DuePriceRules:
    """The result of one tick. `started` and `ended` are ids of runs: those that were started, and
    those that will be rolled back because their promotion is over, newest first. The others are ids
    of rules: their promotion was `missed`, they are `put_off` because they have an open run, or
    they already ran `before` for the same time."""

    started: tuple[int, ...] = ()
    missed: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    put_off: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    def __str__(self) -> str:
        sentences = (
            ("Started {}.", "run", self.started),
            ("The promotion of {} is over: the run will be rolled back.", "run", self.ended),
            ("Not started, because the promotion is over: {}.", "rule", self.missed),
            ("Postponed until the open run ends: {}.", "rule", self.put_off),
            ("Not started again for the same time: {}.", "rule", self.before),
        )
        found = [text.format(_named(noun, ids)) for text, noun, ids in sentences if ids]
        return " ".join(found) or "No rule is due."


def _named(noun: str, ids: Sequence[int]) -> str:
    names = ", ".join(str(one) for one in ids[:MAX_NAMED_RULES])
    more = f" and {len(ids) - MAX_NAMED_RULES} more" if len(ids) > MAX_NAMED_RULES else ""
    return f"{noun if len(ids) == 1 else noun + 's'} {names}{more}"


class DriftAction(StrEnum):
    """What to do with a target. DONE: the shop already has the new price."""

    WRITE = "write"
    DONE = "done"
    REFUSE = "refuse"


def drift_action(
    observed: Price, before: Price, after: Price, on_drift: OnDrift, *, writes_compare_at: bool
) -> DriftAction:
    """A price in another currency is never overwritten, because no approval covers it."""
    if observed.equals(after, with_compare_at=writes_compare_at):
        return DriftAction.DONE
    if observed.equals(before, with_compare_at=writes_compare_at):
        return DriftAction.WRITE
    is_allowed = on_drift is OnDrift.OVERWRITE and observed.currency == before.currency
    return DriftAction.WRITE if is_allowed else DriftAction.REFUSE


MAX_RETRIES = 3
MAX_RATE_LIMIT_WAITS = 10
MAX_RATE_LIMIT_SECONDS = 15 * 60.0
# A target fails if the shop asks for a longer wait.
MAX_WAIT_SECONDS = 24 * 60 * 60.0
TARGET_TIMEOUT = timedelta(minutes=10)

RETRY_BACKOFF = Backoff(base_seconds=2, cap_seconds=64, multiplier=2, jitter=0.2)
RATE_LIMIT_BACKOFF = Backoff(base_seconds=16, cap_seconds=64, multiplier=2, jitter=0.2)
# Added to the shop's Retry-After, so that waiting calls do not all restart at the same time.
_RATE_LIMIT_JITTER = 0.2


@dataclass(frozen=True)
class AttemptProgress:
    """The attempts of a target in its current cycle. `attempts` counts the retries, not the first
    call."""

    attempts: int = 0
    rate_limit_waits: int = 0
    rate_limit_seconds: float = 0.0


@dataclass(frozen=True)
class RetryTarget:
    wait_seconds: float
    progress: AttemptProgress


def decide_retry(
    failure: CallFailure, progress: AttemptProgress, random: Random
) -> RetryTarget | None:
    """Return None if another attempt cannot succeed, or if no attempts are left."""
    retry_after = failure.retry_after_seconds
    if not failure.retryable or (retry_after is not None and retry_after > MAX_WAIT_SECONDS):
        return None
    if failure.kind is FailureKind.RATE_LIMIT:
        wait = rate_limit_wait(retry_after, progress.rate_limit_waits, random)
        waits, seconds = progress.rate_limit_waits + 1, progress.rate_limit_seconds + wait
        if waits <= MAX_RATE_LIMIT_WAITS and seconds <= MAX_RATE_LIMIT_SECONDS:
            return RetryTarget(
                wait, replace(progress, rate_limit_waits=waits, rate_limit_seconds=seconds)
            )
    if progress.attempts >= MAX_RETRIES:
        return None
    attempts = progress.attempts + 1
    wait = RETRY_BACKOFF.delay(attempts, random)
    if retry_after is not None:
        wait = max(wait, _requested_wait(retry_after, random))
    return RetryTarget(wait, replace(progress, attempts=attempts))


def rate_limit_wait(retry_after: float | None, waits: int, random: Random) -> float:
    """Return the shop's Retry-After plus up to 20 %; without a Retry-After, about 16, 32 or 64 s.
    `waits` counts the previous waits."""
    if retry_after is None:
        return RATE_LIMIT_BACKOFF.delay(waits + 1, random)
    return _requested_wait(retry_after, random)


def _requested_wait(retry_after: float, random: Random) -> float:
    return max(retry_after, MINIMUM_WAIT_SECONDS) * (1 + random.uniform(0, _RATE_LIMIT_JITTER))


def throttle_seconds(requested: float, available: float, restore_rate: float) -> float | None:
    if restore_rate <= 0:
        return None
    return max((requested - available) / restore_rate, MINIMUM_WAIT_SECONDS)


def is_overdue(began_at: datetime, now: datetime, rate_limit_seconds: float) -> bool:
    """Waits that the shop asked for do not count."""
    return now - began_at - timedelta(seconds=rate_limit_seconds) > TARGET_TIMEOUT


@dataclass(frozen=True)
class WorkTarget:
    """A variant whose price must be changed. A target with a `final_failure` will fail for that
    reason, unless one last read shows that one of its calls has written the price."""

    id: int
    product_id: str
    variant_id: str | None
    sku: str | None
    before: Price
    after: Price
    writes_compare_at: bool
    progress: AttemptProgress
    outcome_unknown: bool
    began_at: datetime
    final_failure: CallFailure | None = None


@dataclass(frozen=True)
class ApplyTerms:
    """How the rule handles drift, and the project's guardrails. `is_rollback`: the targets are
    reversed, from the applied price to the original price."""

    on_drift: OnDrift
    policy: Policy | None
    is_rollback: bool = False


@dataclass(frozen=True)
class AppliedResult:
    """`seen` is the price before the write. `was_found`: the shop already had the new price, and
    nothing was written."""

    target: WorkTarget
    seen: Price
    was_found: bool = False
    request_id: str | None = None
    duration_ms: int | None = None


@dataclass(frozen=True)
class RequeuedResult:
    """The target waits for its next call. Without a failure, no call was made for it."""

    target: WorkTarget
    wait_seconds: float
    progress: AttemptProgress
    failure: CallFailure | None = None
    outcome_unknown: bool = False
    final_failure: CallFailure | None = None

    @property
    def was_tried(self) -> bool:
        is_new = self.final_failure is not None and self.target.final_failure is None
        return self.failure is not None or is_new


@dataclass(frozen=True)
class FailedResult:
    target: WorkTarget
    failure: CallFailure
    progress: AttemptProgress
    seen: Price | None = None


TargetOutcome = AppliedResult | RequeuedResult | FailedResult


def decide_before_write(
    target: WorkTarget, seen: Price | None, used: Decimal, terms: ApplyTerms
) -> AppliedResult | FailedResult | None:
    """Return None if the price must be written. `seen` is the current price in the shop; `used` is
    the used part of the variant's daily budget."""
    if seen is None:
        return _failed(
            target, FailureKind.NOT_FOUND, "The variant, or its price, is not in the shop any more."
        )
    action = drift_action(
        seen,
        target.before,
        target.after,
        terms.on_drift,
        writes_compare_at=target.writes_compare_at,
    )
    if action is DriftAction.DONE:
        return AppliedResult(target, target.before, was_found=True)
    if target.final_failure is not None:
        return FailedResult(
            replace(target, outcome_unknown=False), target.final_failure, target.progress, seen
        )
    if action is DriftAction.REFUSE:
        return _drifted(target, seen, terms)
    return None if terms.policy is None else _blocked(target, seen, used, terms.policy)


def _drifted(target: WorkTarget, seen: Price, terms: ApplyTerms) -> FailedResult:
    how = "was applied: it was edited since" if terms.is_rollback else "was previewed"
    expected = price_text(target.before.unit_amount, target.before.currency)
    actual = price_text(seen.unit_amount, seen.currency)
    message = f"{PRICE_DRIFT}: the shop has {actual}, not {expected} as {how}."
    return FailedResult(
        target, classify_failure(FailureSignal(code=PRICE_DRIFT), message), target.progress, seen
    )


def _blocked(target: WorkTarget, seen: Price, used: Decimal, policy: Policy) -> FailedResult | None:
    failing = failing_guardrails(policy, target.sku, seen, target.after.unit_amount, used)
    if not failing:
        return None
    reason = f"The project's guardrails block it: {', '.join(map(check_text, failing))}."
    return _failed(target, FailureKind.VALIDATION, reason, seen)


def _failed(
    target: WorkTarget, kind: FailureKind, reason: str, seen: Price | None = None
) -> FailedResult:
    return FailedResult(target, CallFailure(kind, reason, retryable=False), target.progress, seen)


def decide_after_failed_call(
    target: WorkTarget, failure: CallFailure, random: Random
) -> RequeuedResult | FailedResult:
    """A target whose price may have been written fails only after the price was read again. A failed
    read says nothing about earlier writes."""
    final = target.final_failure
    if final is not None:
        if not failure.retryable:
            return FailedResult(target, replace(final, outcome_unknown=True), target.progress)
        wait = max(RETRY_BACKOFF.delay(1, random), failure.retry_after_seconds or 0.0)
        return RequeuedResult(target, wait, target.progress, failure, True, final)
    unknown = target.outcome_unknown or failure.outcome_unknown
    decided = decide_retry(failure, target.progress, random)
    if decided is not None:
        return RequeuedResult(target, decided.wait_seconds, decided.progress, failure, unknown)
    if unknown:
        # After a server error the call has ended. A call without an answer may still take effect.
        wait = 0.0 if failure.kind is FailureKind.SERVER else RETRY_BACKOFF.delay(1, random)
        return _read_once_more(target, failure, wait)
    return FailedResult(target, failure, target.progress)


def _read_once_more(
    target: WorkTarget, failure: CallFailure, wait_seconds: float
) -> RequeuedResult:
    return RequeuedResult(target, wait_seconds, target.progress, None, True, failure)


def requeue_unchanged(target: WorkTarget, wait_seconds: float = 0.0) -> RequeuedResult:
    return RequeuedResult(
        target, wait_seconds, target.progress, None, target.outcome_unknown, target.final_failure
    )


def fail_without_variant(target: WorkTarget) -> FailedResult:
    return _failed(target, FailureKind.NOT_FOUND, "It has no variant of the shop.")


def overdue_targets(
    targets: Sequence[WorkTarget], now: datetime
) -> list[RequeuedResult | FailedResult]:
    """Return the outcomes of targets that have taken too long. The last read of a price gets the full
    time limit again."""
    late = CallFailure(FailureKind.TIMEOUT, "It took longer than ten minutes.", retryable=False)
    return [
        _read_once_more(one, late, 0.0)
        if one.final_failure is None and one.outcome_unknown
        else FailedResult(one, one.final_failure or late, one.progress)
        for one in targets
        if is_overdue(one.began_at, now, one.progress.rate_limit_seconds)
    ]


def start_of_day(now: datetime, zone: str) -> datetime:
    its_zone = ZoneInfo(zone)
    midnight = wall_time(now, its_zone).replace(hour=0, minute=0, second=0, microsecond=0)
    return instant_of(midnight, its_zone, FIRST_PASS).astimezone(UTC)


# A manual retry can succeed without a change.
_INTERRUPTED = frozenset({FailureKind.TIMEOUT, FailureKind.CANCELLED})


def worth_retrying(kind: FailureKind, *, retryable: bool) -> bool:
    return retryable or kind in _INTERRUPTED


def targets_to_retry(
    run: PricingRunState,
    failed: Mapping[int, bool],
    chosen: Iterable[int] | None = None,
    *,
    force: bool = False,
) -> list[int]:
    """`failed` maps each failed target to whether it is retryable. `force` includes targets that are
    not, because an operator has removed the cause."""
    if not RULE_RUN.can_move(run, PricingRunState.APPLYING) or run is PricingRunState.QUEUED:
        raise IllegalMoveError(
            RULE_RUN.name, run, PricingRunState.APPLYING, f"A run that is {run} cannot be retried."
        )
    wanted = list(failed) if chosen is None else list(dict.fromkeys(chosen))
    unknown = [id_ for id_ in wanted if id_ not in failed]
    permanent = [id_ for id_ in wanted if not force and failed.get(id_) is False]
    faults = [("targetIds", f"{id_} is not a failed target of the run") for id_ in unknown]
    if chosen is not None:
        faults += [
            ("targetIds", f"{id_} would fail again: fix its cause, then use force")
            for id_ in permanent
        ]
    if faults:
        raise InvalidInputError("These targets cannot be retried.", tuple(faults))
    left = [id_ for id_ in wanted if id_ not in permanent]
    if not left:
        raise ConflictError(
            "No failed target of the run is retryable: fix the cause, then use force."
        )
    return left


def targets_to_roll_back(
    run: PricingRunState, applied: Collection[int], chosen: Iterable[int] | None = None
) -> list[int]:
    if not RULE_RUN.can_move(run, PricingRunState.ROLLED_BACK):
        to, reason = PricingRunState.ROLLED_BACK, f"A run that is {run} cannot be rolled back."
        raise IllegalMoveError(RULE_RUN.name, run, to, reason)
    wanted = list(applied) if chosen is None else list(dict.fromkeys(chosen))
    faults = tuple(
        ("targetIds", f"{id_} is not an applied target of the run")
        for id_ in wanted
        if id_ not in applied
    )
    if faults:
        raise InvalidInputError("Only applied targets can be rolled back.", faults)
    return wanted


def after_rollback(
    run: PricingRunState, states: Collection[TargetState]
) -> tuple[PricingRunState, RollbackState]:
    """A run is ROLLED_BACK when none of its targets is applied. Until then, another rollback is
    possible."""
    if TargetState.APPLIED not in states:
        return RULE_RUN.move(run, PricingRunState.ROLLED_BACK), RollbackState.DONE
    is_partial = TargetState.ROLLED_BACK in states
    return run, RollbackState.PARTIAL if is_partial else RollbackState.NONE


def reversed_target(target: WorkTarget) -> WorkTarget:
    """Return the target of a rollback, which restores the original price."""
    return replace(target, before=target.after, after=target.before)
