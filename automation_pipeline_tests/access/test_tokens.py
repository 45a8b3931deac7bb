"""Machine tokens: created, recognised, used and revoked."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest
from sqlalchemy import event, select, text, update

from automation_pipeline.access.models import ApiToken, is_token, token_hash
from automation_pipeline.access.tables import ApiTokenRow
from automation_pipeline.access.tokens import (
    IssuedToken,
    authenticate_token,
    create_token,
    list_tokens,
    revoke_token,
)
from automation_pipeline.core.access import Action, Caller, Permission, Reach, Scope, whole_grants
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.access.processes import use_or_revoke
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.processes import run_in_processes

INPUT = {
    "name": "nightly",
    "permissions": ["automation.run", "fiches"],
    "scope": "GROUP",
    "groupes": ["NORD"],
    "expiresInDays": 30,
}


def test_a_created_token_is_stored_without_its_secret(database: Database, clock: FakeClock) -> None:
    issued = create_token(INPUT, database=database, clock=clock)
    assert is_token(issued.secret)
    with database.reading() as session:
        row = session.scalars(select(ApiTokenRow)).one()
        stored_text = str(session.execute(text("SELECT * FROM api_tokens")).one())
    assert row.token_hash == token_hash(issued.secret)
    assert issued.secret.startswith(row.prefix)
    assert issued.secret not in stored_text
    assert issued.secret[len(row.prefix) :] not in stored_text
    assert (row.name, row.permissions, row.scope) == (
        "nightly",
        ["fiches.read", "automation.write"],
        "GROUP",
    )
    assert (row.groupes, row.crm_user_id, row.created_at) == (["NORD"], None, clock.now())
    assert row.expires_at is not None
    assert (row.expires_at - clock.now()).days == 30
    assert (row.last_used_at, row.revoked_at) == (None, None)
    assert (issued.token.id, issued.token.permissions) == (row.id, tuple(row.permissions))
    assert issued.secret not in repr(issued)


def test_every_created_token_is_unique(database: Database, clock: FakeClock) -> None:
    issued = [create_token(INPUT, database=database, clock=clock) for _ in range(5)]
    assert len({one.secret for one in issued}) == len({one.token.id for one in issued}) == 5


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"scope": "SELF"}, "crmUserId"),
        ({"permissions": ["nope"]}, "permissions.0"),
        ({"name": ""}, "name"),
    ],
)
def test_an_invalid_token_request_stores_nothing(
    database: Database, clock: FakeClock, given: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        create_token(INPUT | given, database=database, clock=clock)
    assert field in dict(refused.value.fields)
    with database.reading() as session:
        assert session.scalars(select(ApiTokenRow)).all() == []


def test_an_issuer_cannot_grant_more_than_they_have(database: Database, clock: FakeClock) -> None:
    with pytest.raises(InvalidInputError) as refused:
        create_token(INPUT, database=database, clock=clock, issuer=Caller("user:1", {}))
    assert list(dict(refused.value.fields)) == ["permissions"]
    administrator = Caller("machine:environment", whole_grants())
    assert (
        create_token(INPUT, database=database, clock=clock, issuer=administrator).token.name
        == "nightly"
    )


ACME_TOKEN = {
    "name": "agents",
    "orgId": "acme",
    "permissions": ["org-jobs.agents.write"],
    "scope": "ALL",
}


def test_an_organisation_token_authenticates_with_its_organisation(
    database: Database, clock: FakeClock
) -> None:
    looked_up: list[str] = []

    def exists(_session: object, org_id: str) -> bool:
        looked_up.append(org_id)
        return True

    issued = create_token(ACME_TOKEN, database=database, clock=clock, organisation_exists=exists)
    assert (issued.token.org_id, looked_up) == ("acme", ["acme"])
    caller = authenticate_token(issued.secret, database=database, now=clock.now())
    assert caller is not None
    assert (caller.org_id, list(caller.grants)) == ("acme", [Permission.ORG_JOBS_AGENTS])


def test_a_token_for_an_unknown_organisation_is_rejected(
    database: Database, clock: FakeClock
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        create_token(ACME_TOKEN, database=database, clock=clock)
    assert refused.value.fields == (("orgId", "there is no organisation 'acme'"),)
    with pytest.raises(InvalidInputError) as refused:
        create_token(ACME_TOKEN, database=database, clock=clock, issuer=Caller("user:1", {}))
    assert [field for field, _ in refused.value.fields] == ["permissions"]
    with database.reading() as session:
        assert session.scalars(select(ApiTokenRow)).all() == []


NO_WAIT_SECONDS = (
    15  # generous for a slow machine; waiting for the lock would take 30 seconds or more
)


def issue(database: Database, clock: FakeClock, **fields: object) -> IssuedToken:
    return create_token(
        {"name": "x", "permissions": ["fiches.write"], "scope": "ALL", **fields},
        database=database,
        clock=clock,
    )


def last_used_at(database: Database) -> datetime | None:
    with database.reading() as session:
        [token] = list_tokens(session)
    return token.last_used_at


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    executed: list[str] = []

    def record(*arguments: object) -> None:
        executed.append(str(arguments[2]))

    event.listen(database.engine, "before_cursor_execute", record)
    yield executed
    event.remove(database.engine, "before_cursor_execute", record)


def test_the_caller_has_the_grants_of_the_token(database: Database, clock: FakeClock) -> None:
    issued = issue(database, clock, scope="SELF", crmUserId="77")
    caller = authenticate_token(issued.secret, database=database, now=clock.now())
    assert caller is not None
    assert caller.id == f"token:{issued.token.id}"
    reach = Reach(Scope.SELF, frozenset(), "77", caller.id)
    assert [caller.reach(Permission.FICHES, action) for action in Action] == [reach, reach]
    assert caller.reach(Permission.AUDITS, Action.READ) is None


def test_an_expired_token_is_refused(database: Database, clock: FakeClock) -> None:
    issued = issue(database, clock, expiresInDays=1)
    day = timedelta(days=1)
    assert authenticate_token(
        issued.secret, database=database, now=clock.now() + day - timedelta(microseconds=1)
    )
    assert authenticate_token(issued.secret, database=database, now=clock.now() + day) is None


def test_an_unknown_token_is_refused(database: Database, clock: FakeClock) -> None:
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


def test_a_malformed_token_is_refused_without_a_query(database: Database, clock: FakeClock) -> None:
    with statements(database) as executed:
        for text_ in ("", "guess", "\0", "é" * 47, "x" * 100_000, "a.b.c"):
            assert authenticate_token(text_, database=database, now=clock.now()) is None
    assert executed == []


def test_the_last_use_is_updated_at_most_once_per_minute(
    database: Database, clock: FakeClock
) -> None:
    secret, start = issue(database, clock).secret, clock.now()
    recorded = []
    for seconds in (0, 1, 59, 60, 61, 119, 120):
        assert authenticate_token(secret, database=database, now=start + timedelta(seconds=seconds))
        last = last_used_at(database)
        assert last is not None
        recorded.append((last - start).total_seconds())
    assert recorded == [0, 0, 0, 60, 60, 60, 120]


def test_a_use_that_another_process_has_recorded_is_not_recorded_again(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, start = issue(database, clock).secret, clock.now()
    monkeypatch.setattr(ApiToken, "should_record_use", lambda *_: True)
    for seconds, recorded in ((0, 0), (59, 0), (60, 60)):
        now = start + timedelta(seconds=seconds)
        assert authenticate_token(secret, database=database, now=now)
        assert last_used_at(database) == start + timedelta(seconds=recorded)


def test_authentication_between_two_updates_is_a_single_read(
    database: Database, clock: FakeClock
) -> None:
    secret = issue(database, clock).secret
    assert authenticate_token(secret, database=database, now=clock.now())
    with statements(database) as executed:
        assert authenticate_token(secret, database=database, now=clock.now())
    queries = [statement for statement in executed if not statement.startswith("BEGIN")]
    assert len(queries) == 1
    assert queries[0].startswith("SELECT")


def test_authentication_does_not_wait_for_a_concurrent_writer(
    database: Database, clock: FakeClock
) -> None:
    secret = issue(database, clock).secret
    with database.transaction() as session:
        session.execute(update(ApiTokenRow).values(name="renamed"))
        started = time.monotonic()
        assert authenticate_token(secret, database=database, now=clock.now())
        assert time.monotonic() - started < NO_WAIT_SECONDS
    assert last_used_at(database) is None
    assert authenticate_token(secret, database=database, now=clock.now())
    assert last_used_at(database) == clock.now()


REJECT_UPDATES = {
    "sqlite": [
        "CREATE TRIGGER no_updates BEFORE UPDATE ON api_tokens BEGIN SELECT RAISE(ABORT, 'no'); END"
    ],
    "postgresql": [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
        "CREATE TRIGGER no_updates BEFORE UPDATE ON api_tokens FOR EACH ROW EXECUTE FUNCTION refuse()",
    ],
}


def test_a_failed_update_of_the_last_use_does_not_refuse_the_token(
    database: Database, clock: FakeClock
) -> None:
    secret = issue(database, clock).secret
    with database.transaction() as session:
        for statement in REJECT_UPDATES[database.dialect]:
            session.execute(text(statement))
    assert authenticate_token(secret, database=database, now=clock.now())
    assert last_used_at(database) is None


@pytest.mark.parametrize("permissions", [["gone.write"], ["gone.write", "fiches.read"]])
def test_a_removed_permission_grants_nothing(
    database: Database, clock: FakeClock, permissions: list[str]
) -> None:
    secret = issue(database, clock).secret
    with database.transaction() as session:
        session.execute(update(ApiTokenRow).values(permissions=permissions))
    caller = authenticate_token(secret, database=database, now=clock.now())
    assert caller is not None
    assert set(caller.grants) == ({Permission.FICHES} if len(permissions) == 2 else set())


ANY_TOKEN = {"name": "x", "permissions": ["*"], "scope": "ALL"}


def test_a_revoked_token_is_refused_from_the_next_call(
    database: Database, clock: FakeClock
) -> None:
    issued, other = (create_token(ANY_TOKEN, database=database, clock=clock) for _ in range(2))
    assert authenticate_token(issued.secret, database=database, now=clock.now())
    revoked = revoke_token(issued.token.id, database=database, clock=clock)
    assert revoked.revoked_at == clock.now()
    assert authenticate_token(issued.secret, database=database, now=clock.now()) is None
    assert authenticate_token(other.secret, database=database, now=clock.now())


def test_a_second_revocation_keeps_the_first_time(database: Database, clock: FakeClock) -> None:
    token = create_token(ANY_TOKEN, database=database, clock=clock).token
    first = revoke_token(token.id, database=database, clock=clock)
    clock.advance_one_second()
    assert revoke_token(token.id, database=database, clock=clock) == first


def test_revoking_an_unknown_token_raises_not_found(database: Database, clock: FakeClock) -> None:
    with pytest.raises(NotFoundError, match=r"^Token with ID '7' not found$"):
        revoke_token(7, database=database, clock=clock)


def test_tokens_are_listed_newest_first_with_a_filter_for_active_ones(
    database: Database, clock: FakeClock
) -> None:
    ids = [
        create_token(ANY_TOKEN | more, database=database, clock=clock).token.id
        for more in ({}, {"expiresInDays": 1}, {})
    ]
    revoke_token(ids[2], database=database, clock=clock)
    expires_at = expiry_of(database, ids[1])
    with database.reading() as session:
        assert [token.id for token in list_tokens(session)] == ids[::-1]
        assert [token.id for token in list_tokens(session, active_at=clock.now())] == [
            ids[1],
            ids[0],
        ]
        assert [token.id for token in list_tokens(session, active_at=expires_at)] == [ids[0]]


def expiry_of(database: Database, token_id: int) -> datetime | None:
    with database.reading() as session:
        return next(token.expires_at for token in list_tokens(session) if token.id == token_id)


def test_processes_that_concurrently_use_and_revoke_a_token_agree(
    database: Database, database_url: str, clock: FakeClock
) -> None:
    issued = create_token(ANY_TOKEN, database=database, clock=clock)
    calls = [
        (database_url, issued.secret, issued.token.id, clock.now(), is_user)
        for is_user in (True, False) * 2
    ]
    first, revoker, second, other = run_in_processes(use_or_revoke, *calls)
    for found in (first, second):
        known = found.count("known")
        assert found == ["known"] * known + ["refused"] * 2, "once refused, it stays refused"
    assert revoker[0] == other[0], "both get the same time of revocation"
    assert (revoker[1], other[1]) == ("refused", "refused")
