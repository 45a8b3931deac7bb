"""Cancelling: the run is cancelled, its unfinished fiches are ignored, and a run ends once, whoever
is first."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import select

from automation_pipeline.automation.models.runs import LedgerMove, OutcomeStatus, RunAttempt
from automation_pipeline.automation.queries.ledger import fiches_to_retry, outcomes, record_moves
from automation_pipeline.automation.queries.run_details import reasons_of
from automation_pipeline.automation.queries.runs import StaleAttemptError, fence_attempt, get_run
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.runs import cancel_run, finalise_run, open_run, request_run
from automation_pipeline.automation.tables import ScheduleRow
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule, an_open_run, an_opening

CANCELLED = "Cancelled by an operator"


def move(database: Database, clock: StandingClock, ticket: RunAttempt, **statuses: str) -> None:
    moves = [
        LedgerMove(fiche.removeprefix("f"), OutcomeStatus(status))
        for fiche, status in statuses.items()
    ]
    with database.transaction() as session:
        record_moves(session, ticket.run_id, moves, clock.now())


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (None, CANCELLED),
        ("  ", CANCELLED),
        ("wrong\n day", f"{CANCELLED}: wrong day"),
        ("x" * 500, f"{CANCELLED}: {'x' * 500}"),
    ],
)
def test_a_cancelled_run_ignores_unfinished_fiches_and_keeps_finished_ones(
    reason: str | None, words: str, database: Database, clock: StandingClock
) -> None:
    ticket = an_open_run(database, clock)
    move(database, clock, ticket, f1="successful", f2="ignored")
    run = cancel_run(ticket.run_id, reason=reason, database=database, clock=clock)
    assert (run.status, run.error_message) == ("cancelled", words)
    assert (run.successful_fiches, run.failed_fiches, run.ignored_fiches) == (1, 0, 2)
    with database.reading() as session:
        last = outcomes(session, ticket.run_id)[-1]
        assert (last.status, last.error, last.ignore_reason, last.reason) == (
            "ignored",
            None,
            CANCELLED,
            "cancelled",
        )
        assert reasons_of(session, ticket.run_id)["ignored"]["cancelled"] == 1
        assert fiches_to_retry(session, ticket.run_id) == ["3"]
        assert get_run(session, ticket.run_id).error_message == words
        schedule = get_schedule(session, run.schedule_id)
        assert (schedule.total_runs, schedule.failed_runs, schedule.last_run_status) == (
            1,
            0,
            "cancelled",
        )
        names = [
            name for name in session.scalars(select(OutboxRow.event_name)) if "cancelled" in name
        ]
    assert names == ["automation.run.cancelled", "automation/cancelled"]


def test_earlier_failures_keep_their_errors(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock, ["1", "2"])
    with database.transaction() as session:
        broken = LedgerMove("1", OutcomeStatus.FAILED, error="The CRM is down")
        record_moves(session, ticket.run_id, [broken], clock.now())
    cancel_run(ticket.run_id, database=database, clock=clock)
    with database.reading() as session:
        message = [
            (fiche.status, fiche.error or fiche.ignore_reason)
            for fiche in outcomes(session, ticket.run_id)
        ]
    assert message == [("failed", "The CRM is down"), ("ignored", CANCELLED)]


def test_a_cancelled_run_is_none_of_the_failures_in_a_row(
    database: Database, clock: StandingClock
) -> None:
    ticket = an_open_run(database, clock)
    with database.transaction() as session:
        schedule = session.get_one(ScheduleRow, 1)
        schedule.failures_in_a_row, schedule.pause_after_failures = 1, 2
    cancel_run(ticket.run_id, database=database, clock=clock)
    with database.reading() as session:
        row = session.get_one(ScheduleRow, 1)
    assert (row.failures_in_a_row, row.is_active) == (1, True)
    assert (row.last_run_status, row.total_runs, row.failed_runs) == ("cancelled", 1, 0)


def test_a_run_that_was_never_opened_ends_with_its_request(
    database: Database, clock: StandingClock
) -> None:
    run = request_run(a_schedule(database, clock).id, database=database, clock=clock)
    cancelled = cancel_run(run.id, reason="not today", database=database, clock=clock)
    with database.reading() as session:
        request = session.scalars(select(RunRequestRow)).one()
    assert cancelled.status == "cancelled"
    assert (request.state, request.reason) == ("refused", f"{CANCELLED}: not today")
    with pytest.raises(ConflictError, match="has already ended"):
        open_run(an_opening(run.schedule_id, run_id=run.id), database=database, clock=clock)


def test_the_attempt_at_work_is_fenced_off(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock)
    cancel_run(ticket.run_id, database=database, clock=clock)
    with pytest.raises(StaleAttemptError), database.transaction() as session:
        fence_attempt(session, ticket)


def test_a_run_that_has_ended_stays_as_it_ended(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock, [])
    finalise_run(ticket.run_id, database=database, clock=clock, attempt=ticket.attempt)
    with pytest.raises(ConflictError, match=r"^Run 1 has already ended \(completed\)$"):
        cancel_run(ticket.run_id, database=database, clock=clock)


def test_to_cancel_twice_is_refused_even_in_the_same_words(
    database: Database, clock: StandingClock
) -> None:
    ticket = an_open_run(database, clock)
    cancel_run(ticket.run_id, database=database, clock=clock)
    with pytest.raises(ConflictError, match=r"^Run 1 has already ended \(cancelled\)$"):
        cancel_run(ticket.run_id, database=database, clock=clock)


@pytest.mark.parametrize("reason", ["x" * 501, "a\0b"])
def test_a_reason_that_cannot_be_kept_leaves_the_run_at_work(
    reason: str, database: Database, clock: StandingClock
) -> None:
    ticket = an_open_run(database, clock)
    with pytest.raises(InvalidInputError):
        cancel_run(ticket.run_id, reason=reason, database=database, clock=clock)
    with database.reading() as session:
        assert get_run(session, ticket.run_id).status == "running"


def test_an_unknown_run_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError, match="Run 99 not found"):
        cancel_run(99, database=database, clock=clock)


@pytest.mark.parametrize("round_", range(3))
def test_cancelled_and_finished_at_once_it_has_one_verdict(
    round_: int, database: Database, clock: StandingClock
) -> None:
    ticket = an_open_run(database, clock, ["1", "2"])
    move(database, clock, ticket, f1="successful", f2="successful")
    start = Barrier(2)

    def try_to(act: Callable[[], object]) -> object:
        start.wait(timeout=60)
        try:
            return act()
        except AutomationError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        cancelling = pool.submit(
            try_to, lambda: cancel_run(ticket.run_id, database=database, clock=clock)
        )
        pool.submit(
            try_to,
            lambda: finalise_run(
                ticket.run_id, database=database, clock=clock, attempt=ticket.attempt
            ),
        ).result(timeout=60)
        answer = cancelling.result(timeout=60)
    with database.reading() as session:
        run = get_run(session, ticket.run_id)
        assert get_schedule(session, run.schedule_id).total_runs == 1
        moves = session.scalars(select(TransitionRow.to_state).order_by(TransitionRow.id)).all()
    assert moves == ["running", run.status]
    assert (run.status, run.error_message) in {("completed", None), ("cancelled", CANCELLED)}
    assert isinstance(answer, ConflictError) == (run.status == "completed")
