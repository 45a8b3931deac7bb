"""A patch of a rule: stored whole or not at all, a new version only where prices change, and no
patch undone."""

import threading
from typing import Any

import pytest

from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.pricing.models.rules import PricingRule
from automation_pipeline.pricing.pricing_rules import delete_rule, update_rule
from automation_pipeline.pricing.queries.rules import get_rule, versions_of
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import a_rule


def patched(
    rule_id: int,
    patch: dict[str, object],
    database: Database,
    clock: StandingClock,
) -> PricingRule:
    return update_rule(rule_id, patch, database=database, clock=clock, actor="user:13")


def stored(database: Database, rule: PricingRule) -> PricingRule:
    with database.reading() as session:
        return get_rule(session, rule.id)


def versions(database: Database, rule: PricingRule) -> list[tuple[int, str]]:
    with database.reading() as session:
        return [(one.version, one.created_by) for one in versions_of(session, rule.id, 10, 0)]


def test_what_decides_no_price_changes_no_version(database: Database, clock: StandingClock) -> None:
    before = a_rule(database, clock, description="Old", cooldownMinutes=5)
    clock.pass_time_a_second()
    after = patched(
        before.id, {"name": "New", "description": None, "enabled": False}, database, clock
    )
    changes = {"name": "New", "description": None, "enabled": False, "updated_at": clock.now()}
    assert after == stored(database, before) == before.model_copy(update=changes)
    assert versions(database, before) == [(1, "user:12")]


@pytest.mark.parametrize(
    "patch",
    [
        {"selector": {"tag": ["winter"]}},
        {"transform": {"op": "percent", "value": -11}},
        {"currency": "EUR"},
        {"onDrift": "overwrite"},
    ],
)
def test_what_decides_prices_is_a_new_version(
    patch: dict[str, object], database: Database, clock: StandingClock
) -> None:
    before = a_rule(database, clock)
    after = patched(before.id, patch, database, clock)
    assert after == stored(database, before)
    assert (after.version, after.version_hash != before.version_hash) == (2, True)
    assert versions(database, before) == [(2, "user:13"), (1, "user:12")]


def test_the_same_said_otherwise_is_no_new_version(
    database: Database, clock: StandingClock
) -> None:
    before = a_rule(database, clock, selector={"tag": ["a", "b"]})
    after = patched(before.id, {"selector": {"tag": ["b", "a"]}}, database, clock)
    assert (after.version, after.selector.tag) == (1, ("b", "a"))
    assert versions(database, before) == [(1, "user:12")]


@pytest.mark.parametrize(
    "patch", [{}, {"name": "Summer sale"}, {"selector": {"tag": "summer"}, "currency": None}]
)
def test_a_patch_that_says_nothing_new_changes_nothing(
    patch: dict[str, object], database: Database, clock: StandingClock
) -> None:
    before = a_rule(database, clock)
    clock.pass_time_a_second()
    assert patched(before.id, patch, database, clock) == before == stored(database, before)


@pytest.mark.parametrize(
    "patch",
    [
        {"name": None},
        {"transform": {"op": "percent"}},
        {"transform": {"op": "set", "value": 5}},
        {"id": 4},
    ],
)
def test_a_wrong_patch_stores_nothing(
    patch: dict[str, object], database: Database, clock: StandingClock
) -> None:
    before = a_rule(database, clock)
    with pytest.raises(InvalidInputError):
        patched(before.id, {"description": "New", **patch}, database, clock)
    assert stored(database, before) == before
    assert versions(database, before) == [(1, "user:12")]


def test_a_rule_that_is_not_there_is_not_found(database: Database, clock: StandingClock) -> None:
    gone = a_rule(database, clock)
    delete_rule(gone.id, database=database, clock=clock, actor="user:12")
    for rule_id in (gone.id, 99):
        with pytest.raises(NotFoundError, match=f"Pricing rule {rule_id} not found"):
            patched(rule_id, {"name": "New"}, database, clock)


def test_many_patches_at_once_are_all_kept(database: Database, clock: StandingClock) -> None:
    rule = a_rule(database, clock)
    patch: dict[str, Any] = {
        "name": "New",
        "description": "Said",
        "cooldownMinutes": 7,
        "onDrift": "overwrite",
        "transform": {"op": "percent", "value": -30},
    }
    threads = [
        threading.Thread(target=patched, args=(rule.id, {field: value}, database, clock))
        for field, value in patch.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = stored(database, rule)
    assert (after.name, after.description, after.cooldown_minutes) == ("New", "Said", 7)
    assert (after.on_drift, after.transform.value, after.version) == ("overwrite", -30, 3)
    assert len(versions(database, rule)) == 3
