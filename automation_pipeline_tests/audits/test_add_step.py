"""Adding a step: behind the others, also when several do so at once."""

from datetime import timedelta

import pytest

from automation_pipeline.audits.configs import add_step
from automation_pipeline.audits.models.configs import config_document, parse_config
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import add, on, read, step_document
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.processes import CREW, at_once

STEP = {name: value for name, value in step_document(9).items() if name != "position"}


@pytest.mark.parametrize("given", [STEP, STEP | {"position": 4}])
def test_it_is_the_last_then(
    database: Database, clock: StandingClock, given: dict[str, object]
) -> None:
    config_id = add(database)
    before = read(database, config_id)
    clock.pass_time(timedelta(hours=1))
    added = add_step(config_id, given, database=database, clock=clock)
    stored = read(database, config_id)
    assert stored.step(added.id) == added
    assert (stored.step_ids, stored.config.steps) == (
        (*before.step_ids, added.id),
        (*before.config.steps, added.step),
    )
    assert stored.updated_at == clock.now()


def test_a_taken_place_is_refused_with_the_free_one_and_nothing_changes(
    database: Database, clock: StandingClock
) -> None:
    config_id = add(database)
    before = read(database, config_id)
    with pytest.raises(
        InvalidInputError, match=r"^Position 2 is already taken\. Available positions: 4$"
    ):
        add_step(config_id, STEP | {"position": 2}, database=database, clock=clock)
    assert read(database, config_id) == before


def test_what_does_not_exist_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError, match="Audit config with ID '7' not found"):
        add_step(7, STEP, database=database, clock=clock)


def add_many(url: str, config_id: int, times: int) -> list[int]:
    def act(database: Database) -> list[int]:
        return [
            add_step(config_id, STEP, database=database, clock=SystemClock()).id
            for _ in range(times)
        ]

    return on(url, act)


def test_several_processes_add_all_of_theirs_without_a_gap(
    database: Database, database_url: str
) -> None:
    config_id = add(database, steps=1)
    added = [
        step_id
        for ids in at_once(add_many, *[(database_url, config_id, 4)] * CREW)
        for step_id in ids
    ]
    stored = read(database, config_id)
    assert set(stored.step_ids[1:]) == set(added)
    assert len(stored.step_ids) == 1 + 4 * CREW
    assert parse_config(config_document(stored.config)) == stored.config
