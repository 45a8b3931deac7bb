"""A new token: shown once, kept as a hash."""

import pytest
from sqlalchemy import select, text

from automation_pipeline.access.models import is_token, token_hash
from automation_pipeline.access.tables import ApiTokenRow
from automation_pipeline.access.tokens import authenticate_token, create_token
from automation_pipeline.core.access import Caller, Permission, whole_grants
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock

WISH = {
    "name": "nightly",
    "permissions": ["automation.run", "fiches"],
    "scope": "GROUP",
    "groupes": ["NORD"],
    "expiresInDays": 30,
}


def test_what_is_stored_is_what_was_asked_for_and_no_secret(
    database: Database, clock: StandingClock
) -> None:
    issued = create_token(WISH, database=database, clock=clock)
    assert is_token(issued.secret)
    with database.reading() as session:
        row = session.scalars(select(ApiTokenRow)).one()
        everything = str(session.execute(text("SELECT * FROM api_tokens")).one())
    assert row.token_hash == token_hash(issued.secret)
    assert issued.secret.startswith(row.prefix)
    assert issued.secret not in everything
    assert issued.secret[len(row.prefix) :] not in everything
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


def test_no_two_tokens_are_the_same(database: Database, clock: StandingClock) -> None:
    issued = [create_token(WISH, database=database, clock=clock) for _ in range(5)]
    assert len({one.secret for one in issued}) == len({one.token.id for one in issued}) == 5


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"scope": "SELF"}, "crmUserId"),
        ({"permissions": ["everything"]}, "permissions.0"),
        ({"name": ""}, "name"),
    ],
)
def test_a_wrong_wish_stores_nothing(
    database: Database, clock: StandingClock, given: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        create_token(WISH | given, database=database, clock=clock)
    assert field in dict(refused.value.fields)
    with database.reading() as session:
        assert session.scalars(select(ApiTokenRow)).all() == []


def test_nobody_hands_out_more_than_they_have(database: Database, clock: StandingClock) -> None:
    with pytest.raises(InvalidInputError) as refused:
        create_token(WISH, database=database, clock=clock, issuer=Caller("user:1", {}))
    assert list(dict(refused.value.fields)) == ["permissions"]
    giver = Caller("machine:environment", whole_grants())
    assert create_token(WISH, database=database, clock=clock, issuer=giver).token.name == "nightly"


OF_ACME = {
    "name": "agents",
    "orgId": "acme",
    "permissions": ["org-jobs.agents.write"],
    "scope": "ALL",
}


def test_a_token_of_an_organisation_is_known_as_such(
    database: Database, clock: StandingClock
) -> None:
    asked: list[str] = []

    def knows(_session: object, org_id: str) -> bool:
        asked.append(org_id)
        return True

    issued = create_token(OF_ACME, database=database, clock=clock, organisation_exists=knows)
    assert (issued.token.org_id, asked) == ("acme", ["acme"])
    caller = authenticate_token(issued.secret, database=database, now=clock.now())
    assert caller is not None
    assert (caller.org_id, list(caller.grants)) == ("acme", [Permission.ORG_JOBS_AGENTS])


def test_nobody_gets_a_token_of_an_organisation_that_is_not_there(
    database: Database, clock: StandingClock
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        create_token(OF_ACME, database=database, clock=clock)
    assert refused.value.fields == (("orgId", "there is no organisation 'acme'"),)
    with database.reading() as session:
        assert session.scalars(select(ApiTokenRow)).all() == []
