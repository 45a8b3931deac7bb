"""How a run went, as people and other systems read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.pricing.domain.failures import FailureKind
from automation_pipeline.pricing.domain.states import RunState, TargetState


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
    status: RunState
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


def run_result(run_id: str, status: RunState, times: RunTimes, results: Sequence[TargetResult]) -> RunResult:
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
    """The applied share; None where nothing was tried. Skipped and cancelled targets are not counted in."""
    return Decimal(applied) / (applied + failed) if applied + failed else None


def counts_for_success(status: TargetState, error_type: FailureKind | None) -> bool:
    """Whether a target is part of the success rate."""
    if status is TargetState.FAILED:
        return error_type is not FailureKind.CANCELLED
    return status is TargetState.APPLIED


def _milliseconds(frm: datetime | None, to: datetime | None) -> int | None:
    return None if frm is None or to is None else round((to - frm).total_seconds() * 1000)
