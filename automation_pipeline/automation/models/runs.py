"""Runs: status, phases, ledger moves and outcomes of fiches, log entries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from automation_pipeline.core.json_model import Id, Instant, JsonModel
from automation_pipeline.core.state_machine import StateMachine

# The Dagster job that works on runs.
AUTOMATION_JOB = "automation_run"


class RunStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"


RUN_MACHINE = StateMachine(
    "automation run",
    {
        RunStatus.PENDING: frozenset({RunStatus.RUNNING, RunStatus.FAILED, RunStatus.CANCELLED}),
        RunStatus.RUNNING: frozenset(
            {RunStatus.COMPLETED, RunStatus.PARTIAL, RunStatus.FAILED, RunStatus.CANCELLED}
        ),
        RunStatus.COMPLETED: frozenset(),
        RunStatus.PARTIAL: frozenset(),
        RunStatus.FAILED: frozenset(),
        RunStatus.CANCELLED: frozenset(),
    },
)

# A schedule has its own status names for its last run.
SCHEDULE_STATUS = {
    RunStatus.COMPLETED: "success",
    RunStatus.PARTIAL: "partial",
    RunStatus.FAILED: "failed",
    RunStatus.CANCELLED: "cancelled",
}


class Phase(StrEnum):
    SELECTION = "selection"
    FETCHING = "fetching"
    TRANSCRIBING = "transcribing"
    AUDITING = "auditing"
    FINALIZING = "finalizing"


class OutcomeStatus(StrEnum):
    PENDING = "pending"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    IGNORED = "ignored"


@dataclass(frozen=True)
class RunFilter:
    """Which runs a list contains: of any schedule and status unless a field restricts it. Fields
    have the names of the query parameters."""

    schedule_id: int | None = None
    status: Sequence[RunStatus] = ()


class FicheStage(StrEnum):
    """The stage of a pending fiche: selected, or fetched and past the filters."""

    SELECTED = "selected"
    FETCHED = "fetched"


class Reason(StrEnum):
    """Why a fiche was ignored or failed. Texts may change, these keys do not."""

    NOT_FOUND = "not_found"
    GROUPE_NOT_SELECTED = "groupe_not_selected"
    MISSING_GROUPE = "missing_groupe"
    TOO_MANY_RECORDINGS = "too_many_recordings"
    NO_RECORDINGS = "no_recordings"
    FETCH_FAILED = "fetch_failed"
    FETCH_INCOMPLETE = "fetch_incomplete"
    TRANSCRIPTION_INCOMPLETE = "transcription_incomplete"
    NO_AUDIT_CONFIG = "no_audit_config"
    AUDIT_FAILED = "audit_failed"
    AUDIT_INCOMPLETE = "audit_incomplete"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


# The line in the run's log for each reason to ignore a fiche after its details are fetched.
IGNORED_MESSAGES = {
    Reason.NOT_FOUND: "Ignoring NOT_FOUND fiches (404)",
    Reason.GROUPE_NOT_SELECTED: "Ignoring fiches outside selected groupes",
    Reason.MISSING_GROUPE: "Ignoring fiches without groupe",
    Reason.TOO_MANY_RECORDINGS: "Ignoring fiches with too many recordings",
    Reason.NO_RECORDINGS: "onlyWithRecordings=true: ignoring fiches without recordings",
}


class Trigger(StrEnum):
    """The origin of a run."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    LAUNCHPAD = "launchpad"
    RETRY = "retry"
    BACKFILL = "backfill"


@dataclass(frozen=True)
class RunAttempt:
    """The right to work on a run. A newer attempt invalidates older tickets."""

    run_id: int
    attempt: int


@dataclass(frozen=True)
class LedgerTally:
    """The counts of the run's ledger by outcome."""

    selected: int
    pending: int = 0
    successful: int = 0
    failed: int = 0
    ignored: int = 0

    @property
    def is_whole(self) -> bool:
        """Every selected fiche has ended exactly once."""
        return self.pending == 0 and self.selected == self.successful + self.failed + self.ignored

    @property
    def total(self) -> int:
        """The selected fiches without the ignored ones."""
        return self.successful + self.failed


def run_status(tally: LedgerTally) -> RunStatus:
    if tally.failed == 0:
        return RunStatus.COMPLETED
    return RunStatus.PARTIAL if tally.successful else RunStatus.FAILED


# The number of consecutive losses without progress after which a run is closed.
MAX_FRUITLESS_ATTEMPTS = 3


def _without_stack(details: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A stack trace is only for developers with access to the database."""
    return details and {name: value for name, value in details.items() if name != "stack"}


class Run(JsonModel):
    """A run as the API and the command line show it. `started_at` and `queued_at` are when it was
    requested, `began_at` is when work started; `duration_ms` counts from `began_at`."""

    id: Id
    schedule_id: Id
    status: RunStatus
    phase: Phase | None
    trigger: Trigger
    due_at: Instant | None
    attempt: int
    dagster_run_id: str | None
    started_at: Instant
    queued_at: Instant | None = None
    began_at: Instant | None = None
    completed_at: Instant | None
    duration_ms: int | None
    selected_fiches: int
    total_fiches: int
    successful_fiches: int
    failed_fiches: int
    ignored_fiches: int
    transcriptions_run: int
    audits_run: int
    error_message: str | None
    error_details: Annotated[
        Mapping[str, Any] | None,  # Any: JSON
        AfterValidator(_without_stack),
    ] = None
    selection_summary: Mapping[str, Any] | None = None
    retry_of_run_id: Id | None = None


def failed_days(run: Run) -> list[Mapping[str, Any]]:
    """The days of the selection whose sales list could not be read, with the error of each."""
    return (run.selection_summary or {}).get("revalidation_failures") or []


def unread_days_error(run: Run) -> str | None:
    """The error of a run for which the CRM returned none of its days. Such a run fails although it
    processes the mirrored fiches."""
    days, failures = (run.selection_summary or {}).get("dates"), failed_days(run)
    if not days or len(failures) < len(days):
        return None
    first = failures[0]
    return f"None of the {len(days)} days could be read: {first['date']}: {first['error']}"


class FicheOutcome(JsonModel):
    """The status of one fiche of a run, with the reason."""

    fiche_id: str
    status: OutcomeStatus
    error: str | None
    ignore_reason: str | None
    recordings_count: int | None
    reason: Reason | None = None


@dataclass(frozen=True, kw_only=True)
class ReportedFiche:
    """The outcome of a fiche in a report. `why` explains the key `reason` as text."""

    fiche_id: str
    groupe: str | None
    status: OutcomeStatus
    reason: str | None
    why: str | None
    recordings: int | None


def reported_fiche(outcome: FicheOutcome, groupe: str | None) -> ReportedFiche:
    return ReportedFiche(
        fiche_id=outcome.fiche_id,
        groupe=groupe,
        status=outcome.status,
        reason=outcome.reason,
        why=outcome.error or outcome.ignore_reason,
        recordings=outcome.recordings_count,
    )


class FicheFailure(NamedTuple):
    fiche_id: str
    reason: str
    error: str


@dataclass(frozen=True)
class ReasonCount:
    """How many fiches of a run ended with this status for this reason."""

    status: OutcomeStatus
    reason: str
    fiches: int


@dataclass(frozen=True)
class LedgerMove:
    """A move to `pending` keeps the fiche unfinished, at its new `stage`. Without a recording
    count, the known count stays."""

    fiche_id: str
    status: OutcomeStatus
    error: str | None = None
    ignore_reason: str | None = None
    recordings_count: int | None = None
    reason: Reason | None = None
    stage: FicheStage = FicheStage.SELECTED
    audits: int = 0


@dataclass(frozen=True)
class PhaseEntry:
    phase: Phase
    entered_at: datetime


@dataclass(frozen=True)
class PhaseLength:
    phase: Phase
    seconds: float


def phase_lengths(entries: Sequence[PhaseEntry], until: datetime) -> list[PhaseLength]:
    """In the order of entry; phases entered at the same moment follow the order of `Phase`."""
    order = list(Phase)
    entered = sorted(entries, key=lambda entry: (entry.entered_at, order.index(entry.phase)))
    ends = [*(after.entered_at for _, after in pairwise(entered)), until]
    return [
        PhaseLength(entry.phase, max((end - entry.entered_at).total_seconds(), 0.0))
        for entry, end in zip(entered, ends, strict=False)
    ]


class LogEntry(JsonModel):
    id: Id
    timestamp: Instant
    level: str
    message: str
    metadata: Mapping[str, Any]  # Any: JSON


class RunNotification(JsonModel):
    """One message to one receiver, with its delivery status."""

    channel: str
    target: str
    status: str
    attempts: int
    status_code: int | None
    last_error: str | None
    sent_at: Instant | None


# The default of AUTOMATION_LOST_AFTER_SECONDS, for callers without settings.
LOST_AFTER_SECONDS = 25.0
