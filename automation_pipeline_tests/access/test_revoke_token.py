"""Revoking: at once, for good, and safe to repeat."""

import pytest

from automation_pipeline.access.queries import list_tokens
from automation_pipeline.access.tokens import authenticate_token, create_token, revoke_token
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.access.processes import use_or_revoke
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.processes import at_once

WISH = {"name": "x", "permissions": ["*"], "scope": "ALL"}


def test_a_revoked_token_is_refused_from_the_next_call_on(
    database: Database, clock: StandingClock
) -> None:
    issued, other = (create_token(WISH, database=database, clock=clock) for _ in range(2))
    assert authenticate_token(issued.secret, database=database, now=clock.now())
    revoked = revoke_token(issued.token.id, database=database, clock=clock)
    assert revoked.revoked_at == clock.now()
    assert authenticate_token(issued.secret, database=database, now=clock.now()) is None
    assert authenticate_token(other.secret, database=database, now=clock.now())


def test_the_first_revocation_counts(database: Database, clock: StandingClock) -> None:
    token = create_token(WISH, database=database, clock=clock).token
    first = revoke_token(token.id, database=database, clock=clock)
    clock.pass_time_a_second()
    assert revoke_token(token.id, database=database, clock=clock) == first


def test_what_does_not_exist_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError, match=r"^Token with ID '7' not found$"):
        revoke_token(7, database=database, clock=clock)


def test_the_list_is_newest_first_and_of_good_ones_when_asked(
    database: Database, clock: StandingClock
) -> None:
    ids = [
        create_token(WISH | more, database=database, clock=clock).token.id
        for more in ({}, {"expiresInDays": 1}, {})
    ]
    revoke_token(ids[2], database=database, clock=clock)
    expires_at = list_expiry(database, ids[1])
    with database.reading() as session:
        assert [token.id for token in list_tokens(session)] == ids[::-1]
        assert [token.id for token in list_tokens(session, good_at=clock.now())] == [ids[1], ids[0]]
        assert [token.id for token in list_tokens(session, good_at=expires_at)] == [ids[0]]


def list_expiry(database: Database, token_id: int) -> object:
    with database.reading() as session:
        return next(token.expires_at for token in list_tokens(session) if token.id == token_id)


def test_processes_that_use_and_revoke_one_token_agree(
    database: Database, database_url: str, clock: StandingClock
) -> None:
    issued = create_token(WISH, database=database, clock=clock)
    calls = [
        (database_url, issued.secret, issued.token.id, clock.now(), is_user)
        for is_user in (True, False) * 2
    ]
    first, revoker, second, other = at_once(use_or_revoke, *calls)
    for found in (first, second):
        known = found.count("known")
        assert found == ["known"] * known + ["refused"] * 2, "once refused, it stays refused"
    assert revoker[0] == other[0], "they are told the one instant"
    assert (revoker[1], other[1]) == ("refused", "refused")
