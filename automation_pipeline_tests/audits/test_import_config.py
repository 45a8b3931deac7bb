"""Importing: known by its name, repeated without effect, replaced only when that is asked for."""

from collections import Counter
from datetime import timedelta

import pytest

from automation_pipeline.audits.configs import ImportedConfig, import_config
from automation_pipeline.audits.models.configs import StoredConfig, config_document, parse_config
from automation_pipeline.audits.queries.configs import config_page, get_config
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import (
    FULL,
    document,
    import_many,
    step_document,
)
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.processes import CREW, at_once


def stored(database: Database) -> list[StoredConfig]:
    with database.reading() as session:
        page = config_page(session, include_inactive=True, limit=1000, offset=0)
        return [get_config(session, one.id) for one in page]


def put(
    database: Database, clock: StandingClock, given: dict[str, object], *, update: bool = False
) -> ImportedConfig:
    clock.pass_time_a_second()
    return import_config(given, update=update, database=database, clock=clock)


@pytest.mark.parametrize("update", [False, True])
def test_the_first_import_creates_and_the_next_changes_nothing(
    database: Database, clock: StandingClock, update: bool
) -> None:
    first = put(database, clock, FULL, update=update)
    [before] = stored(database)
    again = put(database, clock, FULL, update=update)
    assert (first.outcome, again.outcome, again.id) == ("created", "unchanged", first.id)
    assert stored(database) == [before]
    assert before.created_at == clock.now() - timedelta(seconds=1)


def test_what_is_exported_is_imported_without_a_change(
    database: Database, clock: StandingClock
) -> None:
    put(database, clock, FULL)
    [before] = stored(database)
    assert put(database, clock, config_document(before.config)).outcome == "unchanged"


def test_other_content_under_the_same_name_is_a_conflict_that_names_the_difference(
    database: Database, clock: StandingClock
) -> None:
    config_id = put(database, clock, document()).id
    [before] = stored(database)
    other = document(isActive=False, steps=4)
    with pytest.raises(ConflictError) as refused:
        put(database, clock, other)
    assert str(refused.value) == (
        f"Audit config {config_id} has the name Sales and other content (isActive, steps): add --update to replace it"
    )
    assert stored(database) == [before]
    updated = put(database, clock, other, update=True)
    [after] = stored(database)
    assert (updated.outcome, updated.id, after.id) == ("updated", config_id, config_id)
    assert (after.config, after.created_at, after.updated_at) == (
        updated.config,
        before.created_at,
        clock.now(),
    )
    assert (after.config.is_active, len(after.config.steps)) == (False, 4)


def test_another_name_is_another_configuration(database: Database, clock: StandingClock) -> None:
    ids = [
        put(database, clock, document(name), update=True).id
        for name in ("Sales", "sales", "Sales 2")
    ]
    assert len(set(ids)) == 3
    assert [one.config.name for one in stored(database)] == ["Sales 2", "sales", "Sales"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (document(""), "name"),
        (document(steps=0), "steps"),
        (document() | {"steps": [step_document(0)]}, "steps"),
        (document() | {"steps": [step_document(1, weight=11)]}, "steps.0.weight"),
        (document() | {"steps": [step_document(1), step_document(1)]}, "steps"),
        (document(nmae="x"), "nmae"),
    ],
)
def test_a_wrong_document_is_not_stored(
    database: Database, clock: StandingClock, given: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        put(database, clock, given)
    assert field in {name for name, _ in refused.value.fields}
    assert stored(database) == []


def test_one_file_imported_by_several_processes_is_one_configuration(
    database: Database, database_url: str
) -> None:
    answers = [
        one
        for many in at_once(import_many, *[(database_url, FULL, False, 3)] * CREW)
        for one in many
    ]
    [only] = stored(database)
    assert {config_id for config_id, _ in answers} == {only.id}
    assert Counter(outcome for _, outcome in answers) == {"created": 1, "unchanged": 3 * CREW - 1}


@pytest.mark.parametrize("update", [False, True])
def test_different_files_of_one_name_at_once_leave_one_of_them_whole(
    database: Database, database_url: str, update: bool
) -> None:
    files = [document(description=f"file {number}", steps=number + 1) for number in range(CREW)]
    answers = [
        one
        for many in at_once(import_many, *((database_url, file, update, 3) for file in files))
        for one in many
    ]
    [only] = stored(database)
    assert only.config in map(parse_config, files)
    refused = [told for config_id, told in answers if not config_id]
    assert (len(refused) == 0) is update
    assert all("add --update to replace it" in told for told in refused)
    assert sum(told == "created" for _, told in answers) == 1
