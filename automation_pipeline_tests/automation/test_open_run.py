"""Opening a run: who makes the row, who takes it over, who is refused."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from automation_pipeline.automation.models.runs import LedgerMove, OutcomeStatus, RunAttempt
from automation_pipeline.automation.models.schedules import FicheSelection, SelectionMode
from automation_pipeline.automation.queries.ledger import record_moves
from automation_pipeline.automation.queries.run_details import logs_after
from automation_pipeline.automation.queries.runs import get_run, requested_selection
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.runs import finalise_run, open_run, request_run
from automation_pipeline.automation.schedules import pause_schedule
from automation_pipeline.automation.tables import HeartbeatRow, RunRow, ScheduleRow
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.monitoring import DAEMON, ProcessHeartbeatRow, record_heartbeat
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule, an_open_run, an_opening, selected


def test_a_launch_without_a_run_makes_one(database: Database, clock: StandingClock) -> None:
    schedule = a_schedule(database, clock)
    ticket = open_run(an_opening(schedule.id), database=database, clock=clock)
    with database.reading() as session:
        run, marked = get_run(session, ticket.run_id), get_schedule(session, schedule.id)
        heartbeat = session.get(HeartbeatRow, ticket.run_id)
        moves = (
            session.execute(select(TransitionRow.from_state, TransitionRow.to_state)).tuples().all()
        )
    assert ticket.attempt == 1
    assert (run.status, run.phase, run.trigger) == ("running", "selection", "launchpad")
    assert (marked.last_run_at, marked.last_run_status) == (clock.now(), "running")
    assert heartbeat
    assert (heartbeat.attempt, heartbeat.worker) == (1, "host:1")
    assert moves == [("pending", "running")]


def test_the_schedule_remembers_the_occurrence_and_not_the_delay(
    database: Database, clock: StandingClock
) -> None:
    schedule, due_at = a_schedule(database, clock), clock.now() - timedelta(minutes=7)
    open_run(an_opening(schedule.id, due_at=due_at), database=database, clock=clock)
    with database.reading() as session:
        assert get_schedule(session, schedule.id).last_run_at == due_at


def test_a_requested_run_is_taken_with_its_request(
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock)
    requested = request_run(schedule.id, database=database, clock=clock)
    ticket = open_run(an_opening(schedule.id, run_id=requested.id), database=database, clock=clock)
    with database.reading() as session:
        request = session.scalars(select(RunRequestRow)).one()
    assert ticket == RunAttempt(requested.id, 1)
    assert (request.state, request.dagster_run_id) == ("taken", "dagster-1")


def test_a_retried_dagster_run_takes_over_the_same_run(
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock)
    first = open_run(an_opening(schedule.id), database=database, clock=clock)
    retry = an_opening(schedule.id, "dagster-2", dagster_root_run_id="dagster-1")
    second = open_run(retry, database=database, clock=clock)
    assert second == RunAttempt(first.run_id, first.attempt + 1)
    with database.reading() as session:
        messages = [row.message for row in logs_after(session, first.run_id, 0, "debug")]
    assert messages == ["Automation run started", "Attempt 2 takes over the run"]


@pytest.mark.parametrize("opened", [True, False])
def test_a_launch_beside_an_unended_run_is_refused_and_after_it_is_another_run(
    opened: bool, database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock)
    first = request_run(schedule.id, database=database, clock=clock)
    if opened:
        open_run(an_opening(schedule.id, run_id=first.id), database=database, clock=clock)
    launch = an_opening(schedule.id, "dagster-2")
    with pytest.raises(
        ConflictError,
        match=f"Run {first.id} of schedule {schedule.id} is still at work: .*runs watch",
    ):
        open_run(launch, database=database, clock=clock)
    finalise_run(first.id, database=database, clock=clock, breakdown="over")
    assert open_run(launch, database=database, clock=clock).run_id != first.id


def test_a_started_run_can_be_taken_over_during_a_pause(
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock)
    first = open_run(an_opening(schedule.id), database=database, clock=clock)
    pause_schedule(schedule.id, database=database, clock=clock)
    retry = an_opening(schedule.id, "dagster-2", run_id=first.run_id, is_next=True)
    assert open_run(retry, database=database, clock=clock) == RunAttempt(first.run_id, 2)


def test_a_run_that_has_ended_is_not_opened_again(database: Database, clock: StandingClock) -> None:
    ticket = an_open_run(database, clock, [])
    run = finalise_run(ticket.run_id, database=database, clock=clock, attempt=1)
    again = an_opening(run.schedule_id, "dagster-2", run_id=run.id)
    with pytest.raises(ConflictError, match=f"Run {run.id} has already ended"):
        open_run(again, database=database, clock=clock)


def test_executing_an_ended_run_again_in_dagster_is_a_new_run(
    database: Database, clock: StandingClock
) -> None:
    ticket = an_open_run(database, clock, [])
    run = finalise_run(ticket.run_id, database=database, clock=clock, attempt=1)
    again = an_opening(run.schedule_id, "dagster-2", dagster_root_run_id="dagster-1")
    assert open_run(again, database=database, clock=clock).run_id != run.id


def test_the_next_attempt_at_a_run_that_has_ended_after_all_has_nothing_left_to_do(
    database: Database, clock: StandingClock
) -> None:
    ticket = an_open_run(database, clock, ["1"])
    move = LedgerMove("1", OutcomeStatus.SUCCESSFUL)
    with database.transaction() as session:
        record_moves(session, ticket.run_id, [move], clock.now())
    run = finalise_run(ticket.run_id, database=database, clock=clock, attempt=1)
    retry = an_opening(run.schedule_id, "dagster-2", run_id=run.id, is_next=True)
    again = open_run(retry, database=database, clock=clock)
    assert again == ticket
    assert selected(again, database, clock).batches == ()
    assert finalise_run(again.run_id, database=database, clock=clock, attempt=again.attempt) == run


def test_re_executing_all_steps_of_an_ended_run_repeats_its_selection_and_due_time(
    database: Database, clock: StandingClock
) -> None:
    due_at, override = (
        datetime(2026, 5, 3, 6, 0, tzinfo=UTC),
        FicheSelection(mode=SelectionMode.MANUAL, fiche_ids=("8",)),
    )
    schedule = a_schedule(database, clock)
    run = request_run(schedule.id, database=database, clock=clock, due_at=due_at, override=override)
    finalise_run(run.id, database=database, clock=clock, breakdown="over")
    again = an_opening(schedule.id, "dagster-2", run_id=run.id, is_repeat=True)
    repeated = open_run(again, database=database, clock=clock)
    with database.reading() as session:
        row = session.get_one(RunRow, repeated.run_id)
        assert (row.retry_of_run_id, row.due_at, requested_selection(row)) == (
            run.id,
            due_at,
            override,
        )


def test_a_lost_run_does_not_block_its_schedule_where_no_daemon_would_recover_it(
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock)
    lost = open_run(an_opening(schedule.id), database=database, clock=clock)
    again = an_opening(schedule.id, "dagster-2")
    with pytest.raises(ConflictError, match="still at work"):
        open_run(again, database=database, clock=clock)
    with database.transaction() as session:
        session.execute(update(HeartbeatRow).values(beat_at=database_now(-26)))
        record_heartbeat(session, DAEMON)
    with pytest.raises(ConflictError, match="still at work"):
        request_run(schedule.id, database=database, clock=clock)
    with database.transaction() as session:
        session.execute(update(ProcessHeartbeatRow).values(beat_at=database_now(-61)))
    assert open_run(again, database=database, clock=clock).run_id != lost.run_id
    with database.reading() as session:
        run = get_run(session, lost.run_id)
    assert (run.status, (run.error_message or "")[:37]) == (
        "failed",
        "The process that worked on it was los",
    )


def test_queued_began_and_ended_are_apart(database: Database, clock: StandingClock) -> None:
    queued_at = clock.now()
    run = request_run(a_schedule(database, clock).id, database=database, clock=clock)
    clock.pass_time(timedelta(minutes=2))
    opened = an_opening(run.schedule_id, run_id=run.id)
    ticket = open_run(opened, database=database, clock=clock)
    clock.pass_time(timedelta(seconds=7))
    selected(ticket, database, clock)
    ended = finalise_run(run.id, database=database, clock=clock, breakdown="over")
    assert (ended.queued_at, ended.began_at) == (queued_at, queued_at + timedelta(minutes=2))
    assert ended.duration_ms == 7000


def test_a_run_of_another_schedule_is_refused(database: Database, clock: StandingClock) -> None:
    mine, other = a_schedule(database, clock), a_schedule(database, clock)
    run = request_run(mine.id, database=database, clock=clock)
    with pytest.raises(ConflictError, match="belongs to schedule"):
        open_run(an_opening(other.id, run_id=run.id), database=database, clock=clock)


@pytest.mark.parametrize("run_id", [None, 12])
def test_unknown_names_are_reported(
    run_id: int | None, database: Database, clock: StandingClock
) -> None:
    schedule_id = 5 if run_id is None else a_schedule(database, clock).id
    with pytest.raises(
        NotFoundError, match="Schedule 5 not found" if run_id is None else "Run 12 not found"
    ):
        open_run(an_opening(schedule_id, run_id=run_id), database=database, clock=clock)


def test_a_schedule_paused_meanwhile_is_refused_and_the_run_stays_as_it_was(
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock)
    run = request_run(schedule.id, database=database, clock=clock)
    with database.transaction() as session:
        session.execute(update(ScheduleRow).values(is_active=False))
    with pytest.raises(ConflictError, match="is not active"):
        open_run(an_opening(schedule.id, run_id=run.id), database=database, clock=clock)
    with database.reading() as session:
        assert get_run(session, run.id).status == "pending"
