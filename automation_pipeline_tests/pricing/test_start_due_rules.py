"""Due rules start once and ended promotions are rolled back once, also after delays."""

from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automation_pipeline.core.clock import iso
from automation_pipeline.pricing.pricing_rules import delete_rule, lock_rule, update_rule
from automation_pipeline.pricing.rules.runs import DuePriceRules
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.pricing.rows import (
    SHOP,
    change_run,
    delete_all,
    events,
    make_rule,
    make_run,
    marked_targets,
    requested_run,
    rule_row,
    run_row,
    run_rows,
    start_due,
    start_due_many,
    start_due_or_request,
    stored_requests,
)
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes

HOUR = timedelta(hours=1)
NOTHING = DuePriceRules()


def in_hours(clock: FakeClock, hours: float) -> str:
    return iso(clock.now() + hours * HOUR)


def end_run(run_id: int, database: Database, at: datetime, status: str = "APPLIED") -> None:
    change_run(
        database, run_id, status=status, wish=None, queued_at=at, started_at=at, finished_at=at
    )


def test_a_due_rule_is_started(database: Database, clock: FakeClock) -> None:
    rule, due_at = (
        make_rule(database, clock, project_id="eu", scheduleAt=iso(clock.now())),
        clock.now(),
    )
    make_rule(database, clock, scheduleAt=in_hours(clock, 1))
    clock.advance(timedelta(minutes=3))
    report = start_due(database, clock)
    [row] = run_rows(database)
    assert report == DuePriceRules(started=(row.id,))
    assert (row.rule_id, row.status, row.wish, row.wished_by) == (
        rule.id,
        "PREVIEW",
        "apply",
        "schedule",
    )
    assert (row.trigger, row.scheduled_for, row.shop, row.project_id) == (
        "schedule",
        due_at,
        SHOP,
        "eu",
    )
    assert (row.rule_version, row.rule_version_hash, row.created_by) == (
        1,
        rule.version_hash,
        "schedule",
    )
    assert stored_requests(database) == [(f"rule-run-{row.id}-1", "rule_run", {"run_id": row.id})]
    stored = rule_row(database, rule.id)
    assert (stored.schedule_at, stored.updated_at) == (None, clock.now())
    [event] = events(database, "rule.scheduled.queued")
    assert (event.correlation_id, event.occurred_at) == (f"rule-run-{row.id}", clock.now())
    assert event.payload == {
        "ruleId": str(rule.id),
        "projectId": "eu",
        "runId": str(row.id),
        "scheduledFor": iso(due_at),
    }
    assert start_due(database, clock) == NOTHING


@pytest.mark.parametrize("fields", [{"enabled": False}, {"scheduleAt": None}, {}])
def test_a_rule_that_is_not_due_is_not_started(
    fields: dict[str, object], database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, **{"scheduleAt": in_hours(clock, -1), **fields})
    if not fields:
        delete_rule(rule.id, database=database, clock=clock, actor="user:12")
    assert start_due(database, clock) == NOTHING
    assert run_rows(database) == []


@pytest.mark.parametrize(
    ("status", "requested"), [("PREVIEW", "apply"), ("QUEUED", None), ("APPLYING", None)]
)
def test_a_due_rule_is_postponed_until_its_active_run_ends(
    status: str, requested: str | None, database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, scheduleAt=in_hours(clock, 0))
    run_id = make_run(database, rule, status, clock.now(), wish=requested)
    for _ in range(2):
        assert start_due(database, clock) == DuePriceRules(put_off=(rule.id,))
        clock.advance(HOUR)
    assert stored_requests(database) == []
    end_run(run_id, database, clock.now())
    report = start_due(database, clock)
    assert (len(report.started), report.put_off) == (1, ())


def test_a_promotion_that_ended_during_an_outage_is_missed(
    database: Database, clock: FakeClock
) -> None:
    due_at = clock.now()
    rule = make_rule(database, clock, scheduleAt=iso(due_at), endsAt=in_hours(clock, 1))
    clock.advance(HOUR)
    assert start_due(database, clock) == DuePriceRules(missed=(rule.id,))
    assert start_due(database, clock) == NOTHING
    assert run_rows(database) == []
    assert rule_row(database, rule.id).schedule_at is None
    [event] = events(database, "rule.scheduled.missed")
    assert event.payload == {
        "ruleId": str(rule.id),
        "projectId": "default",
        "scheduledFor": iso(due_at),
    }


def test_a_rule_is_started_once_per_scheduled_time(database: Database, clock: FakeClock) -> None:
    rule, due_at = make_rule(database, clock, scheduleAt=iso(clock.now())), iso(clock.now())
    good = make_rule(database, clock, scheduleAt=in_hours(clock, 1))
    [run_id] = start_due(database, clock).started
    end_run(run_id, database, clock.now())
    clock.advance(HOUR)
    update_rule(rule.id, {"scheduleAt": due_at}, database=database, clock=clock, actor="user:12")
    report = start_due(database, clock)
    assert (report.before, len(report.started)) == ((rule.id,), 1)
    assert [row.rule_id for row in run_rows(database)] == [rule.id, good.id]
    assert rule_row(database, rule.id).schedule_at is None
    assert start_due(database, clock) == NOTHING


@pytest.mark.parametrize("status", ["APPLIED", "PARTIAL"])
def test_applied_prices_are_rolled_back_at_the_end_of_a_promotion(
    status: str, database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, endsAt=in_hours(clock, 1))
    targets = (
        ["APPLIED", "FAILED", "ROLLED_BACK", "APPLIED"] if status == "PARTIAL" else ["APPLIED"]
    )
    run_id = make_run(database, rule, status, clock.now(), targets, requests=4, rollbacks=2)
    assert start_due(database, clock) == NOTHING
    clock.advance(HOUR)
    assert start_due(database, clock) == DuePriceRules(ended=(run_id,))
    row = run_row(database, run_id)
    assert (row.status, row.wish, row.wished_by, row.rollbacks) == (
        status,
        "rollback",
        "schedule",
        3,
    )
    assert (row.promotion_ended_at, row.updated_at) == (clock.now(), clock.now())
    assert marked_targets(database, run_id) == [(one, one == "APPLIED") for one in targets]
    assert stored_requests(database) == [(f"rule-run-{run_id}-5", "rule_run", {"run_id": run_id})]
    [event] = events(database, "rule.promotion.ended")
    assert (event.correlation_id, event.payload["runId"]) == (f"rule-run-{run_id}", str(run_id))
    assert start_due(database, clock) == NOTHING


def test_runs_of_an_ended_promotion_are_rolled_back_newest_first(
    database: Database, clock: FakeClock
) -> None:
    rule, other = (make_rule(database, clock, endsAt=in_hours(clock, hours)) for hours in (1, 9))
    first = make_run(database, rule, "APPLIED", clock.now(), ["APPLIED"])
    make_run(database, rule, "APPLIED", clock.now(), ["APPLIED"], promotion_ended_at=clock.now())
    make_run(database, rule, "ROLLED_BACK", clock.now(), ["ROLLED_BACK"])
    make_run(database, rule, "FAILED", clock.now(), ["FAILED"])
    make_run(database, other, "APPLIED", clock.now(), ["APPLIED"])
    last = make_run(database, rule, "PARTIAL", clock.now(), ["APPLIED", "FAILED"])
    clock.advance(HOUR)
    assert start_due(database, clock) == DuePriceRules(ended=(last,))
    assert start_due(database, clock) == DuePriceRules()
    change_run(database, last, wish=None)
    assert start_due(database, clock) == DuePriceRules(ended=(first,))
    assert [row.id for row in run_rows(database) if row.wish] == [first]


@pytest.mark.parametrize("requested", [None, "retry"])
def test_a_repair_ends_with_the_run_that_it_repaired(
    requested: str | None, database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, endsAt=in_hours(clock, 1))
    run_id = make_run(database, rule, "APPLIED", clock.now(), ["APPLIED"])
    fields = {"trigger": "repair", "wish": requested, "parent_run_id": run_id}
    repair = make_run(database, rule, "PARTIAL", clock.now(), ["APPLIED", "FAILED"], **fields)
    clock.advance(HOUR)
    assert start_due(database, clock) == DuePriceRules(ended=(run_id,))
    row = run_row(database, repair)
    assert (row.status, row.wish, row.promotion_ended_at) == ("PARTIAL", None, clock.now())
    assert marked_targets(database, repair) == [("APPLIED", False), ("FAILED", False)]
    assert [key for key, _, _ in stored_requests(database)] == [f"rule-run-{run_id}-1"]
    assert start_due(database, clock) == NOTHING


@pytest.mark.parametrize(
    "fields", [{"wish": "rollback"}, {"lease_until": datetime.fromisoformat("9000-01-01T00:00Z")}]
)
def test_the_end_of_a_promotion_waits_for_an_active_repair(
    fields: dict[str, object], database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, endsAt=in_hours(clock, 1))
    run_id = make_run(database, rule, "APPLIED", clock.now(), ["APPLIED"])
    repair = make_run(
        database, rule, "APPLIED", clock.now(), ["APPLIED"], trigger="repair", **fields
    )
    clock.advance(HOUR)
    assert start_due(database, clock) == NOTHING
    assert run_row(database, repair).promotion_ended_at is None
    change_run(database, repair, wish=None, lease_until=None)
    assert start_due(database, clock) == DuePriceRules(ended=(run_id,))


@pytest.mark.parametrize("status", ["QUEUED", "APPLYING"])
def test_the_end_of_a_promotion_waits_for_another_active_run(
    status: str, database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, endsAt=in_hours(clock, 1))
    first = make_run(database, rule, "APPLIED", clock.now(), ["APPLIED"])
    last = make_run(database, rule, status, clock.now(), ["QUEUED"])
    clock.advance(HOUR)
    assert start_due(database, clock) == NOTHING
    end_run(last, database, clock.now(), "FAILED")
    assert start_due(database, clock) == DuePriceRules(ended=(first,))


@pytest.mark.parametrize("how", ["disabled", "deleted"])
def test_a_promotion_of_a_disabled_or_deleted_rule_ends(
    how: str, database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, endsAt=in_hours(clock, 1))
    run_id = make_run(database, rule, "APPLIED", clock.now(), ["APPLIED"])
    if how == "deleted":
        delete_rule(rule.id, database=database, clock=clock, actor="user:12")
    else:
        update_rule(rule.id, {"enabled": False}, database=database, clock=clock, actor="user:12")
    clock.advance(HOUR)
    assert start_due(database, clock) == DuePriceRules(ended=(run_id,))


def test_an_active_run_is_rolled_back_after_it_ends(database: Database, clock: FakeClock) -> None:
    rule = make_rule(database, clock, endsAt=in_hours(clock, 1))
    run_id = make_run(database, rule, "APPLYING", clock.now(), ["APPLYING"])
    clock.advance(2 * HOUR)
    assert start_due(database, clock) == NOTHING
    end_run(run_id, database, clock.now())
    assert start_due(database, clock) == DuePriceRules(ended=(run_id,))


def test_the_end_of_a_promotion_replaces_a_requested_retry(
    database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, endsAt=in_hours(clock, 1))
    run_id = make_run(
        database,
        rule,
        "PARTIAL",
        clock.now(),
        ["APPLIED", "FAILED"],
        wish="retry",
        wished_by="user:1",
    )
    clock.advance(HOUR)
    assert start_due(database, clock) == DuePriceRules(ended=(run_id,))
    assert run_row(database, run_id).wish == "rollback"
    assert marked_targets(database, run_id) == [("APPLIED", True), ("FAILED", False)]


def test_the_end_of_a_promotion_waits_for_a_requested_rollback(
    database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, endsAt=in_hours(clock, 1))
    run_id = make_run(
        database,
        rule,
        "APPLIED",
        clock.now(),
        ["APPLIED", "APPLIED"],
        wish="rollback",
        rollback_force=True,
    )
    clock.advance(HOUR)
    assert start_due(database, clock) == NOTHING
    assert marked_targets(database, run_id) == [("APPLIED", False)] * 2
    change_run(database, run_id, wish=None, rollback_force=False)
    assert start_due(database, clock) == DuePriceRules(ended=(run_id,))


@pytest.mark.parametrize(
    ("lease_until", "is_held"), [("9000-01-01T00:00Z", True), ("2020-01-01T00:00Z", False)]
)
def test_the_end_of_a_promotion_waits_for_a_claimed_run(
    lease_until: str, *, is_held: bool, database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, endsAt=in_hours(clock, 1))
    until = datetime.fromisoformat(lease_until)
    run_id = make_run(
        database, rule, "APPLIED", clock.now(), ["APPLIED"], lease_owner="w", lease_until=until
    )
    clock.advance(HOUR)
    assert start_due(database, clock) == (NOTHING if is_held else DuePriceRules(ended=(run_id,)))
    change_run(database, run_id, lease_until=None)
    assert start_due(database, clock) == (DuePriceRules(ended=(run_id,)) if is_held else NOTHING)


def test_an_ended_promotion_is_rolled_back_before_its_next_start_is_missed(
    database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, scheduleAt=in_hours(clock, 1), endsAt=in_hours(clock, 2))
    run_id = make_run(database, rule, "APPLIED", clock.now(), ["APPLIED"])
    clock.advance(3 * HOUR)
    assert start_due(database, clock) == DuePriceRules(ended=(run_id,))
    assert start_due(database, clock) == DuePriceRules(missed=(rule.id,))


@pytest.mark.parametrize("database_kind", ["postgres"])
def test_a_locked_rule_is_started_by_the_next_tick(database: Database, clock: FakeClock) -> None:
    held, free = (make_rule(database, clock, scheduleAt=iso(clock.now())) for _ in range(2))
    with database.transaction() as session:
        lock_rule(session, held.id)
        start_due(database, clock)
        assert [row.rule_id for row in run_rows(database)] == [free.id]
    start_due(database, clock)
    assert [row.rule_id for row in run_rows(database)] == [free.id, held.id]


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_promotion_starts_and_ends_at_most_once_for_any_ticks(
    data: st.DataObject, database: Database
) -> None:
    clock = FakeClock(datetime.fromisoformat("2026-05-04T10:00:00Z"))
    delete_all(database)  # Hypothesis may abort an example
    starts, lasts = data.draw(st.integers(-3, 5)), data.draw(st.integers(1, 6))
    rule = make_rule(
        database, clock, scheduleAt=in_hours(clock, starts), endsAt=in_hours(clock, starts + lasts)
    )
    begins_at, ends_at = clock.now() + starts * HOUR, clock.now() + (starts + lasts) * HOUR
    started, ended, missed = list[int](), list[int](), list[int]()
    for hours in (*data.draw(st.lists(st.integers(0, 4), max_size=6)), 12, 0):
        clock.advance(hours * HOUR)
        report = start_due(database, clock)
        if report.started:
            assert begins_at <= clock.now() < ends_at
            end_run(
                report.started[0],
                database,
                clock.now(),
                data.draw(st.sampled_from(["APPLIED", "PARTIAL"])),
            )
        assert clock.now() >= ends_at or not (report.ended or report.missed)
        started, ended, missed = (
            [*started, *report.started],
            [*ended, *report.ended],
            [*missed, *report.missed],
        )
    assert ended == started
    assert len(started) + len(missed) == 1
    assert (report, rule_row(database, rule.id).schedule_at) == (NOTHING, None)


def test_concurrent_processes_start_a_rule_and_end_a_promotion_once(
    database: Database, database_url: str, clock: FakeClock
) -> None:
    for _ in range(5):
        make_rule(database, clock, scheduleAt=iso(clock.now()))
        over = make_rule(database, clock, endsAt=iso(clock.now()))
        make_run(database, over, "APPLIED", clock.now(), ["APPLIED"])
    now = f"{clock.now():%Y-%m-%dT%H:%M}"
    run_in_processes(start_due_many, *[(database_url, now, 3)] * PROCESS_COUNT)
    start_due(database, clock)
    rows = run_rows(database)
    assert len({row.rule_id for row in rows}) == len(rows) == 10
    assert {(row.trigger, row.wish) for row in rows} == {("schedule", "apply"), ("api", "rollback")}
    assert {row.requests for row in rows} == {1}
    assert len(stored_requests(database)) == 10


def test_a_due_rule_and_a_concurrent_request_create_one_run(
    database: Database, database_url: str, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, scheduleAt=iso(clock.now()))
    now = f"{clock.now():%Y-%m-%dT%H:%M}"
    created = run_in_processes(
        start_due_or_request,
        *((database_url, now, rule_id) for rule_id in (0, 0, rule.id, rule.id)),
    )
    assert sum(created) == len(run_rows(database)) == len(stored_requests(database)) == 1


def test_a_requested_run_postpones_the_scheduled_start(
    database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, scheduleAt=iso(clock.now()))
    requested_run(rule, database, clock)
    assert start_due(database, clock) == DuePriceRules(put_off=(rule.id,))
    assert rule_row(database, rule.id).schedule_at == clock.now()
