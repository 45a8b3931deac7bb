"""What the CRM's answer makes of a fiche: it goes on, is ignored or has failed."""

from datetime import UTC, datetime

from automation_pipeline.automation.models.runs import FicheStage, LedgerMove, OutcomeStatus, Reason
from automation_pipeline.automation.rules.fiches import failed_move, ignored_move, move_after_fetch
from automation_pipeline.fiches.models.fiches import (
    DetailsFetched,
    DetailsKnown,
    FetchFailed,
    FetchOutcome,
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
        (
            FetchFailed("7", "The CRM answered 503", transient=True),
            LedgerMove(
                "7", OutcomeStatus.FAILED, error="The CRM answered 503", reason=Reason.FETCH_FAILED
            ),
        ),
    ],
)
def test_the_fetch_outcome_decides_the_next_move(outcome: FetchOutcome, move: LedgerMove) -> None:
    assert move_after_fetch(outcome) == move


def test_an_ignored_fiche_has_its_reason_in_ignore_reason() -> None:
    assert failed_move("7", Reason.NO_AUDIT_CONFIG, "why").error == "why"
    assert failed_move("7", Reason.NO_AUDIT_CONFIG, "why").ignore_reason is None
    left_out = ignored_move("7", Reason.TOO_MANY_RECORDINGS, "why", 9)
    assert (left_out.error, left_out.ignore_reason, left_out.recordings_count) == (None, "why", 9)
