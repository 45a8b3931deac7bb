"""Changing a step: field by field, and only to a place that is free."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from automation_pipeline.audits.configs import update_step
from automation_pipeline.audits.tables import AuditStepRow
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import FULL, NOW, add, read
from automation_pipeline_tests.conftest import StandingClock


def test_what_is_named_changes_and_null_clears(database: Database, clock: StandingClock) -> None:
    config_id = add(database, description="stays")
    before = read(database, config_id)
    given = {
        "name": "Other",
        "description": "Why",
        "keywords": ["a"],
        "isCritical": True,
        "weight": 9,
    }
    changed = update_step(before.step_ids[1], given, database=database, clock=clock)
    wanted = replace(
        before.config.steps[1],
        name="Other",
        description="Why",
        keywords=("a",),
        is_critical=True,
        weight=9,
    )
    assert (changed.id, changed.config_id, changed.step) == (before.step_ids[1], config_id, wanted)
    stored = read(database, config_id)
    assert stored.config.steps == (before.config.steps[0], wanted, before.config.steps[2])
    assert (stored.step_ids, stored.updated_at) == (before.step_ids, clock.now())
    cleared = update_step(before.step_ids[1], {"description": None}, database=database, clock=clock)
    assert cleared.step == replace(wanted, description=None)


def test_what_says_the_same_changes_nothing(database: Database, clock: StandingClock) -> None:
    config_id = add(database)
    before = read(database, config_id)
    clock.pass_time_a_second()
    for given in ({}, {"position": 2, "name": "Step 2"}):
        assert update_step(
            before.step_ids[1], given, database=database, clock=clock
        ) == before.step(before.step_ids[1])
    assert read(database, config_id).updated_at == NOW


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_step_that_goes_behind_the_others_leaves_no_gap(
    database: Database, clock: StandingClock, place: int
) -> None:
    config_id, other = add(database), add(database, "Other")
    before, elsewhere = read(database, config_id), read(database, other)
    moved = update_step(
        before.step_ids[place], {"position": 4, "weight": 1}, database=database, clock=clock
    )
    stored = read(database, config_id)
    others = tuple(step_id for step_id in before.step_ids if step_id != moved.id)
    assert stored.step_ids == (*others, moved.id)
    assert [step.position for step in stored.config.steps] == [1, 2, 3]
    assert (
        stored.config.steps[2]
        == moved.step
        == replace(before.config.steps[place], position=3, weight=1)
    )
    assert read(database, other) == elsewhere


def test_a_gap_that_older_rows_have_can_be_filled(database: Database, clock: StandingClock) -> None:
    config_id = add(database)
    first, second, third = read(database, config_id).step_ids
    with database.transaction() as session:
        session.execute(update(AuditStepRow).where(AuditStepRow.id == third).values(position=9))
        session.execute(update(AuditStepRow).where(AuditStepRow.id == second).values(position=8))
    update_step(third, {"position": 2}, database=database, clock=clock)
    stored = read(database, config_id)
    assert stored.step_ids == (first, third, second)
    assert [step.position for step in stored.config.steps] == [1, 2, 3]


@pytest.mark.parametrize(
    "given", [{"position": 1}, {"position": 7}, {"weight": 0}, {"name": None}, {"nmae": "x"}]
)
def test_a_wrong_change_changes_nothing(
    database: Database, clock: StandingClock, given: dict[str, object]
) -> None:
    config_id = add(database)
    before = read(database, config_id)
    with pytest.raises(InvalidInputError) as refused:
        update_step(before.step_ids[1], {"prompt": "x", **given}, database=database, clock=clock)
    assert list(dict(refused.value.fields)) == list(given)
    assert read(database, config_id) == before


def test_what_does_not_exist_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError, match=r"^Audit step with ID '7' not found$"):
        update_step(7, dict(FULL["steps"][0]), database=database, clock=clock)
