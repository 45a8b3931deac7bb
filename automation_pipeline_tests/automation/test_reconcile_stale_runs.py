"""Runs that nobody works on any more are ended; schedules that only seem to be at work are
freed."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.automation.models.runs import RunAttempt, Trigger
from automation_pipeline.automation.queries.ledger import outcomes
from automation_pipeline.automation.queries.run_details import logs_after
from automation_pipeline.automation.queries.runs import add_run, get_run
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.runs import request_run
from automation_pipeline.automation.schedules import reconcile_stale_runs
from automation_pipeline.automation.tables import HeartbeatRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.due import RULES, a_daily, change
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule, an_open_run


def silent(database: Database, clock: StandingClock, minutes: int) -> RunAttempt:
    """A run that was opened so long ago, and has not been heard of for days."""
    ticket = an_open_run(database, clock)
    with database.transaction() as session:
        session.execute(update(HeartbeatRow).values(beat_at=clock.now() - timedelta(days=365)))
    clock.pass_time(timedelta(minutes=minutes))
    return ticket


def reconcile(database: Database, clock: StandingClock) -> list[int]:
    return reconcile_stale_runs(RULES, database=database, clock=clock)


def test_a_stale_run_fails_with_the_fixed_text(database: Database, clock: StandingClock) -> None:
    ticket = silent(database, clock, 75)
    with database.reading() as session:
        before = get_schedule(session, get_run(session, ticket.run_id).schedule_id)
    assert reconcile(database, clock) == [before.id]
    with database.reading() as session:
        run, after = get_run(session, ticket.run_id), get_schedule(session, before.id)
        fiches = outcomes(session, ticket.run_id)
        last_words = logs_after(session, ticket.run_id, 0, "debug")[-1]
    assert (run.status, run.completed_at) == ("failed", clock.now())
    assert run.error_message == "Marked stale by scheduler after 75m (threshold 70m)"
    assert run.error_details
    assert set(run.error_details) == {"marked_stale", "reason", "stale_before", "marked_at"}
    assert {fiche.status for fiche in fiches} == {"failed"}
    assert (last_words.level, last_words.message) == (
        "error",
        "Automation run marked stale by scheduler",
    )
    assert after.last_run_status == "failed"
    counters = ("last_run_at", "total_runs", "failed_runs", "failures_in_a_row")
    assert [getattr(after, name) for name in counters] == [
        getattr(before, name) for name in counters
    ]


@pytest.mark.parametrize("minutes", [0, 69])
def test_a_silent_run_is_left_until_the_threshold(
    minutes: int, database: Database, clock: StandingClock
) -> None:
    ticket = silent(database, clock, minutes)
    assert reconcile(database, clock) == []
    with database.reading() as session:
        assert get_run(session, ticket.run_id).status == "running"


def test_a_run_whose_heart_beats_is_left_alone(database: Database, clock: StandingClock) -> None:
    an_open_run(database, clock)
    clock.pass_time(timedelta(days=2))
    assert reconcile(database, clock) == []


def test_a_run_that_waits_for_dagster_is_never_stale(
    database: Database, clock: StandingClock
) -> None:
    run = request_run(a_schedule(database, clock).id, database=database, clock=clock)
    clock.pass_time(timedelta(days=3))
    assert reconcile(database, clock) == []
    with database.reading() as session:
        assert get_run(session, run.id).status == "pending"


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("minutes", [None, 70, 500])
def test_a_schedule_marked_as_running_without_a_run_is_freed(
    minutes: int | None, active: bool, database: Database, clock: StandingClock
) -> None:
    schedule = a_daily(database, clock, "23:00")
    last_run_at = None if minutes is None else clock.now() - timedelta(minutes=minutes)
    change(
        database, schedule.id, last_run_status="running", last_run_at=last_run_at, is_active=active
    )
    assert reconcile(database, clock) == [schedule.id]
    with database.reading() as session:
        freed = get_schedule(session, schedule.id)
    assert (freed.last_run_status, freed.last_run_at, freed.total_runs) == (
        "failed",
        last_run_at,
        0,
    )
    assert reconcile(database, clock) == []


def test_a_mark_of_a_moment_ago_is_believed(database: Database, clock: StandingClock) -> None:
    schedule = a_daily(database, clock, "23:00")
    change(
        database,
        schedule.id,
        last_run_status="running",
        last_run_at=clock.now() - timedelta(minutes=69),
    )
    assert reconcile(database, clock) == []


def test_a_run_beside_the_stale_one_keeps_its_schedule_at_work(
    database: Database, clock: StandingClock
) -> None:
    ticket = silent(database, clock, 75)
    with database.reading() as session:
        schedule = get_schedule(session, get_run(session, ticket.run_id).schedule_id)
    with database.transaction() as session:
        add_run(session, schedule, Trigger.MANUAL, clock.now())
    assert reconcile(database, clock) == []
