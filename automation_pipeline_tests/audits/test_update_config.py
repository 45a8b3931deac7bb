"""Changing a configuration: field by field, its steps whole or not at all."""

from dataclasses import replace

import pytest

from automation_pipeline.audits.configs import update_config
from automation_pipeline.audits.models.configs import config_document, parse_config
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import (
    FULL,
    NOW,
    add,
    document,
    on,
    read,
    step_document,
)
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.processes import CREW, at_once


def test_fields_change_and_steps_keep_their_ids(database: Database, clock: StandingClock) -> None:
    config_id = add(database, description="old", systemPrompt="old")
    before = read(database, config_id)
    stored = update_config(
        config_id, {"description": None, "isActive": False}, database=database, clock=clock
    )
    assert stored == read(database, config_id)
    assert stored.config == replace(before.config, description=None, is_active=False)
    assert (stored.step_ids, stored.created_at, stored.updated_at) == (
        before.step_ids,
        NOW,
        clock.now(),
    )


def test_other_steps_are_new_ones(database: Database, clock: StandingClock) -> None:
    config_id, other = add(database), add(database, "Other")
    before, elsewhere = read(database, config_id), read(database, other)
    stored = update_config(config_id, {"steps": FULL["steps"]}, database=database, clock=clock)
    assert stored.config == replace(before.config, steps=parse_config(FULL).steps)
    assert not set(stored.step_ids) & set(before.step_ids)
    assert read(database, other) == elsewhere


def test_what_says_the_same_changes_nothing(database: Database, clock: StandingClock) -> None:
    config_id = add(database)
    before = read(database, config_id)
    for given in ({}, {"name": "Sales"}, config_document(before.config)):
        assert update_config(config_id, given, database=database, clock=clock) == before
    assert read(database, config_id) == before


def test_a_wrong_change_changes_nothing(database: Database, clock: StandingClock) -> None:
    config_id = add(database)
    before = read(database, config_id)
    with pytest.raises(InvalidInputError):
        update_config(
            config_id, {"name": "x", "steps": [step_document(2)]}, database=database, clock=clock
        )
    assert read(database, config_id) == before


def test_what_does_not_exist_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError):
        update_config(7, {}, database=database, clock=clock)


def update_many(url: str, config_id: int, changes: list[dict[str, object]]) -> None:
    def update(database: Database) -> None:
        for given in changes:
            update_config(config_id, given, database=database, clock=SystemClock())

    on(url, update)


def test_changes_of_several_processes_are_all_kept(database: Database, database_url: str) -> None:
    config_id = add(database)
    changes = [
        [{"description": "d"}] * 4,
        [{"systemPrompt": "p"}] * 4,
        [{"runAutomatically": True}] * 4,
        [{"steps": document(steps=count)["steps"]} for count in (2, 5, 1, 4)],
    ]
    assert len(changes) == CREW
    at_once(update_many, *((database_url, config_id, given) for given in changes))
    told = read(database, config_id).config
    assert (told.description, told.system_prompt, told.run_automatically) == ("d", "p", True)
    assert told.steps == parse_config(document(steps=4)).steps
