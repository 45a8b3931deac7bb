"""A run over one fiche's recordings: its plan, its standing, and how people read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from automation_pipeline.core.state_machine import StateMachine


def is_transcribed(has_transcription: bool, transcribed_at: datetime | None, renew_before: datetime | None) -> bool:
    """Whether the recording's transcript counts for a run that makes those from before an instant again."""
    if not has_transcription or renew_before is None:
        return has_transcription
    return transcribed_at is not None and transcribed_at >= renew_before


class Priority(StrEnum):
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


# Among waiting recordings the lowest urgency goes first.
URGENCY: Mapping[Priority, int] = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}


NO_URL = "No recording URL available"


class RunStatus(StrEnum):
    """`completed`: everything was attempted, some may have failed. `failed`: it could not be attempted."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class TaskState(StrEnum):
    WAITING = "waiting"
    WORKING = "working"
    DONE = "done"
    CACHED = "cached"
    FAILED = "failed"


ENDED = (TaskState.DONE, TaskState.CACHED, TaskState.FAILED)

TASK_MACHINE = StateMachine(
    "transcription task",
    {
        TaskState.WAITING: frozenset({TaskState.WORKING, TaskState.FAILED}),
        TaskState.WORKING: frozenset({TaskState.WAITING, TaskState.DONE, TaskState.CACHED, TaskState.FAILED}),
        TaskState.DONE: frozenset(),
        TaskState.CACHED: frozenset(),
        TaskState.FAILED: frozenset(),
    },
)


@dataclass(frozen=True)
class PlannedRecording:
    recording_id: int
    call_id: str
    url: str


@dataclass(frozen=True)
class Plan:
    """What a fiche needs: `targets` in the order of the calls, the blank URLs among them to fail one by one."""

    total: int
    already_transcribed: int
    targets: tuple[PlannedRecording, ...]
    renew_before: datetime | None = None


@dataclass(frozen=True)
class Standing:
    """Counters of a run. They are about this run; what the fiche has by now is asked of its recordings. `error`: it
    could not be attempted."""

    run_id: str
    fiche_id: str
    status: RunStatus
    total: int
    already_transcribed: int
    target_total: int
    processed: int = 0
    cached: int = 0
    failed: int = 0
    error: str | None = None

    @property
    def transcribed(self) -> int:
        return min(self.total, self.already_transcribed + self.processed - self.failed)

    @property
    def new(self) -> int:
        return self.processed - self.cached - self.failed

    @property
    def percentage(self) -> int:
        return round(100 * self.transcribed / self.total) if self.total else 100

    @property
    def is_planned(self) -> bool:
        """A run is recorded before its fiche is fetched. A plan without targets completes its run at once, so a running
        run without targets has no plan yet."""
        return self.status is not RunStatus.RUNNING or self.target_total > 0

    @property
    def is_over(self) -> bool:
        return self.processed >= self.target_total


def why_incomplete(run: Standing, failed: Sequence[tuple[str, str]]) -> str | None:
    """Why a run that is over did less than it could, given its failed recordings and their reasons. None: every
    recording that has audio is transcribed. One without audio is reported, but another attempt cannot help it."""
    if run.error is not None:
        return run.error
    causes = [reason for _, reason in failed if reason != NO_URL]
    if not causes:
        return None
    number = f"{len(causes)} of {run.total} recordings of fiche {run.fiche_id} could not be transcribed"
    return f"{number}: {causes[0]}"
