"""Resuming begins anew: neither the failures nor the due times of before count."""

from datetime import timedelta

import pytest

from automation_pipeline.automation.queries.schedules import change_schedule
from automation_pipeline.automation.schedules import pause_schedule, resume_schedule
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule


def test_a_resumed_schedule_does_not_catch_up_with_its_pause(
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock)
    with database.transaction() as session:
        change_schedule(session, schedule.id, {"failures_in_a_row": 3}, clock.now())
    pause_schedule(schedule.id, database=database, clock=clock, reason="3 failed runs in a row")
    clock.pass_time(timedelta(days=3))
    resumed = resume_schedule(schedule.id, database=database, clock=clock)
    assert (resumed.is_active, resumed.paused_reason, resumed.failures_in_a_row) == (True, None, 0)
    assert resumed.last_due_at == clock.now()


def test_an_active_schedule_stays_as_it_is(database: Database, clock: StandingClock) -> None:
    schedule = a_schedule(database, clock)
    clock.pass_time(timedelta(days=3))
    assert resume_schedule(schedule.id, database=database, clock=clock) == schedule


def test_an_unknown_schedule_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError, match="Schedule 9 not found"):
        resume_schedule(9, database=database, clock=clock)
