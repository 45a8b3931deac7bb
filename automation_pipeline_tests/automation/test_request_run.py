"""Asking for a run: its row and its request appear together, or not at all."""

import re

import pytest
from sqlalchemy import func, select

from automation_pipeline.automation.models.schedules import FicheSelection
from automation_pipeline.automation.queries.runs import lock_run, selection_of
from automation_pipeline.automation.runs import finalise_run, request_run
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow, offer_waiting
from automation_pipeline_tests.automation.due import run_now
from automation_pipeline_tests.factories import a_schedule
from automation_pipeline_tests.processes import CREW, at_once


def test_the_run_waits_and_its_request_carries_its_id(database: Database, clock: Clock) -> None:
    schedule = a_schedule(database, clock)
    run = request_run(schedule.id, database=database, clock=clock)
    with database.transaction() as session:
        [request] = offer_waiting(session, limit=10)
    assert run.status == "pending"
    assert request.key == f"automation-run-{run.id}"
    assert request.job == "automation_run"
    assert request.config == {"schedule_id": schedule.id, "run_id": run.id}
    assert request.tags == {
        "automation/schedule_id": str(schedule.id),
        "automation/run_id": str(run.id),
        "automation/trigger": "manual",
    }


def test_a_selection_given_for_this_run_replaces_the_stored_one(
    database: Database, clock: Clock
) -> None:
    schedule = a_schedule(database, clock)
    override = FicheSelection.model_validate({"mode": "manual", "ficheIds": ["9"]})
    run = request_run(schedule.id, database=database, clock=clock, override=override)
    with database.transaction() as session:
        assert selection_of(session, lock_run(session, run.id)) == override


def test_beside_a_run_that_has_not_ended_none_is_filed(database: Database, clock: Clock) -> None:
    schedule, other = a_schedule(database, clock), a_schedule(database, clock)
    first = request_run(schedule.id, database=database, clock=clock)
    words = f"Run {first.id} of schedule {schedule.id} is still at work: `automation runs watch {first.id}` follows it"
    with pytest.raises(ConflictError, match=re.escape(words)):
        request_run(schedule.id, database=database, clock=clock)
    assert request_run(other.id, database=database, clock=clock).id != first.id
    finalise_run(first.id, database=database, clock=clock, breakdown="over")
    assert request_run(schedule.id, database=database, clock=clock).id != first.id


def test_of_several_processes_that_ask_at_once_one_gets_its_run(
    database: Database, database_url: str, clock: Clock
) -> None:
    schedule = a_schedule(database, clock)
    filed = at_once(run_now, *[(database_url, f"{clock.now():%Y-%m-%dT%H:%M}", schedule.id)] * CREW)
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(RunRow)) == 1
        assert session.scalar(select(func.count()).select_from(RunRequestRow)) == 1
    assert sorted(filed) == [False] * (CREW - 1) + [True]


@pytest.mark.parametrize(("active", "error"), [(False, ConflictError), (None, NotFoundError)])
def test_a_paused_or_unknown_schedule_stores_nothing(
    active: bool | None, error: type[Exception], database: Database, clock: Clock
) -> None:
    schedule_id = 99 if active is None else a_schedule(database, clock, isActive=active).id
    with pytest.raises(error, match=f"Schedule {schedule_id}"):
        request_run(schedule_id, database=database, clock=clock)
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(RunRow)) == 0
        assert session.scalar(select(func.count()).select_from(RunRequestRow)) == 0
