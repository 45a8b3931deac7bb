"""Create, change and delete rules and guardrails."""

import threading
from typing import Any

import pytest
from sqlalchemy import func, select

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.pricing.models.rules import Policy, PricingRule, version_hash
from automation_pipeline.pricing.pricing_rules import (
    create_rule,
    delete_rule,
    get_rule,
    policy_of,
    put_policy,
    remove_policy,
    update_rule,
    versions_of,
)
from automation_pipeline.pricing.tables import PricingPolicyRow, RuleRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.pricing.rows import GIVEN, events, make_rule, make_run


def test_a_new_rule_is_stored_with_its_first_version(database: Database, clock: FakeClock) -> None:
    rule = make_rule(database, clock, project_id="eu")
    with database.reading() as session:
        assert get_rule(session, rule.id) == rule
        [version] = versions_of(session, rule.id, 10, 0)
    assert (rule.project_id, rule.version, rule.created_by, rule.deleted_at) == (
        "eu",
        1,
        "user:12",
        None,
    )
    assert (rule.created_at, rule.updated_at) == (clock.now(), clock.now())
    assert rule.version_hash == version.version_hash == version_hash(rule.as_input)
    assert version.rule["selector"] == {"tag": ["summer"]}
    assert (version.version, version.created_by) == (1, "user:12")


def test_a_new_rule_emits_an_event(database: Database, clock: FakeClock) -> None:
    rule = make_rule(database, clock)
    [event] = events(database, "rule.created")
    assert (event.key, event.producer, event.occurred_at) == (
        f"rule-{rule.id}:created",
        "pricing",
        clock.now(),
    )
    assert event.payload == {
        "ruleId": str(rule.id),
        "projectId": "default",
        "name": "Summer sale",
        "version": 1,
        "createdBy": "user:12",
    }


@pytest.mark.parametrize(
    ("given", "project_id", "field"),
    [
        ({**GIVEN, "name": ""}, "default", "name"),
        ({**GIVEN, "transform": {"op": "set", "value": 999}}, "default", "currency"),
        (GIVEN, "two words", "project"),
        (GIVEN, "", "project"),
        (GIVEN, "x" * 101, "project"),
    ],
)
def test_an_invalid_rule_is_not_stored(
    given: dict[str, object], project_id: str, field: str, database: Database, clock: FakeClock
) -> None:
    with pytest.raises(InvalidInputError, match=r"^Invalid pricing rule data$") as caught:
        create_rule(given, project_id=project_id, database=database, clock=clock, actor="user:12")
    assert [at for at, _ in caught.value.fields] == [field]
    with database.reading() as session:
        assert session.scalar(select(func.count(RuleRow.id))) == 0
    assert events(database, "rule.created") == []


def patched(
    rule_id: int,
    patch: dict[str, object],
    database: Database,
    clock: FakeClock,
) -> PricingRule:
    return update_rule(rule_id, patch, database=database, clock=clock, actor="user:13")


def stored(database: Database, rule: PricingRule) -> PricingRule:
    with database.reading() as session:
        return get_rule(session, rule.id)


def versions(database: Database, rule: PricingRule) -> list[tuple[int, str]]:
    with database.reading() as session:
        return [(one.version, one.created_by) for one in versions_of(session, rule.id, 10, 0)]


def test_a_change_without_effect_on_prices_keeps_the_version(
    database: Database, clock: FakeClock
) -> None:
    before = make_rule(database, clock, description="Old", cooldownMinutes=5)
    clock.advance_one_second()
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
def test_a_change_that_affects_prices_is_a_new_version(
    patch: dict[str, object], database: Database, clock: FakeClock
) -> None:
    before = make_rule(database, clock)
    after = patched(before.id, patch, database, clock)
    assert after == stored(database, before)
    assert (after.version, after.version_hash != before.version_hash) == (2, True)
    assert versions(database, before) == [(2, "user:13"), (1, "user:12")]


def test_an_equivalent_spelling_of_a_rule_is_not_a_new_version(
    database: Database, clock: FakeClock
) -> None:
    before = make_rule(database, clock, selector={"tag": ["a", "b"]})
    after = patched(before.id, {"selector": {"tag": ["b", "a"]}}, database, clock)
    assert (after.version, after.selector.tag) == (1, ("b", "a"))
    assert versions(database, before) == [(1, "user:12")]


@pytest.mark.parametrize(
    "patch", [{}, {"name": "Summer sale"}, {"selector": {"tag": "summer"}, "currency": None}]
)
def test_a_patch_without_changes_changes_nothing(
    patch: dict[str, object], database: Database, clock: FakeClock
) -> None:
    before = make_rule(database, clock)
    clock.advance_one_second()
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
def test_an_invalid_patch_stores_nothing(
    patch: dict[str, object], database: Database, clock: FakeClock
) -> None:
    before = make_rule(database, clock)
    with pytest.raises(InvalidInputError):
        patched(before.id, {"description": "New", **patch}, database, clock)
    assert stored(database, before) == before
    assert versions(database, before) == [(1, "user:12")]


def test_an_unknown_rule_is_not_found(database: Database, clock: FakeClock) -> None:
    gone = make_rule(database, clock)
    delete_rule(gone.id, database=database, clock=clock, actor="user:12")
    for rule_id in (gone.id, 99):
        with pytest.raises(NotFoundError, match=f"Pricing rule {rule_id} not found"):
            patched(rule_id, {"name": "New"}, database, clock)


def test_concurrent_patches_are_all_stored(database: Database, clock: FakeClock) -> None:
    rule = make_rule(database, clock)
    patch: dict[str, Any] = {
        "name": "New",
        "description": "Text",
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
    assert (after.name, after.description, after.cooldown_minutes) == ("New", "Text", 7)
    assert (after.on_drift, after.transform.value, after.version) == ("overwrite", -30, 3)
    assert len(versions(database, rule)) == 3


def delete_existing(rule: PricingRule, database: Database, clock: FakeClock) -> None:
    delete_rule(rule.id, database=database, clock=clock, actor="user:13")


def test_a_deleted_rule_stays_disabled_for_its_runs(database: Database, clock: FakeClock) -> None:
    rule, other = make_rule(database, clock), make_rule(database, clock)
    clock.advance_one_second()
    delete_existing(rule, database, clock)
    with database.reading() as session:
        kept = get_rule(session, rule.id, deleted_too=True)
        assert get_rule(session, other.id) == other
    changes = {"enabled": False, "deleted_at": clock.now(), "updated_at": clock.now()}
    assert kept == rule.model_copy(update=changes)
    [event] = events(database, "rule.deleted")
    assert event.payload == {"ruleId": str(rule.id), "projectId": "default", "deletedBy": "user:13"}


@pytest.mark.parametrize("status", ["QUEUED", "APPLYING"])
def test_a_rule_with_an_active_run_is_not_deleted(
    status: str, database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock)
    run_id = make_run(database, rule, status, clock.now())
    with pytest.raises(ConflictError, match=f"cannot be deleted while run {run_id} has not ended"):
        delete_existing(rule, database, clock)
    with database.reading() as session:
        assert get_rule(session, rule.id) == rule
    assert events(database, "rule.deleted") == []


@pytest.mark.parametrize("status", ["PREVIEW", "APPLIED", "PARTIAL", "FAILED", "ROLLED_BACK"])
def test_a_rule_with_other_runs_is_deleted(
    status: str, database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock)
    make_run(database, rule, status, clock.now())
    delete_existing(rule, database, clock)


def test_deleting_an_unknown_rule_is_not_found(database: Database, clock: FakeClock) -> None:
    rule = make_rule(database, clock)
    delete_existing(rule, database, clock)
    with pytest.raises(NotFoundError, match=f"Pricing rule {rule.id} not found"):
        delete_existing(rule, database, clock)


def put_document(
    project_id: str, given: dict[str, object], database: Database, clock: FakeClock
) -> Policy:
    return put_policy(project_id, given, database=database, clock=clock, actor="user:12")


def test_a_policy_replaces_the_previous_one(database: Database, clock: FakeClock) -> None:
    put_document("eu", {"maxPctDelta": 0.2, "floor": 100, "currency": "EUR"}, database, clock)
    clock.advance_one_second()
    policy = put_document("eu", {"autoApply": True}, database, clock)
    assert (policy.auto_apply, policy.floor, policy.max_pct_delta) == (True, None, None)
    with database.reading() as session:
        assert policy_of(session, "eu") == policy
        row = session.scalars(select(PricingPolicyRow)).one()
    assert (row.updated_by, row.updated_at) == ("user:12", clock.now())


def test_each_policy_change_emits_an_event(database: Database, clock: FakeClock) -> None:
    for given in ({"maxPctDelta": 0.2}, {"autoApply": True}, {"autoApply": True}):
        put_document("eu", given, database, clock)
    result = [event.payload for event in events(database, "policy.changed")]
    assert {(payload["projectId"], payload["changedBy"]) for payload in result} == {
        ("eu", "user:12")
    }
    assert sorted(payload["policy"]["autoApply"] for payload in result) == [False, True, True]


@pytest.mark.parametrize(
    ("project_id", "given", "field"),
    [
        ("e u", {}, "project"),
        ("eu", {"floor": 5}, "currency"),
        ("eu", {"maxPctDelta": 15}, "maxPctDelta"),
    ],
)
def test_an_invalid_policy_is_not_stored(
    project_id: str, given: dict[str, object], field: str, database: Database, clock: FakeClock
) -> None:
    with pytest.raises(InvalidInputError, match=r"^Invalid pricing policy data$") as caught:
        put_document(project_id, given, database, clock)
    assert [at for at, _ in caught.value.fields] == [field]
    with database.reading() as session:
        assert session.scalar(select(func.count(PricingPolicyRow.project_id))) == 0
    assert events(database, "policy.changed") == []


def test_a_project_without_its_policy_has_none(database: Database, clock: FakeClock) -> None:
    for project_id in ("eu", "us"):
        put_policy(project_id, {}, database=database, clock=clock, actor="user:12")
    remove_policy("eu", database=database, clock=clock, actor="user:13")
    with database.reading() as session:
        assert policy_of(session, "eu") is None
        assert policy_of(session, "us") is not None
    [event] = events(database, "policy.removed")
    assert event.payload == {"projectId": "eu", "removedBy": "user:13"}


def test_removing_an_unknown_policy_is_not_found(database: Database, clock: FakeClock) -> None:
    with pytest.raises(NotFoundError, match="Project eu has no pricing policy"):
        remove_policy("eu", database=database, clock=clock, actor="user:13")
    assert events(database, "policy.removed") == []
