"""A run begins in PREVIEW with what the rule was then, and every request for a worker has a key of
its own."""

from dataclasses import replace
from datetime import timedelta

from automation_pipeline.core.logs import correlated
from automation_pipeline.pricing.models.runs import RuleTrigger, RunAction
from automation_pipeline.pricing.queries.runs import (
    NewRun,
    add_run,
    add_runs,
    file_run_requests,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import filed_requests
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.pricing.kept import SHOP, a_rule, filed, run_row


def test_a_run_is_of_the_rule_as_it_is_now(database: Database, clock: StandingClock) -> None:
    rule = a_rule(database, clock, project_id="eu")
    with correlated("abc"), database.transaction() as session:
        new = NewRun(rule=rule, shop=SHOP, trigger=RuleTrigger.CLI, actor="cli:me")
        id_ = add_run(session, new, clock.now())
    row = run_row(database, id_)
    assert (row.status, row.wish, row.wished_by, row.trigger, row.shop) == (
        "PREVIEW",
        None,
        None,
        "cli",
        SHOP,
    )
    assert (row.project_id, row.rule_id, row.rule_version, row.rule_version_hash) == (
        "eu",
        rule.id,
        1,
        rule.version_hash,
    )
    assert row.run_metadata == {
        "actor": "cli:me",
        "correlationId": "abc",
        "source": "cli",
        "force": False,
    }
    assert (row.created_by, row.created_at, row.updated_at) == ("cli:me", clock.now(), clock.now())
    assert (row.requests, row.retry_cycle, row.lease_token, row.rollback_state) == (0, 0, 0, "NONE")
    assert filed(database) == []


def test_a_run_may_say_more_of_itself(database: Database, clock: StandingClock) -> None:
    rule, at = a_rule(database, clock), clock.now() - timedelta(hours=1)
    with database.transaction() as session:
        new = NewRun(rule=rule, shop=SHOP, trigger=RuleTrigger.REPAIR, actor="user:1")
        parent = add_run(session, new, clock.now())
        more = replace(
            new, wish=RunAction.APPLY, scheduled_for=at, parent_run_id=parent, force=True
        )
        child = add_run(session, more, clock.now())
    row = run_row(database, child)
    assert (row.wish, row.wished_by, row.scheduled_for, row.parent_run_id) == (
        "apply",
        "user:1",
        at,
        parent,
    )
    assert row.run_metadata is not None
    assert (row.run_metadata["force"], row.run_metadata["correlationId"]) == (True, None)


def test_each_request_of_a_run_has_the_next_number(
    database: Database, clock: StandingClock
) -> None:
    rule = a_rule(database, clock)
    with database.transaction() as session:
        new = NewRun(rule=rule, shop=SHOP, trigger=RuleTrigger.API, actor="user:1")
        id_ = add_run(session, new, clock.now())
        keys = [file_run_requests(session, [id_], clock.now())[id_] for _ in range(3)]
        requests = filed_requests(session, keys)
    assert keys == [f"rule-run-{id_}-{number}" for number in (1, 2, 3)]
    assert filed(database) == [(key, "rule_run", {"run_id": id_}) for key in keys]
    tags = {"pricing/run_id": str(id_), "pricing/rule_id": str(rule.id)}
    assert [dict(request.tags) for request in requests] == [tags] * 3
    assert run_row(database, id_).requests == 3


def test_of_a_rule_that_was_run_for_that_time_before_there_is_no_new_run(
    database: Database, clock: StandingClock
) -> None:
    rules = [a_rule(database, clock) for _ in range(3)]

    def scheduled(at: timedelta) -> list[NewRun]:
        due_at = clock.now() + at
        return [
            NewRun(
                rule=rule,
                shop=SHOP,
                trigger=RuleTrigger.SCHEDULE,
                actor="schedule",
                scheduled_for=due_at,
            )
            for rule in rules
        ]

    with database.transaction() as session:
        first = add_runs(session, scheduled(timedelta(0))[:2], clock.now())
        second = add_runs(session, scheduled(timedelta(0)), clock.now())
        third = add_runs(session, scheduled(timedelta(hours=1)), clock.now())
        assert add_runs(session, [], clock.now()) == {}
        assert file_run_requests(session, [], clock.now()) == {}
        assert file_run_requests(session, [9999], clock.now()) == {}
    assert (set(first), set(second), set(third)) == (
        {rules[0].id, rules[1].id},
        {rules[2].id},
        {rule.id for rule in rules},
    )
    assert len({*first.values(), *second.values(), *third.values()}) == 6
