"""Runs of pricing rules: states, targets, results, filters."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, overload

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
        # Only the worker makes these two moves to APPLYING: asking for a retry leaves a note on the
        # run.
        PricingRunState.PARTIAL: frozenset({PricingRunState.APPLYING, PricingRunState.ROLLED_BACK}),
        PricingRunState.FAILED: frozenset({PricingRunState.APPLYING}),
        PricingRunState.ROLLED_BACK: frozenset(),
    },
)

# A queued target that is given up without a call (cancelled, no variant id, shop closed) goes
# through APPLYING too.
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

ACTIVE_RUN_STATES = frozenset({PricingRunState.QUEUED, PricingRunState.APPLYING})
ENDED_RUN_STATES = frozenset(
    {
        PricingRunState.APPLIED,
        PricingRunState.PARTIAL,
        PricingRunState.FAILED,
        PricingRunState.ROLLED_BACK,
    }
)
OPEN_TARGET_STATES = frozenset({TargetState.QUEUED, TargetState.APPLYING})


def final_run_state(targets: Iterable[TargetState]) -> PricingRunState | None:
    """How a run that is being applied ends; None while a target is open. Without targets there is
    nothing to fail."""
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
    """What made the run. REPAIR restores what a reconciliation found changed."""

    API = "api"
    CLI = "cli"
    LAUNCHPAD = "launchpad"
    SCHEDULE = "schedule"
    REPAIR = "repair"


class RunAction(StrEnum):
    """What somebody wants done with a run as soon as a worker is at it. APPLY: plan it, if it is
    not, and queue it."""

    APPLY = "apply"
    RETRY = "retry"
    ROLLBACK = "rollback"


class TargetCounts(JsonModel):
    """How many targets stand where. `cancelled` are failed too."""

    preview: int = 0
    queued: int = 0
    applying: int = 0
    applied: int = 0
    failed: int = 0
    rolled_back: int = 0
    cancelled: int = 0


class RuleRun(JsonModel):
    """`previewed_at` is when its targets were written: None while the run is only asked for.
    `success_rate` is between 0 and 1, cancelled targets left out."""

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


class RuleTarget(JsonModel):
    """Prices are in minor units. `error_retryable` says whether another try can help as things
    are."""

    id: Id
    rule_run_id: Id
    product_id: str
    variant_id: str | None
    sku_id: str | None
    title: str | None
    before: PriceDocument
    after: PriceDocument
    writes_compare_at: bool
    trace: dict[str, Any] | None  # Any: JSON
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
    """`why` is a sentence; `checks` are the guardrails that failed, when the project's policy
    blocked it."""

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
    """A field that is None lets every run through."""

    project_id: str | None = None
    rule_id: int | None = None
    status: PricingRunState | None = None
    trigger: RuleTrigger | None = None


class LoggedMove(JsonModel):
    """`machine` says whether the run moved or one of its targets, of which `entity_id` is the
    id."""

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


@dataclass(frozen=True)
class RunTimes:
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def queue_ms(self) -> int | None:
        return _milliseconds(self.queued_at, self.started_at)

    @property
    def apply_ms(self) -> int | None:
        return _milliseconds(self.started_at, self.finished_at)


def run_result(
    run_id: str, status: PricingRunState, times: RunTimes, results: Sequence[TargetResult]
) -> RunResult:
    """How a run went, as people and other systems read it."""
    applied = sum(1 for result in results if result.success)
    rate = success_rate(applied, len(results) - applied)
    return RunResult(
        run_id=run_id,
        status=status,
        total_targets=len(results),
        applied_targets=applied,
        failed_targets=len(results) - applied,
        duration=times.apply_ms,
        success_rate=None if rate is None else round(float(rate), 4),
        results=tuple(results),
    )


def success_rate(applied: int, failed: int) -> Decimal | None:
    """The applied share; None where nothing was tried. Skipped and cancelled targets are not
    counted in."""
    return Decimal(applied) / (applied + failed) if applied + failed else None


def counts_for_success(status: TargetState, error_type: FailureKind | None) -> bool:
    """Whether a target is part of the success rate."""
    if status is TargetState.FAILED:
        return error_type is not FailureKind.CANCELLED
    return status is TargetState.APPLIED


def _milliseconds(frm: datetime | None, to: datetime | None) -> int | None:
    return None if frm is None or to is None else round((to - frm).total_seconds() * 1000)


APPLY_MS, QUEUE_MS = "rules_apply_duration_ms", "rules_queue_ms"


@dataclass(frozen=True)
class RetriedRuns(Sequence[int]):
    """The runs that try again; `skipped` says by run why it does not."""

    runs: tuple[int, ...]
    skipped: Mapping[int, str]

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[int]:
        return iter(self.runs)
