"""What is done with a fiche after its details are here, in keys that make every repetition the same act."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from automation_pipeline.automation.domain.outcomes import LedgerMove, failed
from automation_pipeline.automation.domain.run import FicheStage, OutcomeStatus, Reason

NOT_TRANSCRIBED = "Transcription incomplete (timeout/stall)"
NO_CONFIG = "No audit configs resolved"
NOT_AUDITED = "Audit incomplete (timeout/stall)"


def retry_suffix(attempt: int) -> str:
    return f"-retry-{attempt}" if attempt else ""


def transcription_key(run_id: int, fiche_id: str, attempt: int) -> str:
    return f"automation-{run_id}-transcribe-{fiche_id}{retry_suffix(attempt)}"


def audit_key(run_id: int, fiche_id: str, config_id: int, attempt: int) -> str:
    return f"automation-{run_id}-audit-{fiche_id}-{config_id}{retry_suffix(attempt)}"


@dataclass(frozen=True)
class AuditEnd:
    """How the audit by one configuration ended. `completed` is None when it did not end at all."""

    config_id: int
    completed: bool | None
    error: str | None = None


def after_transcription(fiche_id: str, cause: str | None) -> LedgerMove:
    """For a fiche that still lacks transcripts when nothing more is tried."""
    return failed(
        fiche_id, Reason.TRANSCRIPTION_INCOMPLETE, f"{NOT_TRANSCRIBED}: {cause}" if cause else NOT_TRANSCRIBED
    )


def after_audits(fiche_id: str, ends: Sequence[AuditEnd]) -> LedgerMove:
    """A failed audit says why; one that did not end says that; otherwise the fiche is done."""
    ended = sum(end.completed is not None for end in ends)
    failures = [end for end in ends if end.completed is False]
    if failures:
        error = next((end.error for end in failures if end.error), None)
        words = error or f"Audit failed ({len(failures)}/{len(ends)} config(s))"
        return replace(failed(fiche_id, Reason.AUDIT_FAILED, words), audits=ended)
    if ended < len(ends):
        cause = next((end.error for end in ends if end.completed is None and end.error), None)
        words = f"{NOT_AUDITED}: {cause}" if cause else NOT_AUDITED
        return replace(failed(fiche_id, Reason.AUDIT_INCOMPLETE, words), audits=ended)
    return LedgerMove(fiche_id, OutcomeStatus.SUCCESSFUL, stage=FicheStage.FETCHED, audits=ended)
