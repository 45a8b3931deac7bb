"""Audit configurations: created, imported, changed and deleted, with their steps."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select, update

from automation_pipeline.audits.configs import (
    ImportedConfig,
    add_step,
    config_page,
    create_config,
    delete_config,
    delete_step,
    get_config,
    import_config,
    reorder_steps,
    set_config_active,
    update_config,
    update_step,
    validate_config,
)
from automation_pipeline.audits.models.configs import StoredConfig, config_document, parse_config
from automation_pipeline.audits.tables import AuditConfigRow, AuditStepRow
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import (
    FULL,
    NOW,
    add,
    add_audit,
    document,
    import_many,
    read,
    step_document,
    with_database,
)
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes

STEP = {name: value for name, value in step_document(9).items() if name != "position"}


@pytest.mark.parametrize("given", [STEP, STEP | {"position": 4}])
def test_a_new_step_is_the_last(
    database: Database, clock: FakeClock, given: dict[str, object]
) -> None:
    config_id = add(database)
    before = read(database, config_id)
    clock.advance(timedelta(hours=1))
    added = add_step(config_id, given, database=database, clock=clock)
    stored = read(database, config_id)
    assert stored.step(added.id) == added
    assert (stored.step_ids, stored.config.steps) == (
        (*before.step_ids, added.id),
        (*before.config.steps, added.step),
    )
    assert stored.updated_at == clock.now()


def test_a_taken_position_is_refused_with_the_free_position(
    database: Database, clock: FakeClock
) -> None:
    config_id = add(database)
    before = read(database, config_id)
    with pytest.raises(
        InvalidInputError, match=r"^Position 2 is already taken\. Available positions: 4$"
    ):
        add_step(config_id, STEP | {"position": 2}, database=database, clock=clock)
    assert read(database, config_id) == before


def test_adding_a_step_to_an_unknown_configuration_is_not_found(
    database: Database, clock: FakeClock
) -> None:
    with pytest.raises(NotFoundError, match="Audit config with ID '7' not found"):
        add_step(7, STEP, database=database, clock=clock)


def add_many(url: str, config_id: int, times: int) -> list[int]:
    def add(database: Database) -> list[int]:
        return [
            add_step(config_id, STEP, database=database, clock=SystemClock()).id
            for _ in range(times)
        ]

    return with_database(url, add)


def test_concurrent_processes_add_steps_without_a_gap(
    database: Database, database_url: str
) -> None:
    config_id = add(database, steps=1)
    added = [
        step_id
        for ids in run_in_processes(add_many, *[(database_url, config_id, 4)] * PROCESS_COUNT)
        for step_id in ids
    ]
    stored = read(database, config_id)
    assert set(stored.step_ids[1:]) == set(added)
    assert len(stored.step_ids) == 1 + 4 * PROCESS_COUNT
    assert parse_config(config_document(stored.config)) == stored.config


def test_a_created_configuration_has_its_steps(database: Database, clock: FakeClock) -> None:
    stored = create_config(FULL, database=database, clock=clock)
    assert stored == read(database, stored.id)
    assert (stored.config, stored.created_at, stored.updated_at) == (
        parse_config(FULL),
        clock.now(),
        clock.now(),
    )
    assert create_config(FULL, database=database, clock=clock).id != stored.id


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (document(""), "Invalid create audit config input"),
        (
            document() | {"steps": [step_document(1), step_document(1)]},
            "Step positions must be unique",
        ),
    ],
)
def test_an_invalid_configuration_is_not_stored(
    database: Database, clock: FakeClock, given: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        create_config(given, database=database, clock=clock)
    assert str(refused.value) == complaint
    with database.reading() as session:
        for table in (AuditConfigRow, AuditStepRow):
            assert session.scalar(select(func.count()).select_from(table)) == 0


def test_a_deleted_configuration_is_not_found(database: Database) -> None:
    config_id = add(database)
    delete_config(config_id, database=database)
    with pytest.raises(NotFoundError, match=f"Audit config with ID '{config_id}' not found"):
        delete_config(config_id, database=database)


def test_a_configuration_in_use_is_not_deleted(database: Database) -> None:
    config_id = add(database)
    with database.transaction() as session:
        add_audit(session, config_id)
    with pytest.raises(
        ConflictError,
        match=f"deactivate it instead: automation audit-configs deactivate {config_id}$",
    ):
        delete_config(config_id, database=database)
    assert read(database, config_id).config.name == "Sales"


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_following_steps_move_up(database: Database, clock: FakeClock, index: int) -> None:
    config_id, other = add(database), add(database, "Other")
    before, elsewhere = read(database, config_id), read(database, other)
    delete_step(before.step_ids[index], database=database, clock=clock)
    stored = read(database, config_id)
    assert stored.step_ids == before.step_ids[:index] + before.step_ids[index + 1 :]
    assert [step.position for step in stored.config.steps] == [1, 2]
    assert [step.name for step in stored.config.steps] == [
        f"Step {n}" for n in (1, 2, 3) if n != index + 1
    ]
    assert stored.updated_at == clock.now()
    assert read(database, other) == elsewhere


def test_the_only_step_is_not_deleted(database: Database, clock: FakeClock) -> None:
    config_id = add(database, steps=1)
    before = read(database, config_id)
    with pytest.raises(ConflictError, match="is the only one of audit config"):
        delete_step(before.step_ids[0], database=database, clock=clock)
    assert read(database, config_id) == before


def test_deleting_an_unknown_step_is_not_found(database: Database, clock: FakeClock) -> None:
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

    return with_database(url, lambda database: [attempt(database, step_id) for step_id in step_ids])


def test_concurrent_deletions_leave_one_step_without_a_gap(
    database: Database, database_url: str
) -> None:
    config_id = add(database, steps=5)
    ids = list(read(database, config_id).step_ids)
    result = [
        one
        for many in run_in_processes(delete_many, *[(database_url, ids)] * PROCESS_COUNT)
        for one in many
    ]
    stored = read(database, config_id)
    assert result.count("deleted") == 4
    assert set(result) <= {"deleted", "NotFoundError", "ConflictError"}
    assert len(stored.step_ids) == 1
    assert parse_config(config_document(stored.config)) == stored.config


def stored(database: Database) -> list[StoredConfig]:
    with database.reading() as session:
        page = config_page(session, include_inactive=True, limit=1000, offset=0)
        return [get_config(session, one.id) for one in page]


def import_later(
    database: Database, clock: FakeClock, given: dict[str, object], *, update: bool = False
) -> ImportedConfig:
    clock.advance_one_second()
    return import_config(given, update=update, database=database, clock=clock)


@pytest.mark.parametrize("update", [False, True])
def test_the_first_import_creates_and_the_next_changes_nothing(
    database: Database, clock: FakeClock, update: bool
) -> None:
    first = import_later(database, clock, FULL, update=update)
    [before] = stored(database)
    again = import_later(database, clock, FULL, update=update)
    assert (first.outcome, again.outcome, again.id) == ("created", "unchanged", first.id)
    assert stored(database) == [before]
    assert before.created_at == clock.now() - timedelta(seconds=1)


def test_importing_an_export_changes_nothing(database: Database, clock: FakeClock) -> None:
    import_later(database, clock, FULL)
    [before] = stored(database)
    assert import_later(database, clock, config_document(before.config)).outcome == "unchanged"


def test_an_import_with_a_known_name_and_other_content_is_a_conflict(
    database: Database, clock: FakeClock
) -> None:
    config_id = import_later(database, clock, document()).id
    [before] = stored(database)
    other = document(isActive=False, steps=4)
    with pytest.raises(ConflictError) as refused:
        import_later(database, clock, other)
    assert str(refused.value) == (
        f"Audit config {config_id} has the name Sales and other content (isActive, steps): add --update to replace it"
    )
    assert stored(database) == [before]
    updated = import_later(database, clock, other, update=True)
    [after] = stored(database)
    assert (updated.outcome, updated.id, after.id) == ("updated", config_id, config_id)
    assert (after.config, after.created_at, after.updated_at) == (
        updated.config,
        before.created_at,
        clock.now(),
    )
    assert (after.config.is_active, len(after.config.steps)) == (False, 4)


def test_another_name_is_another_configuration(database: Database, clock: FakeClock) -> None:
    ids = [
        import_later(database, clock, document(name), update=True).id
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
def test_an_invalid_import_is_not_stored(
    database: Database, clock: FakeClock, given: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        import_later(database, clock, given)
    assert field in {name for name, _ in refused.value.fields}
    assert stored(database) == []


def test_concurrent_imports_of_one_file_store_one_configuration(
    database: Database, database_url: str
) -> None:
    answers = [
        one
        for many in run_in_processes(import_many, *[(database_url, FULL, False, 3)] * PROCESS_COUNT)
        for one in many
    ]
    [only] = stored(database)
    assert {config_id for config_id, _ in answers} == {only.id}
    assert Counter(outcome for _, outcome in answers) == {
        "created": 1,
        "unchanged": 3 * PROCESS_COUNT - 1,
    }


@pytest.mark.parametrize("update", [False, True])
def test_concurrent_imports_of_different_files_with_one_name_store_one_of_them(
    database: Database, database_url: str, update: bool
) -> None:
    files = [
        document(description=f"file {number}", steps=number + 1) for number in range(PROCESS_COUNT)
    ]
    answers = [
        one
        for many in run_in_processes(
            import_many, *((database_url, file, update, 3) for file in files)
        )
        for one in many
    ]
    [only] = stored(database)
    assert only.config in map(parse_config, files)
    refused = [result for config_id, result in answers if not config_id]
    assert (len(refused) == 0) is update
    assert all("add --update to replace it" in result for result in refused)
    assert sum(result == "created" for _, result in answers) == 1


def reorder_many(url: str, config_id: int, order: tuple[int, ...], times: int) -> None:
    def reorder(database: Database) -> None:
        for shift in range(times):
            reorder_steps(
                config_id, order[shift:] + order[:shift], database=database, clock=SystemClock()
            )

    with_database(url, reorder)


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_steps_get_the_requested_order(
    database: Database, clock: FakeClock, data: st.DataObject
) -> None:
    config_id = add(database, steps=6)
    before = read(database, config_id)
    order = data.draw(st.permutations(before.step_ids))
    result = reorder_steps(config_id, order, database=database, clock=clock)
    assert result == read(database, config_id)
    assert result.step_ids == tuple(order)
    by_id = dict(zip(before.step_ids, before.config.steps, strict=True))
    assert [step.name for step in result.config.steps] == [by_id[step_id].name for step_id in order]
    assert [step.position for step in result.config.steps] == [1, 2, 3, 4, 5, 6]


def test_an_incomplete_order_is_refused_without_changes(
    database: Database, clock: FakeClock
) -> None:
    config_id = add(database)
    before = read(database, config_id)
    with pytest.raises(InvalidInputError, match="every step once"):
        reorder_steps(config_id, before.step_ids[:2], database=database, clock=clock)
    assert read(database, config_id) == before


def test_reordering_an_unknown_configuration_is_not_found(
    database: Database, clock: FakeClock
) -> None:
    with pytest.raises(NotFoundError):
        reorder_steps(7, [1], database=database, clock=clock)


def test_concurrent_reorders_run_one_after_the_other(database: Database, database_url: str) -> None:
    config_id = add(database, steps=5)
    steps = read(database, config_id).step_ids
    orders = [steps, steps[::-1], steps[2:] + steps[:2], (*steps[3:], *steps[2::-1])]
    assert len(orders) == PROCESS_COUNT
    run_in_processes(reorder_many, *((database_url, config_id, order, 5) for order in orders))
    last = read(database, config_id)
    assert last.step_ids in {order[4:] + order[:4] for order in orders}
    assert [step.position for step in last.config.steps] == [1, 2, 3, 4, 5]


def test_a_configuration_in_use_is_deactivated_and_activated(
    database: Database, clock: FakeClock
) -> None:
    config_id = add(database)
    with database.transaction() as session:
        add_audit(session, config_id)
    before = read(database, config_id)
    clock.advance(timedelta(minutes=1))
    for active in (False, True):
        result = set_config_active(config_id, active=active, database=database, clock=clock)
        config = replace(before.config, is_active=active)
        assert (
            result
            == read(database, config_id)
            == replace(before, config=config, updated_at=clock.now())
        )


def test_activating_an_unknown_configuration_is_not_found(
    database: Database, clock: FakeClock
) -> None:
    with pytest.raises(NotFoundError):
        set_config_active(7, active=True, database=database, clock=clock)


def test_fields_change_and_steps_keep_their_ids(database: Database, clock: FakeClock) -> None:
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


def test_changed_steps_get_new_ids(database: Database, clock: FakeClock) -> None:
    config_id, other = add(database), add(database, "Other")
    before, elsewhere = read(database, config_id), read(database, other)
    stored = update_config(config_id, {"steps": FULL["steps"]}, database=database, clock=clock)
    assert stored.config == replace(before.config, steps=parse_config(FULL).steps)
    assert not set(stored.step_ids) & set(before.step_ids)
    assert read(database, other) == elsewhere


def test_an_equal_configuration_changes_nothing(database: Database, clock: FakeClock) -> None:
    config_id = add(database)
    before = read(database, config_id)
    for change in ({}, {"name": "Sales"}, config_document(before.config)):
        assert update_config(config_id, change, database=database, clock=clock) == before
    assert read(database, config_id) == before


def test_an_invalid_change_of_a_configuration_changes_nothing(
    database: Database, clock: FakeClock
) -> None:
    config_id = add(database)
    before = read(database, config_id)
    with pytest.raises(InvalidInputError):
        update_config(
            config_id, {"name": "x", "steps": [step_document(2)]}, database=database, clock=clock
        )
    assert read(database, config_id) == before


def test_changing_an_unknown_configuration_is_not_found(
    database: Database, clock: FakeClock
) -> None:
    with pytest.raises(NotFoundError):
        update_config(7, {}, database=database, clock=clock)


def update_many(url: str, config_id: int, changes: list[dict[str, object]]) -> None:
    def update(database: Database) -> None:
        for change in changes:
            update_config(config_id, change, database=database, clock=SystemClock())

    with_database(url, update)


def test_concurrent_changes_are_all_kept(database: Database, database_url: str) -> None:
    config_id = add(database)
    changes = [
        [{"description": "d"}] * 4,
        [{"systemPrompt": "p"}] * 4,
        [{"runAutomatically": True}] * 4,
        [{"steps": document(steps=count)["steps"]} for count in (2, 5, 1, 4)],
    ]
    assert len(changes) == PROCESS_COUNT
    run_in_processes(update_many, *((database_url, config_id, given) for given in changes))
    result = read(database, config_id).config
    assert (result.description, result.system_prompt, result.run_automatically) == ("d", "p", True)
    assert result.steps == parse_config(document(steps=4)).steps


def test_given_fields_of_a_step_change_and_null_clears(
    database: Database, clock: FakeClock
) -> None:
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


def test_an_equal_step_changes_nothing(database: Database, clock: FakeClock) -> None:
    config_id = add(database)
    before = read(database, config_id)
    clock.advance_one_second()
    for change in ({}, {"position": 2, "name": "Step 2"}):
        assert update_step(
            before.step_ids[1], change, database=database, clock=clock
        ) == before.step(before.step_ids[1])
    assert read(database, config_id).updated_at == NOW


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_step_moved_to_the_end_leaves_no_gap(
    database: Database, clock: FakeClock, index: int
) -> None:
    config_id, other = add(database), add(database, "Other")
    before, elsewhere = read(database, config_id), read(database, other)
    moved = update_step(
        before.step_ids[index], {"position": 4, "weight": 1}, database=database, clock=clock
    )
    stored = read(database, config_id)
    others = tuple(step_id for step_id in before.step_ids if step_id != moved.id)
    assert stored.step_ids == (*others, moved.id)
    assert [step.position for step in stored.config.steps] == [1, 2, 3]
    assert (
        stored.config.steps[2]
        == moved.step
        == replace(before.config.steps[index], position=3, weight=1)
    )
    assert read(database, other) == elsewhere


def test_a_gap_in_stored_positions_can_be_filled(database: Database, clock: FakeClock) -> None:
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
def test_an_invalid_change_of_a_step_changes_nothing(
    database: Database, clock: FakeClock, given: dict[str, object]
) -> None:
    config_id = add(database)
    before = read(database, config_id)
    with pytest.raises(InvalidInputError) as refused:
        update_step(before.step_ids[1], {"prompt": "x", **given}, database=database, clock=clock)
    assert list(dict(refused.value.fields)) == list(given)
    assert read(database, config_id) == before


def test_changing_an_unknown_step_is_not_found(database: Database, clock: FakeClock) -> None:
    with pytest.raises(NotFoundError, match=r"^Audit step with ID '7' not found$"):
        update_step(7, dict(FULL["steps"][0]), database=database, clock=clock)


def test_a_created_configuration_is_valid(database: Database) -> None:
    assert validate_config(add(database), database=database) == ()


def test_an_invalid_stored_configuration_has_errors_by_field(database: Database) -> None:
    config_id = add(database)
    first, _, last = read(database, config_id).step_ids
    with database.transaction() as session:
        session.execute(update(AuditConfigRow).values(name=" "))
        session.execute(
            update(AuditStepRow).where(AuditStepRow.id == first).values(control_points=[])
        )
        session.execute(update(AuditStepRow).where(AuditStepRow.id == last).values(position=9))
    faults = dict(validate_config(config_id, database=database))
    assert set(faults) == {"name", "steps.0.controlPoints", "steps"}
    assert faults["steps"] == "Step positions must be 1 to 3 without gaps: 3 missing"


def test_validating_an_unknown_configuration_is_not_found(database: Database) -> None:
    with pytest.raises(NotFoundError):
        validate_config(7, database=database)
