"""Ending a run: as its rows say, once, whoever asks."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from automation_pipeline.automation.models.runs import LedgerMove, OutcomeStatus, RunAttempt
from automation_pipeline.automation.queries.ledger import outcomes, record_moves
from automation_pipeline.automation.queries.runs import StaleAttemptError, get_run
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.runs import (
    INTERRUPTED,
    LedgerError,
    finalise_run,
    open_run,
    request_run,
)
from automation_pipeline.automation.tables import FicheResultRow, RunRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule, an_open_run, an_opening


def move(
    database: Database, clock: StandingClock, ticket: RunAttempt, statuses: Sequence[str]
) -> None:
    moves = [
        LedgerMove(str(number), OutcomeStatus(status))
        for number, status in enumerate(statuses, start=1)
    ]
    with database.transaction() as session:
        record_moves(session, ticket.run_id, moves, clock.now())


@pytest.mark.parametrize(
    ("statuses", "status", "schedule_status", "counters"),
    [
        (("successful", "successful", "ignored"), "completed", "success", (1, 1, 0)),
        (("successful", "failed", "ignored"), "partial", "partial", (1, 0, 0)),
        (("failed", "failed", "ignored"), "failed", "failed", (1, 0, 1)),
        (("ignored", "ignored", "ignored"), "completed", "success", (1, 1, 0)),
    ],
)
def test_the_verdict_is_that_of_the_rows(
    statuses: Sequence[str], status: str, schedule_status: str, counters: tuple[int, ...],
    database: Database, clock: StandingClock,
) -> None:  # fmt: skip
    ticket = an_open_run(database, clock)
    move(database, clock, ticket, statuses)
    clock.pass_time(timedelta(seconds=90))
    run = finalise_run(ticket.run_id, database=database, clock=clock, attempt=ticket.attempt)

    assert (run.status, run.phase, run.duration_ms) == (status, "finalizing", 90_000)
    assert run.successful_fiches == statuses.count("successful")
    assert run.failed_fiches == statuses.count("failed")
    assert run.ignored_fiches == statuses.count("ignored")
    assert run.total_fiches == 3 - statuses.count("ignored")
    with database.reading() as session:
        schedule = get_schedule(session, run.schedule_id)
        assert session.get_one(RunRow, run.id).result_summary == {}
    assert schedule.last_run_status == schedule_status
    assert (schedule.total_runs, schedule.successful_runs, schedule.failed_runs) == counters


def test_ending_twice_is_ending_once(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock, [])
    first = finalise_run(ticket.run_id, database=database, clock=clock, attempt=1)
    clock.pass_time(timedelta(hours=1))
    again = finalise_run(ticket.run_id, database=database, clock=clock, breakdown="too late")
    assert again == first
    with database.reading() as session:
        assert get_schedule(session, first.schedule_id).total_runs == 1
        assert len(session.scalars(select(TransitionRow)).all()) == 2


def test_a_run_with_pending_rows_cannot_end_well(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock)
    with pytest.raises(LedgerError, match="pending=3"):
        finalise_run(ticket.run_id, database=database, clock=clock, attempt=1)


def test_a_run_that_lost_a_row_cannot_end_well(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock)
    move(database, clock, ticket, ["successful", "successful", "successful"])
    with database.transaction() as session:
        session.execute(
            update(FicheResultRow)
            .where(FicheResultRow.fiche_id == "2")
            .values(run_id=_another(database))
        )
    with pytest.raises(LedgerError, match="selected=3"):
        finalise_run(ticket.run_id, database=database, clock=clock, attempt=1)


def test_a_breakdown_fails_pending_fiches_and_keeps_outcomes(
    database: Database, clock: StandingClock
) -> None:
    ticket = an_open_run(database, clock)
    move(database, clock, ticket, ["successful", "ignored"])
    run = finalise_run(ticket.run_id, database=database, clock=clock, breakdown="The worker died")
    with database.reading() as session:
        rows = outcomes(session, ticket.run_id)
    assert (run.status, run.error_message) == ("failed", "The worker died")
    assert (run.successful_fiches, run.failed_fiches, run.ignored_fiches) == (1, 1, 1)
    assert [(row.status, row.error) for row in rows] == [
        ("successful", None),
        ("ignored", None),
        ("failed", INTERRUPTED),
    ]


def test_an_attempt_that_was_fenced_off_cannot_end_the_run(
    database: Database, clock: StandingClock
) -> None:
    ticket = an_open_run(database, clock)
    open_run(
        an_opening(1, "dagster-2", dagster_root_run_id="dagster-1"), database=database, clock=clock
    )
    with pytest.raises(StaleAttemptError):
        finalise_run(ticket.run_id, database=database, clock=clock, attempt=ticket.attempt)
    with database.reading() as session:
        assert get_run(session, ticket.run_id).status == "running"


def test_a_run_that_was_never_opened_ends_with_its_request(
    database: Database, clock: StandingClock
) -> None:
    run = request_run(a_schedule(database, clock).id, database=database, clock=clock)
    ended = finalise_run(run.id, database=database, clock=clock, breakdown="It never started")
    with database.reading() as session:
        request = session.scalars(select(RunRequestRow)).one()
    assert ended.status == "failed"
    with database.reading() as session:
        assert session.get_one(RunRow, run.id).result_summary == {}, (
            "nothing was looked for, so nothing was found"
        )
    assert (request.state, request.reason) == ("refused", "It never started")


def test_a_row_that_has_ended_does_not_move_again(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock)
    move(database, clock, ticket, ["successful"])
    move(database, clock, ticket, ["failed"])
    with database.reading() as session:
        assert outcomes(session, ticket.run_id)[0].status == "successful"


def _another(database: Database) -> int:
    with database.transaction() as session:
        row = session.get_one(RunRow, 1)
        other = RunRow(
            schedule_id=row.schedule_id, status="running", trigger="manual", attempt=0, selected_fiches=0,
            started_at=row.started_at, config_snapshot={},
        )  # fmt: skip
        session.add(other)
        session.flush()
        return other.id
