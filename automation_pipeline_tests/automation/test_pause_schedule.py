"""Pausing keeps a schedule from being run, and remembers why."""

import pytest

from automation_pipeline.automation.runs import request_run
from automation_pipeline.automation.schedules import pause_schedule
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule


def test_a_paused_schedule_is_not_run_and_keeps_its_first_reason(
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock)
    pause_schedule(schedule.id, database=database, clock=clock, reason="Holidays")
    paused = pause_schedule(schedule.id, database=database, clock=clock, reason="Again")
    assert (paused.is_active, paused.paused_reason) == (False, "Holidays")
    with pytest.raises(ConflictError, match="is not active"):
        request_run(schedule.id, database=database, clock=clock)


def test_an_unknown_schedule_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError, match="Schedule 9 not found"):
        pause_schedule(9, database=database, clock=clock)
