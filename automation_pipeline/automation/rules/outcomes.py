"""The result of each step for a fiche, as the move of its row in the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from automation_pipeline.automation.models.runs import FicheStage, LedgerMove, OutcomeStatus, Reason
from automation_pipeline.fiches.models.fiches import (
    DetailsFetched,
    DetailsKnown,
    FetchFailed,
    FetchOutcome,
    FicheNotFound,
)

NOT_FOUND_REASON = "Fiche not found (404)"


def failed_move(fiche_id: str, reason: Reason, error: str) -> LedgerMove:
    return LedgerMove(
        fiche_id, OutcomeStatus.FAILED, error=error, reason=reason, stage=FicheStage.FETCHED
    )


def ignored_move(
    fiche_id: str, reason: Reason, message: str, recordings: int | None = None
) -> LedgerMove:
    return LedgerMove(
        fiche_id,
        OutcomeStatus.IGNORED,
        ignore_reason=message,
        recordings_count=recordings,
        reason=reason,
    )


def move_after_fetch(outcome: FetchOutcome) -> LedgerMove:
    """A fiche with fetched details continues; `filters` decides later whether it is ignored."""
    match outcome:
        case DetailsFetched(fiche_id, details):
            return _fetched(fiche_id, len(details.recordings))
        case DetailsKnown(fiche_id, recordings):
            return _fetched(fiche_id, recordings)
        case FicheNotFound(fiche_id):
            return ignored_move(fiche_id, Reason.NOT_FOUND, NOT_FOUND_REASON)
        case FetchFailed(fiche_id, error):
            return LedgerMove(
                fiche_id, OutcomeStatus.FAILED, error=error, reason=Reason.FETCH_FAILED
            )


def _fetched(fiche_id: str, recordings: int) -> LedgerMove:
    return LedgerMove(
        fiche_id, OutcomeStatus.PENDING, recordings_count=recordings, stage=FicheStage.FETCHED
    )


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
class ConfigAuditResult:
    """The result of the audit by one configuration. `completed` is None if the audit has neither a
    grade nor a failure: it did not end in time, or a step could not be judged."""

    config_id: int
    completed: bool | None
    error: str | None = None
    timed_out: bool = False


def move_after_transcription(fiche_id: str, cause: str | None, *, timed_out: bool) -> LedgerMove:
    """The move of a fiche that still lacks transcripts after the last retry."""
    message = incomplete_error(INCOMPLETE_TRANSCRIPTION, cause, timed_out=timed_out)
    return failed_move(fiche_id, Reason.TRANSCRIPTION_INCOMPLETE, message)


def incomplete_error(what: str, cause: str | None, *, timed_out: bool) -> str:
    """The text names timeout/stall only if the time ran out or no other cause is known."""
    start = what + TIMED_OUT if timed_out or not cause else what
    return f"{start}: {cause}" if cause else start


def move_after_audits(fiche_id: str, ends: Sequence[ConfigAuditResult]) -> LedgerMove:
    """Failed with the error of a failed audit, or with what is missing if an audit has no grade;
    otherwise successful."""
    ended = sum(end.completed is not None for end in ends)
    failures = [end for end in ends if end.completed is False]
    if failures:
        error = next((end.error for end in failures if end.error), None)
        message = error or f"Audit failed ({len(failures)}/{len(ends)} config(s))"
        return replace(failed_move(fiche_id, Reason.AUDIT_FAILED, message), audits=ended)
    if ended < len(ends):
        cause = next((end.error for end in ends if end.completed is None and end.error), None)
        cause = cause and cause.removeprefix(f"{INCOMPLETE_AUDIT}: ")
        message = incomplete_error(
            INCOMPLETE_AUDIT, cause, timed_out=any(end.timed_out for end in ends)
        )
        return replace(failed_move(fiche_id, Reason.AUDIT_INCOMPLETE, message), audits=ended)
    return LedgerMove(fiche_id, OutcomeStatus.SUCCESSFUL, stage=FicheStage.FETCHED, audits=ended)
