"""Recognising: by the hash, in one read; the use is noted, but nobody waits for the note."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest
from sqlalchemy import event, text, update

from automation_pipeline.access.queries import list_tokens
from automation_pipeline.access.tables import ApiTokenRow
from automation_pipeline.access.tokens import IssuedToken, authenticate_token, create_token
from automation_pipeline.core.access import Action, Permission, Reach, Scope
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock

AT_ONCE_SECONDS = 15  # a slow machine's; whoever waited would wait 30 seconds, or for ever


def issue(database: Database, clock: StandingClock, **about: object) -> IssuedToken:
    return create_token(
        {"name": "x", "permissions": ["fiches.write"], "scope": "ALL", **about},
        database=database,
        clock=clock,
    )


def last_used_at(database: Database) -> datetime | None:
    with database.reading() as session:
        [token] = list_tokens(session)
    return token.last_used_at


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    told: list[str] = []

    def note(*about: object) -> None:
        told.append(str(about[2]))

    event.listen(database.engine, "before_cursor_execute", note)
    yield told
    event.remove(database.engine, "before_cursor_execute", note)


def test_the_caller_has_what_the_token_was_made_for(
    database: Database, clock: StandingClock
) -> None:
    issued = issue(database, clock, scope="SELF", crmUserId="77")
    caller = authenticate_token(issued.secret, database=database, now=clock.now())
    assert caller is not None
    assert caller.id == f"token:{issued.token.id}"
    reach = Reach(Scope.SELF, frozenset(), "77", caller.id)
    assert [caller.reach(Permission.FICHES, action) for action in Action] == [reach, reach]
    assert caller.reach(Permission.AUDITS, Action.READ) is None


def test_an_expired_token_is_refused(database: Database, clock: StandingClock) -> None:
    issued = issue(database, clock, expiresInDays=1)
    day = timedelta(days=1)
    assert authenticate_token(
        issued.secret, database=database, now=clock.now() + day - timedelta(microseconds=1)
    )
    assert authenticate_token(issued.secret, database=database, now=clock.now() + day) is None


def test_what_is_nobodys_is_refused(database: Database, clock: StandingClock) -> None:
    secret = issue(database, clock).secret
    wrong = "B" if secret.endswith("A") else "A"
    for text_ in (
        secret[:-1] + wrong,
        secret[:-1],
        secret + "A",
        secret.swapcase(),
        f" {secret}",
        "apt_" + "A" * 43,
    ):
        assert authenticate_token(text_, database=database, now=clock.now()) is None
    assert last_used_at(database) is None


def test_what_looks_like_no_token_costs_no_query(database: Database, clock: StandingClock) -> None:
    with statements(database) as told:
        for text_ in ("", "guess", "\0", "é" * 47, "x" * 100_000, "a.b.c"):
            assert authenticate_token(text_, database=database, now=clock.now()) is None
    assert told == []


def test_a_use_is_noted_at_most_once_a_minute(database: Database, clock: StandingClock) -> None:
    secret, start = issue(database, clock).secret, clock.now()
    noted = []
    for seconds in (0, 1, 59, 60, 61, 119, 120):
        assert authenticate_token(secret, database=database, now=start + timedelta(seconds=seconds))
        last = last_used_at(database)
        assert last is not None
        noted.append((last - start).total_seconds())
    assert noted == [0, 0, 0, 60, 60, 60, 120]


def test_between_two_notes_it_is_one_read(database: Database, clock: StandingClock) -> None:
    secret = issue(database, clock).secret
    assert authenticate_token(secret, database=database, now=clock.now())
    with statements(database) as told:
        assert authenticate_token(secret, database=database, now=clock.now())
    asked = [statement for statement in told if not statement.startswith("BEGIN")]
    assert len(asked) == 1
    assert asked[0].startswith("SELECT")


def test_nobody_waits_for_a_writer_who_is_in_the_way(
    database: Database, clock: StandingClock
) -> None:
    secret = issue(database, clock).secret
    with database.transaction() as session:
        session.execute(update(ApiTokenRow).values(name="renamed"))
        began = time.monotonic()
        assert authenticate_token(secret, database=database, now=clock.now())
        assert time.monotonic() - began < AT_ONCE_SECONDS
    assert last_used_at(database) is None
    assert authenticate_token(secret, database=database, now=clock.now())
    assert last_used_at(database) == clock.now()


REFUSING = {
    "sqlite": [
        "CREATE TRIGGER no_notes BEFORE UPDATE ON api_tokens BEGIN SELECT RAISE(ABORT, 'no'); END"
    ],
    "postgresql": [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
        "CREATE TRIGGER no_notes BEFORE UPDATE ON api_tokens FOR EACH ROW EXECUTE FUNCTION refuse()",
    ],
}


def test_a_note_that_cannot_be_made_keeps_nobody_out(
    database: Database, clock: StandingClock
) -> None:
    secret = issue(database, clock).secret
    with database.transaction() as session:
        for statement in REFUSING[database.dialect]:
            session.execute(text(statement))
    assert authenticate_token(secret, database=database, now=clock.now())
    assert last_used_at(database) is None


@pytest.mark.parametrize("permissions", [["gone.write"], ["gone.write", "fiches.read"]])
def test_a_permission_that_is_no_more_grants_nothing(
    database: Database, clock: StandingClock, permissions: list[str]
) -> None:
    secret = issue(database, clock).secret
    with database.transaction() as session:
        session.execute(update(ApiTokenRow).values(permissions=permissions))
    caller = authenticate_token(secret, database=database, now=clock.now())
    assert caller is not None
    assert set(caller.grants) == ({Permission.FICHES} if len(permissions) == 2 else set())
