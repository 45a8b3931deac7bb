"""An audit as a thing that is asked for, runs and ends."""

from dataclasses import dataclass
from enum import StrEnum


class AuditStatus(StrEnum):
    """`completed`: every step was judged or has failed for itself. `failed`: nothing could be judged."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


ENDED = frozenset({AuditStatus.COMPLETED, AuditStatus.FAILED})


@dataclass(frozen=True, kw_only=True)
class Wish:
    """An audit asked for. Repeating a wish goes on with the audit that it began, or finds it ended."""

    tracking_id: str
    fiche_id: str
    audit_config_id: int
    use_rlm: bool = False
    trigger_source: str | None = None
    user_id: str | None = None
    schedule_id: int | None = None
    run_id: int | None = None
    dagster_run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How an audit stands. `niveau` is PENDING until it has one; `error` is why it failed."""

    audit_id: int
    tracking_id: str
    fiche_id: str
    audit_config_id: int
    status: AuditStatus
    niveau: str
    score_percentage: float
    steps: int
    done: int
    failed: int
    error: str | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ENDED
