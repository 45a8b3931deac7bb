"""Statements past SQLAlchemy's execution: the same rows, the same errors, on both databases."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from sqlalchemy import (
    Boolean,
    Column,
    Date,
    Float,
    MetaData,
    Numeric,
    Table,
    Text,
    bindparam,
    delete,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError, OperationalError

from automation_pipeline.storage.database import Database, DatabaseUnreachableError
from automation_pipeline.storage.prepared import execute, execute_each
from automation_pipeline.storage.statements import among_given
from automation_pipeline.storage.types import BigId, BigIntList, Json, TextList, UtcDateTime

EVERY_KIND = Table(
    "every_kind",
    MetaData(),
    Column("id", BigId, primary_key=True),
    Column("name", Text, nullable=False),
    Column("is_so", Boolean),
    Column("share", Float(53)),
    Column("price", Numeric(12, 2)),
    Column("day", Date),
    Column("at", UtcDateTime),
    Column("document", Json),
    Column("words", TextList),
    Column("numbers", BigIntList),
)
FULL = {
    "id": 2**40,
    "name": "é%(x)s ? :y %",
    "is_so": True,
    "share": 0.1,
    "price": Decimal("12.30"),
    "day": date(2026, 3, 29),
    "at": datetime(2026, 3, 29, 3, 30, 0, 5, tzinfo=timezone(timedelta(hours=2))),
    "document": {"of": ["é", None, 1.5, {"a": True}]},
    "words": ["a", "", "é"],
    "numbers": [1, 2**40],
}
EMPTY = {
    **dict.fromkeys(FULL),
    "id": 1,
    "name": "",
    "is_so": False,
    "document": {},
    "words": [],
    "numbers": [],
}
ADD = insert(EVERY_KIND)
ALL = select(EVERY_KIND).order_by(EVERY_KIND.c.id)
RENAME = update(EVERY_KIND).where(EVERY_KIND.c.id == bindparam("of")).values(name=bindparam("to"))
RENAMED = RENAME.returning(EVERY_KIND.c.id, EVERY_KIND.c.name)


@pytest.fixture(autouse=True)
def table(database: Database) -> Iterator[None]:
    EVERY_KIND.create(database.engine)
    yield
    EVERY_KIND.drop(database.engine)


def add(database: Database, *rows: dict[str, object]) -> None:
    with database.transaction() as session:
        execute_each(session, ADD, rows)


def names(database: Database) -> list[str]:
    with database.reading() as session:
        return [row.name for row in execute(session, ALL, {})]


def test_what_is_written_and_read_is_what_sqlalchemy_writes_and_reads(database: Database) -> None:
    add(database, EMPTY, FULL)
    with database.reading() as session:
        theirs = [dict(row._mapping) for row in session.execute(ALL)]
        ours = [row._asdict() for row in execute(session, ALL, {})]
    assert ours == theirs
    assert ours == [EMPTY, FULL]
    assert ours[1]["at"].utcoffset() == timedelta(0)


def test_one_row_is_written_as_many_are(database: Database) -> None:
    with database.transaction() as session:
        assert execute(session, ADD, FULL).changed == 1
        execute_each(session, ADD, [EMPTY])
        execute_each(session, ADD, [])
    assert names(database) == [EMPTY["name"], FULL["name"]]


def test_it_says_how_many_rows_it_has_changed_and_what_they_are(database: Database) -> None:
    add(database, EMPTY)
    with database.transaction() as session:
        assert execute(session, RENAME, {"of": 1, "to": "a"}).changed == 1
        assert execute(session, RENAME, {"of": 9, "to": "a"}).changed == 0
        renamed = execute(session, RENAMED, {"of": 1, "to": "b"})
        nobody = execute(session, RENAMED, {"of": 9, "to": "b"})
        assert (renamed.changed, renamed.one(), renamed.one().name, renamed.value()) == (
            1,
            (1, "b"),
            "b",
            1,
        )
        assert (nobody.rows, nobody.first(), nobody.value()) == ([], None, None)
        assert execute(session, delete(EVERY_KIND), {}).changed == 1


def test_what_is_set_is_what_is_given_with_it(database: Database) -> None:
    add(database, EMPTY)
    change = update(EVERY_KIND).where(EVERY_KIND.c.id == bindparam("of"))
    with database.transaction() as session:
        execute(session, change, {"of": 1, "name": "a", "words": ["b"]})
        execute(session, change, {"of": 1, "at": FULL["at"]})
        row = execute(session, ALL, {}).one()
    assert (row.name, row.words, row.at) == ("a", ["b"], FULL["at"])


@pytest.mark.parametrize("wanted", [[], [1], [1, 2**40, 3]])
def test_a_list_is_one_value(database: Database, wanted: list[int]) -> None:
    def among(postgres: bool) -> object:
        return select(EVERY_KIND.c.id).where(among_given(EVERY_KIND.c.id, "ids", postgres=postgres))

    add(database, EMPTY, FULL)
    with database.reading() as session:
        found = {id_ for (id_,) in execute(session, among, {"ids": wanted})}
    assert found == {1, 2**40} & set(wanted)


def test_its_errors_are_sqlalchemys_and_hide_what_was_written(database: Database) -> None:
    add(database, {**EMPTY, "name": "secret"})
    with pytest.raises(IntegrityError) as error, database.transaction() as session:
        execute(session, ADD, {**EMPTY, "name": "secret"})
    assert "secret" not in str(error.value)
    assert names(database) == ["secret"]


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_an_error_of_a_later_row_is_one_of_the_statement(database: Database) -> None:
    """SQLite works a row out when it is fetched."""
    add(database, {**EMPTY, "name": "{}"}, {**FULL, "name": "{"})
    parsed = select(func.json_extract(EVERY_KIND.c.name, "$")).order_by(EVERY_KIND.c.id)
    with database.reading() as session, pytest.raises(OperationalError, match="malformed"):
        execute(session, parsed, {})


def test_one_bad_row_of_many_leaves_none(database: Database) -> None:
    with pytest.raises(IntegrityError), database.transaction() as session:
        execute_each(session, ADD, [EMPTY, {**FULL, "name": None}])
    assert names(database) == []


def test_a_value_that_is_lacking_is_named(database: Database) -> None:
    with database.transaction() as session, pytest.raises(TypeError, match=r"\['to'\]"):
        execute(session, RENAME, {"of": 1})


def test_a_default_that_python_makes_has_to_be_given(database: Database) -> None:
    table = Table(
        "defaults",
        MetaData(),
        Column("id", BigId, primary_key=True),
        Column("tries", BigId, default=0),
    )
    with database.transaction() as session, pytest.raises(TypeError, match=r"\['tries'\]"):
        execute_each(session, insert(table), [{"id": 1}])


def test_who_listens_to_the_engine_hears_of_it(database: Database) -> None:
    heard: list[tuple[str, object, bool]] = []
    event.listen(
        database.engine,
        "before_cursor_execute",
        lambda *told: heard.append((told[2], told[3], told[5])),
    )
    add(database, EMPTY)
    with database.transaction() as session:
        execute(session, RENAME, {"of": 1, "to": "a"})
    assert [
        (statement.split()[0], many) for statement, _, many in heard if "every_kind" in statement
    ] == [
        ("INSERT", True),
        ("UPDATE", False),
    ]


@pytest.mark.parametrize("database_kind", ["postgres"], indirect=True)
def test_a_connection_that_is_lost_is_not_used_again(database: Database) -> None:
    def lost_in_between() -> None:
        with database.transaction() as session:
            execute(session, ADD, EMPTY)
            with database.engine.connect() as other:
                end = text("SELECT pg_terminate_backend(:pid, 5000)")
                other.execute(end, {"pid": session.scalar(text("SELECT pg_backend_pid()"))})
            execute(session, ADD, FULL)

    with pytest.raises(DatabaseUnreachableError):
        lost_in_between()
    assert names(database) == []
