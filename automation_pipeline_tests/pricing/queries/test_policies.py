"""A project has one policy or none."""

from automation_pipeline.pricing.models.rules import parse_policy
from automation_pipeline.pricing.queries.rules import (
    delete_policy,
    policy_of,
    save_policy,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock

TIGHT = parse_policy(
    {
        "autoApply": True,
        "maxPctDelta": 0.15,
        "floor": 100,
        "ceilings": {"sku-1": 9000},
        "dailyChangeBudgetPct": "0.25",
        "currency": "EUR",
    }
)
LOOSE = parse_policy({})


def test_a_policy_is_read_as_it_was_put_and_stands_for_its_project_only(
    database: Database, clock: StandingClock
) -> None:
    with database.transaction() as session:
        save_policy(session, "eu", TIGHT, actor="user:1", now=clock.now())
        assert policy_of(session, "eu") == TIGHT
        assert policy_of(session, "default") is None


def test_a_new_policy_stands_in_place_of_the_old_one(
    database: Database, clock: StandingClock
) -> None:
    with database.transaction() as session:
        save_policy(session, "eu", TIGHT, actor="user:1", now=clock.now())
        assert policy_of(session, "eu") == TIGHT
        save_policy(session, "eu", LOOSE, actor="user:2", now=clock.now())
        assert policy_of(session, "eu") == LOOSE


def test_a_policy_is_removed_once(database: Database, clock: StandingClock) -> None:
    with database.transaction() as session:
        save_policy(session, "eu", TIGHT, actor="user:1", now=clock.now())
        assert delete_policy(session, "eu") is True
        assert delete_policy(session, "eu") is False
        assert policy_of(session, "eu") is None
