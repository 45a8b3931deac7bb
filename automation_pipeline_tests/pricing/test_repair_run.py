"""A repair is a run of exactly the differences, and puts back what was applied."""

import pytest

from automation_pipeline.core.errors import ConflictError
from automation_pipeline.pricing.checks import reconcile_run, repair_run
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.runs import roll_back_run, start_due_rules
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import PRICES, FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(4)), {"longest_pause_seconds": 0.0})


def look(bench: Bench, run: RuleRun, name: str) -> None:
    bench.loop(reconcile_run(run.id, bench.context, name=name))
    bench.clock.pass_time_a_second()


def repair(bench: Bench, run: RuleRun) -> RuleRun:
    return repair_run(run.id, database=bench.database, clock=bench.clock, actor="user:5")


def edited(bench: Bench, **rule: object) -> RuleRun:
    """Applied, and two prices of it changed by hand, one of them into another currency."""
    run = bench.work(bench.queued(bench.rule(**rule)))
    bench.shop.edit("201", amount=1)
    bench.shop.edit("301", currency="USD")
    look(bench, run, "5m")
    return run


def test_a_repair_holds_the_differences_of_the_same_currency_alone(bench: Bench) -> None:
    run = edited(bench)
    made = repair(bench, run)
    assert (made.status, made.trigger, made.parent_run_id, made.created_by) == (
        "PREVIEW",
        "repair",
        run.id,
        "user:5",
    )
    assert (made.total_targets, made.rule_version_hash) == (1, run.rule_version_hash)
    assert made.previewed_at == bench.clock.now()
    assert made.explain is not None
    assert made.explain["repairs"] == {"runId": str(run.id), "check": "5m"}
    [target] = bench.targets(made.id)
    assert (target.variant_id, target.sku_id, target.product_id) == ("201", "SKU-2-1", "2")
    assert (target.before_json["unit_amount"], target.after_json["unit_amount"]) == (1, 900)
    assert target.writes_compare_at is False


def test_a_repair_is_applied_as_any_run_even_if_its_rule_rests(bench: Bench) -> None:
    run = edited(bench, cooldownMinutes=600)
    ended = bench.work(bench.queue(repair(bench, run)))
    assert (ended.status, bench.shop.amounts()["201"]) == ("APPLIED", 900)
    look(bench, ended, "5m")
    assert {check.name: check.mismatches for check in bench.checks(ended.id)} == {
        "5m": 0,
        "1h": None,
    }


def test_what_was_put_right_by_hand_needs_no_repair(bench: Bench) -> None:
    run = edited(bench)
    bench.shop.edit("201", amount=900)
    look(bench, run, "manual-1")
    with pytest.raises(
        ConflictError, match=f"Nothing of run {run.id} is to be repaired: its last check, manual-1"
    ):
        repair(bench, run)


def test_a_look_that_saw_nothing_does_not_count(bench: Bench) -> None:
    run = edited(bench)
    bench.shop.fail_always(PRICES, FailureSignal(status=500))
    look(bench, run, "manual-1")
    assert repair(bench, run).total_targets == 1


def test_what_was_taken_back_since_is_not_put_back(bench: Bench) -> None:
    run = edited(bench)
    roll_back_run(run.id, database=bench.database, clock=bench.clock, actor="user:1", force=True)
    bench.work(run)
    with pytest.raises(ConflictError, match="Nothing of run"):
        repair(bench, run)


def test_after_a_repair_the_end_of_a_promotion_brings_back_the_price_before_it(
    bench: Bench,
) -> None:
    run = bench.work(bench.queued(bench.rule(endsAt="2026-05-04T11:00:00Z")))
    bench.shop.edit("201", amount=2500)
    look(bench, run, "5m")
    repaired = bench.work(bench.queue(repair(bench, run)))
    assert (repaired.status, bench.shop.amounts()["201"]) == ("APPLIED", 900)
    bench.pass_minutes(61)
    for _ in range(2):
        for run_id in start_due_rules(
            database=bench.database, clock=bench.clock, shop=bench.front.name
        ).ended:
            bench.work_id(run_id)
    assert bench.run(run.id).status == "ROLLED_BACK"
    assert set(bench.shop.amounts().values()) == {1000}


def test_without_a_look_there_is_nothing_to_repair(bench: Bench) -> None:
    run = bench.work(bench.queued())
    with pytest.raises(ConflictError, match=f"No price of run {run.id} was looked up"):
        repair(bench, run)


def test_when_its_promotion_is_over_nothing_is_put_back(bench: Bench) -> None:
    run = edited(bench)
    bench.set_run(run.id, promotion_ended_at=bench.clock.now())
    with pytest.raises(ConflictError, match="promotion"):
        repair(bench, run)
