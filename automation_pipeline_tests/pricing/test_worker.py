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
from automation_pipeline.pricing import worker
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
from automation_pipeline.pricing.rules import runs as run_rules
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
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import (
    PRICES,
    FakeShop,
    product_variants,
    storefront,
    variant,
)
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.pricing.harness import PricingHarness, during_first_write

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
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    """A harness whose worker never waits for targets that are not due."""
    return PricingHarness(
        database, clock, FakeShop(*product_variants(3)), {"longest_pause_seconds": 0.0}
    )


@pytest.fixture(autouse=True)
def _slow_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        run_rules, "RETRY_BACKOFF", Backoff(base_seconds=2000, cap_seconds=64000, jitter=0.2)
    )


def waits(harness: PricingHarness, run: RuleRun) -> dict[str, float]:
    """Seconds until the next attempt, by variant."""
    return {
        str(target.variant_id): (target.next_attempt_at - target.last_attempt).total_seconds()
        for target in harness.targets(run.id)
        if target.next_attempt_at and target.last_attempt
    }


def keys(harness: PricingHarness, variant_id: str, run: RuleRun) -> list[str]:
    [target] = [one for one in harness.targets(run.id) if one.variant_id == variant_id]
    events = [event.key for event in harness.events("automation.target.apply")]
    return [
        key.removeprefix(f"{run.id}:{target.id}:apply:")
        for key in events
        if f":{target.id}:" in key
    ]


def test_a_run_is_applied_as_it_was_previewed(harness: PricingHarness) -> None:
    run = harness.queued_run()
    harness.shop.calls.clear()
    ended = harness.work(run)
    assert (ended.status, ended.targets.applied, ended.success_rate) == ("APPLIED", 3, 1.0)
    assert harness.shop.amounts() == {"101": 900, "201": 900, "301": 900}
    assert [kind for kind, _ in harness.shop.calls] == ["prices", "write", "write", "write"]
    assert harness.transitions("rule run", run.id) == [
        ("PREVIEW", "QUEUED"),
        ("QUEUED", "APPLYING"),
        ("APPLYING", "APPLIED"),
    ]
    assert [(row.from_amount, row.to_amount, row.was_found) for row in harness.changes(run.id)] == [
        (1000, 900, False)
    ] * 3
    assert {check.name for check in harness.checks(run.id)} == {"5m", "1h"}
    assert harness.work(run).status == "APPLIED"
    assert len(harness.shop.written) == 3


def test_a_run_with_one_retried_and_one_missing_target_ends_partial(
    harness: PricingHarness,
) -> None:
    run = harness.queued_run()
    harness.shop.fail_once("2", BUSY, BUSY)
    harness.shop.fail_always("3", GONE)
    first = harness.work(run)
    assert (first.status, first.resume_at is not None) == ("APPLYING", True)
    assert 1600 <= waits(harness, run)["201"] <= 2400 + TOLERANCE
    harness.make_due(run.id)
    harness.work(run)
    assert 3200 <= waits(harness, run)["201"] <= 4800 + TOLERANCE
    harness.make_due(run.id)
    ended = harness.work(run)
    assert [target.attempts for target in harness.targets(run.id)] == [0, 2, 0]
    assert (ended.status, ended.success_rate) == ("PARTIAL", pytest.approx(2 / 3, abs=1e-4))
    [dead] = [target for target in harness.targets(run.id) if target.status == "FAILED"]
    assert (dead.variant_id, dead.error_type, dead.error_retryable) == ("301", "not_found", False)


def test_a_target_that_always_fails_is_called_four_times(harness: PricingHarness) -> None:
    harness.shop = FakeShop(variant("101", "1", 1000))
    harness.shop.fail_always("1", BUSY)
    run = harness.queued_run()
    nominal = []
    for _ in range(4):
        ended = harness.work(run)
        nominal += waits(harness, run).values()
        harness.make_due(run.id)
    assert [
        wanted * 0.8 <= wait < wanted * 1.2 + TOLERANCE
        for wait, wanted in zip(nominal, [2000, 4000, 8000], strict=True)
    ] == [True] * 3
    assert (ended.status, ended.error_type, harness.shop.call_count("write")) == (
        "FAILED",
        "ALL_TARGETS_FAILED",
        4,
    )
    [target] = harness.targets(run.id)
    assert (target.attempts, target.status, target.error_type) == (3, "FAILED", "server")
    assert keys(harness, "101", run) == ["0.0", "0.1", "0.2", "0.3"]


def test_a_throttled_call_uses_no_attempt_and_pauses_the_shop(harness: PricingHarness) -> None:
    harness.shop = FakeShop(variant("101", "1", 1000))
    harness.shop.fail_once("1", FailureSignal(status=429), retry_after_seconds=600.0)
    run = harness.queued_run()
    harness.work(run)
    [target] = harness.targets(run.id)
    assert (target.attempts, target.rate_limit_waits) == (0, 1)
    assert 600 <= waits(harness, run)["101"] <= 720 + TOLERANCE
    assert harness.meter.drain()["rules_429_count_total", 'shop="shop.test"'] == 1
    harness.make_due(run.id)
    assert harness.work(run).status == "APPLYING"
    assert harness.shop.call_count("write") == 1
    harness.end_shop_pause()
    harness.make_due(run.id)
    assert harness.work(run).status == "APPLIED"


def test_after_a_lost_answer_the_price_is_read_and_not_written_twice(
    harness: PricingHarness,
) -> None:
    run = harness.queued_run()
    harness.shop.lose_answer_once("2")
    harness.work(run)
    harness.make_due(run.id)
    assert harness.work(run).status == "APPLIED"
    assert [harness.shop.write_count(one) for one in ("101", "201", "301")] == [1, 1, 1]
    assert [row.was_found for row in harness.changes(run.id)] == [False, False, True]
    assert {(row.from_amount, row.to_amount) for row in harness.changes(run.id)} == {(1000, 900)}


def test_after_a_worker_dies_before_saving_the_next_one_reads_first(
    harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = harness.queued_run()

    class DiedError(Exception):
        """Simulates the death of the worker."""

    def die(_session: object, _run: object, settled: Sequence[TargetOutcome], _now: object) -> None:
        if settled:
            raise DiedError

    with monkeypatch.context() as dying:
        dying.setattr(worker, "save_outcomes", die)
        with pytest.raises(DiedError):
            harness.work(run)
    assert len(harness.shop.written) > 0
    harness.renew_claim(run.id)
    with pytest.raises(TransientError, match="is in progress") as busy:
        harness.work(run)
    assert 50 < (busy.value.retry_after_seconds or 0.0) <= 61
    harness.expire_claim(run.id)
    assert harness.work(run).status == "APPLIED"
    assert [harness.shop.write_count(one) for one in ("101", "201", "301")] == [1, 1, 1]
    labels = 'project="default",trigger="api"'
    assert harness.meter.drain()["rules_apply_count_total", labels] == 1


def test_after_the_last_answer_is_lost_the_price_is_read_before_failing(
    harness: PricingHarness,
) -> None:
    run = harness.queued_run()
    harness.shop.fail_once("2", BUSY, BUSY, BUSY)
    for _ in range(3):
        harness.work(run)
        harness.make_due(run.id)
    harness.shop.lose_answer_once("2")
    assert harness.work(run).status == "APPLYING"
    harness.make_due(run.id)
    assert harness.work(run).status == "APPLIED"
    assert (
        harness.shop.write_count("201"),
        [row.was_found for row in harness.changes(run.id)][-1],
    ) == (1, True)


def test_time_spent_waiting_does_not_count_towards_the_timeout(harness: PricingHarness) -> None:
    run = harness.queued_run()
    harness.shop.fail_once("2", UNREACHED)
    harness.work(run)
    [waiting] = [target for target in harness.targets(run.id) if target.status == "QUEUED"]
    assert waiting.began_at is None
    harness.make_due(run.id)
    assert harness.work(run).status == "APPLIED"


def test_a_run_of_another_shop_is_refused_by_the_worker(harness: PricingHarness) -> None:
    run = harness.queued_run()
    other = FakeShop(*product_variants(3))
    front = replace(storefront(other), name="other.test")
    with pytest.raises(ConflictError, match=r"is about shop\.test"):
        harness.run_async(
            work_run(run.id, PricingContext(front, harness.database, harness.clock), "elsewhere")
        )
    assert (other.calls, harness.run(run.id).status) == ([], "QUEUED")


def test_guardrails_set_during_a_run_apply_to_the_next_chunk(harness: PricingHarness) -> None:
    harness.shop = FakeShop(*product_variants(60))
    run = harness.queued_run()

    async def once(kind: str, _subject: object) -> None:
        if kind == "write":
            harness.shop._during_call = None
            await asyncio.to_thread(harness.set_policy, autoApply=True, maxPctDelta=0.01)

    harness.shop._during_call = once
    ended = harness.work(run)
    assert (ended.targets.applied, ended.targets.failed) == (MAX_PRODUCTS, 60 - MAX_PRODUCTS)


def test_a_stale_price_is_read_again_before_the_write(
    harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.shop_options["calls_at_once"] = 1
    run = harness.queued_run()

    async def time_passes(kind: str, _subject: object) -> None:
        if kind == "write":
            harness.shop.edit("301", amount=5555)
            monkeypatch.setattr(worker, "LONGEST_READ_SECONDS", -1.0)
        else:
            monkeypatch.setattr(worker, "LONGEST_READ_SECONDS", 1000.0)

    harness.shop._during_call = time_passes
    ended = harness.work(run)
    assert (ended.status, harness.shop.amounts()["301"]) == ("PARTIAL", 5555)
    assert harness.shop.call_count("prices") == 2


def test_an_answer_with_another_price_does_not_confirm_the_write(
    harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = harness.queued_run()
    write = harness.shop.write

    async def answer_with_old_price(
        product_id: str, writes: Sequence[PriceWrite]
    ) -> CallResult[Written]:
        if product_id != "2":
            return await write(product_id, writes)
        return CallResult(value={one.variant_id: Price(1000, "EUR") for one in writes})

    monkeypatch.setattr(harness.shop, "write", answer_with_old_price)
    waiting = harness.work(run)
    assert (waiting.status, harness.statuses(run.id)["201"]) == ("APPLYING", "QUEUED")
    monkeypatch.undo()


def test_targets_of_one_failed_call_have_the_same_due_time(harness: PricingHarness) -> None:
    harness.shop = FakeShop(*product_variants(1, 50))
    run = harness.queued_run()
    harness.shop.fail_once("1", BUSY)
    harness.work(run)
    assert len({target.next_attempt_at for target in harness.targets(run.id)}) == 1
    harness.make_due(run.id)
    assert (harness.work(run).status, harness.shop.call_count("write")) == ("APPLIED", 2)


def test_a_price_changed_by_hand_is_not_overwritten(harness: PricingHarness) -> None:
    run = harness.queued_run()
    harness.shop.edit("201", amount=1234)
    ended = harness.work(run)
    assert (ended.status, harness.shop.amounts()["201"]) == ("PARTIAL", 1234)
    [dead] = [target for target in harness.targets(run.id) if target.status == "FAILED"]
    assert (dead.error_type, dead.error_retryable) == ("conflict", False)
    assert "CONFLICT_PRICE_DRIFT: the shop has 12.34 EUR, not 10.00 EUR" in str(dead.error_message)
    assert dead.observed_price == {"unit_amount": 1234, "currency": "EUR", "compare_at": None}


def test_a_rule_with_overwrite_replaces_a_drifted_price(harness: PricingHarness) -> None:
    run = harness.queued_run(harness.rule(onDrift="overwrite"))
    harness.shop.edit("201", amount=1234)
    assert harness.work(run).status == "APPLIED"
    assert harness.shop.amounts()["201"] == 900
    assert sorted(row.from_amount for row in harness.changes(run.id)) == [1000, 1000, 1234]


def test_guardrails_are_checked_again_before_the_write(harness: PricingHarness) -> None:
    run = harness.queued_run(harness.rule(onDrift="overwrite"))
    harness.set_policy(autoApply=True, maxPctDelta=0.15)
    harness.shop.edit("201", amount=2000)
    ended = harness.work(run)
    [dead] = [target for target in harness.targets(run.id) if target.status == "FAILED"]
    assert (ended.status, dead.error_type, harness.shop.amounts()["201"]) == (
        "PARTIAL",
        "validation",
        2000,
    )
    assert "maxPctDelta" in str(dead.error_message)


def test_a_refused_token_stops_the_run(harness: PricingHarness) -> None:
    harness.shop = FakeShop(*product_variants(60))
    run = harness.queued_run()
    harness.shop_options["calls_at_once"] = 1
    harness.shop.fail_always("4", REFUSED)
    ended = harness.work(run)
    assert (ended.status, ended.targets.applied, ended.targets.failed) == ("PARTIAL", 3, 57)
    assert harness.shop.call_count("write") == 4
    assert {target.error_type for target in harness.targets(run.id)} == {None, "authentication"}


def test_a_critical_failure_of_the_first_call_fails_the_run(harness: PricingHarness) -> None:
    run = harness.queued_run()
    harness.shop.fail_always(PRICES, FailureSignal(status=423))
    ended = harness.work(run)
    assert (ended.status, ended.error_type, ended.targets.failed) == ("FAILED", "CRITICAL", 3)
    assert harness.shop.call_count("write") == 0


def test_variants_of_a_product_share_a_call_and_fail_individually(harness: PricingHarness) -> None:
    harness.shop = FakeShop(*product_variants(2, 3))
    run = harness.queued_run()
    harness.shop.refuse("102")
    ended = harness.work(run)
    assert (ended.status, harness.shop.call_count("write")) == ("PARTIAL", 2)
    assert {
        one: status for one, status in harness.statuses(run.id).items() if status != "APPLIED"
    } == {"102": "FAILED"}


def test_a_removed_variant_fails_as_not_found(harness: PricingHarness) -> None:
    run = harness.queued_run()
    harness.shop.remove("301")
    ended = harness.work(run)
    assert (ended.status, harness.statuses(run.id)["301"]) == ("PARTIAL", "FAILED")


def test_a_price_that_is_already_set_is_not_written(harness: PricingHarness) -> None:
    run = harness.queued_run()
    harness.shop.edit("101", amount=900)
    assert harness.work(run).status == "APPLIED"
    assert harness.shop.write_count("101") == 0


def test_concurrent_calls_are_limited(harness: PricingHarness) -> None:
    harness.shop = FakeShop(*product_variants(24))
    run = harness.queued_run()
    harness.shop_options["calls_at_once"] = 4
    four = asyncio.Barrier(4)

    async def wait_for_three_others(kind: str, _subject: object) -> None:
        if kind == "write":
            await four.wait()

    harness.shop._during_call = wait_for_three_others
    harness.work(run)
    assert harness.shop.max_concurrent == 4


def test_a_scheduled_run_without_targets_ends_applied(harness: PricingHarness) -> None:
    harness.shop = FakeShop()
    run = harness.scheduled_run(harness.rule())
    ended = harness.work_id(run)
    assert (ended.status, ended.total_targets, ended.success_rate) == ("APPLIED", 0, None)
    assert harness.checks(run) == []


def test_a_requested_run_is_planned_queued_and_applied(harness: PricingHarness) -> None:
    ended = harness.work_id(harness.request_run(harness.rule()))
    assert (ended.status, ended.targets.applied) == ("APPLIED", 3)


def test_a_run_without_its_required_approval_stays_a_preview(harness: PricingHarness) -> None:
    harness.set_policy(maxPctDelta=0.5)
    preview = harness.work_id(harness.request_run(harness.rule()))
    assert (preview.status, preview.wish, preview.error_message) == (
        "PREVIEW",
        None,
        "The run must be approved first.",
    )
    assert harness.shop.written == []


def test_a_run_waits_for_a_variant_that_another_run_writes(harness: PricingHarness) -> None:
    first = harness.queued_run(harness.rule(name="First"))
    second = harness.queued_run(harness.rule(name="Second", onDrift="overwrite"))
    target = harness.targets(first.id)[0]
    harness.set_target(target.id, status="APPLYING", is_writing=True)
    waiting = harness.work(second)
    assert (waiting.status, harness.statuses(second.id)) == (
        "APPLYING",
        {"101": "QUEUED", "201": "APPLIED", "301": "APPLIED"},
    )
    harness.set_target(target.id, status="QUEUED", is_writing=False)
    harness.make_due(second.id)
    assert harness.work(second).status == "APPLIED"


@pytest.fixture
def waiting_harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(database, clock, FakeShop(*product_variants(3)))


def finish(harness: PricingHarness, run_id: int) -> None:
    times = dict.fromkeys(("queued_at", "started_at", "finished_at"), harness.clock.now())
    harness.set_run(run_id, status="FAILED", wish=None, **times)


@pytest.mark.parametrize(
    ("status", "requested"), [("QUEUED", None), ("APPLYING", None), ("PARTIAL", "retry")]
)
def test_a_run_waits_for_another_run_of_its_rule_without_reading_the_catalogue(
    status: str, requested: str | None, waiting_harness: PricingHarness
) -> None:
    rule = waiting_harness.rule()
    other, run_id = waiting_harness.previewed_run(rule), waiting_harness.scheduled_run(rule)
    finish(waiting_harness, other.id)
    waiting_harness.set_run(other.id, status=status, wish=requested)
    waiting_harness.shop.calls.clear()
    waiting = waiting_harness.work_id(run_id)
    assert (
        waiting.status,
        waiting.wish,
        waiting.previewed_at,
        waiting_harness.shop.calls,
    ) == (
        "PREVIEW",
        "apply",
        None,
        [],
    )
    assert waiting.resume_at is not None
    with waiting_harness.database.reading() as session:
        seconds_left = (waiting.resume_at - database_time(session)).total_seconds()
    assert 50 < seconds_left <= 60
    assert f"rule {rule.id} " in str(waiting.error_message)
    assert waiting_harness.run_row(run_id).lease_until is None
    finish(waiting_harness, other.id)
    ended = waiting_harness.work_id(run_id)
    assert (ended.status, ended.targets.applied, ended.error_message) == ("APPLIED", 3, None)


def test_a_run_waits_for_another_run_queued_during_its_planning(
    waiting_harness: PricingHarness,
) -> None:
    rule = waiting_harness.rule()
    other, run_id = waiting_harness.previewed_run(rule), waiting_harness.scheduled_run(rule)

    async def queue_other_run(_kind: str, _subject: object) -> None:
        if waiting_harness.run(other.id).status == "PREVIEW":
            waiting_harness.queue(other)

    waiting_harness.shop._during_call = queue_other_run
    waiting = waiting_harness.work_id(run_id)
    assert (waiting.status, waiting.wish, waiting.resume_at is not None) == (
        "PREVIEW",
        "apply",
        True,
    )
    assert waiting.previewed_at is not None
    finish(waiting_harness, other.id)
    assert waiting_harness.work_id(run_id).status == "APPLIED"


@pytest.mark.parametrize("trigger", [RuleTrigger.SCHEDULE, RuleTrigger.API])
def test_a_run_planned_after_its_promotion_ended_is_not_applied(
    trigger: RuleTrigger, waiting_harness: PricingHarness
) -> None:
    rule = waiting_harness.rule(endsAt="2026-05-04T11:00:00Z")
    run_id = (
        waiting_harness.scheduled_run(rule)
        if trigger is RuleTrigger.SCHEDULE
        else waiting_harness.request_run(rule, trigger=trigger)
    )
    due_at = waiting_harness.clock.now()
    waiting_harness.pass_minutes(60)
    preview = waiting_harness.work_id(run_id)
    assert (preview.status, preview.wish, waiting_harness.shop.written) == ("PREVIEW", None, [])
    assert f"The promotion of pricing rule {rule.id} ended at 2026-05-04T11:00:00.000Z" in str(
        preview.error_message
    )
    events = [event.payload for event in waiting_harness.events("rule.scheduled.missed")]
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
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.01)
    shop = FakeShop()
    context = ApplyContext(storefront(shop), database, clock, shop)
    assert asyncio.run(Ending(context).process()) is True


class WithoutDatabase(TargetWork):
    """Work whose heartbeat fails while it is still busy."""

    def __init__(self, context: ApplyContext) -> None:
        super().__init__(RunClaim(1, 1), context)
        self.is_over = threading.Event()

    def keep(self) -> bool:
        raise ConnectionError("The database is away.")

    def take(self) -> Sequence[WorkTarget] | WaitForTargets:
        self.is_over.wait(20)
        return []


def test_a_failed_heartbeat_stops_the_work(database: Database, clock: Clock) -> None:
    shop = FakeShop()
    work = WithoutDatabase(ApplyContext(storefront(shop), database, clock, shop))

    async def process() -> None:
        try:
            await work.process()
        finally:
            work.is_over.set()

    with pytest.raises(ConnectionError, match="The database is away"):
        asyncio.run(process())


@pytest.fixture
def two_product_harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(
        database, clock, FakeShop(*product_variants(2)), {"longest_pause_seconds": 0.0}
    )


def observations(harness: PricingHarness) -> dict[str, float]:
    """The number of new observations per histogram since the last call."""
    found: dict[str, float] = {}
    for (name, labels), amount in harness.meter.drain().items():
        if name.endswith("_ms_bucket"):
            assert labels.startswith("le=")
            found[name] = found.get(name, 0) + amount
    return found


ONCE = {"rules_apply_duration_ms_bucket": 1, "rules_queue_ms_bucket": 1}


def test_the_durations_of_a_run_are_recorded_when_it_ends(
    two_product_harness: PricingHarness,
) -> None:
    two_product_harness.shop.fail_once("2", FailureSignal(status=503))
    run = two_product_harness.queued_run()
    assert (two_product_harness.work(run).status, observations(two_product_harness)) == (
        "APPLYING",
        {},
    )
    two_product_harness.make_due(run.id)
    assert (two_product_harness.work(run).status, observations(two_product_harness)) == (
        "APPLIED",
        ONCE,
    )


def test_durations_of_retries_and_rollbacks_are_not_recorded(
    two_product_harness: PricingHarness,
) -> None:
    two_product_harness.shop.refuse("201")
    run = two_product_harness.work(two_product_harness.queued_run())
    assert (run.status, observations(two_product_harness)) == ("PARTIAL", ONCE)
    assert (retry(two_product_harness, run).status, observations(two_product_harness)) == (
        "PARTIAL",
        {},
    )
    roll_back_run(
        run.id,
        database=two_product_harness.database,
        clock=two_product_harness.clock,
        actor="user:7",
    )
    assert (two_product_harness.work(run).status, observations(two_product_harness)) == (
        "ROLLED_BACK",
        {},
    )


def retry(harness: PricingHarness, run: RuleRun) -> RuleRun:
    retry_run(
        run.id,
        database=harness.database,
        clock=harness.clock,
        actor="user:7",
        force=True,
    )
    return harness.work(run)


def test_the_histogram_sum_is_the_duration_of_the_run(two_product_harness: PricingHarness) -> None:
    run = two_product_harness.work(two_product_harness.queued_run())
    assert run.started_at is not None
    assert run.finished_at is not None
    took = (run.finished_at - run.started_at).total_seconds() * 1000
    assert two_product_harness.meter.drain()["rules_apply_duration_ms_sum", ""] == pytest.approx(
        took, abs=1
    )


ALL = (RuleRunRow, RuleTargetRow, PriceChangeRow, TransitionRow, OutboxRow)
UNAUTHORISED = classify_failure(FailureSignal(status=401), "The shop refuses the token.")


def stored_rows(harness: PricingHarness) -> list[dict[str, object]]:
    with harness.database.reading() as session:
        rows = [row for table in ALL for row in session.scalars(select(table).order_by(table.id))]
        return [
            {column.key: getattr(row, column.key) for column in row.__mapper__.column_attrs}
            for row in rows
        ]


def claim(harness: PricingHarness, run: RuleRun, owner: str = "one") -> RunClaim:
    with harness.database.transaction() as session:
        run_claim = claim_run(session, run.id, owner, 60.0)
        assert run_claim is not None
        row = claimed_run(session, run_claim)
        if row.status == PricingRunState.QUEUED:
            begin_applying(session, row, database_time(session))
        return run_claim


def claim_again(harness: PricingHarness, run: RuleRun) -> RunClaim:
    harness.expire_claim(run.id)
    return claim(harness, run, "another")


def applying(harness: PricingHarness, run_claim: RunClaim) -> TargetWork:
    return TargetWork(run_claim, ApplyContext.of(harness.context, harness.shop))


def claimed(harness: PricingHarness, run_claim: RunClaim) -> list[WorkTarget]:
    step = applying(harness, run_claim).take()
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
    harness: PricingHarness, use: Callable[[TargetWork, list[WorkTarget]], Any]
) -> None:
    run = harness.queued_run()
    run_claim = claim(harness, run)
    targets = claimed(harness, run_claim)
    claim_again(harness, run)
    before = stored_rows(harness)
    with pytest.raises(LostRunClaimError, match=f"Rule run {run.id} belongs to another process"):
        use(applying(harness, run_claim), targets)
    assert stored_rows(harness) == before


def test_after_a_lost_claim_nothing_is_saved_and_the_next_worker_reads(
    harness: PricingHarness,
) -> None:
    run = harness.queued_run()
    harness.shop_options["calls_at_once"] = 1
    during_first_write(harness, lambda: claim_again(harness, run))
    with pytest.raises(LostRunClaimError):
        harness.work(run)
    assert set(harness.statuses(run.id).values()) == {"APPLYING"}
    assert (harness.run_row(run.id).lease_owner, harness.changes(run.id)) == (
        "another",
        [],
    )
    harness.expire_claim(run.id)
    ended = harness.work(run)
    assert (ended.status, harness.run_row(run.id).lease_token) == ("APPLIED", 3)
    assert [harness.shop.write_count(one) for one in ("101", "201", "301")] == [1, 1, 1]
    assert [row.was_found for row in harness.changes(run.id)] == [True, False, False]


def test_a_worker_that_exits_releases_its_claim(harness: PricingHarness) -> None:
    run = harness.queued_run()
    first = claim(harness, run)
    applying(harness, first).leave(5.0)
    row = harness.run_row(run.id)
    assert (row.lease_owner, row.lease_until, row.resume_at is not None) == (None, None, True)
    assert claimed(harness, claim(harness, run))


def test_the_number_of_statements_per_chunk_is_constant(
    harness: PricingHarness,
) -> None:
    statement_counts: dict[int, list[int]] = {}
    for variants in (5, 250):
        harness.shop = FakeShop(*product_variants(1, variants))
        run = harness.queued_run(harness.rule(name=f"{variants}", onDrift="overwrite"))
        work = applying(harness, claim(harness, run))
        with statements(harness.database) as claiming:
            targets = work.take()
        assert not isinstance(targets, WaitForTargets)
        assert len(targets) == variants
        with statements(harness.database) as settling:
            work.save([requeue_unchanged(target) for target in targets])
        work.take()
        with statements(harness.database) as applied:
            work.save(applied_results(targets))
        assert set(harness.statuses(run.id).values()) == {"APPLIED"}
        with statements(harness.database) as ending:
            assert work.take() == []
        statement_counts[variants] = [len(claiming), len(settling), len(applied), len(ending)]
    assert statement_counts[5] == statement_counts[250]


def applied_results(targets: list[WorkTarget]) -> list[AppliedResult]:
    return [
        AppliedResult(target, target.before, request_id="request-1", duration_ms=5)
        for target in targets
    ]
