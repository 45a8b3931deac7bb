"""Runs are retried and rolled back, postponed, and swept when they have no worker."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.pricing_rules import get_rule
from automation_pipeline.pricing.queries.runs import file_run_requests
from automation_pipeline.pricing.runs import (
    REST_SECONDS,
    postpone_failed_run,
    retry_run,
    roll_back_run,
    runs_without_worker,
    sweep_rule_runs,
)
from automation_pipeline.pricing.shop import pause_shop
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.statements import database_now, database_time
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench, during_first_write
from automation_pipeline_tests.pricing.rows import (
    SHOP,
    a_rule,
    a_run,
    change_run,
    run_row,
    stored_requests,
)

BUSY, GONE = FailureSignal(status=500), FailureSignal(status=404)


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(4)), {"longest_pause_seconds": 0.0})


def partial_run(bench: Bench) -> RuleRun:
    """A run with 101 and 401 applied, a retryable failure of 201 and a permanent failure of 301."""
    bench.shop.refuse("301")
    for _ in range(4):
        bench.shop.fail_once("2", BUSY)
    run = bench.queued()
    for _ in range(4):
        ended = bench.work(run)
        bench.make_due(run.id)
    assert ended.status == "PARTIAL"
    return ended


def request_retry(bench: Bench, run: RuleRun, **how: object) -> RuleRun:
    return retry_run(run.id, database=bench.database, clock=bench.clock, actor="user:7", **how)


def target(bench: Bench, run: RuleRun, variant_id: str) -> RuleTargetRow:
    [found] = [one for one in bench.targets(run.id) if one.variant_id == variant_id]
    return found


def marked_targets(bench: Bench, run: RuleRun) -> set[str | None]:
    return {one.variant_id for one in bench.targets(run.id) if one.is_wished}


def keys(bench: Bench, run: RuleRun, variant_id: str) -> list[str]:
    begin = f"{run.id}:{target(bench, run, variant_id).id}:apply:"
    events = [event.key for event in bench.events("automation.target.apply")]
    return [key.removeprefix(begin) for key in events if key.startswith(begin)]


def test_a_retry_sets_the_request_and_requests_a_worker(bench: Bench) -> None:
    run = partial_run(bench)
    before = len(bench.requests())
    requested = request_retry(bench, run)
    assert (requested.status, requested.wish, bench.run_row(run.id).wished_by) == (
        "PARTIAL",
        "retry",
        "user:7",
    )
    assert marked_targets(bench, run) == {"201"}
    assert [config for _, config in bench.requests()[before:]] == [{"run_id": run.id}]
    assert bench.statuses(run.id)["201"] == "FAILED"


def test_the_worker_retries_targets_in_a_new_cycle(bench: Bench) -> None:
    run = partial_run(bench)
    request_retry(bench, run)
    seen: list[RuleRunRow] = []
    during_first_write(bench, lambda: seen.append(bench.run_row(run.id)))
    ended = bench.work(run)
    assert [
        (run_columns.status, run_columns.started_at, run_columns.finished_at, run_columns.wish)
        for run_columns in seen
    ] == [("APPLYING", run.started_at, None, None)]
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


def test_each_retry_cycle_has_its_own_attempts_and_events(bench: Bench) -> None:
    run = partial_run(bench)
    request_retry(bench, run)
    for _ in range(4):
        bench.shop.fail_once("2", BUSY)
    for _ in range(6):  # the fifth consecutive failed write opens the circuit, and the worker exits
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
    request_retry(bench, run)
    assert bench.work(run).targets.applied == 3
    counted = bench.meter.drain()
    assert (
        counted["rules_target_retries_total", 'kind="manual"'],
        counted["rules_target_retries_total", 'kind="automatic"'],
    ) == (2, 6)


def test_force_retries_permanent_failures(bench: Bench) -> None:
    run = partial_run(bench)
    bench.shop.accept("301")
    request_retry(bench, run, force=True)
    assert marked_targets(bench, run) == {"201", "301"}
    ended = bench.work(run)
    assert (ended.status, ended.error_type, ended.error_message) == ("APPLIED", None, None)


def test_only_chosen_targets_are_retried(bench: Bench) -> None:
    run = partial_run(bench)
    bench.shop.accept("301")
    request_retry(bench, run, target_ids=[target(bench, run, "301").id], force=True)
    bench.work(run)
    assert bench.statuses(run.id) == {
        "101": "APPLIED",
        "201": "FAILED",
        "301": "APPLIED",
        "401": "APPLIED",
    }


def test_a_retry_of_ineligible_targets_names_each_one(bench: Bench) -> None:
    run = partial_run(bench)
    permanent, applied = target(bench, run, "301").id, target(bench, run, "101").id
    with pytest.raises(InvalidInputError) as refusal:
        request_retry(bench, run, target_ids=[permanent, applied, 99])
    assert refusal.value.fields == (
        ("targetIds", f"{applied} is not a failed target of the run"),
        ("targetIds", "99 is not a failed target of the run"),
        ("targetIds", f"{permanent} would fail again: fix its cause, then use force"),
    )
    assert (bench.run(run.id).wish, marked_targets(bench, run)) == (None, set())


def test_a_retry_without_retryable_failures_is_refused(bench: Bench) -> None:
    bench.shop = FakeShop(*shelf(2))
    bench.shop.refuse("201")
    run = bench.work(bench.queued())
    with pytest.raises(ConflictError, match="No failed target of the run is retryable"):
        request_retry(bench, run)
    with pytest.raises(ConflictError, match="No failed target of the run is retryable"):
        request_retry(bench, run, target_ids=[])


def test_a_refused_retry_names_the_reason(bench: Bench) -> None:
    preview = bench.previewed()
    with pytest.raises(ConflictError, match="A run that is PREVIEW cannot be retried"):
        request_retry(bench, preview)
    queued = bench.queue(preview)
    with pytest.raises(ConflictError, match="A run that is QUEUED cannot be retried"):
        request_retry(bench, queued)
    applied = bench.work(queued)
    with pytest.raises(ConflictError, match="A run that is APPLIED cannot be retried"):
        request_retry(bench, applied)
    roll_back_run(applied.id, database=bench.database, clock=bench.clock, actor="user:7")
    with pytest.raises(ConflictError, match="already waits for a worker: rollback"):
        request_retry(bench, applied)
    bench.work(applied)
    with pytest.raises(ConflictError, match="A run that is ROLLED_BACK cannot be retried"):
        request_retry(bench, applied)
    with pytest.raises(NotFoundError):
        retry_run(99, database=bench.database, clock=bench.clock, actor="user:7")


def test_a_run_is_not_retried_twice_or_during_another_run_of_its_rule(bench: Bench) -> None:
    run = partial_run(bench)
    request_retry(bench, run)
    with pytest.raises(ConflictError, match=f"Run {run.id} already waits for a worker: retry"):
        request_retry(bench, run)
    bench.set_run(run.id, wish=None)
    bench.pass_minutes(60)
    with bench.database.reading() as session:
        rule = get_rule(session, run.rule_id)
    second = bench.queued(rule, force=True)
    with pytest.raises(ConflictError, match=f"Run {second.id} of the same rule is running"):
        request_retry(bench, run)


def test_a_retry_after_the_end_of_the_promotion_is_refused(bench: Bench) -> None:
    run = partial_run(bench)
    bench.set_run(run.id, promotion_ended_at=bench.clock.now())
    with pytest.raises(ConflictError, match="prices applied now would never be rolled back"):
        request_retry(bench, run)


def test_a_partly_rolled_back_run_may_be_retried(bench: Bench) -> None:
    run = partial_run(bench)
    chosen = [target(bench, run, "101").id]
    roll_back_run(
        run.id, database=bench.database, clock=bench.clock, actor="user:7", target_ids=chosen
    )
    bench.work(run)
    request_retry(bench, run)
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


@pytest.fixture
def bench_of_three(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(3)), {"longest_pause_seconds": 0.0})


def request_rollback(bench_of_three: Bench, run: RuleRun, **how: object) -> RuleRun:
    return roll_back_run(
        run.id,
        database=bench_of_three.database,
        clock=bench_of_three.clock,
        actor="user:7",
        **how,
    )


def marked_for_rollback(bench_of_three: Bench, run: RuleRun) -> set[str | None]:
    return {target.variant_id for target in bench_of_three.targets(run.id) if target.is_wished}


def test_a_rollback_sets_the_request_and_requests_a_worker(bench_of_three: Bench) -> None:
    run = bench_of_three.work(bench_of_three.queued())
    before = len(bench_of_three.requests())
    requested = request_rollback(bench_of_three, run)
    run_columns = bench_of_three.run_row(run.id)
    assert (
        requested.status,
        requested.wish,
        run_columns.wished_by,
        run_columns.rollbacks,
        run_columns.rollback_force,
    ) == (
        "APPLIED",
        "rollback",
        "user:7",
        1,
        False,
    )
    assert marked_for_rollback(bench_of_three, run) == {"101", "201", "301"}
    assert [config for _, config in bench_of_three.requests()[before:]] == [{"run_id": run.id}]
    assert bench_of_three.shop.amounts() == {"101": 900, "201": 900, "301": 900}


def test_chosen_targets_are_marked_for_rollback(bench_of_three: Bench) -> None:
    run = bench_of_three.work(bench_of_three.queued())
    request_rollback(
        bench_of_three, run, target_ids=[bench_of_three.targets(run.id)[1].id], force=True
    )
    assert (
        marked_for_rollback(bench_of_three, run),
        bench_of_three.run_row(run.id).rollback_force,
    ) == ({"201"}, True)


def test_a_second_rollback_or_retry_request_is_refused(bench_of_three: Bench) -> None:
    run = bench_of_three.work(bench_of_three.queued())
    request_rollback(bench_of_three, run)
    with pytest.raises(ConflictError, match="already waits for a worker: rollback"):
        request_rollback(bench_of_three, run)
    with pytest.raises(ConflictError, match="already waits for a worker: rollback"):
        retry_run(
            run.id,
            database=bench_of_three.database,
            clock=bench_of_three.clock,
            actor="user:7",
        )
    assert bench_of_three.run_row(run.id).rollbacks == 1


def test_one_of_several_concurrent_rollback_requests_is_accepted(bench_of_three: Bench) -> None:
    run = bench_of_three.work(bench_of_three.queued())

    def is_requested(_: int) -> bool:
        try:
            request_rollback(bench_of_three, run)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(is_requested, range(4))) == 1
    assert bench_of_three.run_row(run.id).rollbacks == 1


def test_a_target_that_is_not_applied_cannot_be_rolled_back(bench_of_three: Bench) -> None:
    preview = bench_of_three.previewed()
    with pytest.raises(ConflictError, match="A run that is PREVIEW cannot be rolled back"):
        request_rollback(bench_of_three, preview)
    run = bench_of_three.work(bench_of_three.queue(preview))
    with pytest.raises(ConflictError, match="no applied price"):
        request_rollback(bench_of_three, run, target_ids=[])
    with pytest.raises(InvalidInputError) as refused:
        request_rollback(bench_of_three, run, target_ids=[987654])
    assert refused.value.fields == (("targetIds", "987654 is not an applied target of the run"),)
    assert bench_of_three.run_row(run.id).wish is None


def test_a_run_that_is_being_applied_cannot_be_rolled_back(bench_of_three: Bench) -> None:
    with pytest.raises(ConflictError, match="A run that is QUEUED cannot be rolled back"):
        request_rollback(bench_of_three, bench_of_three.queued())


def test_a_run_that_does_not_exist_is_not_found(bench_of_three: Bench) -> None:
    with pytest.raises(NotFoundError, match="987654 not found"):
        roll_back_run(
            987654,
            database=bench_of_three.database,
            clock=bench_of_three.clock,
            actor="user:7",
        )


WHY = "SHOP_API_TOKEN is not set."


def test_a_postponed_run_resumes_after_its_wait(database: Database, clock: StandingClock) -> None:
    run_id = a_run(database, a_rule(database, clock), "QUEUED", clock.now(), ["QUEUED"])
    assert postpone_failed_run(run_id, WHY, database=database)
    with database.transaction() as session:
        assert runs_without_worker(session) == []
        now = database_time(session)
    run_columns = run_row(database, run_id)
    assert run_columns.error_message == WHY
    assert run_columns.resume_at
    assert now < run_columns.resume_at <= now + timedelta(seconds=REST_SECONDS)
    change_run(database, run_id, resume_at=database_now(-1.0))
    with database.transaction() as session:
        assert runs_without_worker(session) == [run_id]


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("APPLIED", {}),
        ("PREVIEW", {}),
        ("APPLYING", {"lease_until": database_now(60.0)}),
        ("QUEUED", {"resume_at": database_now(9000.0)}),
    ],
)
def test_runs_that_ended_or_have_a_worker_or_wait_longer_are_not_postponed(
    database: Database, clock: StandingClock, status: str, fields: dict[str, object]
) -> None:
    run_id = a_run(database, a_rule(database, clock), status, clock.now())
    if fields:
        change_run(database, run_id, **fields)
    before = run_row(database, run_id).resume_at
    assert not postpone_failed_run(run_id, WHY, database=database)
    run_columns = run_row(database, run_id)
    assert (run_columns.resume_at, run_columns.error_message) == (before, None)


def test_a_requested_run_is_postponed_too(database: Database, clock: StandingClock) -> None:
    run_id = a_run(database, a_rule(database, clock), "PREVIEW", clock.now(), wish="apply")
    assert postpone_failed_run(run_id, WHY, database=database)


IN_AN_HOUR = database_now(3600.0)
A_SECOND_AGO = database_now(-1.0)
Setting = Callable[[Database, int], None]


def run_columns(**values: object) -> Setting:
    return lambda database, run_id: change_run(database, run_id, **values)


def worker_request(state: str, seconds_ago: float | None) -> Setting:
    def request_retry(database: Database, run_id: int) -> None:
        offered = None if seconds_ago is None else database_now(-seconds_ago)
        with database.transaction() as session:
            file_run_requests(session, [run_id], run_row(database, run_id).created_at)
            session.execute(update(RunRequestRow).values(state=state, offered_at=offered))

    return request_retry


def paused(shop: str) -> Setting:
    def pause(database: Database, _run_id: int) -> None:
        pause_shop(shop, database=database, actor="user:7")

    return pause


def sweep(database: Database, clock: Clock) -> list[int]:
    return list(sweep_rule_runs(database=database, clock=clock))


@pytest.mark.parametrize(
    ("status", "settings", "is_found"),
    [
        ("QUEUED", [], True),
        ("APPLYING", [], True),
        ("APPLYING", [run_columns(lease_owner="lost", lease_until=A_SECOND_AGO)], True),
        ("APPLYING", [run_columns(lease_owner="alive", lease_until=IN_AN_HOUR)], False),
        ("APPLYING", [run_columns(resume_at=A_SECOND_AGO)], True),
        ("APPLYING", [run_columns(resume_at=IN_AN_HOUR)], False),
        ("QUEUED", [worker_request("waiting", None)], False),
        ("QUEUED", [worker_request("waiting", 3600)], False),
        ("QUEUED", [worker_request("taken", 5)], False),
        ("APPLYING", [worker_request("taken", 3600)], True),
        ("APPLYING", [worker_request("refused", 5)], True),
        ("QUEUED", [paused(SHOP)], False),
        ("APPLYING", [run_columns(resume_at=A_SECOND_AGO), paused(SHOP)], False),
        ("QUEUED", [paused("another.shop")], True),
        ("APPLYING", [run_columns(cancel_requested_at=A_SECOND_AGO), paused(SHOP)], True),
        (
            "APPLIED",
            [run_columns(wish="rollback", cancel_requested_at=A_SECOND_AGO), paused(SHOP)],
            False,
        ),
        ("PREVIEW", [], False),
        ("PREVIEW", [run_columns(wish="apply")], True),
        ("PARTIAL", [run_columns(wish="retry")], True),
        ("APPLIED", [run_columns(wish="rollback")], True),
        ("APPLIED", [run_columns(wish="rollback"), paused(SHOP)], False),
        ("PARTIAL", [], False),
        ("FAILED", [], False),
        ("ROLLED_BACK", [], False),
    ],
)
def test_a_worker_is_requested_for_a_run_without_one(
    database: Database, clock: Clock, status: str, settings: list[Setting], is_found: bool
) -> None:
    run_id = a_run(database, a_rule(database, clock), status, clock.now())
    for setting in settings:
        setting(database, run_id)
    before = len(stored_requests(database))
    assert sweep(database, clock) == [run_id] * is_found
    requested = stored_requests(database)[before:]
    assert [(job, config) for _, job, config in requested] == [
        ("rule_run", {"run_id": run_id})
    ] * is_found


def test_a_requested_worker_is_not_requested_again(database: Database, clock: Clock) -> None:
    runs = [a_run(database, a_rule(database, clock), "QUEUED", clock.now()) for _ in range(3)]
    assert sweep(database, clock) == runs
    assert sweep(database, clock) == []
    assert [key for key, _, _ in stored_requests(database)] == [
        f"rule-run-{run_id}-1" for run_id in runs
    ]
