"""What is done with a fiche after its details are here, in keys that make every repetition the same act."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from automation_pipeline.automation.domain.outcomes import LedgerMove, failed
from automation_pipeline.automation.domain.run import FicheStage, OutcomeStatus, Reason

INCOMPLETE_TRANSCRIPTION, INCOMPLETE_AUDIT = "Transcription incomplete", "Audit incomplete"
TIMED_OUT = " (timeout/stall)"
NO_CONFIG = "No audit configs resolved"


def retry_suffix(attempt: int) -> str:
    return f"-retry-{attempt}" if attempt else ""


def transcription_key(run_id: int, fiche_id: str, attempt: int) -> str:
    return f"automation-{run_id}-transcribe-{fiche_id}{retry_suffix(attempt)}"


def audit_key(run_id: int, fiche_id: str, config_id: int, attempt: int) -> str:
    return f"automation-{run_id}-audit-{fiche_id}-{config_id}{retry_suffix(attempt)}"


@dataclass(frozen=True)
class AuditEnd:
    """How the audit by one configuration ended. `completed` is None when it has neither a grade nor failed: it did not
    end in time, or something of it could not be judged."""

    config_id: int
    completed: bool | None
    error: str | None = None
    timed_out: bool = False


def after_transcription(fiche_id: str, cause: str | None, *, timed_out: bool) -> LedgerMove:
    """For a fiche that still lacks transcripts when nothing more is tried."""
    words = incomplete(INCOMPLETE_TRANSCRIPTION, cause, timed_out=timed_out)
    return failed(fiche_id, Reason.TRANSCRIPTION_INCOMPLETE, words)


def incomplete(what: str, cause: str | None, *, timed_out: bool) -> str:
    """The text says timeout/stall only where the time was over, or nothing else is known."""
    start = what + TIMED_OUT if timed_out or not cause else what
    return f"{start}: {cause}" if cause else start


def after_audits(fiche_id: str, ends: Sequence[AuditEnd]) -> LedgerMove:
    """A failed audit says why; one without a grade says what is missing; otherwise the fiche is done."""
    ended = sum(end.completed is not None for end in ends)
    failures = [end for end in ends if end.completed is False]
    if failures:
        error = next((end.error for end in failures if end.error), None)
        words = error or f"Audit failed ({len(failures)}/{len(ends)} config(s))"
        return replace(failed(fiche_id, Reason.AUDIT_FAILED, words), audits=ended)
    if ended < len(ends):
        cause = next((end.error for end in ends if end.completed is None and end.error), None)
        cause = cause and cause.removeprefix(f"{INCOMPLETE_AUDIT}: ")
        words = incomplete(INCOMPLETE_AUDIT, cause, timed_out=any(end.timed_out for end in ends))
        return replace(failed(fiche_id, Reason.AUDIT_INCOMPLETE, words), audits=ended)
    return LedgerMove(fiche_id, OutcomeStatus.SUCCESSFUL, stage=FicheStage.FETCHED, audits=ended)
