"""An audit as a thing that is asked for, runs and ends."""

from dataclasses import dataclass
from enum import StrEnum


class AuditStatus(StrEnum):
    """`completed`: every step was judged on every recording that can be heard. `incomplete`: a step could not be judged
    or a recording has no transcript, which says nothing about the calls: the next attempt finishes it. `failed`: there
    is nothing to judge, or the work on it ended."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


ENDED = frozenset({AuditStatus.COMPLETED, AuditStatus.INCOMPLETE, AuditStatus.FAILED})
FINAL = frozenset({AuditStatus.COMPLETED, AuditStatus.FAILED})


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
    """How an audit stands. Only a completed one has a score; `niveau` is PENDING until then. `done` steps are judged,
    `failed` ones could not be. `error` is why it failed or is incomplete."""

    audit_id: int
    tracking_id: str
    fiche_id: str
    audit_config_id: int
    status: AuditStatus
    niveau: str
    score_percentage: float | None
    steps: int
    done: int
    failed: int
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """No attempt is under way."""
        return self.status in ENDED

    @property
    def is_final(self) -> bool:
        """Another attempt changes nothing."""
        return self.status in FINAL
