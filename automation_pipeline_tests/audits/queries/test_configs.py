"""Configurations as rows: read back as they were, changed whole, kept while an audit needs them."""

import threading
from dataclasses import replace
from datetime import timedelta
from itertools import permutations

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from automation_pipeline.audits.configs import reorder_steps, set_config_active
from automation_pipeline.audits.models.configs import AuditConfig, StoredConfig, parse_config
from automation_pipeline.audits.queries import configs
from automation_pipeline.audits.tables import AuditConfigRow, AuditStepRow
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database, Session
from automation_pipeline_tests.audits.configurations import (
    FULL,
    NOW,
    add,
    add_audit,
    add_batch,
    document,
    read,
)
from automation_pipeline_tests.conftest import StandingClock

LATER = NOW + timedelta(hours=1)


def names(stored: StoredConfig) -> list[str]:
    return [step.name for step in stored.config.steps]


def replace_config(session: Session, config_id: int, config: AuditConfig) -> None:
    stored = configs.lock_config(session, config_id)
    configs.write_config(session, stored, config, [None] * len(config.steps), LATER)


def rows(database: Database, table: type[AuditConfigRow | AuditStepRow]) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


@pytest.mark.parametrize("given", [FULL, document()])
def test_what_was_added_is_read_back_as_it_was(
    database: Database, given: dict[str, object]
) -> None:
    with database.transaction() as session:
        config_id = configs.add_config(session, parse_config(given), NOW)
        assert configs.get_config(session, config_id).config == parse_config(given)
    stored = read(database, config_id)
    assert stored.config == parse_config(given)
    assert (stored.id, stored.created_at, stored.updated_at) == (config_id, NOW, NOW)
    assert len(set(stored.step_ids)) == len(stored.config.steps)


def test_the_list_is_newest_first_counts_audits_and_takes_two_queries(database: Database) -> None:
    first, second, third = (
        add(database, "One"),
        add(database, "Two", isActive=False),
        add(database, "Three", steps=7),
    )
    with database.transaction() as session:
        add_audit(session, first, "a")
        add_audit(session, first, "b", deleted_at=NOW, is_latest=False)
        add_audit(session, second, "c")
    with database.reading() as session:
        active = configs.config_page(session, include_stats=True, limit=9, offset=0)
        everything = configs.config_page(
            session, include_inactive=True, include_stats=True, limit=9, offset=0
        )
    assert [(one.id, one.stats and one.stats.all_audits, one.steps_count) for one in active] == [
        (third, 0, 7),
        (first, 2, 3),
    ]
    assert [(one.id, one.stats and one.stats.all_audits) for one in everything] == [
        (third, 0),
        (second, 1),
        (first, 2),
    ]


def test_a_configuration_is_found_by_its_whole_name(database: Database) -> None:
    config_id = add(database, "Sales")
    with database.reading() as session:
        found = configs.find_by_name(session, "Sales")
        assert found is not None
        assert found.id == config_id
        assert [
            configs.find_by_name(session, name) for name in ("sales", "Sale", "Sales ", "")
        ] == [None] * 4


def test_only_active_ones_run_automatically_and_the_newest_active_is_the_last_that_came(
    database: Database,
) -> None:
    with database.reading() as session:
        assert (configs.automatic_configs(session), configs.newest_active(session)) == ([], None)
    add(database, "By hand", LATER)
    first = add(database, "First", runAutomatically=True)
    add(database, "Over", LATER + timedelta(days=1), runAutomatically=True, isActive=False)
    second = add(database, "Second", runAutomatically=True)
    with database.reading() as session:
        assert [one.id for one in configs.automatic_configs(session)] == [first, second]
        newest = configs.newest_active(session)
    assert newest is not None
    assert newest.config.name == "By hand"


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_a_replacement_is_whole_and_leaves_no_old_step(database: Database, steps: int) -> None:
    config_id, other = add(database), add(database, "Other")
    before = read(database, other)
    with database.transaction() as session:
        configs.get_config(session, config_id)
        replacement = parse_config(document("Renamed", steps, description="new", isActive=False))
        replace_config(session, config_id, replacement)
        assert configs.get_config(session, config_id).config == replacement
    stored = read(database, config_id)
    assert (stored.config, stored.created_at, stored.updated_at) == (replacement, NOW, LATER)
    assert rows(database, AuditStepRow) == steps + 3
    assert read(database, other) == before


def test_a_replacement_that_fails_leaves_everything_as_it_was(database: Database) -> None:
    config_id = add(database)
    before = read(database, config_id)
    impossible = replace(parse_config(FULL), steps=parse_config(FULL).steps[:1] * 2)
    with pytest.raises(IntegrityError), database.transaction() as session:
        replace_config(session, config_id, impossible)
    assert read(database, config_id) == before


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_steps_take_any_order_and_keep_their_ids(
    database: Database, order: tuple[int, ...]
) -> None:
    config_id, other = add(database), add(database, "Other")
    before, elsewhere = read(database, config_id), read(database, other)
    wanted = tuple(before.step_ids[place] for place in order)
    ordered = reorder_steps(config_id, wanted, database=database, clock=StandingClock(LATER))
    assert ordered.step_ids == wanted
    stored = read(database, config_id)
    assert (stored.step_ids, names(stored)) == (wanted, [f"Step {place + 1}" for place in order])
    assert [step.position for step in stored.config.steps] == [1, 2, 3]
    assert stored.updated_at == (NOW if wanted == before.step_ids else LATER)
    assert read(database, other) == elsewhere


@pytest.mark.parametrize(
    "change", [lambda ids: ids[1:], lambda ids: (*ids, ids[0]), lambda ids: (*ids[1:], 99), list]
)
def test_an_order_that_does_not_name_every_step_once_changes_nothing(
    database: Database, change: object
) -> None:
    config_id = add(database)
    before = read(database, config_id)
    wanted = () if change is list else change(before.step_ids)  # type: ignore[operator]
    with pytest.raises(InvalidInputError) as refused:
        reorder_steps(config_id, wanted, database=database, clock=StandingClock(LATER))
    assert {field for field, _ in refused.value.fields} == {"stepIds"}
    assert read(database, config_id) == before


def test_setting_what_is_set_already_is_no_change(database: Database) -> None:
    config_id = add(database)
    told: list[tuple[bool, bool]] = []
    for active in (True, False, False, True):
        clock = StandingClock(LATER)
        set_config_active(config_id, active=active, database=database, clock=clock)
        stored = read(database, config_id)
        told.append((stored.config.is_active, stored.updated_at == LATER))
    assert told == [(True, False), (False, True), (False, True), (True, True)]


def test_an_unused_configuration_is_deleted_with_its_steps(database: Database) -> None:
    config_id, other = add(database), add(database, "Other")
    with database.transaction() as session:
        configs.delete_config(session, config_id)
    with pytest.raises(NotFoundError):
        read(database, config_id)
    assert (rows(database, AuditConfigRow), rows(database, AuditStepRow)) == (1, 3)
    assert read(database, other).config.name == "Other"


@pytest.mark.parametrize(
    ("audits", "batches", "users"),
    [(1, 0, "1 audit"), (2, 0, "2 audits"), (0, 1, "1 batch"), (2, 1, "2 audits and 1 batch")],
)
def test_a_configuration_in_use_is_kept_and_the_way_out_is_told(
    database: Database, audits: int, batches: int, users: str
) -> None:
    config_id = add(database)
    with database.transaction() as session:
        for number in range(audits):
            add_audit(session, config_id, f"audit {number}")
        if batches:
            add_batch(session, config_id)
    with pytest.raises(ConflictError) as refused, database.transaction() as session:
        configs.delete_config(session, config_id)
    assert str(refused.value) == (
        f"Audit config with ID '{config_id}' is used by {users} and cannot be deleted; "
        f"deactivate it instead: automation audit-configs deactivate {config_id}"
    )
    assert len(read(database, config_id).config.steps) == 3


def test_an_audit_that_begins_meanwhile_keeps_its_configuration(database: Database) -> None:
    config_id, ends = add(database), list[str]()

    def delete() -> None:
        try:
            with database.transaction() as session:
                configs.delete_config(session, config_id)
        except ConflictError as error:
            ends.append(str(error))

    deleting = threading.Thread(target=delete)
    with database.transaction() as session:
        add_audit(session, config_id)
        deleting.start()
        deleting.join(0.2)
        assert deleting.is_alive(), "it waits to see whether the audit begins"
    deleting.join()
    assert [sentence.partition(" and cannot")[0] for sentence in ends] == [
        f"Audit config with ID '{config_id}' is used by 1 audit"
    ]
    assert read(database, config_id).config.name == "Sales"


def test_what_is_not_there_is_not_found_whatever_is_asked(database: Database) -> None:
    config = parse_config(document())
    with database.transaction() as session:
        for ask in (
            lambda: configs.get_config(session, 7),
            lambda: replace_config(session, 7, config),
            lambda: configs.lock_config(session, 7),
            lambda: configs.config_view(session, 7),
            lambda: configs.delete_config(session, 7),
        ):
            with pytest.raises(NotFoundError, match=r"^Audit config with ID '7' not found$"):
                ask()


def test_of_many_ids_those_of_configurations_are_known(database: Database) -> None:
    known = add(database), add(database, "Old", isActive=False)
    with database.reading() as session:
        assert configs.known_ids(session, [*known, 97, known[0]]) == set(known)
        assert configs.known_ids(session, []) == set()
