"""Deleting a step: the others move up, the last one stays, and audits can always go on."""

import pytest

from automation_pipeline.audits.configs import delete_step
from automation_pipeline.audits.models.configs import config_document, parse_config
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.errors import AutomationError, ConflictError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import add, on, read
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.processes import CREW, at_once


@pytest.mark.parametrize("place", [0, 1, 2])
def test_those_behind_it_move_up(database: Database, clock: StandingClock, place: int) -> None:
    config_id, other = add(database), add(database, "Other")
    before, elsewhere = read(database, config_id), read(database, other)
    delete_step(before.step_ids[place], database=database, clock=clock)
    stored = read(database, config_id)
    assert stored.step_ids == before.step_ids[:place] + before.step_ids[place + 1 :]
    assert [step.position for step in stored.config.steps] == [1, 2]
    assert [step.name for step in stored.config.steps] == [
        f"Step {n}" for n in (1, 2, 3) if n != place + 1
    ]
    assert stored.updated_at == clock.now()
    assert read(database, other) == elsewhere


def test_the_only_one_stays(database: Database, clock: StandingClock) -> None:
    config_id = add(database, steps=1)
    before = read(database, config_id)
    with pytest.raises(ConflictError, match="is the only one of audit config"):
        delete_step(before.step_ids[0], database=database, clock=clock)
    assert read(database, config_id) == before


def test_what_does_not_exist_is_not_found(database: Database, clock: StandingClock) -> None:
    config_id = add(database)
    step_id = read(database, config_id).step_ids[0]
    delete_step(step_id, database=database, clock=clock)
    for missing in (step_id, 977):
        with pytest.raises(NotFoundError, match=f"^Audit step with ID '{missing}' not found$"):
            delete_step(missing, database=database, clock=clock)


def delete_many(url: str, step_ids: list[int]) -> list[str]:
    def attempt(database: Database, step_id: int) -> str:
        try:
            delete_step(step_id, database=database, clock=SystemClock())
        except AutomationError as error:
            return type(error).__name__
        return "deleted"

    return on(url, lambda database: [attempt(database, step_id) for step_id in step_ids])


def test_several_processes_leave_one_step_and_no_gap(database: Database, database_url: str) -> None:
    config_id = add(database, steps=5)
    ids = list(read(database, config_id).step_ids)
    told = [one for many in at_once(delete_many, *[(database_url, ids)] * CREW) for one in many]
    stored = read(database, config_id)
    assert told.count("deleted") == 4
    assert set(told) <= {"deleted", "NotFoundError", "ConflictError"}
    assert len(stored.step_ids) == 1
    assert parse_config(config_document(stored.config)) == stored.config
