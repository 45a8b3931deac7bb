"""Rules as they are kept: found by what is asked, and read as they were written."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from sqlalchemy import select

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.pricing.models.rules import parse_rule
from automation_pipeline.pricing.pricing_rules import delete_rule
from automation_pipeline.pricing.queries.rules import (
    add_rule,
    get_rule,
    list_rules,
    lock_rule,
    rule_at,
    save_rule,
    versions_of,
)
from automation_pipeline.pricing.tables import RuleRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import a_rule
from automation_pipeline_tests.pricing.rules.rules import any_selector, any_transform, rule

TEN_PERCENT, TWENTY_PERCENT = (rule({"op": "percent", "value": value}) for value in (-10, -20))


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(selector=any_selector, transform=any_transform())
def test_any_rule_is_read_as_it_was_written(
    selector: dict[str, object],
    transform: dict[str, object],
    database: Database,
    clock: StandingClock,
) -> None:
    written = rule(transform, selector=selector, endsAt="2026-06-01T00:00:00.123456Z")
    with database.transaction() as session:
        added = add_rule(session, written, project_id="eu", actor="user:1", now=clock.now())
        assert get_rule(session, added.id).as_input == written
        assert rule_at(session, added.id, 1) == parse_rule(
            versions_of(session, added.id, 1, 0)[0].rule
        )
        assert rule_at(session, added.id, 1).transform == written.transform
        assert rule_at(session, added.id, 1).selector == written.selector


def test_every_version_is_kept_as_it_was(database: Database, clock: StandingClock) -> None:
    with database.transaction() as session:
        id_ = add_rule(session, TEN_PERCENT, project_id="eu", actor="user:1", now=clock.now()).id
        clock.pass_time_a_second()
        renamed = TEN_PERCENT.model_copy(update={"name": "Other"})
        assert save_rule(session, id_, renamed, actor="user:2", now=clock.now()).version == 1
        assert save_rule(session, id_, TWENTY_PERCENT, actor="user:3", now=clock.now()).version == 2
        assert save_rule(session, id_, TEN_PERCENT, actor="user:4", now=clock.now()).version == 3
        kept = versions_of(session, id_, 10, 0)
        assert [(one.version, one.created_by) for one in kept] == [
            (3, "user:4"),
            (2, "user:3"),
            (1, "user:1"),
        ]
        assert [one.version for one in versions_of(session, id_, 1, 1)] == [2]
        assert kept[0].version_hash == kept[2].version_hash != kept[1].version_hash
        assert rule_at(session, id_, 1) == TEN_PERCENT
        assert rule_at(session, id_, 2) == TWENTY_PERCENT


def test_a_version_that_never_was_is_not_found(database: Database, clock: StandingClock) -> None:
    known = a_rule(database, clock)
    with database.reading() as session:
        with pytest.raises(NotFoundError, match=f"Pricing rule {known.id} has no version 2"):
            rule_at(session, known.id, 2)
        with pytest.raises(NotFoundError, match="Pricing rule 99 not found"):
            versions_of(session, 99, 10, 0)


@pytest.mark.parametrize("ask", [get_rule, lock_rule])
def test_a_deleted_rule_is_there_only_for_those_who_ask_for_it(
    ask: object, database: Database, clock: StandingClock
) -> None:
    assert callable(ask)
    gone = a_rule(database, clock)
    delete_rule(gone.id, database=database, clock=clock, actor="user:12")
    with database.transaction() as session:
        with pytest.raises(NotFoundError, match=f"^Pricing rule {gone.id} not found"):
            ask(session, gone.id)
        assert ask(session, gone.id, deleted_too=True).deleted_at == clock.now()
        assert len(versions_of(session, gone.id, 10, 0)) == 1


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, ["Été à 50 %", "Winter_sale", "Wintersale", "Summer sale"]),
        ({"project_id": "eu"}, ["Winter_sale", "Wintersale"]),
        ({"project_id": "nowhere"}, []),
        ({"enabled": True}, ["Été à 50 %", "Wintersale", "Summer sale"]),
        ({"enabled": False}, ["Winter_sale"]),
        ({"q": "SALE"}, ["Winter_sale", "Wintersale", "Summer sale"]),
        ({"q": "winter_s"}, ["Winter_sale"]),
        ({"q": "%"}, ["Été à 50 %"]),
        ({"q": "été"}, ["Été à 50 %"]),
        ({"q": "winter", "enabled": True, "project_id": "eu"}, ["Wintersale"]),
        ({"q": ""}, ["Été à 50 %", "Winter_sale", "Wintersale", "Summer sale"]),
    ],
)
def test_rules_are_found_by_what_is_asked_newest_first(
    asked: Mapping[str, object], names: list[str], database: Database, clock: StandingClock
) -> None:
    a_rule(database, clock)
    a_rule(database, clock, project_id="eu", name="Wintersale")
    a_rule(database, clock, project_id="eu", name="Winter_sale", enabled=False)
    a_rule(database, clock, name="Été à 50 %")
    gone = a_rule(database, clock, name="Gone sale in winter_s 50 %")
    delete_rule(gone.id, database=database, clock=clock, actor="user:12")
    with database.reading() as session:
        assert [one.name for one in list_rules(session, **asked, limit=10, offset=0)] == names
        assert [one.name for one in list_rules(session, **asked, limit=2, offset=1)] == names[1:3]


def test_instants_are_kept_to_the_microsecond(database: Database, clock: StandingClock) -> None:
    clock.pass_time(timedelta(microseconds=123_456))
    known = a_rule(database, clock, scheduleAt="2026-06-01T02:00:00.654321+02:00")
    with database.reading() as session:
        read = get_rule(session, known.id)
    assert read == known
    assert (read.updated_at, f"{read.schedule_at:%H:%M:%S.%f}") == (clock.now(), "00:00:00.654321")


@pytest.mark.parametrize("database_kind", ["postgres"])
def test_who_refers_to_a_rule_that_is_held_does_not_wait(
    database: Database, clock: StandingClock
) -> None:
    """PostgreSQL locks the rule so when a run of it is written twice in one transaction."""
    held = a_rule(database, clock)
    checked = select(RuleRow.id).where(RuleRow.id == held.id)
    with database.transaction() as session, database.transaction() as other:
        lock_rule(session, held.id)
        assert (
            other.scalar(checked.with_for_update(read=True, key_share=True, nowait=True)) == held.id
        )
