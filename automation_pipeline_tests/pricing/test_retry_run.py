"""Asking for another try: of which targets, under which keys, and what is refused."""

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.queries.rules import get_rule
from automation_pipeline.pricing.runs import retry_run, roll_back_run
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.at_work import during_first_write
from automation_pipeline_tests.pricing.bench import Bench

BUSY, GONE = FailureSignal(status=500), FailureSignal(status=404)


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(4)), {"longest_pause_seconds": 0.0})


def partial(bench: Bench) -> RuleRun:
    """101 and 401 are applied; 201 failed on the way and may be tried again, 301 is hopeless."""
    bench.shop.refuse("301")
    for _ in range(4):
        bench.shop.fail_once("2", BUSY)
    run = bench.queued()
    for _ in range(4):
        ended = bench.work(run)
        bench.make_due(run.id)
    assert ended.status == "PARTIAL"
    return ended


def ask(bench: Bench, run: RuleRun, **how: object) -> RuleRun:
    return retry_run(run.id, database=bench.database, clock=bench.clock, actor="user:7", **how)


def target(bench: Bench, run: RuleRun, variant_id: str) -> RuleTargetRow:
    [found] = [one for one in bench.targets(run.id) if one.variant_id == variant_id]
    return found


def wished(bench: Bench, run: RuleRun) -> set[str | None]:
    return {one.variant_id for one in bench.targets(run.id) if one.is_wished}


def keys(bench: Bench, run: RuleRun, variant_id: str) -> list[str]:
    begin = f"{run.id}:{target(bench, run, variant_id).id}:apply:"
    told = [event.key for event in bench.events("automation.target.apply")]
    return [key.removeprefix(begin) for key in told if key.startswith(begin)]


def test_a_retry_is_a_wish_and_a_worker_is_asked_for(bench: Bench) -> None:
    run = partial(bench)
    before = len(bench.requests())
    asked = ask(bench, run)
    assert (asked.status, asked.wish, bench.run_row(run.id).wished_by) == (
        "PARTIAL",
        "retry",
        "user:7",
    )
    assert wished(bench, run) == {"201"}
    assert [config for _, config in bench.requests()[before:]] == [{"run_id": run.id}]
    assert bench.statuses(run.id)["201"] == "FAILED"


def test_the_worker_tries_them_in_a_new_cycle(bench: Bench) -> None:
    run = partial(bench)
    ask(bench, run)
    seen: list[RuleRunRow] = []
    during_first_write(bench, lambda: seen.append(bench.run_row(run.id)))
    ended = bench.work(run)
    assert [(row.status, row.started_at, row.finished_at, row.wish) for row in seen] == [
        ("APPLYING", run.started_at, None, None)
    ]
    assert (ended.status, ended.targets.applied, ended.retry_cycle, ended.wish) == (
        "PARTIAL",
        3,
        1,
        None,
    )
    assert ended.started_at == run.started_at
    assert ended.finished_at is not None
    assert run.finished_at is not None
    assert ended.finished_at >= run.finished_at
    assert keys(bench, run, "201") == ["0.0", "0.1", "0.2", "0.3", "1.0"]
    assert keys(bench, run, "101") == ["0.0"]
    done = target(bench, run, "201")
    assert (done.status, done.attempts, done.error_type, done.is_wished) == (
        "APPLIED",
        0,
        None,
        False,
    )
    assert [one.event_key for one in bench.changes(run.id)][-1] == f"{run.id}:{done.id}:apply:1.0"
    assert bench.moves("rule run", run.id)[-2:] == [
        ("PARTIAL", "APPLYING"),
        ("APPLYING", "PARTIAL"),
    ]
    assert bench.moves("rule target", done.id)[-3:] == [
        ("FAILED", "QUEUED"),
        ("QUEUED", "APPLYING"),
        ("APPLYING", "APPLIED"),
    ]


def test_each_cycle_has_its_attempts_and_its_end(bench: Bench) -> None:
    run = partial(bench)
    ask(bench, run)
    for _ in range(4):
        bench.shop.fail_once("2", BUSY)
    for _ in range(
        6
    ):  # the fifth refused write in a row opens the circuit, and a worker leaves a shop that rests
        bench.rested()
        bench.work(run)
        bench.make_due(run.id)
    failed = target(bench, run, "201")
    assert (failed.status, failed.attempts, keys(bench, run, "201")[4:]) == (
        "FAILED",
        3,
        ["1.0", "1.1", "1.2", "1.3"],
    )
    assert [event.payload["cycle"] for event in bench.events("rule.run.started")] == [0, 1]
    assert len(bench.events("rule.run.ended")) == 2
    ask(bench, run)
    assert bench.work(run).targets.applied == 3
    counted = bench.meter.drain()
    assert (
        counted["rules_target_retries_total", 'kind="manual"'],
        counted["rules_target_retries_total", 'kind="automatic"'],
    ) == (2, 6)


def test_the_hopeless_are_tried_again_with_force(bench: Bench) -> None:
    run = partial(bench)
    bench.shop.accept("301")
    ask(bench, run, force=True)
    assert wished(bench, run) == {"201", "301"}
    ended = bench.work(run)
    assert (ended.status, ended.error_type, ended.error_message) == ("APPLIED", None, None)


def test_one_that_is_chosen_is_tried_alone(bench: Bench) -> None:
    run = partial(bench)
    bench.shop.accept("301")
    ask(bench, run, target_ids=[target(bench, run, "301").id], force=True)
    bench.work(run)
    assert bench.statuses(run.id) == {
        "101": "APPLIED",
        "201": "FAILED",
        "301": "APPLIED",
        "401": "APPLIED",
    }


def test_chosen_ones_that_cannot_be_tried_are_named(bench: Bench) -> None:
    run = partial(bench)
    hopeless, applied = target(bench, run, "301").id, target(bench, run, "101").id
    with pytest.raises(InvalidInputError) as refusal:
        ask(bench, run, target_ids=[hopeless, applied, 99])
    assert refusal.value.fields == (
        ("targetIds", f"{applied} is not a failed target of the run"),
        ("targetIds", "99 is not a failed target of the run"),
        ("targetIds", f"{hopeless} would fail again: fix its cause, then use force"),
    )
    assert (bench.run(run.id).wish, wished(bench, run)) == (None, set())


def test_where_nothing_is_worth_it_nothing_is_tried(bench: Bench) -> None:
    bench.shop = FakeShop(*shelf(2))
    bench.shop.refuse("201")
    run = bench.work(bench.queued())
    with pytest.raises(ConflictError, match="No failed target of the run is worth another attempt"):
        ask(bench, run)
    with pytest.raises(ConflictError, match="No failed target of the run is worth another attempt"):
        ask(bench, run, target_ids=[])


def test_what_stands_in_its_way_is_said(bench: Bench) -> None:
    preview = bench.previewed()
    with pytest.raises(ConflictError, match="A run that is PREVIEW cannot be retried"):
        ask(bench, preview)
    queued = bench.queue(preview)
    with pytest.raises(ConflictError, match="A run that is QUEUED cannot be retried"):
        ask(bench, queued)
    applied = bench.work(queued)
    with pytest.raises(ConflictError, match="A run that is APPLIED cannot be retried"):
        ask(bench, applied)
    roll_back_run(applied.id, database=bench.database, clock=bench.clock, actor="user:7")
    with pytest.raises(ConflictError, match="waits to be worked on already: rollback"):
        ask(bench, applied)
    bench.work(applied)
    with pytest.raises(ConflictError, match="A run that is ROLLED_BACK cannot be retried"):
        ask(bench, applied)
    with pytest.raises(NotFoundError):
        retry_run(99, database=bench.database, clock=bench.clock, actor="user:7")


def test_a_run_is_not_retried_twice_nor_beside_another_run_of_its_rule(bench: Bench) -> None:
    run = partial(bench)
    ask(bench, run)
    with pytest.raises(ConflictError, match=f"Run {run.id} waits to be worked on already: retry"):
        ask(bench, run)
    bench.set_run(run.id, wish=None)
    bench.pass_minutes(60)
    with bench.database.reading() as session:
        rule = get_rule(session, run.rule_id)
    second = bench.queued(rule, force=True)
    with pytest.raises(ConflictError, match=f"Run {second.id} of the same rule is at work"):
        ask(bench, run)


def test_when_its_promotion_is_over_nothing_is_applied_any_more(bench: Bench) -> None:
    run = partial(bench)
    bench.set_run(run.id, promotion_ended_at=bench.clock.now())
    with pytest.raises(ConflictError, match="what is applied now would stay for good"):
        ask(bench, run)


def test_a_run_that_is_partly_taken_back_may_be_tried_again(bench: Bench) -> None:
    run = partial(bench)
    chosen = [target(bench, run, "101").id]
    roll_back_run(
        run.id, database=bench.database, clock=bench.clock, actor="user:7", target_ids=chosen
    )
    bench.work(run)
    ask(bench, run)
    ended = bench.work(run)
    assert (
        ended.status,
        ended.rollback_state,
        ended.targets.applied,
        ended.targets.rolled_back,
    ) == (
        "PARTIAL",
        "PARTIAL",
        2,
        1,
    )
    assert bench.shop.amounts() == {"101": 1000, "201": 900, "301": 1000, "401": 900}
