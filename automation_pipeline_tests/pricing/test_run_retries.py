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
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import FakeShop, product_variants
from automation_pipeline_tests.pricing.harness import PricingHarness, during_first_write
from automation_pipeline_tests.pricing.rows import (
    SHOP,
    change_run,
    make_rule,
    make_run,
    run_row,
    stored_requests,
)

BUSY, GONE = FailureSignal(status=500), FailureSignal(status=404)


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(
        database, clock, FakeShop(*product_variants(4)), {"longest_pause_seconds": 0.0}
    )


def partial_run(harness: PricingHarness) -> RuleRun:
    """A run with 101 and 401 applied, a retryable failure of 201 and a permanent failure of 301."""
    harness.shop.refuse("301")
    for _ in range(4):
        harness.shop.fail_once("2", BUSY)
    run = harness.queued_run()
    for _ in range(4):
        ended = harness.work(run)
        harness.make_due(run.id)
    assert ended.status == "PARTIAL"
    return ended


def request_retry(harness: PricingHarness, run: RuleRun, **how: object) -> RuleRun:
    return retry_run(run.id, database=harness.database, clock=harness.clock, actor="user:7", **how)


def target(harness: PricingHarness, run: RuleRun, variant_id: str) -> RuleTargetRow:
    [found] = [one for one in harness.targets(run.id) if one.variant_id == variant_id]
    return found


def marked_targets(harness: PricingHarness, run: RuleRun) -> set[str | None]:
    return {one.variant_id for one in harness.targets(run.id) if one.is_wished}


def keys(harness: PricingHarness, run: RuleRun, variant_id: str) -> list[str]:
    begin = f"{run.id}:{target(harness, run, variant_id).id}:apply:"
    events = [event.key for event in harness.events("automation.target.apply")]
    return [key.removeprefix(begin) for key in events if key.startswith(begin)]


def test_a_retry_sets_the_request_and_requests_a_worker(harness: PricingHarness) -> None:
    run = partial_run(harness)
    before = len(harness.requests())
    requested = request_retry(harness, run)
    assert (requested.status, requested.wish, harness.run_row(run.id).wished_by) == (
        "PARTIAL",
        "retry",
        "user:7",
    )
    assert marked_targets(harness, run) == {"201"}
    assert [config for _, config in harness.requests()[before:]] == [{"run_id": run.id}]
    assert harness.statuses(run.id)["201"] == "FAILED"


def test_the_worker_retries_targets_in_a_new_cycle(harness: PricingHarness) -> None:
    run = partial_run(harness)
    request_retry(harness, run)
    seen: list[RuleRunRow] = []
    during_first_write(harness, lambda: seen.append(harness.run_row(run.id)))
    ended = harness.work(run)
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
    assert keys(harness, run, "201") == ["0.0", "0.1", "0.2", "0.3", "1.0"]
    assert keys(harness, run, "101") == ["0.0"]
    done = target(harness, run, "201")
    assert (done.status, done.attempts, done.error_type, done.is_wished) == (
        "APPLIED",
        0,
        None,
        False,
    )
    assert [one.event_key for one in harness.changes(run.id)][-1] == f"{run.id}:{done.id}:apply:1.0"
    assert harness.transitions("rule run", run.id)[-2:] == [
        ("PARTIAL", "APPLYING"),
        ("APPLYING", "PARTIAL"),
    ]
    assert harness.transitions("rule target", done.id)[-3:] == [
        ("FAILED", "QUEUED"),
        ("QUEUED", "APPLYING"),
        ("APPLYING", "APPLIED"),
    ]


def test_each_retry_cycle_has_its_own_attempts_and_events(harness: PricingHarness) -> None:
    run = partial_run(harness)
    request_retry(harness, run)
    for _ in range(4):
        harness.shop.fail_once("2", BUSY)
    for _ in range(6):  # the fifth consecutive failed write opens the circuit, and the worker exits
        harness.end_shop_pause()
        harness.work(run)
        harness.make_due(run.id)
    failed = target(harness, run, "201")
    assert (failed.status, failed.attempts, keys(harness, run, "201")[4:]) == (
        "FAILED",
        3,
        ["1.0", "1.1", "1.2", "1.3"],
    )
    assert [event.payload["cycle"] for event in harness.events("rule.run.started")] == [0, 1]
    assert len(harness.events("rule.run.ended")) == 2
    request_retry(harness, run)
    assert harness.work(run).targets.applied == 3
    counted = harness.meter.drain()
    assert (
        counted["rules_target_retries_total", 'kind="manual"'],
        counted["rules_target_retries_total", 'kind="automatic"'],
    ) == (2, 6)


def test_force_retries_permanent_failures(harness: PricingHarness) -> None:
    run = partial_run(harness)
    harness.shop.accept("301")
    request_retry(harness, run, force=True)
    assert marked_targets(harness, run) == {"201", "301"}
    ended = harness.work(run)
    assert (ended.status, ended.error_type, ended.error_message) == ("APPLIED", None, None)


def test_only_chosen_targets_are_retried(harness: PricingHarness) -> None:
    run = partial_run(harness)
    harness.shop.accept("301")
    request_retry(harness, run, target_ids=[target(harness, run, "301").id], force=True)
    harness.work(run)
    assert harness.statuses(run.id) == {
        "101": "APPLIED",
        "201": "FAILED",
        "301": "APPLIED",
        "401": "APPLIED",
    }


def test_a_retry_of_ineligible_targets_names_each_one(harness: PricingHarness) -> None:
    run = partial_run(harness)
    permanent, applied = target(harness, run, "301").id, target(harness, run, "101").id
    with pytest.raises(InvalidInputError) as refusal:
        request_retry(harness, run, target_ids=[permanent, applied, 99])
    assert refusal.value.fields == (
        ("targetIds", f"{applied} is not a failed target of the run"),
        ("targetIds", "99 is not a failed target of the run"),
        ("targetIds", f"{permanent} would fail again: fix its cause, then use force"),
    )
    assert (harness.run(run.id).wish, marked_targets(harness, run)) == (None, set())


def test_a_retry_without_retryable_failures_is_refused(harness: PricingHarness) -> None:
    harness.shop = FakeShop(*product_variants(2))
    harness.shop.refuse("201")
    run = harness.work(harness.queued_run())
    with pytest.raises(ConflictError, match="No failed target of the run is retryable"):
        request_retry(harness, run)
    with pytest.raises(ConflictError, match="No failed target of the run is retryable"):
        request_retry(harness, run, target_ids=[])


def test_a_refused_retry_names_the_reason(harness: PricingHarness) -> None:
    preview = harness.previewed_run()
    with pytest.raises(ConflictError, match="A run that is PREVIEW cannot be retried"):
        request_retry(harness, preview)
    queued = harness.queue(preview)
    with pytest.raises(ConflictError, match="A run that is QUEUED cannot be retried"):
        request_retry(harness, queued)
    applied = harness.work(queued)
    with pytest.raises(ConflictError, match="A run that is APPLIED cannot be retried"):
        request_retry(harness, applied)
    roll_back_run(applied.id, database=harness.database, clock=harness.clock, actor="user:7")
    with pytest.raises(ConflictError, match="already waits for a worker: rollback"):
        request_retry(harness, applied)
    harness.work(applied)
    with pytest.raises(ConflictError, match="A run that is ROLLED_BACK cannot be retried"):
        request_retry(harness, applied)
    with pytest.raises(NotFoundError):
        retry_run(99, database=harness.database, clock=harness.clock, actor="user:7")


def test_a_run_is_not_retried_twice_or_during_another_run_of_its_rule(
    harness: PricingHarness,
) -> None:
    run = partial_run(harness)
    request_retry(harness, run)
    with pytest.raises(ConflictError, match=f"Run {run.id} already waits for a worker: retry"):
        request_retry(harness, run)
    harness.set_run(run.id, wish=None)
    harness.pass_minutes(60)
    with harness.database.reading() as session:
        rule = get_rule(session, run.rule_id)
    second = harness.queued_run(rule, force=True)
    with pytest.raises(ConflictError, match=f"Run {second.id} of the same rule is running"):
        request_retry(harness, run)


def test_a_retry_after_the_end_of_the_promotion_is_refused(harness: PricingHarness) -> None:
    run = partial_run(harness)
    harness.set_run(run.id, promotion_ended_at=harness.clock.now())
    with pytest.raises(ConflictError, match="prices applied now would never be rolled back"):
        request_retry(harness, run)


def test_a_partly_rolled_back_run_may_be_retried(harness: PricingHarness) -> None:
    run = partial_run(harness)
    chosen = [target(harness, run, "101").id]
    roll_back_run(
        run.id, database=harness.database, clock=harness.clock, actor="user:7", target_ids=chosen
    )
    harness.work(run)
    request_retry(harness, run)
    ended = harness.work(run)
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
    assert harness.shop.amounts() == {"101": 1000, "201": 900, "301": 1000, "401": 900}


@pytest.fixture
def three_product_harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(
        database, clock, FakeShop(*product_variants(3)), {"longest_pause_seconds": 0.0}
    )


def request_rollback(harness: PricingHarness, run: RuleRun, **how: object) -> RuleRun:
    return roll_back_run(
        run.id,
        database=harness.database,
        clock=harness.clock,
        actor="user:7",
        **how,
    )


def marked_for_rollback(harness: PricingHarness, run: RuleRun) -> set[str | None]:
    return {target.variant_id for target in harness.targets(run.id) if target.is_wished}


def test_a_rollback_sets_the_request_and_requests_a_worker(
    three_product_harness: PricingHarness,
) -> None:
    run = three_product_harness.work(three_product_harness.queued_run())
    before = len(three_product_harness.requests())
    requested = request_rollback(three_product_harness, run)
    row = three_product_harness.run_row(run.id)
    assert (
        requested.status,
        requested.wish,
        row.wished_by,
        row.rollbacks,
        row.rollback_force,
    ) == (
        "APPLIED",
        "rollback",
        "user:7",
        1,
        False,
    )
    assert marked_for_rollback(three_product_harness, run) == {"101", "201", "301"}
    assert [config for _, config in three_product_harness.requests()[before:]] == [
        {"run_id": run.id}
    ]
    assert three_product_harness.shop.amounts() == {"101": 900, "201": 900, "301": 900}


def test_chosen_targets_are_marked_for_rollback(three_product_harness: PricingHarness) -> None:
    run = three_product_harness.work(three_product_harness.queued_run())
    request_rollback(
        three_product_harness,
        run,
        target_ids=[three_product_harness.targets(run.id)[1].id],
        force=True,
    )
    assert (
        marked_for_rollback(three_product_harness, run),
        three_product_harness.run_row(run.id).rollback_force,
    ) == ({"201"}, True)


def test_a_second_rollback_or_retry_request_is_refused(
    three_product_harness: PricingHarness,
) -> None:
    run = three_product_harness.work(three_product_harness.queued_run())
    request_rollback(three_product_harness, run)
    with pytest.raises(ConflictError, match="already waits for a worker: rollback"):
        request_rollback(three_product_harness, run)
    with pytest.raises(ConflictError, match="already waits for a worker: rollback"):
        retry_run(
            run.id,
            database=three_product_harness.database,
            clock=three_product_harness.clock,
            actor="user:7",
        )
    assert three_product_harness.run_row(run.id).rollbacks == 1


def test_one_of_several_concurrent_rollback_requests_is_accepted(
    three_product_harness: PricingHarness,
) -> None:
    run = three_product_harness.work(three_product_harness.queued_run())

    def is_requested(_: int) -> bool:
        try:
            request_rollback(three_product_harness, run)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(is_requested, range(4))) == 1
    assert three_product_harness.run_row(run.id).rollbacks == 1


def test_a_target_that_is_not_applied_cannot_be_rolled_back(
    three_product_harness: PricingHarness,
) -> None:
    preview = three_product_harness.previewed_run()
    with pytest.raises(ConflictError, match="A run that is PREVIEW cannot be rolled back"):
        request_rollback(three_product_harness, preview)
    run = three_product_harness.work(three_product_harness.queue(preview))
    with pytest.raises(ConflictError, match="no applied price"):
        request_rollback(three_product_harness, run, target_ids=[])
    with pytest.raises(InvalidInputError) as refused:
        request_rollback(three_product_harness, run, target_ids=[987654])
    assert refused.value.fields == (("targetIds", "987654 is not an applied target of the run"),)
    assert three_product_harness.run_row(run.id).wish is None


def test_a_run_that_is_being_applied_cannot_be_rolled_back(
    three_product_harness: PricingHarness,
) -> None:
    with pytest.raises(ConflictError, match="A run that is QUEUED cannot be rolled back"):
        request_rollback(three_product_harness, three_product_harness.queued_run())


def test_a_run_that_does_not_exist_is_not_found(three_product_harness: PricingHarness) -> None:
    with pytest.raises(NotFoundError, match="987654 not found"):
        roll_back_run(
            987654,
            database=three_product_harness.database,
            clock=three_product_harness.clock,
            actor="user:7",
        )


WHY = "SHOP_API_TOKEN is not set."


def test_a_postponed_run_resumes_after_its_wait(database: Database, clock: FakeClock) -> None:
    run_id = make_run(database, make_rule(database, clock), "QUEUED", clock.now(), ["QUEUED"])
    with database.reading() as session:
        before = database_time(session)
    assert postpone_failed_run(run_id, WHY, database=database)
    with database.transaction() as session:
        assert runs_without_worker(session) == []
        after = database_time(session)
    row = run_row(database, run_id)
    assert row.error_message == WHY
    assert row.resume_at
    assert before <= row.resume_at - timedelta(minutes=5) <= after
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
    database: Database, clock: FakeClock, status: str, fields: dict[str, object]
) -> None:
    run_id = make_run(database, make_rule(database, clock), status, clock.now())
    if fields:
        change_run(database, run_id, **fields)
    before = run_row(database, run_id).resume_at
    assert not postpone_failed_run(run_id, WHY, database=database)
    row = run_row(database, run_id)
    assert (row.resume_at, row.error_message) == (before, None)


def test_a_requested_run_is_postponed_too(database: Database, clock: FakeClock) -> None:
    run_id = make_run(database, make_rule(database, clock), "PREVIEW", clock.now(), wish="apply")
    assert postpone_failed_run(run_id, WHY, database=database)


IN_AN_HOUR = database_now(3600.0)
A_SECOND_AGO = database_now(-1.0)
Setting = Callable[[Database, int], None]


def run_columns(**values: object) -> Setting:
    return lambda database, run_id: change_run(database, run_id, **values)


def worker_request(state: str, seconds_ago: float | None) -> Setting:
    def file_request(database: Database, run_id: int) -> None:
        offered = None if seconds_ago is None else database_now(-seconds_ago)
        with database.transaction() as session:
            file_run_requests(session, [run_id], run_row(database, run_id).created_at)
            session.execute(update(RunRequestRow).values(state=state, offered_at=offered))

    return file_request


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
    run_id = make_run(database, make_rule(database, clock), status, clock.now())
    for setting in settings:
        setting(database, run_id)
    before = len(stored_requests(database))
    assert sweep(database, clock) == [run_id] * is_found
    requested = stored_requests(database)[before:]
    assert [(job, config) for _, job, config in requested] == [
        ("rule_run", {"run_id": run_id})
    ] * is_found


def test_a_sweep_requests_at_most_a_hundred_workers(database: Database, clock: Clock) -> None:
    rule = make_rule(database, clock)
    for _ in range(101):
        make_run(database, rule, "PREVIEW", clock.now(), wish="apply")
    assert [len(sweep(database, clock)) for _ in range(3)] == [100, 1, 0]


def test_a_requested_worker_is_not_requested_again(database: Database, clock: Clock) -> None:
    runs = [make_run(database, make_rule(database, clock), "QUEUED", clock.now()) for _ in range(3)]
    assert sweep(database, clock) == runs
    assert sweep(database, clock) == []
    assert [key for key, _, _ in stored_requests(database)] == [
        f"rule-run-{run_id}-1" for run_id in runs
    ]
