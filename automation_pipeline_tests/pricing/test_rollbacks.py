"""Rollbacks: restored prices, prices left as they are with the reason, and no double writes."""

import pytest

from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.retry import Backoff
from automation_pipeline.pricing import worker
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.rules import runs as run_rules
from automation_pipeline.pricing.runs import cancel_run, roll_back_run
from automation_pipeline.pricing.schedules import start_due_rules
from automation_pipeline.pricing.shop import pause_shop
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import LOST, PRICES, FakeShop, product_variants, variant
from automation_pipeline_tests.pricing.harness import PricingHarness, stop_during_first_write

BUSY, REFUSED = FailureSignal(status=500), FailureSignal(status=401)
FORMER = {"101": 1000, "201": 1000, "301": 1000}


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    """A harness whose worker never waits for targets that are not due."""
    return PricingHarness(
        database, clock, FakeShop(*product_variants(3)), {"longest_pause_seconds": 0.0}
    )


@pytest.fixture(autouse=True)
def _slow_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long retry waits, so that nothing is due before `make_due`."""
    slow_backoff = Backoff(base_seconds=2000, cap_seconds=64000, multiplier=2, jitter=0.2)
    monkeypatch.setattr(run_rules, "RETRY_BACKOFF", slow_backoff)


def applied(harness: PricingHarness) -> RuleRun:
    run = harness.work(harness.queued_run())
    harness.shop.calls.clear()
    harness.shop.written.clear()
    return run


def request_rollback(harness: PricingHarness, run: RuleRun, **how: object) -> None:
    roll_back_run(run.id, database=harness.database, clock=harness.clock, actor="user:7", **how)


def roll_back(harness: PricingHarness, run: RuleRun, **how: object) -> RuleRun:
    request_rollback(harness, run, **how)
    return harness.work(run)


def test_a_rollback_reads_and_restores_every_price(harness: PricingHarness) -> None:
    run = applied(harness)
    ended = roll_back(harness, run)
    row = harness.run_row(run.id)
    assert (ended.status, ended.rollback_state, ended.wish, ended.targets.rolled_back) == (
        "ROLLED_BACK",
        "DONE",
        None,
        3,
    )
    assert (harness.shop.amounts(), row.lease_owner, row.wished_by) == (FORMER, None, None)
    assert [kind for kind, _ in harness.shop.calls] == ["prices", "write", "write", "write"]
    assert harness.transitions("rule run", run.id)[-1] == ("APPLIED", "ROLLED_BACK")
    [first, *_] = harness.targets(run.id)
    assert harness.transitions("rule target", first.id)[-1] == ("APPLIED", "ROLLED_BACK")
    assert (first.rolled_back_at is not None, first.is_writing, first.is_wished) == (
        True,
        False,
        False,
    )


def test_a_rollback_records_every_price_and_emits_an_event(harness: PricingHarness) -> None:
    run = applied(harness)
    roll_back(harness, run)
    changes = [change for change in harness.changes(run.id) if change.kind == "rollback"]
    assert {(one.from_amount, one.to_amount, one.was_found) for one in changes} == {
        (900, 1000, False)
    }
    assert {one.event_key for one in changes} == {
        f"{run.id}:{target.id}:rollback:1" for target in harness.targets(run.id)
    }
    [event] = harness.events("rule.run.rolled_back")
    assert event.payload["rollbackState"] == "DONE"
    assert (
        event.payload["status"],
        event.payload["rolledBack"],
        event.payload["stillApplied"],
    ) == (
        "ROLLED_BACK",
        3,
        0,
    )
    assert harness.meter.drain()["rules_rollback_count_total", 'project="default"'] == 3


def test_prices_are_rolled_back_in_reverse_order(harness: PricingHarness) -> None:
    harness.shop_options["calls_at_once"] = 1
    roll_back(harness, applied(harness))
    assert [subject for kind, subject in harness.shop.calls if kind == "write"] == ["3", "2", "1"]


def test_a_price_edited_by_hand_is_kept_and_the_rollback_is_partial(
    harness: PricingHarness,
) -> None:
    run = applied(harness)
    harness.shop.edit("201", amount=1234)
    ended = roll_back(harness, run)
    assert (ended.status, ended.rollback_state, ended.wish) == ("APPLIED", "PARTIAL", None)
    assert harness.statuses(run.id) == {
        "101": "ROLLED_BACK",
        "201": "APPLIED",
        "301": "ROLLED_BACK",
    }
    assert harness.shop.amounts() == {**FORMER, "201": 1234}
    left = harness.targets(run.id)[1]
    assert (left.error_type, left.error_retryable, left.is_wished, left.is_writing) == (
        "conflict",
        False,
        False,
        False,
    )
    assert "12.34 EUR, not 9.00 EUR as was applied: it was edited since" in str(left.error_message)
    assert left.observed_price == {"unit_amount": 1234, "currency": "EUR", "compare_at": None}


def test_a_forced_rollback_overwrites_edited_prices(harness: PricingHarness) -> None:
    run = applied(harness)
    harness.shop.edit("201", amount=1234)
    roll_back(harness, run)
    ended = roll_back(harness, run, force=True)
    assert (ended.status, ended.rollback_state, harness.shop.amounts()) == (
        "ROLLED_BACK",
        "DONE",
        FORMER,
    )
    left = harness.targets(run.id)[1]
    assert (left.error_message, left.error_type, harness.run_row(run.id).rollback_force) == (
        None,
        None,
        False,
    )
    assert [one.from_amount for one in harness.changes(run.id)][-1] == 1234
    assert len(harness.events("rule.run.rolled_back")) == 2


def test_a_forced_rollback_keeps_a_price_in_another_currency(harness: PricingHarness) -> None:
    run = applied(harness)
    harness.shop.edit("201", currency="USD")
    assert roll_back(harness, run, force=True).rollback_state == "PARTIAL"


def test_only_chosen_targets_are_rolled_back(harness: PricingHarness) -> None:
    run = applied(harness)
    ended = roll_back(harness, run, target_ids=[harness.targets(run.id)[0].id])
    assert (ended.status, ended.rollback_state) == ("APPLIED", "PARTIAL")
    assert harness.shop.amounts() == {"101": 1000, "201": 900, "301": 900}
    assert roll_back(harness, run).status == "ROLLED_BACK"


def test_a_rollback_of_a_partial_run_keeps_failed_targets(harness: PricingHarness) -> None:
    harness.shop.refuse("301")
    run = applied(harness)
    ended = roll_back(harness, run)
    assert (run.status, ended.status, ended.rollback_state) == ("PARTIAL", "ROLLED_BACK", "DONE")
    assert harness.statuses(run.id)["301"] == "FAILED"


def test_a_compare_at_price_written_by_the_rule_is_restored(harness: PricingHarness) -> None:
    harness.shop = FakeShop(variant("101", "1", 1000, compare_at=1500))
    transform = {"op": "percent", "value": -10, "compareAt": "before"}
    rule = harness.rule(transform=transform)
    run = harness.work(harness.queued_run(rule))
    [target] = harness.targets(run.id)
    assert target.writes_compare_at
    roll_back(harness, run)
    price = harness.shop.price("101")
    assert price is not None
    assert (price.unit_amount, price.compare_at) == (1000, 1500)


def test_a_rollback_has_its_own_attempts(harness: PricingHarness) -> None:
    harness.shop = FakeShop(variant("101", "1", 1000))
    run = applied(harness)
    harness.set_target(harness.targets(run.id)[0].id, attempts=3)
    harness.shop.fail_always("1", BUSY)
    request_rollback(harness, run)
    waits: list[float] = []
    for attempts in (1, 2, 3):
        waiting = harness.work(run)
        [target] = harness.targets(run.id)
        assert (waiting.status, waiting.wish, target.attempts, target.is_writing) == (
            "APPLIED",
            "rollback",
            attempts,
            False,
        )
        assert waiting.resume_at is not None
        waits.append((target.next_attempt_at - target.last_attempt).total_seconds())
        harness.make_due(run.id)
    assert [
        wait == pytest.approx(wanted, rel=0.25)
        for wait, wanted in zip(waits, [2000, 4000, 8000], strict=True)
    ] == [True] * 3
    ended = harness.work(run)
    [target] = harness.targets(run.id)
    assert (ended.status, ended.rollback_state, ended.wish) == ("APPLIED", "NONE", None)
    assert (target.error_type, target.error_retryable, harness.shop.call_count("write")) == (
        "server",
        True,
        4,
    )
    harness.shop.stop_failing("1")
    assert roll_back(harness, run).status == "ROLLED_BACK"


def test_after_a_lost_answer_the_price_is_read_and_not_written_twice(
    harness: PricingHarness,
) -> None:
    run = applied(harness)
    harness.shop.lose_answer_once("2")
    request_rollback(harness, run)
    harness.work(run)
    assert harness.statuses(run.id)["201"] == "APPLIED"
    harness.make_due(run.id)
    assert harness.work(run).status == "ROLLED_BACK"
    assert [harness.shop.write_count(one) for one in ("101", "201", "301")] == [1, 1, 1]
    found = [
        one.was_found
        for one in harness.changes(run.id)
        if one.kind == "rollback" and one.variant_id == "201"
    ]
    assert found == [True]


def test_after_a_worker_dies_before_saving_the_next_one_reads_first(
    harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = applied(harness)
    request_rollback(harness, run)
    with monkeypatch.context() as patch:
        patch.setattr(worker, "save_rollback_outcomes", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            harness.work(run)
    written = len(harness.shop.written)
    assert written > 0
    assert {target.is_writing for target in harness.targets(run.id)} == {True}
    harness.renew_claim(run.id)
    with pytest.raises(TransientError, match="is in progress"):
        harness.work(run)
    harness.expire_claim(run.id)
    assert harness.work(run).status == "ROLLED_BACK"
    assert [harness.shop.write_count(one) for one in ("101", "201", "301")] == [1, 1, 1]
    kept = [one.was_found for one in harness.changes(run.id) if one.kind == "rollback"]
    assert (len(kept), sum(kept)) == (3, written)


def test_a_refused_token_stops_the_run(harness: PricingHarness) -> None:
    run = applied(harness)
    harness.shop.fail_always(PRICES, REFUSED)
    ended = roll_back(harness, run)
    assert (ended.status, ended.rollback_state, ended.wish, harness.shop.call_count("write")) == (
        "APPLIED",
        "NONE",
        None,
        0,
    )
    assert {(one.error_type, one.is_wished, one.is_writing) for one in harness.targets(run.id)} == {
        ("authentication", False, False)
    }


def test_a_throttled_rollback_pauses_and_uses_no_attempt(harness: PricingHarness) -> None:
    harness.shop_options["calls_at_once"] = 1
    run = applied(harness)
    harness.shop.fail_once("3", FailureSignal(status=429), retry_after_seconds=600.0)
    waiting = roll_back(harness, run)
    assert (waiting.wish, waiting.resume_at is not None, harness.shop.call_count("write")) == (
        "rollback",
        True,
        1,
    )
    assert {
        (one.attempts, one.rate_limit_waits, one.is_writing) for one in harness.targets(run.id)
    } == {
        (0, 0, False),
        (0, 1, False),
    }
    harness.end_shop_pause()
    harness.make_due(run.id)
    assert (harness.work(run).status, harness.shop.amounts()) == ("ROLLED_BACK", FORMER)


def test_a_token_refused_during_a_rollback_leaves_the_rest_applied(harness: PricingHarness) -> None:
    harness.shop_options["calls_at_once"] = 1
    run = applied(harness)
    harness.shop.fail_always("2", REFUSED)
    assert roll_back(harness, run).rollback_state == "PARTIAL"
    assert harness.shop.call_count("write") == 2
    assert sorted(str(one.error_type) for one in harness.targets(run.id)) == [
        "None",
        "authentication",
        "authentication",
    ]
    assert not any(one.is_wished or one.is_writing for one in harness.targets(run.id))


def test_a_removed_variant_stays_applied_with_the_reason(harness: PricingHarness) -> None:
    run = applied(harness)
    harness.shop.remove("101")
    assert roll_back(harness, run).rollback_state == "PARTIAL"
    assert harness.targets(run.id)[0].error_type == "not_found"


def test_a_rollback_waits_for_a_variant_that_another_run_writes(harness: PricingHarness) -> None:
    run = applied(harness)
    other = harness.previewed_run(harness.rule(name="Other"))
    blocking = harness.targets(other.id)[0]
    harness.set_target(blocking.id, status="APPLYING", is_writing=True)
    request_rollback(harness, run)
    waiting = harness.work(run)
    assert (waiting.wish, waiting.resume_at is not None, harness.statuses(run.id)["101"]) == (
        "rollback",
        True,
        "APPLIED",
    )
    assert harness.statuses(run.id)["201"] == "ROLLED_BACK"
    harness.set_target(blocking.id, status="QUEUED", is_writing=False)
    harness.make_due(run.id)
    assert harness.work(run).status == "ROLLED_BACK"


def test_a_rollback_does_not_call_a_paused_shop(harness: PricingHarness) -> None:
    run = applied(harness)
    pause_shop(
        harness.storefront.name, database=harness.database, actor="user:7", reason="Stock-taking"
    )
    waiting = roll_back(harness, run)
    assert (waiting.wish, waiting.resume_at, harness.shop.calls) == ("rollback", None, [])


def test_a_cancelled_rollback_keeps_the_prices_already_restored(harness: PricingHarness) -> None:
    run = applied(harness)
    harness.shop.fail_once("2", BUSY)
    request_rollback(harness, run)
    harness.work(run)
    cancel_run(run.id, database=harness.database, clock=harness.clock, actor="user:7")
    harness.make_due(run.id)
    assert harness.work(run).wish is None
    assert harness.statuses(run.id) == {
        "101": "ROLLED_BACK",
        "201": "APPLIED",
        "301": "ROLLED_BACK",
    }
    assert roll_back(harness, run).status == "ROLLED_BACK"


def test_a_rollback_that_is_cancelled_during_a_write_stops_before_the_next(
    harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.shop_options["calls_at_once"] = 1
    run = applied(harness)
    request_rollback(harness, run)
    stop_during_first_write(
        harness,
        lambda: cancel_run(run.id, database=harness.database, clock=harness.clock, actor="user:7"),
        monkeypatch,
    )
    assert harness.work(run).rollback_state == "PARTIAL"
    assert harness.shop.call_count("write") == 1
    assert harness.statuses(run.id) == {"101": "APPLIED", "201": "APPLIED", "301": "ROLLED_BACK"}


def test_failed_reads_postpone_the_rollback(harness: PricingHarness) -> None:
    run = applied(harness)
    harness.shop.fail_once(PRICES, LOST)
    waiting = roll_back(harness, run)
    assert (waiting.wish, harness.shop.call_count("write")) == ("rollback", 0)
    assert {one.attempts for one in harness.targets(run.id)} == {1}
    harness.make_due(run.id)
    assert harness.work(run).status == "ROLLED_BACK"


def test_the_end_of_a_promotion_restores_its_prices(harness: PricingHarness) -> None:
    run = harness.work(harness.queued_run(harness.rule(endsAt="2026-05-04T11:00:00Z")))
    harness.pass_minutes(61)
    start_due_rules(database=harness.database, clock=harness.clock, shop=harness.storefront.name)
    ended = harness.work(run)
    assert (ended.status, ended.rollback_state, harness.shop.amounts()) == (
        "ROLLED_BACK",
        "DONE",
        FORMER,
    )


def test_many_targets_are_rolled_back_in_chunks(harness: PricingHarness) -> None:
    harness.shop = FakeShop(*product_variants(120, 3))
    run = applied(harness)
    assert roll_back(harness, run).targets.rolled_back == 360
    assert harness.shop.call_count("prices") == 5
    assert harness.shop.call_count("write") == 120
    assert set(harness.shop.amounts().values()) == {1000}
