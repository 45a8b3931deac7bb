"""When a rule starts by itself, and when what it has applied is taken back."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.domain.failures import FailureKind

# A price that was edited since, or is gone, stays; whatever else stands in the way of its end may pass.
LASTING = frozenset({FailureKind.CONFLICT, FailureKind.NOT_FOUND})
END_AGAIN_AFTER = timedelta(minutes=10)


class PromotionOverError(ConflictError):
    """What would be applied now would only be taken back."""


class Due(StrEnum):
    START = "start"
    END = "end"
    # The whole promotion passed during an outage: starting it now would only be to take it back.
    MISSED = "missed"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`schedule_at` is cleared once it is queued; `is_applied`: a run of the rule stands APPLIED or PARTIAL."""

    enabled: bool
    schedule_at: datetime | None
    ends_at: datetime | None
    is_applied: bool


def due(plan: Plan, now: datetime) -> Due | None:
    """A promotion ends even if its rule was disabled meanwhile: its prices would stay for ever."""
    is_over = plan.ends_at is not None and plan.ends_at <= now
    if plan.is_applied and is_over:
        return Due.END
    if plan.schedule_at is None or plan.schedule_at > now or not plan.enabled:
        return None
    return Due.MISSED if is_over else Due.START
