"""Bulk statements give the same result on both databases, also with concurrent writers."""

import pytest
from sqlalchemy import select

from automation_pipeline.storage.claims import LeaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow, enqueue
from automation_pipeline.storage.statements import among, upsert
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.processes import run_in_processes
from automation_pipeline_tests.storage.processes import event, lease_rows, upsert_rounds


def stored(database: Database) -> dict[str, tuple[str, int]]:
    with database.reading() as session:
        return {row.key: (row.owner, row.token) for row in session.scalars(select(LeaseRow))}


def write(database: Database, rows: list[dict[str, object]], **how: object) -> None:
    with database.transaction() as session:
        upsert(session, LeaseRow, rows, key=("key",), **how)


def test_new_rows_are_inserted_and_existing_rows_updated(database: Database) -> None:
    write(database, lease_rows([1, 2], "first", 1), fields=("owner", "token"))
    write(database, lease_rows([2, 3], "second", 2), fields=("owner", "token"))
    assert stored(database) == {
        "row 1": ("first", 1),
        "row 2": ("second", 2),
        "row 3": ("second", 2),
    }


def test_only_the_named_fields_are_updated(database: Database) -> None:
    write(database, lease_rows([1], "first", 1))
    write(database, lease_rows([1], "second", 2), fields=("token",))
    assert stored(database) == {"row 1": ("first", 2)}


def test_without_fields_an_existing_row_is_unchanged(database: Database) -> None:
    write(database, lease_rows([1], "first", 1))
    write(database, lease_rows([1, 2], "second", 2))
    assert stored(database) == {"row 1": ("first", 1), "row 2": ("second", 2)}


def test_rows_not_matching_the_condition_are_unchanged(database: Database) -> None:
    write(database, [*lease_rows([1], "old", 1), *lease_rows([2], "new", 9)])
    write(
        database, lease_rows([1, 2], "mine", 5), fields=("owner", "token"), where=LeaseRow.token < 5
    )
    assert stored(database) == {"row 1": ("mine", 5), "row 2": ("new", 9)}


def test_the_later_of_two_rows_with_the_same_key_wins(database: Database) -> None:
    write(database, [*lease_rows([1], "z", 1), *lease_rows([1], "a", 2)], fields=("owner", "token"))
    assert stored(database) == {"row 1": ("a", 2)}


def test_an_empty_upsert_does_nothing(database: Database) -> None:
    write(database, [])
    assert stored(database) == {}


def test_a_composite_key_identifies_a_row(database: Database) -> None:
    with database.transaction() as session:
        enqueue(session, [event("b"), event("a"), event("b")])
    with database.reading() as session:
        assert sorted(session.scalars(select(OutboxRow.event_key))) == ["a", "b"]


MANY = 70_000


@every_case(
    ("wanted", "found"),
    [([], []), (["row 1"], ["row 1"]), (["row 2", "é'\"\\", "absent"], ["row 2", "é'\"\\"])],
)
def test_among_matches_texts(database: Database, wanted: list[str], found: list[str]) -> None:
    write(
        database,
        [*lease_rows([1, 2], "first", 1), {**lease_rows([3], "first", 1)[0], "key": "é'\"\\"}],
    )
    with database.reading() as session:
        keys = session.scalars(select(LeaseRow.key).where(among(session, LeaseRow.key, wanted)))
        assert sorted(keys) == sorted(found)


@pytest.mark.parametrize(("wanted", "found"), [([], []), ([7, 2**62], [7, 2**62])])
def test_among_matches_numbers(database: Database, wanted: list[int], found: list[int]) -> None:
    write(
        database, [*lease_rows([1], "a", 7), *lease_rows([2], "a", 2**62), *lease_rows([3], "a", 9)]
    )
    with database.reading() as session:
        tokens = session.scalars(
            select(LeaseRow.token).where(among(session, LeaseRow.token, wanted))
        )
        assert sorted(tokens) == found


@pytest.mark.parametrize("many", [MANY, 260_000])
def test_among_accepts_very_long_lists(database: Database, many: int) -> None:
    write(database, lease_rows([1, 2], "first", many - 1))
    keys = ["row 2", *(f"absent {number}" for number in range(many))]
    with database.reading() as session:
        named = among(session, LeaseRow.key, keys) & among(session, LeaseRow.token, range(many))
        assert list(session.scalars(select(LeaseRow.key).where(named))) == ["row 2"]


def test_two_processes_writing_the_same_rows_in_opposite_order_both_succeed(
    database: Database,
) -> None:
    url, rounds = database.url.render_as_string(hide_password=False), 10
    upward, downward = range(500), range(749, 249, -1)
    run_in_processes(upsert_rounds, (url, upward, "up", rounds), (url, downward, "down", rounds))
    rows = stored(database)
    assert len(rows) == 750
    assert {rows[f"row {number}"] for number in range(250)} == {("up", rounds)}
    assert {rows[f"row {number}"] for number in range(500, 750)} == {("down", rounds)}
    [last] = {rows[f"row {number}"] for number in range(250, 500)}
    assert last in {("up", rounds), ("down", rounds)}
