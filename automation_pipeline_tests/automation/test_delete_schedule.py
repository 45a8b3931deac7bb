"""A deleted schedule keeps its runs, and one with a run at work is not deleted."""

import pytest

from automation_pipeline.automation.models.runs import RunFilter
from automation_pipeline.automation.queries.run_details import runs_within
from automation_pipeline.automation.queries.runs import get_run
from automation_pipeline.automation.queries.schedules import get_schedule, list_schedules
from automation_pipeline.automation.run_endings import finalise_run
from automation_pipeline.automation.runs import open_run, request_run
from automation_pipeline.automation.schedules import (
    delete_schedule,
    resume_schedule,
    update_schedule,
)
from automation_pipeline.core.access import EVERYTHING
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule, an_opening


def test_a_deleted_schedule_is_gone_but_its_runs_stay(
    database: Database, clock: StandingClock
) -> None:
    mine, other = a_schedule(database, clock), a_schedule(database, clock)
    ticket = open_run(an_opening(mine.id), database=database, clock=clock)
    finalise_run(ticket.run_id, database=database, clock=clock, breakdown="The worker is gone")
    delete_schedule(mine.id, database=database)
    for use in (
        lambda: open_run(an_opening(mine.id, "dagster-2"), database=database, clock=clock),
        lambda: request_run(mine.id, database=database, clock=clock),
        lambda: update_schedule(mine.id, {"name": "other"}, database=database, clock=clock),
        lambda: resume_schedule(mine.id, database=database, clock=clock),
        lambda: delete_schedule(mine.id, database=database),
    ):
        with pytest.raises(NotFoundError, match=f"Schedule {mine.id} not found"):
            use()
    with database.reading() as session:
        assert [one.id for one in list_schedules(session, include_inactive=True)] == [other.id]
        assert get_run(session, ticket.run_id).status == "failed"
        assert runs_within(session, EVERYTHING, RunFilter(), limit=9, offset=0) == [
            get_run(session, ticket.run_id)
        ]


def test_a_schedule_with_a_run_at_work_or_waiting_is_not_deleted(
    database: Database, clock: StandingClock
) -> None:
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
