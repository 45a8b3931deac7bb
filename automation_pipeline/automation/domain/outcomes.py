"""What each stage makes of one fiche, as the move of its row in the ledger. People and scripts know the words."""

from dataclasses import dataclass

from automation_pipeline.automation.domain.run import FicheStage, OutcomeStatus, Reason
from automation_pipeline.fiches.domain.fiche import (
    DetailsFetched,
    DetailsKnown,
    FetchFailed,
    FetchOutcome,
    FicheNotFound,
)

NOT_FOUND_REASON = "Fiche not found (404)"


@dataclass(frozen=True)
class LedgerMove:
    """A move to `pending` leaves the fiche at work, at its new `stage`. Without a count the known one stays."""

    fiche_id: str
    status: OutcomeStatus
    error: str | None = None
    ignore_reason: str | None = None
    recordings_count: int | None = None
    reason: Reason | None = None
    stage: FicheStage = FicheStage.SELECTED
    audits: int = 0


def failed(fiche_id: str, reason: Reason, error: str) -> LedgerMove:
    return LedgerMove(fiche_id, OutcomeStatus.FAILED, error=error, reason=reason, stage=FicheStage.FETCHED)


def ignored(fiche_id: str, reason: Reason, words: str, recordings: int | None = None) -> LedgerMove:
    return LedgerMove(fiche_id, OutcomeStatus.IGNORED, ignore_reason=words, recordings_count=recordings, reason=reason)


def after_fetch(outcome: FetchOutcome) -> LedgerMove:
    """A fiche whose details are here goes on; whether it passes the filters is decided by `filters`."""
    match outcome:
        case DetailsFetched(fiche_id, details):
            return _fetched(fiche_id, len(details.recordings))
        case DetailsKnown(fiche_id, recordings):
            return _fetched(fiche_id, recordings)
        case FicheNotFound(fiche_id):
            return ignored(fiche_id, Reason.NOT_FOUND, NOT_FOUND_REASON)
        case FetchFailed(fiche_id, error):
            return LedgerMove(fiche_id, OutcomeStatus.FAILED, error=error, reason=Reason.FETCH_FAILED)


def _fetched(fiche_id: str, recordings: int) -> LedgerMove:
    return LedgerMove(fiche_id, OutcomeStatus.PENDING, recordings_count=recordings, stage=FicheStage.FETCHED)
