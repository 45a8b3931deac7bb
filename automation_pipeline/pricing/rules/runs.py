"""Decisions about runs and targets: staleness, approval, promotions, drift, retries, rollback."""

from collections.abc import Iterable, Sequence
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
from automation_pipeline.pricing.models.rules import OnDrift, Policy
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
from automation_pipeline.pricing.rules.evaluation import GuardrailCheck, check_guardrails

PREVIEW_LIFETIME = timedelta(minutes=15)


class StaleReason(StrEnum):
    RULE_CHANGED = "rule_changed"
    TOO_OLD = "too_old"

    @property
    def why(self) -> str:
        return _STALE_TEXTS[self]


_STALE_TEXTS = {
    StaleReason.RULE_CHANGED: "The rule was changed after the preview: preview it again.",
    StaleReason.TOO_OLD: f"The preview is older than {PREVIEW_LIFETIME.seconds // 60} minutes: preview the rule again.",
}


def stale_reason(
    previewed_hash: str, rule_hash: str, previewed_at: datetime, now: datetime
) -> StaleReason | None:
    """Prices that have drifted are found and refused one by one, before each write."""
    if previewed_hash != rule_hash:
        return StaleReason.RULE_CHANGED
    return StaleReason.TOO_OLD if now - previewed_at > PREVIEW_LIFETIME else None


def approval_fault(
    *, auto_apply: bool, created_by: str, written_by: str | None, approved_by: str | None
) -> str | None:
    """Why a run may not be applied yet: unless the project applies by itself, a second person says
    yes, who neither made the run nor wrote the version of the rule that it is of."""
    if auto_apply:
        return None
    if approved_by is None:
        return "The run must be approved first."
    if approved_by == created_by:
        return "The run must be approved by somebody else than its creator."
    return (
        "The run must be approved by somebody else than the author of its rule."
        if approved_by == written_by
        else None
    )


def rests_until(
    last_applied_at: datetime | None, cooldown_minutes: int, now: datetime
) -> datetime | None:
    """When the rule may be applied again; None: now."""
    if last_applied_at is None:
        return None
    until = last_applied_at + timedelta(minutes=cooldown_minutes)
    return until if now < until else None


# A price that was edited since, or is gone, stays; whatever else stands in the way of its end may
# pass.
LASTING_FAILURES = frozenset({FailureKind.CONFLICT, FailureKind.NOT_FOUND})
END_AGAIN_AFTER = timedelta(minutes=10)


class PromotionOverError(ConflictError):
    """What would be applied now would only be taken back."""


class DueAction(StrEnum):
    START = "start"
    END = "end"
    # The whole promotion passed during an outage: starting it now would only be to take it back.
    MISSED = "missed"


@dataclass(frozen=True, kw_only=True)
class PromotionPlan:
    """`schedule_at` is cleared once it is queued; `is_applied`: a run of the rule stands APPLIED or
    PARTIAL."""

    enabled: bool
    schedule_at: datetime | None
    ends_at: datetime | None
    is_applied: bool


def due_action(plan: PromotionPlan, now: datetime) -> DueAction | None:
    """A promotion ends even if its rule was disabled meanwhile: its prices would stay for ever."""
    is_over = plan.ends_at is not None and plan.ends_at <= now
    if plan.is_applied and is_over:
        return DueAction.END
    if plan.schedule_at is None or plan.schedule_at > now or not plan.enabled:
        return None
    return DueAction.MISSED if is_over else DueAction.START


MAX_NAMED_RULES = 10


@dataclass(frozen=True, kw_only=True)
class DuePriceRules:
    """Runs that were `started`, and those of which the promotion has `ended`, newest first, to be
    rolled back. Rules whose promotion was `missed`, that are `put_off` because a run of theirs is
    not over, or that were run `before` for the same time."""

    started: tuple[int, ...] = ()
    missed: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    put_off: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    def __str__(self) -> str:
        said = (
            ("Started {}.", "run", self.started),
            ("The promotion of {} is over: to be rolled back.", "run", self.ended),
            ("Not started, for the promotion is over already: {}.", "rule", self.missed),
            ("Put off until the run at work is over: {}.", "rule", self.put_off),
            ("Not started again for the same time: {}.", "rule", self.before),
        )
        return (
            " ".join(words.format(_named_rules(noun, ids)) for words, noun, ids in said if ids)
            or "No rule is due."
        )


def _named_rules(noun: str, ids: Sequence[int]) -> str:
    names = ", ".join(str(one) for one in ids[:MAX_NAMED_RULES])
    more = f" and {len(ids) - MAX_NAMED_RULES} more" if len(ids) > MAX_NAMED_RULES else ""
    return f"{noun if len(ids) == 1 else noun + 's'} {names}{more}"


class DriftAction(StrEnum):
    """DONE: the shop has the price already, from a call whose answer was lost or by another
    hand."""

    WRITE = "write"
    DONE = "done"
    REFUSE = "refuse"


def before_write(
    observed: Price, before: Price, after: Price, on_drift: OnDrift, *, writes_compare_at: bool
) -> DriftAction:
    """A price in another currency is never overwritten: nobody approved it."""
    if observed.stands_as(after, with_compare_at=writes_compare_at):
        return DriftAction.DONE
    if observed.stands_as(before, with_compare_at=writes_compare_at):
        return DriftAction.WRITE
    is_allowed = on_drift is OnDrift.OVERWRITE and observed.currency == before.currency
    return DriftAction.WRITE if is_allowed else DriftAction.REFUSE


def before_rollback(
    observed: Price, before: Price, after: Price, *, writes_compare_at: bool, force: bool
) -> DriftAction:
    """What was edited since it was applied stays as it is, unless somebody insists."""
    if observed.stands_as(before, with_compare_at=writes_compare_at):
        return DriftAction.DONE
    if observed.stands_as(after, with_compare_at=writes_compare_at):
        return DriftAction.WRITE
    return (
        DriftAction.WRITE if force and observed.currency == before.currency else DriftAction.REFUSE
    )


MAX_RETRIES = 3
MAX_RATE_LIMIT_WAITS = 10
MAX_RATE_LIMIT_SECONDS = 15 * 60.0
# A shop that asks for more than a day is not coming back to this run.
MAX_WAIT_SECONDS = 24 * 60 * 60.0
TARGET_TIMEOUT = timedelta(minutes=10)

RETRY_BACKOFF = Backoff(base_seconds=2, cap_seconds=64, multiplier=2, jitter=0.2)
RATE_LIMIT_BACKOFF = Backoff(base_seconds=16, cap_seconds=64, multiplier=2, jitter=0.2)
# On top of what the shop told, so that all who wait do not come back in one moment.
_MOST_ON_TOP = 0.2


@dataclass(frozen=True)
class AttemptProgress:
    """How far a target has come in its present cycle. `attempts` counts retries: the call under way
    is one more."""

    attempts: int = 0
    rate_limit_waits: int = 0
    rate_limit_seconds: float = 0.0


@dataclass(frozen=True)
class RetryTarget:
    """The target goes back to QUEUED. `pauses_shop`: every other target of the shop waits as
    long."""

    wait_seconds: float
    progress: AttemptProgress
    pauses_shop: bool = False


@dataclass(frozen=True)
class GiveUpTarget:
    """The target becomes FAILED, a dead letter."""

    failure: CallFailure
    progress: AttemptProgress


def decide_retry(
    failure: CallFailure, progress: AttemptProgress, random: Random
) -> RetryTarget | GiveUpTarget:
    told = failure.retry_after_seconds
    if not failure.retryable or (told is not None and told > MAX_WAIT_SECONDS):
        return GiveUpTarget(failure, progress)
    if failure.kind is not FailureKind.RATE_LIMIT:
        return _spending_an_attempt(failure, progress, random)
    wait = rate_limit_wait(told, progress.rate_limit_waits, random)
    waited = progress.rate_limit_seconds + wait
    if progress.rate_limit_waits >= MAX_RATE_LIMIT_WAITS or waited > MAX_RATE_LIMIT_SECONDS:
        return _spending_an_attempt(failure, progress, random)
    counted = replace(
        progress, rate_limit_waits=progress.rate_limit_waits + 1, rate_limit_seconds=waited
    )
    return RetryTarget(wait, counted, pauses_shop=True)


def _spending_an_attempt(
    failure: CallFailure, progress: AttemptProgress, random: Random
) -> RetryTarget | GiveUpTarget:
    if progress.attempts >= MAX_RETRIES:
        return GiveUpTarget(failure, progress)
    attempts = progress.attempts + 1
    wait = RETRY_BACKOFF.delay(attempts, random)
    if failure.retry_after_seconds is not None:
        wait = max(wait, rate_limit_wait(failure.retry_after_seconds, 0, random))
    return RetryTarget(
        wait,
        replace(progress, attempts=attempts),
        pauses_shop=failure.kind is FailureKind.RATE_LIMIT,
    )


def rate_limit_wait(told: float | None, waits: int, random: Random) -> float:
    """Never less than the shop told, up to a fifth more; untold 16, 32, 64 s. `waits` counts those
    already made."""
    if told is None:
        return RATE_LIMIT_BACKOFF.delay(waits + 1, random)
    return max(told, MINIMUM_WAIT_SECONDS) * (1 + random.uniform(0, _MOST_ON_TOP))


def throttle_seconds(requested: float, available: float, restore_rate: float) -> float | None:
    """Until a bucket of points holds what a query asks for; None when the bucket does not say how
    fast it fills."""
    if restore_rate <= 0:
        return None
    return max((requested - available) / restore_rate, MINIMUM_WAIT_SECONDS)


def reads_first(progress: AttemptProgress, *, outcome_unknown: bool) -> bool:
    """Whether the price in the shop is read before it is written: an earlier call may have written
    it."""
    return outcome_unknown or progress.attempts > 0


def is_overdue(began_at: datetime, now: datetime, waited_for_shop: timedelta) -> bool:
    """Whether a target has taken too long in its present cycle, the waits that the shop asked for
    left out."""
    return now - began_at - waited_for_shop > TARGET_TIMEOUT


@dataclass(frozen=True)
class WorkTarget:
    """A variant whose price is to be changed, and how far that has come in the present cycle. One
    with a `doom` is given up for that, but for a last look whether one of its calls has written the
    price after all."""

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
    doom: CallFailure | None = None


@dataclass(frozen=True)
class ApplyTerms:
    """What a run is worked under: its rule's word on drift, and its project's guardrails, if it has
    any. One that `takes_back` has its targets turned round: they go back from `before`, which was
    applied, to `after`."""

    on_drift: OnDrift
    policy: Policy | None
    takes_back: bool = False


@dataclass(frozen=True)
class AppliedResult:
    """The shop has the price. `seen` is what it had before; `was_found`: nothing was written
    now."""

    target: WorkTarget
    seen: Price
    was_found: bool = False
    request_id: str | None = None
    duration_ms: int | None = None


@dataclass(frozen=True)
class RequeuedResult:
    """It waits for another call; with a `doom`, for one that only looks. Without a failure nothing
    was tried, and nothing is counted."""

    target: WorkTarget
    wait_seconds: float
    progress: AttemptProgress
    failure: CallFailure | None = None
    outcome_unknown: bool = False
    doom: CallFailure | None = None

    @property
    def was_tried(self) -> bool:
        return self.failure is not None or (self.doom is not None and self.target.doom is None)


@dataclass(frozen=True)
class FailedResult:
    """A dead letter."""

    target: WorkTarget
    failure: CallFailure
    progress: AttemptProgress
    seen: Price | None = None


TargetOutcome = AppliedResult | RequeuedResult | FailedResult


def decide_before_write(
    target: WorkTarget, seen: Price | None, used: Decimal, terms: ApplyTerms
) -> AppliedResult | FailedResult | None:
    """None: it is to be written. `seen` is its price in the shop now, `used` what of its daily
    budget is spent."""
    if seen is None:
        words = "The variant, or its price, is not in the shop any more."
        return _failed(target, FailureKind.NOT_FOUND, words)
    step = _drift_action(target, seen, terms)
    if step is DriftAction.DONE:
        return AppliedResult(target, target.before, was_found=True)
    if target.doom is not None:
        return FailedResult(
            replace(target, outcome_unknown=False), target.doom, target.progress, seen
        )
    if step is DriftAction.REFUSE:
        return _drifted(target, seen, terms)
    return _blocked(target, seen, used, terms.policy)


def decide_after_failed_call(
    target: WorkTarget, failure: CallFailure, random: Random
) -> RequeuedResult | FailedResult:
    """A call that only reads leaves what is known of earlier writes as it was. What may have been
    written is not given up before somebody has looked."""
    unknown = target.outcome_unknown or failure.outcome_unknown
    if target.doom is not None:
        return _after_failed_look(target, target.doom, failure, random)
    decided = decide_retry(failure, target.progress, random)
    if isinstance(decided, RetryTarget):
        return RequeuedResult(target, decided.wait_seconds, decided.progress, failure, unknown)
    if unknown:
        # After an error of its own the shop has done with the call; a call whose answer was lost
        # may be on its way.
        wait = 0.0 if failure.kind is FailureKind.SERVER else RETRY_BACKOFF.delay(1, random)
        return _doomed(target, decided.failure, decided.progress, wait)
    return FailedResult(target, decided.failure, decided.progress)


def requeue_unchanged(target: WorkTarget, wait_seconds: float = 0.0) -> RequeuedResult:
    return RequeuedResult(
        target, wait_seconds, target.progress, None, target.outcome_unknown, target.doom
    )


def fail_without_variant(target: WorkTarget) -> FailedResult:
    return _failed(target, FailureKind.NOT_FOUND, "It names no variant of the shop.")


def overdue_targets(
    targets: Sequence[WorkTarget], now: datetime
) -> list[RequeuedResult | FailedResult]:
    """Those that have taken too long. The last look has as much time again."""
    late = CallFailure(FailureKind.TIMEOUT, "It took longer than ten minutes.", retryable=False)
    return [
        _too_late(target, late)
        for target in targets
        if is_overdue(target.began_at, now, timedelta(seconds=target.progress.rate_limit_seconds))
    ]


def start_of_day(now: datetime, zone: str) -> datetime:
    """The instant at which the present day of the zone began."""
    its_zone = ZoneInfo(zone)
    midnight = wall_time(now, its_zone).replace(hour=0, minute=0, second=0, microsecond=0)
    return instant_of(midnight, its_zone, FIRST_PASS).astimezone(UTC)


def _too_late(target: WorkTarget, late: CallFailure) -> RequeuedResult | FailedResult:
    if target.doom is None and target.outcome_unknown:
        return _doomed(target, late, target.progress, 0.0)
    return FailedResult(target, target.doom or late, target.progress)


def _doomed(
    target: WorkTarget, doom: CallFailure, progress: AttemptProgress, wait_seconds: float
) -> RequeuedResult:
    return RequeuedResult(target, wait_seconds, progress, outcome_unknown=True, doom=doom)


def _after_failed_look(
    target: WorkTarget, doom: CallFailure, failure: CallFailure, random: Random
) -> RequeuedResult | FailedResult:
    if not failure.retryable:
        return FailedResult(target, replace(doom, outcome_unknown=True), target.progress)
    wait = max(RETRY_BACKOFF.delay(1, random), failure.retry_after_seconds or 0.0)
    return RequeuedResult(target, wait, target.progress, failure, outcome_unknown=True, doom=doom)


def _drift_action(target: WorkTarget, seen: Price, terms: ApplyTerms) -> DriftAction:
    with_compare_at = target.writes_compare_at
    if not terms.takes_back:
        return before_write(
            seen, target.before, target.after, terms.on_drift, writes_compare_at=with_compare_at
        )
    is_forced = terms.on_drift is OnDrift.OVERWRITE
    return before_rollback(
        seen, target.after, target.before, writes_compare_at=with_compare_at, force=is_forced
    )


def _drifted(target: WorkTarget, seen: Price, terms: ApplyTerms) -> FailedResult:
    how = "was applied: somebody has edited it since" if terms.takes_back else "was previewed"
    words = (
        f"{PRICE_DRIFT}: the shop has {price_text(seen.unit_amount, seen.currency)}, "
        f"not {price_text(target.before.unit_amount, target.before.currency)} as {how}."
    )
    return FailedResult(
        target, classify_failure(FailureSignal(code=PRICE_DRIFT), words), target.progress, seen
    )


def _blocked(
    target: WorkTarget, seen: Price, used: Decimal, policy: Policy | None
) -> FailedResult | None:
    if policy is None:
        return None
    failing = check_guardrails(policy, target.sku, seen, target.after.unit_amount, used).failing
    if not failing:
        return None
    words = (
        f"The project's guardrails block it: {', '.join(_check_text(check) for check in failing)}."
    )
    return FailedResult(
        target, CallFailure(FailureKind.VALIDATION, words, retryable=False), target.progress, seen
    )


def _check_text(check: GuardrailCheck) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in check.facts.items())
    return f"{check.name} ({facts})"


def _failed(target: WorkTarget, kind: FailureKind, words: str) -> FailedResult:
    return FailedResult(target, CallFailure(kind, words, retryable=False), target.progress)


@dataclass(frozen=True)
class AppliedTarget:
    id: str
    status: TargetState
    applied_at: datetime | None


@dataclass(frozen=True)
class AfterRollback:
    status: PricingRunState
    rollback_state: RollbackState


def targets_to_roll_back(
    run: PricingRunState, targets: Sequence[AppliedTarget], chosen: Iterable[str] | None = None
) -> list[str]:
    """The applied ones, or those chosen of them, the last applied first. Failed ones are left as
    they are."""
    if not RULE_RUN.can_move(run, PricingRunState.ROLLED_BACK):
        raise IllegalMoveError(
            RULE_RUN.name,
            run,
            PricingRunState.ROLLED_BACK,
            f"A run that is {run} cannot be rolled back.",
        )
    applied = {target.id: target for target in targets if target.status is TargetState.APPLIED}
    wanted = list(applied) if chosen is None else list(dict.fromkeys(chosen))
    strangers = [target_id for target_id in wanted if target_id not in applied]
    if strangers:
        faults = tuple(
            ("targetIds", f"{target_id} is not an applied target of the run")
            for target_id in strangers
        )
        raise InvalidInputError("Only applied targets can be rolled back.", faults)
    return sorted(wanted, key=lambda target_id: _order(applied[target_id]), reverse=True)


def after_rollback(run: PricingRunState, targets: Iterable[TargetState]) -> AfterRollback:
    """A run is rolled back only when nothing of it is applied any more; until then it may be tried
    again."""
    states = set(targets)
    if TargetState.APPLIED in states:
        taken_back = TargetState.ROLLED_BACK in states
        return AfterRollback(run, RollbackState.PARTIAL if taken_back else RollbackState.NONE)
    return AfterRollback(RULE_RUN.move(run, PricingRunState.ROLLED_BACK), RollbackState.DONE)


def reversed_target(target: WorkTarget) -> WorkTarget:
    """To take a price back is to apply the former one on top of the present one."""
    return replace(target, before=target.after, after=target.before)


def _order(target: AppliedTarget) -> tuple[float, str]:
    return (target.applied_at.timestamp() if target.applied_at else 0.0, target.id)
