"""Stored configurations: read, changed, counted and shown."""

import threading
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import permutations

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from automation_pipeline.audits import configs
from automation_pipeline.audits.configs import (
    config_page,
    config_view,
    reorder_steps,
    set_config_active,
    stats_of,
)
from automation_pipeline.audits.models.configs import (
    AuditConfig,
    ConfigShown,
    ConfigStats,
    StoredConfig,
    parse_config,
)
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
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fiches.queries.mirror import statements

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
def test_a_stored_configuration_is_read_back(database: Database, given: dict[str, object]) -> None:
    with database.transaction() as session:
        config_id = configs.add_config(session, parse_config(given), NOW)
        assert configs.get_config(session, config_id).config == parse_config(given)
    stored = read(database, config_id)
    assert stored.config == parse_config(given)
    assert (stored.id, stored.created_at, stored.updated_at) == (config_id, NOW, NOW)
    assert len(set(stored.step_ids)) == len(stored.config.steps)


def test_configurations_are_listed_newest_first_with_audit_counts_in_two_queries(
    database: Database,
) -> None:
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


def test_a_configuration_is_found_by_its_exact_name(database: Database) -> None:
    config_id = add(database, "Sales")
    with database.reading() as session:
        found = configs.find_by_name(session, "Sales")
        assert found is not None
        assert found.id == config_id
        assert [
            configs.find_by_name(session, name) for name in ("sales", "Sale", "Sales ", "")
        ] == [None] * 4


def test_only_active_configurations_run_automatically(
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
def test_a_replacement_removes_all_old_steps(database: Database, steps: int) -> None:
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


def test_a_failed_replacement_changes_nothing(database: Database) -> None:
    config_id = add(database)
    before = read(database, config_id)
    impossible = replace(parse_config(FULL), steps=parse_config(FULL).steps[:1] * 2)
    with pytest.raises(IntegrityError), database.transaction() as session:
        replace_config(session, config_id, impossible)
    assert read(database, config_id) == before


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_reordered_steps_keep_their_ids(database: Database, order: tuple[int, ...]) -> None:
    config_id, other = add(database), add(database, "Other")
    before, elsewhere = read(database, config_id), read(database, other)
    wanted = tuple(before.step_ids[index] for index in order)
    ordered = reorder_steps(config_id, wanted, database=database, clock=FakeClock(LATER))
    assert ordered.step_ids == wanted
    stored = read(database, config_id)
    assert (stored.step_ids, names(stored)) == (wanted, [f"Step {index + 1}" for index in order])
    assert [step.position for step in stored.config.steps] == [1, 2, 3]
    assert stored.updated_at == (NOW if wanted == before.step_ids else LATER)
    assert read(database, other) == elsewhere


@pytest.mark.parametrize(
    "change",
    [
        lambda ids: ids[1:],
        lambda ids: (*ids, ids[0]),
        lambda ids: (*ids[1:], 99),
        lambda _ids: (),
    ],
)
def test_an_incomplete_order_of_steps_changes_nothing(database: Database, change: object) -> None:
    config_id = add(database)
    before = read(database, config_id)
    wanted = change(before.step_ids)
    with pytest.raises(InvalidInputError) as refused:
        reorder_steps(config_id, wanted, database=database, clock=FakeClock(LATER))
    assert {field for field, _ in refused.value.fields} == {"stepIds"}
    assert read(database, config_id) == before


def test_activating_an_active_configuration_changes_nothing(database: Database) -> None:
    config_id = add(database)
    changes: list[tuple[bool, bool]] = []
    for active in (True, False, False, True):
        clock = FakeClock(LATER)
        set_config_active(config_id, active=active, database=database, clock=clock)
        stored = read(database, config_id)
        changes.append((stored.config.is_active, stored.updated_at == LATER))
    assert changes == [(True, False), (False, True), (False, True), (True, True)]


def test_an_unused_configuration_is_deleted_with_its_steps(database: Database) -> None:
    config_id, other = add(database), add(database, "Other")
    with database.transaction() as session:
        configs.delete_config_row(session, config_id)
    with pytest.raises(NotFoundError):
        read(database, config_id)
    assert (rows(database, AuditConfigRow), rows(database, AuditStepRow)) == (1, 3)
    assert read(database, other).config.name == "Other"


@pytest.mark.parametrize(
    ("audits", "batches", "users"),
    [(1, 0, "1 audit"), (2, 0, "2 audits"), (0, 1, "1 batch"), (2, 1, "2 audits and 1 batch")],
)
def test_a_configuration_in_use_is_kept_and_the_error_suggests_deactivation(
    database: Database, audits: int, batches: int, users: str
) -> None:
    config_id = add(database)
    with database.transaction() as session:
        for number in range(audits):
            add_audit(session, config_id, f"audit {number}")
        if batches:
            add_batch(session, config_id)
    with pytest.raises(ConflictError) as refused, database.transaction() as session:
        configs.delete_config_row(session, config_id)
    assert str(refused.value) == (
        f"Audit config with ID '{config_id}' is used by {users} and cannot be deleted; "
        f"deactivate it instead: automation audit-configs deactivate {config_id}"
    )
    assert len(read(database, config_id).config.steps) == 3


def test_a_concurrently_started_audit_keeps_its_configuration(database: Database) -> None:
    config_id, refusals = add(database), list[str]()

    def delete() -> None:
        try:
            with database.transaction() as session:
                configs.delete_config_row(session, config_id)
        except ConflictError as error:
            refusals.append(str(error))

    deleting = threading.Thread(target=delete)
    with database.transaction() as session:
        add_audit(session, config_id)
        deleting.start()
        deleting.join(0.2)
        assert deleting.is_alive(), "the deletion waits for the transaction that adds an audit"
    deleting.join()
    assert [sentence.partition(" and cannot")[0] for sentence in refusals] == [
        f"Audit config with ID '{config_id}' is used by 1 audit"
    ]
    assert read(database, config_id).config.name == "Sales"


def test_an_unknown_configuration_is_not_found(database: Database) -> None:
    config = parse_config(document())
    with database.transaction() as session:
        for use in (
            lambda: configs.get_config(session, 7),
            lambda: replace_config(session, 7, config),
            lambda: configs.lock_config(session, 7),
            lambda: configs.config_view(session, 7),
            lambda: configs.delete_config_row(session, 7),
        ):
            with pytest.raises(NotFoundError, match=r"^Audit config with ID '7' not found$"):
                use()


def test_only_ids_of_stored_configurations_are_known(database: Database) -> None:
    known = add(database), add(database, "Old", isActive=False)
    with database.reading() as session:
        assert configs.known_ids(session, [*known, 97, known[0]]) == set(known)
        assert configs.known_ids(session, []) == set()


def completed(
    score: str, duration: int | None, compliant: bool, **fields: object
) -> dict[str, object]:
    return {
        "status": "completed",
        "score_percentage": Decimal(score),
        "duration_ms": duration,
        "is_compliant": compliant,
        **fields,
    }


@pytest.mark.parametrize(
    ("audits", "stats"),
    [
        ([], ConfigStats()),
        ([{}], ConfigStats(all_audits=1, total_audits=1, last_used_at=NOW)),
        (
            [{"status": "failed"}, {"status": "running"}],
            ConfigStats(all_audits=2, total_audits=2, failed_audits=1, last_used_at=NOW),
        ),
        (
            [
                completed("82.40", 1000, True, created_at=LATER),
                completed("60.20", 2001, False),
                completed("71.00", None, False, is_latest=False),
                {"status": "failed", "duration_ms": 9, "is_compliant": True},
                {"status": "running"},
                completed(
                    "0",
                    1,
                    True,
                    deleted_at=NOW,
                    is_latest=False,
                    created_at=LATER + timedelta(days=1),
                ),
            ],
            ConfigStats(
                all_audits=6,
                total_audits=5,
                completed_audits=3,
                failed_audits=1,
                average_score=71.2,
                average_duration_ms=1500,
                last_used_at=LATER,
                compliance_rate=33.33,
            ),
        ),
    ],
)
def test_statistics_of_a_configuration(
    database: Database, audits: list[dict[str, object]], stats: ConfigStats
) -> None:
    other, config_id = add(database, "Other"), add(database)
    with database.transaction() as session:
        add_audit(session, other, "elsewhere", **completed("1", 1, True))
        for number, fields in enumerate(audits):
            add_audit(session, config_id, str(number), **fields)
    with database.reading() as session:
        found = stats_of(session, [config_id, 977])
        both = stats_of(session, [config_id, other])
    assert found == {config_id: stats}
    assert both == {config_id: stats, other: both[other]}
    assert both[other].total_audits == 1


BARE: dict[str, bool] = {}
STEPS, STATS = {"include_steps": True}, {"include_stats": True}


def page(
    database: Database,
    shown: dict[str, bool],
    limit: int = 100,
    offset: int = 0,
    all_: bool = False,
) -> list[ConfigShown]:
    with database.reading() as session:
        return config_page(session, **shown, include_inactive=all_, limit=limit, offset=offset)


def test_a_page_is_newest_first_and_counts_steps_and_weight(database: Database) -> None:
    first, hidden, last = (
        add(database, "One"),
        add(database, "Two", isActive=False),
        add(database, "Three", steps=7),
    )
    found = page(database, BARE)
    assert [(one.id, one.name, one.steps_count, one.total_weight) for one in found] == [
        (last, "Three", 7, 35),
        (first, "One", 3, 15),
    ]
    assert {(one.steps, one.stats) for one in found} == {(None, None)}
    assert [one.id for one in page(database, BARE, all_=True)] == [last, hidden, first]
    assert [one.id for one in page(database, BARE, all_=True, limit=1, offset=1)] == [hidden]
    assert page(database, BARE, offset=9) == []


@pytest.mark.parametrize(
    ("shown", "queries"),
    [
        (BARE, 1),
        (STEPS, 1),
        (STATS, 2),
        (STEPS | STATS, 2),
    ],
)
@pytest.mark.parametrize("configs", [0, 1, 6])
def test_the_number_of_queries_is_constant(
    database: Database, shown: dict[str, bool], queries: int, configs: int
) -> None:
    for number in range(configs):
        add(database, f"Config {number}")
    with statements(database) as executed:
        assert len(page(database, shown)) == configs
    assert len([one for one in executed if one.startswith("SELECT")]) == queries


def test_steps_and_statistics_belong_to_the_configuration(database: Database) -> None:
    first, second = add(database, "One"), add(database, "Two", steps=2)
    with database.transaction() as session:
        add_audit(session, first, "a", status="failed")
        add_audit(session, first, "b")
    two, one = page(database, STEPS | STATS)
    for shown, config_id in ((one, first), (two, second)):
        stored = read(database, config_id)
        assert shown.steps is not None
        assert tuple(step.id for step in shown.steps) == stored.step_ids
        assert [(step.position, step.name) for step in shown.steps] == [
            (step.position, step.name) for step in stored.config.steps
        ]
    assert one.stats is not None
    assert two.stats is not None
    assert (one.stats.total_audits, one.stats.failed_audits, two.stats.total_audits) == (2, 1, 0)


@pytest.mark.parametrize("given", [FULL, document(isActive=False)])
def test_a_configuration_document_is_valid_input(
    database: Database, given: dict[str, object]
) -> None:
    fields = {name: value for name, value in given.items() if name not in {"name", "steps"}}
    config_id = add(database, str(given["name"]), **fields)
    with database.reading() as session:
        shown = config_view(session, config_id, include_stats=True).document()
    assert (shown["id"], shown["createdAt"]) == (str(config_id), "2026-05-04T10:00:00.000Z")
    assert parse_config(shown) == read(database, config_id).config
    assert read(database, config_id).created_at == NOW


def test_parts_that_were_not_requested_are_omitted(database: Database) -> None:
    config_id = add(database)
    with database.reading() as session:
        assert "stats" not in config_view(session, config_id).document()
        with pytest.raises(NotFoundError, match=r"^Audit config with ID '7' not found$"):
            config_view(session, 7)
    [bare] = page(database, BARE)
    assert not {"steps", "stats"} & set(bare.document())
    assert bare.id == config_id
