"""The worker of a run: its next action after each change of the run."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import ConflictError, TransientError
from automation_pipeline.core.retry import Backoff
from automation_pipeline.pricing import worker as apply_run
from automation_pipeline.pricing import worker as loop
from automation_pipeline.pricing.models.runs import (
    LostRunClaimError,
    PricingRunState,
    RuleRun,
    RuleTrigger,
)
from automation_pipeline.pricing.models.shop import (
    ApplyContext,
    CallResult,
    FailureSignal,
    Price,
    PriceWrite,
    PricingContext,
    Written,
    classify_failure,
)
from automation_pipeline.pricing.queries.runs import (
    RunClaim,
    begin_applying,
    claim_run,
    claimed_run,
)
from automation_pipeline.pricing.queries.targets import MAX_PRODUCTS
from automation_pipeline.pricing.rules import runs as retrying
from automation_pipeline.pricing.rules.runs import (
    AppliedResult,
    TargetOutcome,
    WorkTarget,
    requeue_unchanged,
)
from automation_pipeline.pricing.runs import retry_run, roll_back_run
from automation_pipeline.pricing.tables import PriceChangeRow, RuleRunRow, RuleTargetRow
from automation_pipeline.pricing.worker import TargetWork, WaitForTargets, work_run
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline.storage.statements import database_time
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import PRICES, FakeShop, shelf, storefront, variant
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.pricing.bench import Bench, during_first_write

# Waits are 1000 times as long as in production, so that nothing is due before `make_due`. They start at
# the answer, while the test measures from the claim; this is the tolerance.
TOLERANCE = 120.0
BUSY, GONE, REFUSED = (
    FailureSignal(status=500),
    FailureSignal(status=404),
    FailureSignal(status=401),
)
UNREACHED = FailureSignal(code="ECONNREFUSED")


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    """A worker that never waits for targets that are not due."""
    return Bench(database, clock, FakeShop(*shelf(3)), {"longest_pause_seconds": 0.0})


@pytest.fixture(autouse=True)
def _slow_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        retrying, "RETRY_BACKOFF", Backoff(base_seconds=2000, cap_seconds=64000, jitter=0.2)
    )


def waits(bench: Bench, run: RuleRun) -> dict[str, float]:
    """Seconds until the next attempt, by variant."""
    return {
        str(target.variant_id): (target.next_attempt_at - target.last_attempt).total_seconds()
        for target in bench.targets(run.id)
        if target.next_attempt_at and target.last_attempt
    }


def keys(bench: Bench, variant_id: str, run: RuleRun) -> list[str]:
    [target] = [one for one in bench.targets(run.id) if one.variant_id == variant_id]
    events = [event.key for event in bench.events("automation.target.apply")]
    return [
        key.removeprefix(f"{run.id}:{target.id}:apply:")
        for key in events
        if f":{target.id}:" in key
    ]


def test_a_run_is_applied_as_it_was_previewed(bench: Bench) -> None:
    run = bench.queued()
    bench.shop.called.clear()
    ended = bench.work(run)
    assert (ended.status, ended.targets.applied, ended.success_rate) == ("APPLIED", 3, 1.0)
    assert bench.shop.amounts() == {"101": 900, "201": 900, "301": 900}
    assert [kind for kind, _ in bench.shop.called] == ["prices", "write", "write", "write"]
    assert bench.moves("rule run", run.id) == [
        ("PREVIEW", "QUEUED"),
        ("QUEUED", "APPLYING"),
        ("APPLYING", "APPLIED"),
    ]
    assert [(row.from_amount, row.to_amount, row.was_found) for row in bench.changes(run.id)] == [
        (1000, 900, False)
    ] * 3
    assert {check.name for check in bench.checks(run.id)} == {"5m", "1h"}
    assert bench.work(run).status == "APPLIED"
    assert len(bench.shop.written) == 3


def test_a_run_with_one_retried_and_one_missing_target_ends_partial(bench: Bench) -> None:
    run = bench.queued()
    bench.shop.fail_once("2", BUSY, BUSY)
    bench.shop.fail_always("3", GONE)
    first = bench.work(run)
    assert (first.status, first.resume_at is not None) == ("APPLYING", True)
    assert 1600 <= waits(bench, run)["201"] <= 2400 + TOLERANCE
    bench.make_due(run.id)
    bench.work(run)
    assert 3200 <= waits(bench, run)["201"] <= 4800 + TOLERANCE
    bench.make_due(run.id)
    ended = bench.work(run)
    assert [target.attempts for target in bench.targets(run.id)] == [0, 2, 0]
    assert (ended.status, ended.success_rate) == ("PARTIAL", pytest.approx(2 / 3, abs=1e-4))
    [dead] = [target for target in bench.targets(run.id) if target.status == "FAILED"]
    assert (dead.variant_id, dead.error_type, dead.error_retryable) == ("301", "not_found", False)


def test_a_target_that_always_fails_is_called_four_times(bench: Bench) -> None:
    bench.shop = FakeShop(variant("101", "1", 1000))
    bench.shop.fail_always("1", BUSY)
    run = bench.queued()
    nominal = []
    for _ in range(4):
        ended = bench.work(run)
        nominal += waits(bench, run).values()
        bench.make_due(run.id)
    assert [
        wanted * 0.8 <= wait < wanted * 1.2 + TOLERANCE
        for wait, wanted in zip(nominal, [2000, 4000, 8000], strict=True)
    ] == [True] * 3
    assert (ended.status, ended.error_type, bench.shop.times("write")) == (
        "FAILED",
        "ALL_TARGETS_FAILED",
        4,
    )
    [target] = bench.targets(run.id)
    assert (target.attempts, target.status, target.error_type) == (3, "FAILED", "server")
    assert keys(bench, "101", run) == ["0.0", "0.1", "0.2", "0.3"]


def test_a_throttled_call_uses_no_attempt_and_pauses_the_shop(bench: Bench) -> None:
    bench.shop = FakeShop(variant("101", "1", 1000))
    bench.shop.fail_once("1", FailureSignal(status=429), retry_after_seconds=600.0)
    run = bench.queued()
    bench.work(run)
    [target] = bench.targets(run.id)
    assert (target.attempts, target.rate_limit_waits) == (0, 1)
    assert 600 <= waits(bench, run)["101"] <= 720 + TOLERANCE
    assert bench.meter.drain()["rules_429_count_total", 'shop="shop.test"'] == 1
    bench.make_due(run.id)
    assert bench.work(run).status == "APPLYING"
    assert bench.shop.times("write") == 1
    bench.rested()
    bench.make_due(run.id)
    assert bench.work(run).status == "APPLIED"


def test_after_a_lost_answer_the_price_is_read_and_not_written_twice(
    bench: Bench,
) -> None:
    run = bench.queued()
    bench.shop.lose_answer_once("2")
    bench.work(run)
    bench.make_due(run.id)
    assert bench.work(run).status == "APPLIED"
    assert [bench.shop.times_written(one) for one in ("101", "201", "301")] == [1, 1, 1]
    assert [row.was_found for row in bench.changes(run.id)] == [False, False, True]
    assert {(row.from_amount, row.to_amount) for row in bench.changes(run.id)} == {(1000, 900)}


def test_after_a_worker_dies_before_saving_the_next_one_reads_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.queued()

    class DiedError(Exception):
        """Simulates the death of the worker."""

    def die(_session: object, _run: object, settled: Sequence[TargetOutcome], _now: object) -> None:
        if settled:
            raise DiedError

    with monkeypatch.context() as dying:
        dying.setattr(apply_run, "save_outcomes", die)
        with pytest.raises(DiedError):
            bench.work(run)
    assert len(bench.shop.written) > 0
    bench.hold_again(run.id)
    with pytest.raises(TransientError, match="is in progress"):
        bench.work(run)
    bench.expire_hold(run.id)
    assert bench.work(run).status == "APPLIED"
    assert [bench.shop.times_written(one) for one in ("101", "201", "301")] == [1, 1, 1]


def test_after_the_last_answer_is_lost_the_price_is_read_before_failing(
    bench: Bench,
) -> None:
    run = bench.queued()
    bench.shop.fail_once("2", BUSY, BUSY, BUSY)
    for _ in range(3):
        bench.work(run)
        bench.make_due(run.id)
    bench.shop.lose_answer_once("2")
    assert bench.work(run).status == "APPLYING"
    bench.make_due(run.id)
    assert bench.work(run).status == "APPLIED"
    assert (
        bench.shop.times_written("201"),
        [row.was_found for row in bench.changes(run.id)][-1],
    ) == (1, True)


def test_time_spent_waiting_does_not_count_towards_the_timeout(bench: Bench) -> None:
    run = bench.queued()
    bench.shop.fail_once("2", UNREACHED)
    bench.work(run)
    [waiting] = [target for target in bench.targets(run.id) if target.status == "QUEUED"]
    assert waiting.began_at is None
    bench.make_due(run.id)
    assert bench.work(run).status == "APPLIED"


def test_a_run_of_another_shop_is_refused_by_the_worker(bench: Bench) -> None:
    run = bench.queued()
    other = FakeShop(*shelf(3))
    front = replace(storefront(other), name="other.test")
    with pytest.raises(ConflictError, match=r"is about shop\.test"):
        bench.loop(
            work_run(run.id, PricingContext(front, bench.database, bench.clock), "elsewhere")
        )
    assert (other.called, bench.run(run.id).status) == ([], "QUEUED")


def test_guardrails_set_during_a_run_apply_to_the_next_chunk(bench: Bench) -> None:
    bench.shop = FakeShop(*shelf(60))
    run = bench.queued()

    async def once(kind: str, _subject: object) -> None:
        if kind == "write":
            bench.shop._during_call = None
            await asyncio.to_thread(bench.guard, autoApply=True, maxPctDelta=0.01)

    bench.shop._during_call = once
    ended = bench.work(run)
    assert (ended.targets.applied, ended.targets.failed) == (MAX_PRODUCTS, 60 - MAX_PRODUCTS)


def test_a_stale_price_is_read_again_before_the_write(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.shop_options["calls_at_once"] = 1
    run = bench.queued()

    async def time_passes(kind: str, _subject: object) -> None:
        if kind == "write":
            bench.shop.edit("301", amount=5555)
            monkeypatch.setattr(loop, "LONGEST_READ_SECONDS", -1.0)
        else:
            monkeypatch.setattr(loop, "LONGEST_READ_SECONDS", 1000.0)

    bench.shop._during_call = time_passes
    ended = bench.work(run)
    assert (ended.status, bench.shop.amounts()["301"]) == ("PARTIAL", 5555)
    assert bench.shop.times("prices") == 2


def test_an_answer_with_another_price_does_not_confirm_the_write(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.queued()
    write = bench.shop.write

    async def answer_with_old_price(
        product_id: str, writes: Sequence[PriceWrite]
    ) -> CallResult[Written]:
        if product_id != "2":
            return await write(product_id, writes)
        return CallResult(value={one.variant_id: Price(1000, "EUR") for one in writes})

    monkeypatch.setattr(bench.shop, "write", answer_with_old_price)
    waiting = bench.work(run)
    assert (waiting.status, bench.statuses(run.id)["201"]) == ("APPLYING", "QUEUED")
    monkeypatch.undo()


def test_targets_of_one_failed_call_have_the_same_due_time(bench: Bench) -> None:
    bench.shop = FakeShop(*shelf(1, 50))
    run = bench.queued()
    bench.shop.fail_once("1", BUSY)
    bench.work(run)
    assert len({target.next_attempt_at for target in bench.targets(run.id)}) == 1
    bench.make_due(run.id)
    assert (bench.work(run).status, bench.shop.times("write")) == ("APPLIED", 2)


def test_a_price_changed_by_hand_is_not_overwritten(bench: Bench) -> None:
    run = bench.queued()
    bench.shop.edit("201", amount=1234)
    ended = bench.work(run)
    assert (ended.status, bench.shop.amounts()["201"]) == ("PARTIAL", 1234)
    [dead] = [target for target in bench.targets(run.id) if target.status == "FAILED"]
    assert (dead.error_type, dead.error_retryable) == ("conflict", False)
    assert "CONFLICT_PRICE_DRIFT: the shop has 12.34 EUR, not 10.00 EUR" in str(dead.error_message)
    assert dead.observed_price == {"unit_amount": 1234, "currency": "EUR", "compare_at": None}


def test_a_rule_with_overwrite_replaces_a_drifted_price(bench: Bench) -> None:
    run = bench.queued(bench.rule(onDrift="overwrite"))
    bench.shop.edit("201", amount=1234)
    assert bench.work(run).status == "APPLIED"
    assert bench.shop.amounts()["201"] == 900
    assert sorted(row.from_amount for row in bench.changes(run.id)) == [1000, 1000, 1234]


def test_guardrails_are_checked_again_before_the_write(bench: Bench) -> None:
    run = bench.queued(bench.rule(onDrift="overwrite"))
    bench.guard(autoApply=True, maxPctDelta=0.15)
    bench.shop.edit("201", amount=2000)
    ended = bench.work(run)
    [dead] = [target for target in bench.targets(run.id) if target.status == "FAILED"]
    assert (ended.status, dead.error_type, bench.shop.amounts()["201"]) == (
        "PARTIAL",
        "validation",
        2000,
    )
    assert "maxPctDelta" in str(dead.error_message)


def test_a_refused_token_stops_the_run(bench: Bench) -> None:
    bench.shop = FakeShop(*shelf(60))
    run = bench.queued()
    bench.shop_options["calls_at_once"] = 1
    bench.shop.fail_always("4", REFUSED)
    ended = bench.work(run)
    assert (ended.status, ended.targets.applied, ended.targets.failed) == ("PARTIAL", 3, 57)
    assert bench.shop.times("write") == 4
    assert {target.error_type for target in bench.targets(run.id)} == {None, "authentication"}


def test_a_critical_failure_of_the_first_call_fails_the_run(bench: Bench) -> None:
    run = bench.queued()
    bench.shop.fail_always(PRICES, FailureSignal(status=423))
    ended = bench.work(run)
    assert (ended.status, ended.error_type, ended.targets.failed) == ("FAILED", "CRITICAL", 3)
    assert bench.shop.times("write") == 0


def test_variants_of_a_product_share_a_call_and_fail_individually(bench: Bench) -> None:
    bench.shop = FakeShop(*shelf(2, 3))
    run = bench.queued()
    bench.shop.refuse("102")
    ended = bench.work(run)
    assert (ended.status, bench.shop.times("write")) == ("PARTIAL", 2)
    assert {
        one: status for one, status in bench.statuses(run.id).items() if status != "APPLIED"
    } == {"102": "FAILED"}


def test_a_removed_variant_fails_as_not_found(bench: Bench) -> None:
    run = bench.queued()
    bench.shop.remove("301")
    ended = bench.work(run)
    assert (ended.status, bench.statuses(run.id)["301"]) == ("PARTIAL", "FAILED")


def test_a_price_that_is_already_set_is_not_written(bench: Bench) -> None:
    run = bench.queued()
    bench.shop.edit("101", amount=900)
    assert bench.work(run).status == "APPLIED"
    assert bench.shop.times_written("101") == 0


def test_concurrent_calls_are_limited(bench: Bench) -> None:
    bench.shop = FakeShop(*shelf(24))
    run = bench.queued()
    bench.shop_options["calls_at_once"] = 4
    four = asyncio.Barrier(4)

    async def wait_for_three_others(kind: str, _subject: object) -> None:
        if kind == "write":
            await four.wait()

    bench.shop._during_call = wait_for_three_others
    bench.work(run)
    assert bench.shop.most_at_once == 4


def test_a_scheduled_run_without_targets_ends_applied(bench: Bench) -> None:
    bench.shop = FakeShop()
    run = bench.scheduled(bench.rule())
    ended = bench.work_id(run)
    assert (ended.status, ended.total_targets, ended.success_rate) == ("APPLIED", 0, None)
    assert bench.checks(run) == []


def test_a_requested_run_is_planned_queued_and_applied(bench: Bench) -> None:
    ended = bench.work_id(bench.asked_for(bench.rule()))
    assert (ended.status, ended.targets.applied) == ("APPLIED", 3)


def test_a_run_without_its_required_approval_stays_a_preview(bench: Bench) -> None:
    bench.guard(maxPctDelta=0.5)
    preview = bench.work_id(bench.asked_for(bench.rule()))
    assert (preview.status, preview.wish, preview.error_message) == (
        "PREVIEW",
        None,
        "The run must be approved first.",
    )
    assert bench.shop.written == []


def test_a_run_waits_for_a_variant_that_another_run_writes(bench: Bench) -> None:
    first = bench.queued(bench.rule(name="First"))
    second = bench.queued(bench.rule(name="Second", onDrift="overwrite"))
    target = bench.targets(first.id)[0]
    bench.set_target(target.id, status="APPLYING", is_writing=True)
    waiting = bench.work(second)
    assert (waiting.status, bench.statuses(second.id)) == (
        "APPLYING",
        {"101": "QUEUED", "201": "APPLIED", "301": "APPLIED"},
    )
    bench.set_target(target.id, status="QUEUED", is_writing=False)
    bench.make_due(second.id)
    assert bench.work(second).status == "APPLIED"


@pytest.fixture
def patient_bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(3)))


def finish(patient_bench: Bench, run_id: int) -> None:
    times = dict.fromkeys(("queued_at", "started_at", "finished_at"), patient_bench.clock.now())
    patient_bench.set_run(run_id, status="FAILED", wish=None, **times)


@pytest.mark.parametrize(
    ("status", "requested"), [("QUEUED", None), ("APPLYING", None), ("PARTIAL", "retry")]
)
def test_a_run_waits_for_another_run_of_its_rule_without_reading_the_catalogue(
    status: str, requested: str | None, patient_bench: Bench
) -> None:
    rule = patient_bench.rule()
    other, run_id = patient_bench.previewed(rule), patient_bench.scheduled(rule)
    finish(patient_bench, other.id)
    patient_bench.set_run(other.id, status=status, wish=requested)
    patient_bench.shop.called.clear()
    waiting = patient_bench.work_id(run_id)
    assert (
        waiting.status,
        waiting.wish,
        waiting.previewed_at,
        patient_bench.shop.called,
    ) == (
        "PREVIEW",
        "apply",
        None,
        [],
    )
    assert waiting.resume_at is not None
    assert f"rule {rule.id} " in str(waiting.error_message)
    assert patient_bench.run_row(run_id).lease_until is None
    finish(patient_bench, other.id)
    ended = patient_bench.work_id(run_id)
    assert (ended.status, ended.targets.applied, ended.error_message) == ("APPLIED", 3, None)


def test_a_run_waits_for_another_run_queued_during_its_planning(
    patient_bench: Bench,
) -> None:
    rule = patient_bench.rule()
    other, run_id = patient_bench.previewed(rule), patient_bench.scheduled(rule)

    async def queue_other_run(_kind: str, _subject: object) -> None:
        if patient_bench.run(other.id).status == "PREVIEW":
            patient_bench.queue(other)

    patient_bench.shop._during_call = queue_other_run
    waiting = patient_bench.work_id(run_id)
    assert (waiting.status, waiting.wish, waiting.resume_at is not None) == (
        "PREVIEW",
        "apply",
        True,
    )
    assert waiting.previewed_at is not None
    finish(patient_bench, other.id)
    assert patient_bench.work_id(run_id).status == "APPLIED"


@pytest.mark.parametrize("trigger", [RuleTrigger.SCHEDULE, RuleTrigger.API])
def test_a_run_planned_after_its_promotion_ended_is_not_applied(
    trigger: RuleTrigger, patient_bench: Bench
) -> None:
    rule = patient_bench.rule(endsAt="2026-05-04T11:00:00Z")
    run_id = (
        patient_bench.scheduled(rule)
        if trigger is RuleTrigger.SCHEDULE
        else patient_bench.asked_for(rule, trigger=trigger)
    )
    due_at = patient_bench.clock.now()
    patient_bench.pass_minutes(60)
    preview = patient_bench.work_id(run_id)
    assert (preview.status, preview.wish, patient_bench.shop.written) == ("PREVIEW", None, [])
    assert f"The promotion of pricing rule {rule.id} ended at 2026-05-04T11:00:00.000Z" in str(
        preview.error_message
    )
    events = [event.payload for event in patient_bench.events("rule.scheduled.missed")]
    missed = {"ruleId": str(rule.id), "projectId": "default", "scheduledFor": iso(due_at)}
    assert events == ([missed] if trigger is RuleTrigger.SCHEDULE else [])


class Ending(TargetWork):
    """Work that ends at once. The heartbeat finds the claim released before the loop notices the end."""

    def __init__(self, context: ApplyContext) -> None:
        super().__init__(RunClaim(1, 1), context)
        self.is_released, self.is_missed = threading.Event(), threading.Event()

    def keep(self) -> bool:
        if self.is_released.is_set():
            self.is_missed.set()
            raise LostRunClaimError("Released.")
        return True

    def take(self) -> Sequence[WorkTarget] | WaitForTargets:
        self.is_released.set()
        assert self.is_missed.wait(20)
        return []


def test_a_heartbeat_after_the_release_of_the_claim_is_harmless(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "POLL_SECONDS", 0.01)
    shop = FakeShop()
    context = ApplyContext(storefront(shop), database, clock, shop)
    assert asyncio.run(Ending(context).process()) is True


@pytest.fixture
def bench_of_two(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(2)), {"longest_pause_seconds": 0.0})


def observations(bench_of_two: Bench) -> dict[str, float]:
    """The number of new observations per histogram since the last call."""
    found: dict[str, float] = {}
    for (name, labels), amount in bench_of_two.meter.drain().items():
        if name.endswith("_ms_bucket"):
            assert labels.startswith("le=")
            found[name] = found.get(name, 0) + amount
    return found


ONCE = {"rules_apply_duration_ms_bucket": 1, "rules_queue_ms_bucket": 1}


def test_the_durations_of_a_run_are_recorded_when_it_ends(bench_of_two: Bench) -> None:
    bench_of_two.shop.fail_once("2", FailureSignal(status=503))
    run = bench_of_two.queued()
    assert (bench_of_two.work(run).status, observations(bench_of_two)) == ("APPLYING", {})
    bench_of_two.make_due(run.id)
    assert (bench_of_two.work(run).status, observations(bench_of_two)) == ("APPLIED", ONCE)


def test_durations_of_retries_and_rollbacks_are_not_recorded(
    bench_of_two: Bench,
) -> None:
    bench_of_two.shop.refuse("201")
    run = bench_of_two.work(bench_of_two.queued())
    assert (run.status, observations(bench_of_two)) == ("PARTIAL", ONCE)
    assert (retry(bench_of_two, run).status, observations(bench_of_two)) == ("PARTIAL", {})
    roll_back_run(run.id, database=bench_of_two.database, clock=bench_of_two.clock, actor="user:7")
    assert (bench_of_two.work(run).status, observations(bench_of_two)) == ("ROLLED_BACK", {})


def retry(bench_of_two: Bench, run: RuleRun) -> RuleRun:
    retry_run(
        run.id,
        database=bench_of_two.database,
        clock=bench_of_two.clock,
        actor="user:7",
        force=True,
    )
    return bench_of_two.work(run)


def test_the_histogram_sum_is_the_duration_of_the_run(bench_of_two: Bench) -> None:
    run = bench_of_two.work(bench_of_two.queued())
    assert run.started_at is not None
    assert run.finished_at is not None
    took = (run.finished_at - run.started_at).total_seconds() * 1000
    assert bench_of_two.meter.drain()["rules_apply_duration_ms_sum", ""] == pytest.approx(
        took, abs=1
    )


ALL = (RuleRunRow, RuleTargetRow, PriceChangeRow, TransitionRow, OutboxRow)
UNAUTHORISED = classify_failure(FailureSignal(status=401), "The shop refuses the token.")


def stored_rows(bench: Bench) -> list[dict[str, object]]:
    with bench.database.reading() as session:
        rows = [row for table in ALL for row in session.scalars(select(table).order_by(table.id))]
        return [
            {column.key: getattr(row, column.key) for column in row.__mapper__.column_attrs}
            for row in rows
        ]


def claim(bench: Bench, run: RuleRun, owner: str = "one") -> RunClaim:
    with bench.database.transaction() as session:
        hold = claim_run(session, run.id, owner, 60.0)
        assert hold is not None
        row = claimed_run(session, hold)
        if row.status == PricingRunState.QUEUED:
            begin_applying(session, row, database_time(session))
        return hold


def claim_again(bench: Bench, run: RuleRun) -> RunClaim:
    bench.expire_hold(run.id)
    return claim(bench, run, "another")


def applying(bench: Bench, hold: RunClaim) -> TargetWork:
    return TargetWork(hold, ApplyContext.of(bench.context, bench.shop))


def claimed(bench: Bench, hold: RunClaim) -> list[WorkTarget]:
    step = applying(bench, hold).take()
    assert not isinstance(step, WaitForTargets)
    return list(step)


@pytest.mark.parametrize(
    "use",
    [
        lambda work, _: work.keep(),
        lambda work, _: work.take(),
        lambda work, targets: work.save([requeue_unchanged(target) for target in targets]),
        lambda work, _: work.save([]),
        lambda work, _: work.give_up(UNAUTHORISED),
        lambda work, _: work.leave(5.0),
    ],
)
def test_a_worker_with_a_lost_claim_changes_nothing(
    bench: Bench, use: Callable[[TargetWork, list[WorkTarget]], Any]
) -> None:
    run = bench.queued()
    hold = claim(bench, run)
    targets = claimed(bench, hold)
    claim_again(bench, run)
    before = stored_rows(bench)
    with pytest.raises(LostRunClaimError, match=f"Rule run {run.id} belongs to another process"):
        use(applying(bench, hold), targets)
    assert stored_rows(bench) == before


def test_after_a_lost_claim_nothing_is_saved_and_the_next_worker_reads(
    bench: Bench,
) -> None:
    run = bench.queued()
    bench.shop_options["calls_at_once"] = 1
    during_first_write(bench, lambda: claim_again(bench, run))
    with pytest.raises(LostRunClaimError):
        bench.work(run)
    assert set(bench.statuses(run.id).values()) == {"APPLYING"}
    assert (bench.run_row(run.id).lease_owner, bench.changes(run.id)) == (
        "another",
        [],
    )
    bench.expire_hold(run.id)
    ended = bench.work(run)
    assert (ended.status, bench.run_row(run.id).lease_token) == ("APPLIED", 3)
    assert [bench.shop.times_written(one) for one in ("101", "201", "301")] == [1, 1, 1]
    assert [row.was_found for row in bench.changes(run.id)] == [True, False, False]


def test_a_worker_that_exits_releases_its_claim(bench: Bench) -> None:
    run = bench.queued()
    first = claim(bench, run)
    applying(bench, first).leave(5.0)
    row = bench.run_row(run.id)
    assert (row.lease_owner, row.lease_until, row.resume_at is not None) == (None, None, True)
    assert claimed(bench, claim(bench, run))


def test_the_number_of_statements_per_chunk_is_constant(
    bench: Bench,
) -> None:
    observations: dict[int, list[int]] = {}
    for variants in (5, 250):
        bench.shop = FakeShop(*shelf(1, variants))
        run = bench.queued(bench.rule(name=f"{variants}", onDrift="overwrite"))
        work = applying(bench, claim(bench, run))
        with statements(bench.database) as claiming:
            targets = work.take()
        assert not isinstance(targets, WaitForTargets)
        assert len(targets) == variants
        with statements(bench.database) as settling:
            work.save([requeue_unchanged(target) for target in targets])
        work.take()
        with statements(bench.database) as applied:
            work.save(applied_results(targets))
        assert set(bench.statuses(run.id).values()) == {"APPLIED"}
        with statements(bench.database) as ending:
            assert work.take() == []
        observations[variants] = [len(claiming), len(settling), len(applied), len(ending)]
    assert observations[5] == observations[250]


def applied_results(targets: list[WorkTarget]) -> list[AppliedResult]:
    return [
        AppliedResult(target, target.before, request_id="request-1", duration_ms=5)
        for target in targets
    ]
