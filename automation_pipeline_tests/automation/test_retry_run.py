"""Running again what failed: those fiches and no others, with the same selection, as a request of its
own."""

from datetime import timedelta

import pytest
from sqlalchemy import func
from sqlalchemy import select as query

from automation_pipeline.automation.models.runs import LedgerMove, OutcomeStatus, Run, RunAttempt
from automation_pipeline.automation.models.schedules import FicheSelection, SelectionMode
from automation_pipeline.automation.queries.ledger import open_ledger, record_moves
from automation_pipeline.automation.queries.runs import selection_of
from automation_pipeline.automation.runs import finalise_run, open_run, request_run, retry_run
from automation_pipeline.automation.tables import RunRow, ScheduleRow
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import offer_waiting
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule, an_opening

WISHES: dict[str, object] = {
    "mode": "manual",
    "ficheIds": ["1", "2", "3", "4"],
    "groupes": ["Nord"],
    "useRlm": True,
    "onlyWithRecordings": True,
    "onlyUnaudited": True,
    "maxRecordingsPerFiche": 4,
    "maxFiches": 4,
}
PARTIAL = ("failed", "successful", "ignored", "failed")


def at_work(database: Database, clock: StandingClock, statuses: tuple[str, ...]) -> RunAttempt:
    schedule = a_schedule(database, clock, ficheSelection=WISHES)
    ticket = open_run(an_opening(schedule.id), database=database, clock=clock)
    select(ticket.run_id, ["1", "2", "3", "4"], database, clock)
    moves = [
        LedgerMove(str(number), OutcomeStatus(status))
        for number, status in enumerate(statuses, start=1)
    ]
    with database.transaction() as session:
        record_moves(session, ticket.run_id, moves, clock.now())
    return ticket


def select(run_id: int, fiche_ids: list[str], database: Database, clock: StandingClock) -> None:
    with database.transaction() as session:
        open_ledger(session, run_id, fiche_ids, len(fiche_ids), clock.now())
        row = session.get_one(RunRow, run_id)
        row.selected_at, row.selected_fiches = clock.now(), len(fiche_ids)


def ended(database: Database, clock: StandingClock, statuses: tuple[str, ...] = PARTIAL) -> Run:
    ticket = at_work(database, clock, statuses)
    return finalise_run(ticket.run_id, database=database, clock=clock, attempt=ticket.attempt)


def test_a_retry_selects_only_failed_fiches_and_keeps_the_other_filters(
    database: Database, clock: StandingClock
) -> None:
    run = retry_run(ended(database, clock).id, database=database, clock=clock)
    with database.reading() as session:
        selection = selection_of(session, session.get_one(RunRow, run.id))
    assert selection == FicheSelection.model_validate(
        {
            "mode": "manual",
            "ficheIds": ["1", "4"],
            "groupes": ["Nord"],
            "useRlm": True,
            "onlyWithRecordings": True,
            "maxRecordingsPerFiche": 4,
        }
    )


def test_the_new_run_has_its_own_request(database: Database, clock: StandingClock) -> None:
    earlier = ended(database, clock)
    run = retry_run(earlier.id, database=database, clock=clock)
    with database.transaction() as session:
        [request] = offer_waiting(session, limit=10)
    assert (run.status, run.trigger, run.retry_of_run_id) == ("pending", "retry", earlier.id)
    assert request.key == f"automation-run-{run.id}"
    assert request.config == {"schedule_id": earlier.schedule_id, "run_id": run.id}
    assert request.tags["automation/trigger"] == "retry"


def test_a_failed_retry_can_be_retried(database: Database, clock: StandingClock) -> None:
    second = retry_run(ended(database, clock).id, database=database, clock=clock)
    open_run(
        an_opening(second.schedule_id, "dagster-2", run_id=second.id),
        database=database,
        clock=clock,
    )
    select(second.id, ["1", "4"], database, clock)
    with database.transaction() as session:
        moves = [LedgerMove("1", OutcomeStatus.SUCCESSFUL), LedgerMove("4", OutcomeStatus.FAILED)]
        record_moves(session, second.id, moves, clock.now())
    finalise_run(second.id, database=database, clock=clock)
    third = retry_run(second.id, database=database, clock=clock)
    with database.reading() as session:
        assert selection_of(session, session.get_one(RunRow, third.id)).fiche_ids == ("4",)


@pytest.mark.parametrize(
    "statuses", [("successful", "ignored", "successful", "ignored"), ("ignored",) * 4]
)
def test_a_run_without_failures_has_nothing_to_retry(
    statuses: tuple[str, ...], database: Database, clock: StandingClock
) -> None:
    run = ended(database, clock, statuses)
    with pytest.raises(ConflictError, match=r"^Run 1 has nothing to retry: no fiche failed$"):
        retry_run(run.id, database=database, clock=clock)
    assert _runs(database) == 1


def test_a_run_that_failed_before_it_selected_anything_is_repeated_whole(
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(
        database, clock, ficheSelection={"mode": "date_range", "dateRange": "yesterday"}
    )
    due_at, override = clock.now(), FicheSelection(mode=SelectionMode.MANUAL, fiche_ids=("8",))
    for given in ({"due_at": due_at}, {"override": override}, {}):
        first = request_run(schedule.id, database=database, clock=clock, **given)  # type: ignore[arg-type]
        finalise_run(
            first.id, database=database, clock=clock, breakdown="FICHE_API_BASE_URL is not set"
        )
        clock.pass_time(timedelta(days=1))
        run = retry_run(first.id, database=database, clock=clock)
        with database.reading() as session:
            row = session.get_one(RunRow, run.id)
            assert selection_of(session, row) == given.get("override", schedule.fiche_selection)
        assert (run.due_at, run.retry_of_run_id) == (
            given.get("due_at", first.started_at),
            first.id,
        )
        finalise_run(run.id, database=database, clock=clock, breakdown="over")


def test_a_run_at_work_is_not_retried(database: Database, clock: StandingClock) -> None:
    ticket = at_work(database, clock, ("failed",))
    with pytest.raises(ConflictError, match="Run 1 is still running"):
        retry_run(ticket.run_id, database=database, clock=clock)
    assert _runs(database) == 1


def test_a_paused_schedule_is_not_run_again(database: Database, clock: StandingClock) -> None:
    run = ended(database, clock)
    with database.transaction() as session:
        session.get_one(ScheduleRow, run.schedule_id).is_active = False
    with pytest.raises(ConflictError, match="is not active"):
        retry_run(run.id, database=database, clock=clock)
    assert _runs(database) == 1


def test_an_unknown_run_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError, match="Run 99 not found"):
        retry_run(99, database=database, clock=clock)


def _runs(database: Database) -> int:
    with database.reading() as session:
        return session.scalar(query(func.count()).select_from(RunRow)) or 0
