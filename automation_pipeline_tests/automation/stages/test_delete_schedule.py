"""Deleting takes the runs along, and waits for none that is at work."""

import pytest
from sqlalchemy import func, select

from automation_pipeline.automation.stages.delete_schedule import delete_schedule
from automation_pipeline.automation.stages.finalise_run import finalise_run
from automation_pipeline.automation.stages.open_run import open_run
from automation_pipeline.automation.stages.request_run import request_run
from automation_pipeline.automation.store.schedules import get_schedule
from automation_pipeline.automation.tables import LogRow, RunRow, ScheduleRow
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule, an_opening


def test_a_schedule_goes_with_its_runs_and_leaves_those_of_others(database: Database, clock: StandingClock) -> None:
    mine, other = a_schedule(database, clock), a_schedule(database, clock)
    for number, schedule in enumerate((mine, other)):
        ticket = open_run(an_opening(schedule.id, f"dagster-{number}"), database=database, clock=clock)
        finalise_run(ticket.run_id, database=database, clock=clock, breakdown="The worker is gone")
    delete_schedule(mine.id, database=database)
    with database.reading() as session:
        assert list(session.scalars(select(ScheduleRow.id))) == [other.id]
        assert list(session.scalars(select(RunRow.schedule_id))) == [other.id]
        assert session.scalar(select(func.count(LogRow.run_id.distinct()))) == 1


def test_a_schedule_with_a_run_at_work_or_waiting_is_not_deleted(database: Database, clock: StandingClock) -> None:
    schedule = a_schedule(database, clock)
    run = request_run(schedule.id, database=database, clock=clock)
    with pytest.raises(ConflictError, match=f"end it by `automation runs cancel {run.id}`"):
        delete_schedule(schedule.id, database=database)
    open_run(an_opening(schedule.id, run_id=run.id), database=database, clock=clock)
    with pytest.raises(ConflictError, match=f"cannot be deleted while run {run.id} is not over"):
        delete_schedule(schedule.id, database=database)
    with database.reading() as session:
        assert get_schedule(session, schedule.id).name == schedule.name


def test_an_unknown_schedule_is_not_found(database: Database) -> None:
    with pytest.raises(NotFoundError, match="Schedule 9 not found"):
        delete_schedule(9, database=database)
