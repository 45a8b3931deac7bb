"""The ledger move after a fetch: the fiche continues or is ignored."""

from datetime import UTC, datetime

from automation_pipeline.automation.models.runs import FicheStage, LedgerMove, OutcomeStatus, Reason
from automation_pipeline.automation.models.schedules import FicheSelection, SelectionMode
from automation_pipeline.automation.rules.fiches import failed_move, ignored_move, move_after_fetch
from automation_pipeline.fiches.models.fiches import (
    DetailsFetched,
    DetailsKnown,
    FicheNotFound,
)
from automation_pipeline_tests.fakes.crm import fiche, recording
from automation_pipeline_tests.tables import every_case

AT = datetime(2026, 5, 4, tzinfo=UTC)


@every_case(
    ("outcome", "move"),
    [
        (
            DetailsFetched("7", fiche("7", recording("a"), recording("b")), AT),
            LedgerMove("7", OutcomeStatus.PENDING, recordings_count=2, stage=FicheStage.FETCHED),
        ),
        (
            DetailsKnown("7", 0),
            LedgerMove("7", OutcomeStatus.PENDING, recordings_count=0, stage=FicheStage.FETCHED),
        ),
        (FicheNotFound("7"), ignored_move("7", Reason.NOT_FOUND, "Fiche not found (404)")),
    ],
)
def test_the_fetch_outcome_decides_the_next_move(
    outcome: DetailsFetched | DetailsKnown | FicheNotFound, move: LedgerMove
) -> None:
    everything = FicheSelection(mode=SelectionMode.MANUAL)
    assert move_after_fetch(outcome, None, everything, 0) == move


def test_an_ignored_fiche_has_its_reason_in_ignore_reason() -> None:
    assert failed_move("7", Reason.NO_AUDIT_CONFIG, "why").error == "why"
    assert failed_move("7", Reason.NO_AUDIT_CONFIG, "why").ignore_reason is None
    left_out = ignored_move("7", Reason.TOO_MANY_RECORDINGS, "why", 9)
    assert (left_out.error, left_out.ignore_reason, left_out.recordings_count) == (None, "why", 9)
