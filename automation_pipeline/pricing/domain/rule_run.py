"""A run of a rule and its targets, as they are stored and shown."""

from enum import StrEnum
from typing import Any

from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.pricing.domain.failures import FailureKind
from automation_pipeline.pricing.domain.money import PriceDocument
from automation_pipeline.pricing.domain.states import RollbackState, RunError, RunState, TargetState


class RuleTrigger(StrEnum):
    """What made the run. REPAIR restores what a reconciliation found changed."""

    API = "api"
    CLI = "cli"
    LAUNCHPAD = "launchpad"
    SCHEDULE = "schedule"
    REPAIR = "repair"


class Wish(StrEnum):
    """What somebody wants done with a run as soon as a worker is at it. APPLY: plan it, if it is not, and queue it."""

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
    """`previewed_at` is when its targets were written: None while the run is only asked for. `success_rate` is
    between 0 and 1, cancelled targets left out."""

    id: Id
    project_id: str
    rule_id: Id
    rule_name: str
    rule_version: int
    rule_version_hash: str
    shop: str
    status: RunState
    trigger: RuleTrigger
    wish: Wish | None
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
    """Prices are in minor units. `error_retryable` says whether another try can help as things are."""

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
    """`why` is a sentence; `checks` are the guardrails that failed, when the project's policy blocked it."""

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
