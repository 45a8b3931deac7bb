"""A run is asked for when the rule may have one: one at a time, and not while it rests."""

from datetime import timedelta

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.pricing.pricing_rules import delete_rule, update_rule
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import (
    a_rule,
    a_run,
    asked_for,
    change_run,
    filed,
    look_or_ask,
    run_row,
    run_rows,
)
from automation_pipeline_tests.processes import CREW, at_once

HOUR = timedelta(hours=1)


def test_a_run_is_filed_with_the_request_for_it(database: Database, clock: StandingClock) -> None:
    rule = a_rule(database, clock)
    update_rule(rule.id, {"currency": "EUR"}, database=database, clock=clock, actor="user:12")
    id_ = asked_for(rule, database, clock)
    row = run_row(database, id_)
    assert (row.status, row.wish, row.wished_by, row.trigger) == (
        "PREVIEW",
        "apply",
        "user:12",
        "api",
    )
    assert (row.rule_version, row.rule_version_hash != rule.version_hash) == (2, True)
    assert row.run_metadata == {
        "actor": "user:12",
        "correlationId": None,
        "source": "api",
        "force": False,
    }
    assert filed(database) == [(f"rule-run-{id_}-1", "rule_run", {"run_id": id_})]


@pytest.mark.parametrize(
    ("status", "wish", "words"),
    [
        ("PREVIEW", "apply", "waits to be applied"),
        ("QUEUED", None, "is QUEUED"),
        ("APPLYING", None, "is APPLYING"),
        ("FAILED", "retry", "waits to be applied"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_one_run_of_a_rule_at_a_time(
    status: str,
    wish: str | None,
    words: str,
    *,
    force: bool,
    database: Database,
    clock: StandingClock,
) -> None:
    rule, other = a_rule(database, clock), a_rule(database, clock)
    run_id = a_run(database, rule, status, clock.now(), wish=wish)
    with pytest.raises(
        ConflictError, match=f"Run {run_id} of pricing rule {rule.id} {words}: wait for its end"
    ):
        asked_for(rule, database, clock, force=force)
    assert len(run_rows(database)) == 1
    assert filed(database) == []
    asked_for(other, database, clock)


def test_a_preview_that_nobody_wants_applied_is_in_nobodys_way(
    database: Database, clock: StandingClock
) -> None:
    rule = a_rule(database, clock)
    a_run(database, rule, "PREVIEW", clock.now())
    first = asked_for(rule, database, clock)
    change_run(database, first, cancel_requested_at=clock.now())
    assert asked_for(rule, database, clock) > first


@pytest.mark.parametrize(
    ("status", "ago", "rests"),
    [
        ("APPLIED", timedelta(minutes=59), True),
        ("PARTIAL", timedelta(0), True),
        ("APPLIED", HOUR, False),
        ("FAILED", timedelta(minutes=5), False),
        ("ROLLED_BACK", timedelta(minutes=5), False),
    ],
)
def test_a_rule_rests_after_it_was_applied_unless_it_is_forced(
    status: str, ago: timedelta, *, rests: bool, database: Database, clock: StandingClock
) -> None:
    rule = a_rule(database, clock, cooldownMinutes=60)
    a_run(database, rule, status, clock.now() - ago)
    if rests:
        until = clock.now() - ago + HOUR
        with pytest.raises(
            ConflictError, match=f"rests until {until:%Y-%m-%dT%H:%M:%S}.000Z after its last run"
        ):
            asked_for(rule, database, clock)
        assert filed(database) == []
    row = run_row(database, asked_for(rule, database, clock, force=rests))
    assert row.run_metadata is not None
    assert row.run_metadata["force"] is rests


def test_a_rule_that_is_disabled_or_gone_is_not_run(
    database: Database, clock: StandingClock
) -> None:
    disabled, gone = a_rule(database, clock, enabled=False), a_rule(database, clock)
    delete_rule(gone.id, database=database, clock=clock, actor="user:12")
    with pytest.raises(
        ConflictError, match=f"Pricing rule {disabled.id} is disabled: enable it first"
    ):
        asked_for(disabled, database, clock, force=True)
    with pytest.raises(NotFoundError, match=f"Pricing rule {gone.id} not found"):
        asked_for(gone, database, clock)
    assert run_rows(database) == []


def test_of_several_processes_that_ask_at_once_one_gets_its_run(
    database: Database, database_url: str, clock: StandingClock
) -> None:
    rule = a_rule(database, clock)
    now = f"{clock.now():%Y-%m-%dT%H:%M}"
    assert sorted(at_once(look_or_ask, *[(database_url, now, rule.id)] * CREW)) == [0] * (
        CREW - 1
    ) + [1]
    assert len(run_rows(database)) == len(filed(database)) == 1
