"""What each stage makes of one fiche, as the row that it leaves in the ledger."""

from dataclasses import dataclass

from automation_pipeline.automation.domain.run import OutcomeStatus
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
    fiche_id: str
    status: OutcomeStatus
    error: str | None = None
    ignore_reason: str | None = None
    recordings_count: int | None = None


def after_fetch(outcome: FetchOutcome) -> LedgerMove:
    match outcome:
        case DetailsFetched(fiche_id, details):
            return LedgerMove(fiche_id, OutcomeStatus.SUCCESSFUL, recordings_count=len(details.recordings))
        case DetailsKnown(fiche_id, recordings):
            return LedgerMove(fiche_id, OutcomeStatus.SUCCESSFUL, recordings_count=recordings)
        case FicheNotFound(fiche_id):
            return LedgerMove(fiche_id, OutcomeStatus.IGNORED, ignore_reason=NOT_FOUND_REASON)
        case FetchFailed(fiche_id, error):
            return LedgerMove(fiche_id, OutcomeStatus.FAILED, error=error)
