"""Runs of pricing rules: states, targets, results, price changes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from pydantic import AliasChoices, Field

from automation_pipeline.core.errors import ConflictError, PermanentError, TransientError
from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.core.state_machine import StateMachine
from automation_pipeline.pricing.models.shop import FailureKind, PriceDocument


class PricingRunState(StrEnum):
    PREVIEW = "PREVIEW"
    QUEUED = "QUEUED"
    APPLYING = "APPLYING"
    APPLIED = "APPLIED"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    ROLLED_BACK = "ROLLED_BACK"


class TargetState(StrEnum):
    PREVIEW = "PREVIEW"
    QUEUED = "QUEUED"
    APPLYING = "APPLYING"
    APPLIED = "APPLIED"
    FAILED = "FAILED"
    ROLLED_BACK = "ROLLED_BACK"


class RollbackState(StrEnum):
    NONE = "NONE"
    PARTIAL = "PARTIAL"
    DONE = "DONE"


class RunError(StrEnum):
    """Why a run is FAILED."""

    CRITICAL = "CRITICAL"
    ALL_TARGETS_FAILED = "ALL_TARGETS_FAILED"


class LostRunClaimError(PermanentError):
    """Another process works on the run: this worker must not store its results."""


class PricingRunBusyError(TransientError):
    """Another process holds the claim on the run."""


class RuleBusyError(ConflictError):
    """Another run of the rule is active or waits for a retry."""


FIRST_RUN_STATE = PricingRunState.PREVIEW
FIRST_TARGET_STATE = TargetState.PREVIEW

RULE_RUN = StateMachine(
    name="rule run",
    moves={
        PricingRunState.PREVIEW: frozenset({PricingRunState.QUEUED}),
        PricingRunState.QUEUED: frozenset({PricingRunState.APPLYING}),
        PricingRunState.APPLYING: frozenset(
            {PricingRunState.APPLIED, PricingRunState.PARTIAL, PricingRunState.FAILED}
        ),
        PricingRunState.APPLIED: frozenset({PricingRunState.ROLLED_BACK}),
        # A request for a retry only sets the run's `wish`; the worker makes the move to APPLYING.
        PricingRunState.PARTIAL: frozenset({PricingRunState.APPLYING, PricingRunState.ROLLED_BACK}),
        PricingRunState.FAILED: frozenset({PricingRunState.APPLYING}),
        PricingRunState.ROLLED_BACK: frozenset(),
    },
)

# A queued target that fails without a call (cancelled, no variant id, shop closed) passes through
# APPLYING too.
RULE_TARGET = StateMachine(
    name="rule target",
    moves={
        TargetState.PREVIEW: frozenset({TargetState.QUEUED}),
        TargetState.QUEUED: frozenset({TargetState.APPLYING}),
        TargetState.APPLYING: frozenset(
            {TargetState.APPLIED, TargetState.QUEUED, TargetState.FAILED}
        ),
        TargetState.FAILED: frozenset({TargetState.QUEUED}),
        TargetState.APPLIED: frozenset({TargetState.ROLLED_BACK}),
        TargetState.ROLLED_BACK: frozenset(),
    },
)

# The states of targets whose prices are in the shop.
LIVE_RUN_STATES = frozenset({PricingRunState.APPLIED, PricingRunState.PARTIAL})
ACTIVE_RUN_STATES = frozenset({PricingRunState.QUEUED, PricingRunState.APPLYING})
ENDED_RUN_STATES = frozenset(
    {
        PricingRunState.APPLIED,
        PricingRunState.PARTIAL,
        PricingRunState.FAILED,
        PricingRunState.ROLLED_BACK,
    }
)
# The first check must end within five minutes. It is due two minutes earlier, because a sensor must
# request it and Dagster must start a run.
FIRST_CHECKS = (("5m", timedelta(minutes=3)), ("1h", timedelta(hours=1)))
OPEN_TARGET_STATES = frozenset({TargetState.QUEUED, TargetState.APPLYING})


def final_run_state(targets: Iterable[TargetState]) -> PricingRunState | None:
    """The state in which an applied run ends, or None while a target is open. A run without targets
    ends APPLIED."""
    states = set(targets)
    if states & OPEN_TARGET_STATES:
        return None
    if TargetState.FAILED not in states:
        return PricingRunState.APPLIED
    return PricingRunState.PARTIAL if TargetState.APPLIED in states else PricingRunState.FAILED


def run_error(state: PricingRunState, *, was_critical: bool) -> RunError | None:
    if state is not PricingRunState.FAILED:
        return None
    return RunError.CRITICAL if was_critical else RunError.ALL_TARGETS_FAILED


class RuleTrigger(StrEnum):
    """What created the run. REPAIR restores the prices that a reconciliation found changed."""

    API = "api"
    CLI = "cli"
    LAUNCHPAD = "launchpad"
    SCHEDULE = "schedule"
    REPAIR = "repair"


class RunAction(StrEnum):
    """What a worker is asked to do. APPLY: plan the run, if it is not planned yet, and queue it."""

    APPLY = "apply"
    RETRY = "retry"
    ROLLBACK = "rollback"


class TargetCounts(JsonModel):
    """The number of targets in each state. `cancelled` targets are failed too."""

    preview: int = 0
    queued: int = 0
    applying: int = 0
    applied: int = 0
    failed: int = 0
    rolled_back: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, state.lower()) for state in TargetState)

    @property
    def states(self) -> set[TargetState]:
        return {state for state in TargetState if getattr(self, state.lower())}

    @property
    def succeeded(self) -> int:
        """A target that is rolled back was applied before."""
        return self.applied + self.rolled_back

    @property
    def not_cancelled(self) -> int:
        return self.failed - self.cancelled

    @property
    def success_rate(self) -> float | None:
        rate = success_rate(self.succeeded, self.not_cancelled)
        return None if rate is None else round(float(rate), 4)


class RuleRun(JsonModel):
    """`previewed_at` is when the run was planned. `success_rate` is between 0 and 1, without
    cancelled targets."""

    id: Id
    project_id: str
    rule_id: Id
    rule_name: str
    rule_version: int
    rule_version_hash: str
    shop: str
    status: PricingRunState
    trigger: RuleTrigger
    wish: RunAction | None
    parent_run_id: Id | None
    scheduled_for: Instant | None
    previewed_at: Instant | None
    queued_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    resume_at: Instant | None
    retry_cycle: int
    created_by: str
    approved_by: str | None
    approved_at: Instant | None
    cancel_requested_at: Instant | None
    rollback_state: RollbackState
    matched: int
    total_targets: int
    skipped: int
    blocked: int
    targets: TargetCounts
    success_rate: float | None
    error_type: RunError | None
    error_message: str | None
    explain: dict[str, Any] | None  # Any: JSON
    created_at: Instant
    updated_at: Instant

    @property
    def queue_ms(self) -> int | None:
        return _milliseconds(self.queued_at, self.started_at)

    @property
    def apply_ms(self) -> int | None:
        return _milliseconds(self.started_at, self.finished_at)


class RuleTarget(JsonModel):
    """Prices are in minor units. `error_retryable`: another attempt may succeed although nothing is
    changed."""

    id: Id
    rule_run_id: Id
    product_id: str
    variant_id: str | None
    sku_id: str | None
    title: str | None
    before: PriceDocument = Field(validation_alias=AliasChoices("before", "before_json"))
    after: PriceDocument = Field(validation_alias=AliasChoices("after", "after_json"))
    writes_compare_at: bool
    trace: dict[str, Any] | None = Field(validation_alias=AliasChoices("trace", "trace_json"))
    warnings: tuple[str, ...]
    status: TargetState
    attempts: int
    rate_limit_waits: int
    last_attempt: Instant | None
    next_attempt_at: Instant | None
    applied_at: Instant | None
    rolled_back_at: Instant | None
    error_message: str | None
    error_type: FailureKind | None
    error_retryable: bool | None
    acknowledged_at: Instant | None
    external_request_id: str | None
    observed_price: PriceDocument | None


class SkippedVariant(JsonModel):
    """`why` is a sentence; `checks` are the failed checks of the guardrails, for a blocked
    variant."""

    product_id: str
    variant_id: str
    sku_id: str | None
    title: str | None
    reason: str
    why: str
    checks: tuple[dict[str, Any], ...] = ()  # Any: JSON
    current_amount: int | None
    proposed_amount: int | None
    currency: str


BLOCKED = "blocked"


@dataclass(frozen=True, kw_only=True)
class RuleRunFilter:
    project_id: str | None = None
    rule_id: int | None = None
    status: PricingRunState | None = None
    trigger: RuleTrigger | None = None


class LoggedMove(JsonModel):
    """A state change. `machine` says whether a run or a target changed; `entity_id` is its id."""

    id: Id
    machine: str
    entity_id: str
    from_state: str
    to_state: str
    actor: str
    reason: str | None
    at: Instant


class TargetResult(JsonModel):
    """Durations are milliseconds."""

    target_id: str
    success: bool
    external_id: str | None = None
    applied_price: int | None = None
    error: str | None = None
    duration: int


class RunResult(JsonModel):
    run_id: str
    status: PricingRunState
    total_targets: int
    applied_targets: int
    failed_targets: int
    duration: int | None
    success_rate: float | None
    results: tuple[TargetResult, ...]


def success_rate(applied: int, failed: int) -> Decimal | None:
    """The applied share, or None if no target was tried. Skipped and cancelled targets do not count."""
    return Decimal(applied) / (applied + failed) if applied + failed else None


def _milliseconds(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else round((end - start).total_seconds() * 1000)


APPLY_MS, QUEUE_MS = "rules_apply_duration_ms", "rules_queue_ms"
