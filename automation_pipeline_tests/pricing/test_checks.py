"""Checks of applied prices against the shop, and repairs."""

from datetime import timedelta

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.pricing.checks import (
    checks_of,
    latest_conclusive_check,
    reconcile_all,
    reconcile_run,
    repair_run,
    request_due_checks,
)
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal, ShopRestingError
from automation_pipeline.pricing.monitoring import mismatched_prices
from automation_pipeline.pricing.queries.runs import plan_checks
from automation_pipeline.pricing.rules.monitoring import ReconciliationReport
from automation_pipeline.pricing.runs import roll_back_run
from automation_pipeline.pricing.schedules import start_due_rules
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import PRICES, FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(1)), {"longest_pause_seconds": 0.0})


def applied_with_checks(bench: Bench) -> RuleRun:
    """An applied run whose checks are planned by the test's clock."""
    run = bench.work(bench.queued())
    plan(bench, run)
    return run


def plan(bench: Bench, run: RuleRun) -> None:
    with bench.database.transaction() as session:
        plan_checks(session, run.id, bench.clock.now())


def request_checks(bench: Bench) -> list[str]:
    return list(request_due_checks(database=bench.database, clock=bench.clock))


def test_a_check_is_requested_when_it_is_due(bench: Bench) -> None:
    run = applied_with_checks(bench)
    assert request_checks(bench) == []
    bench.pass_minutes(3)
    [key] = request_checks(bench)
    assert key == f"rule-check-{run.id}-5m-{round(bench.clock.now().timestamp())}"
    assert (key, {"run_id": run.id, "check": "5m"}) in bench.requests()
    assert request_checks(bench) == []
    bench.pass_minutes(57)
    assert any(key.startswith(f"rule-check-{run.id}-1h-") for key in request_checks(bench))


def test_an_unfinished_check_is_requested_again_with_another_key(bench: Bench) -> None:
    applied_with_checks(bench)
    bench.pass_minutes(3)
    [first] = request_checks(bench)
    bench.pass_minutes(9)
    assert request_checks(bench) == []
    bench.pass_minutes(1)
    [again] = request_checks(bench)
    assert again.startswith(f"{first}-")


def test_a_finished_check_is_not_requested(bench: Bench) -> None:
    run = applied_with_checks(bench)
    bench.pass_minutes(3)
    bench.loop(reconcile_run(run.id, bench.context, name="5m"))
    assert request_checks(bench) == []


@pytest.mark.parametrize("minutes", [1, 120])
def test_a_run_that_ends_again_is_checked_again(bench: Bench, minutes: float) -> None:
    run = applied_with_checks(bench)
    bench.pass_minutes(3)
    [first] = request_checks(bench)
    bench.loop(reconcile_run(run.id, bench.context, name="5m"))
    bench.pass_minutes(minutes)
    plan(bench, run)
    assert request_checks(bench) == []
    bench.pass_minutes(3)
    [second] = request_checks(bench)
    assert second != first
    assert [key for key, _ in bench.requests() if key.startswith("rule-check-")] == [first, second]


BUSY, REFUSED = FailureSignal(status=500), FailureSignal(status=401)


@pytest.fixture
def bench_of_three(database: Database, clock: StandingClock) -> Bench:
    """Retries are due at once."""
    return Bench(database, clock, FakeShop(*shelf(3)), {"longest_pause_seconds": 0.0})


def applied(bench_of_three: Bench, **rule: object) -> RuleRun:
    run = bench_of_three.work(bench_of_three.queued(bench_of_three.rule(**rule)))
    bench_of_three.shop.called.clear()
    return run


def check_run(bench_of_three: Bench, run: RuleRun, name: str = "5m") -> ReconciliationReport:
    return bench_of_three.loop(reconcile_run(run.id, bench_of_three.context, name=name))


def test_unchanged_prices_are_not_mismatches(bench_of_three: Bench) -> None:
    run = applied(bench_of_three)
    found = check_run(bench_of_three, run)
    assert (found.total_checked, found.mismatches, found.unverified) == (3, 0, ())
    assert bench_of_three.shop.called == [("prices", ("101", "201", "301"))]
    with bench_of_three.database.reading() as session:
        first, second = checks_of(session, run.id)
    assert (first.name, first.checked_at, first.worst, first.report) == (
        "5m",
        bench_of_three.clock.now(),
        None,
        found,
    )
    assert (second.name, second.checked_at, second.report) == ("1h", None, None)
    assert bench_of_three.events("automation.reconciliation.mismatch") == []


@pytest.mark.parametrize(
    ("edit", "severity", "difference"),
    [
        ({"amount": 901}, "info", 1),
        ({"amount": 909}, "warning", 9),
        ({"amount": 910}, "critical", 10),
        ({"currency": "USD"}, "critical", None),
    ],
)
def test_every_difference_has_its_severity(
    bench_of_three: Bench, edit: dict[str, object], severity: str, difference: int | None
) -> None:
    run = applied(bench_of_three)
    bench_of_three.shop.edit("201", **edit)
    found = check_run(bench_of_three, run)
    [detail] = found.details
    target = bench_of_three.targets(run.id)[1]
    assert (detail.target_id, detail.sku_id, detail.severity) == (
        str(target.id),
        "SKU-2-1",
        severity,
    )
    assert (detail.expected_price, detail.difference) == (900, difference)
    [event] = bench_of_three.events("automation.reconciliation.mismatch")
    assert event.key == f"{run.id}:{target.id}:mismatch:5m"
    message = {
        "targetId": str(target.id),
        "runId": str(run.id),
        "expected": 900,
        "difference": difference,
    }
    assert (
        event.payload.items()
        >= {**message, "severity": severity, "actual": detail.actual_price}.items()
    )
    assert (
        next(check for check in bench_of_three.checks(run.id) if check.name == "5m").worst
        == severity
    )


def test_a_removed_variant_is_unverified_and_not_a_mismatch(bench_of_three: Bench) -> None:
    run = applied(bench_of_three)
    bench_of_three.shop.remove("101")
    bench_of_three.shop.edit("201", amount=1)
    found = check_run(bench_of_three, run)
    assert (found.total_checked, found.mismatches) == (2, 1)
    assert [one.reason for one in found.unverified] == [
        "the variant, or its price, is no longer in the shop"
    ]


def test_after_a_failed_read_all_prices_are_unverified(bench_of_three: Bench) -> None:
    run = applied(bench_of_three)
    bench_of_three.shop.fail_always(PRICES, BUSY)
    found = check_run(bench_of_three, run)
    assert (found.total_checked, found.mismatches, len(found.unverified)) == (0, 0, 3)
    assert "The shop fails as the test asks" in found.unverified[0].reason
    assert bench_of_three.events("automation.reconciliation.mismatch") == []


def test_a_check_runs_once(bench_of_three: Bench) -> None:
    run = applied(bench_of_three)
    found = check_run(bench_of_three, run)
    bench_of_three.shop.edit("101", amount=1)
    assert check_run(bench_of_three, run) == found
    assert check_run(bench_of_three, run, "manual-1").mismatches == 1
    assert bench_of_three.shop.times("prices") == 2


def test_only_the_latest_applied_price_of_a_variant_is_expected(bench_of_three: Bench) -> None:
    first = applied(bench_of_three)
    second = applied(bench_of_three, name="Later", selector={"sku": "SKU-1-1"})
    assert [one.status for one in bench_of_three.targets(second.id)] == ["APPLIED"]
    assert (
        check_run(bench_of_three, first).total_checked,
        check_run(bench_of_three, second).total_checked,
    ) == (2, 1)
    roll_back_run(
        second.id,
        database=bench_of_three.database,
        clock=bench_of_three.clock,
        actor="user:1",
    )
    bench_of_three.work(second)
    again = check_run(bench_of_three, first, "1h")
    assert (again.total_checked, again.mismatches) == (3, 0)


def test_a_price_that_is_being_written_is_unverified(bench_of_three: Bench) -> None:
    run = applied(bench_of_three)
    bench_of_three.shop.edit("101", amount=1)
    bench_of_three.set_target(bench_of_three.targets(run.id)[0].id, is_writing=True)
    found = check_run(bench_of_three, run)
    assert (found.mismatches, [one.reason for one in found.unverified]) == (
        0,
        ["its price was being changed at the same time"],
    )


def test_a_target_rolled_back_during_the_check_is_not_checked(bench_of_three: Bench) -> None:
    run = applied(bench_of_three)
    first = bench_of_three.targets(run.id)[0]

    async def roll_back_target(_kind: str, _subject: object) -> None:
        bench_of_three.shop.edit("101", amount=1000)
        bench_of_three.set_target(first.id, status="ROLLED_BACK")

    bench_of_three.shop._during_call = roll_back_target
    found = check_run(bench_of_three, run)
    assert (found.total_checked, found.mismatches) == (2, 0)


def test_an_open_circuit_leaves_the_check_due(
    bench_of_three: Bench,
) -> None:
    run = applied(bench_of_three)
    with bench_of_three.database.transaction() as session:
        shop = session.get_one(ShopRow, bench_of_three.front.name)
        shop.circuit, shop.until = "open", shop.measured_at + timedelta(days=36500)
    with pytest.raises(ShopRestingError):
        check_run(bench_of_three, run)
    assert {check.checked_at for check in bench_of_three.checks(run.id)} == {None}


def test_a_refused_token_stops_after_the_first_batch(bench_of_three: Bench) -> None:
    bench_of_three.shop = FakeShop(*shelf(300, 2))
    run = applied(bench_of_three)
    bench_of_three.shop_options["calls_at_once"] = 1
    bench_of_three.shop.fail_always(PRICES, REFUSED)
    assert len(check_run(bench_of_three, run).unverified) == 600
    assert bench_of_three.shop.times("prices") == 1


def test_a_run_of_another_shop_cannot_be_verified(bench_of_three: Bench) -> None:
    run = applied(bench_of_three)
    bench_of_three.set_run(run.id, shop="other.test")
    found = check_run(bench_of_three, run)
    assert {one.reason for one in found.unverified} == {
        "it was applied in another shop, other.test"
    }
    assert bench_of_three.shop.called == []


def test_a_run_without_applied_prices_cannot_be_checked(bench_of_three: Bench) -> None:
    preview = bench_of_three.previewed()
    with pytest.raises(
        ConflictError, match=f"Run {preview.id} is PREVIEW: it has no applied price"
    ):
        check_run(bench_of_three, preview)
    with pytest.raises(InvalidInputError, match="There is no such check"):
        check_run(bench_of_three, preview, "tomorrow")
    with pytest.raises(NotFoundError):
        check_run(bench_of_three, preview.model_copy(update={"id": 987654}))


def test_a_rolled_back_run_gets_an_empty_check(bench_of_three: Bench) -> None:
    run = applied(bench_of_three)
    roll_back_run(
        run.id,
        database=bench_of_three.database,
        clock=bench_of_three.clock,
        actor="user:1",
    )
    bench_of_three.work(run)
    assert check_run(bench_of_three, run).total_checked == 0


YESTERDAY = timedelta(days=1)


@pytest.fixture
def bench_of_four(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(4)), {"longest_pause_seconds": 0.0})


def applied_by_rule(bench_of_four: Bench, ago: timedelta = YESTERDAY, **rule: object) -> RuleRun:
    run = bench_of_four.work(bench_of_four.queued(bench_of_four.rule(**rule)))
    at = bench_of_four.clock.now() - ago
    bench_of_four.set_run(run.id, queued_at=at, started_at=at, finished_at=at)
    bench_of_four.shop.called.clear()
    return run


def reconcile_daily(bench_of_four: Bench) -> list[ReconciliationReport]:
    return bench_of_four.loop(reconcile_all(bench_of_four.context))


def test_reconciliation_of_all_runs_reads_each_variant_once(
    bench_of_four: Bench,
) -> None:
    first = applied_by_rule(bench_of_four)
    second = applied_by_rule(bench_of_four, name="Later", selector={"sku": ["SKU-1-1", "SKU-2-1"]})
    bench_of_four.shop.edit("101", amount=1)
    reports = {
        one.run_id: (one.total_checked, one.mismatches) for one in reconcile_daily(bench_of_four)
    }
    assert reports == {str(first.id): (2, 0), str(second.id): (2, 1)}
    [(_, asked)] = bench_of_four.shop.called
    assert sorted(asked) == ["101", "201", "301", "401"]
    checks = {check.name: check for check in bench_of_four.checks(second.id)}
    assert (checks["2026-05-04"].mismatches, checks["2026-05-04"].worst) == (1, "critical")
    [event] = bench_of_four.events("automation.reconciliation.mismatch")
    assert event.key.endswith(":mismatch:2026-05-04")


def test_each_run_has_one_check_per_day(bench_of_four: Bench) -> None:
    run = applied_by_rule(bench_of_four)
    assert (
        len(reconcile_daily(bench_of_four)),
        len(reconcile_daily(bench_of_four)),
    ) == (1, 0)
    bench_of_four.clock.pass_time(timedelta(days=1))
    assert len(reconcile_daily(bench_of_four)) == 1
    assert {check.name for check in bench_of_four.checks(run.id)} == {
        "5m",
        "1h",
        "2026-05-04",
        "2026-05-05",
    }


@pytest.mark.parametrize(
    ("ago", "checked"),
    [
        (timedelta(minutes=60), 0),
        (timedelta(minutes=61), 1),
        (timedelta(days=30), 1),
        (timedelta(days=30, minutes=1), 0),
    ],
)
def test_runs_are_reconciled_until_they_are_thirty_days_old(
    bench_of_four: Bench, ago: timedelta, checked: int
) -> None:
    applied_by_rule(bench_of_four, ago)
    assert len(reconcile_daily(bench_of_four)) == checked


def test_the_name_of_a_daily_check_is_the_local_date(bench_of_four: Bench) -> None:
    run = applied_by_rule(bench_of_four)
    bench_of_four.clock.pass_time(timedelta(hours=13))
    reconcile_daily(bench_of_four)
    assert bench_of_four.checks(run.id)[-1].name == "2026-05-05"


def test_reconciliation_can_be_switched_off(bench_of_four: Bench) -> None:
    applied_by_rule(bench_of_four)
    bench_of_four.shop_options["reconciles"] = False
    assert (reconcile_daily(bench_of_four), bench_of_four.shop.called) == ([], [])


def test_runs_of_other_shops_are_not_reconciled(bench_of_four: Bench) -> None:
    bench_of_four.set_run(applied_by_rule(bench_of_four).id, shop="other.test")
    assert reconcile_daily(bench_of_four) == []


def test_a_run_with_all_prices_replaced_gets_an_empty_report_that_clears_its_mismatches(
    bench_of_four: Bench,
) -> None:
    run = bench_of_four.work(bench_of_four.queued())
    bench_of_four.shop.edit("101", amount=5000)
    bench_of_four.loop(reconcile_run(run.id, bench_of_four.context, name="5m"))
    bench_of_four.clock.pass_time_a_second()
    # A second run replaces every price, like a repair of the whole run.
    later = bench_of_four.work(bench_of_four.queued(bench_of_four.rule(name="Later")))
    for one in (run, later):
        at = bench_of_four.clock.now() - YESTERDAY
        bench_of_four.set_run(one.id, queued_at=at, started_at=at, finished_at=at)
    reports = {report.run_id: report for report in reconcile_daily(bench_of_four)}
    assert (reports[str(run.id)].total_checked, reports[str(later.id)].total_checked) == (0, 4)
    with bench_of_four.database.reading() as session:
        newest = latest_conclusive_check(session, run.id)
        assert newest is not None
        assert (newest.name, newest.worst, newest.unverified) == ("2026-05-04", None, 0)
        assert dict(mismatched_prices(session, bench_of_four.clock.now())) == {}


def test_without_applied_prices_the_shop_is_not_called(bench_of_four: Bench) -> None:
    run = applied_by_rule(bench_of_four)
    for target in bench_of_four.targets(run.id):
        bench_of_four.set_target(target.id, status="ROLLED_BACK")
    assert [
        (report.total_checked, report.unverified) for report in reconcile_daily(bench_of_four)
    ] == [(0, ())]
    assert (reconcile_daily(bench_of_four), bench_of_four.shop.called) == ([], [])


def check_prices(bench_of_four: Bench, run: RuleRun, name: str) -> None:
    bench_of_four.loop(reconcile_run(run.id, bench_of_four.context, name=name))
    bench_of_four.clock.pass_time_a_second()


def repair(bench_of_four: Bench, run: RuleRun) -> RuleRun:
    return repair_run(
        run.id, database=bench_of_four.database, clock=bench_of_four.clock, actor="user:5"
    )


def applied_then_edited(bench_of_four: Bench, **rule: object) -> RuleRun:
    """An applied run with two prices edited by hand, one of them to another currency."""
    run = bench_of_four.work(bench_of_four.queued(bench_of_four.rule(**rule)))
    bench_of_four.shop.edit("201", amount=1)
    bench_of_four.shop.edit("301", currency="USD")
    check_prices(bench_of_four, run, "5m")
    return run


def test_a_repair_has_only_the_mismatches_in_the_same_currency(bench_of_four: Bench) -> None:
    run = applied_then_edited(bench_of_four)
    made = repair(bench_of_four, run)
    assert (made.status, made.trigger, made.parent_run_id, made.created_by) == (
        "PREVIEW",
        "repair",
        run.id,
        "user:5",
    )
    assert (made.total_targets, made.rule_version_hash) == (1, run.rule_version_hash)
    assert made.previewed_at == bench_of_four.clock.now()
    assert made.explain is not None
    assert made.explain["repairs"] == {"runId": str(run.id), "check": "5m"}
    [target] = bench_of_four.targets(made.id)
    assert (target.variant_id, target.sku_id, target.product_id) == ("201", "SKU-2-1", "2")
    assert (target.before_json["unit_amount"], target.after_json["unit_amount"]) == (1, 900)
    assert target.writes_compare_at is False


def test_a_repair_is_applied_during_the_cooldown_of_its_rule(bench_of_four: Bench) -> None:
    run = applied_then_edited(bench_of_four, cooldownMinutes=600)
    ended = bench_of_four.work(bench_of_four.queue(repair(bench_of_four, run)))
    assert (ended.status, bench_of_four.shop.amounts()["201"]) == ("APPLIED", 900)
    check_prices(bench_of_four, ended, "5m")
    assert {check.name: check.mismatches for check in bench_of_four.checks(ended.id)} == {
        "5m": 0,
        "1h": None,
    }


def test_prices_corrected_by_hand_need_no_repair(bench_of_four: Bench) -> None:
    run = applied_then_edited(bench_of_four)
    bench_of_four.shop.edit("201", amount=900)
    check_prices(bench_of_four, run, "manual-1")
    with pytest.raises(
        ConflictError, match=f"Run {run.id} needs no repair: its last check, manual-1"
    ):
        repair(bench_of_four, run)


def test_a_repair_ignores_checks_that_read_no_price(bench_of_four: Bench) -> None:
    run = applied_then_edited(bench_of_four)
    bench_of_four.shop.fail_always(PRICES, FailureSignal(status=500))
    check_prices(bench_of_four, run, "manual-1")
    assert repair(bench_of_four, run).total_targets == 1


def test_a_rolled_back_price_is_not_repaired(bench_of_four: Bench) -> None:
    run = applied_then_edited(bench_of_four)
    roll_back_run(
        run.id,
        database=bench_of_four.database,
        clock=bench_of_four.clock,
        actor="user:1",
        force=True,
    )
    bench_of_four.work(run)
    with pytest.raises(ConflictError, match="needs no repair"):
        repair(bench_of_four, run)


def test_the_end_of_a_repaired_promotion_restores_the_original_prices(
    bench_of_four: Bench,
) -> None:
    run = bench_of_four.work(
        bench_of_four.queued(bench_of_four.rule(endsAt="2026-05-04T11:00:00Z"))
    )
    bench_of_four.shop.edit("201", amount=2500)
    check_prices(bench_of_four, run, "5m")
    repaired = bench_of_four.work(bench_of_four.queue(repair(bench_of_four, run)))
    assert (repaired.status, bench_of_four.shop.amounts()["201"]) == ("APPLIED", 900)
    bench_of_four.pass_minutes(61)
    for _ in range(2):
        for run_id in start_due_rules(
            database=bench_of_four.database,
            clock=bench_of_four.clock,
            shop=bench_of_four.front.name,
        ).ended:
            bench_of_four.work_id(run_id)
    assert bench_of_four.run(run.id).status == "ROLLED_BACK"
    assert set(bench_of_four.shop.amounts().values()) == {1000}


def test_a_repair_without_a_check_is_refused(bench_of_four: Bench) -> None:
    run = bench_of_four.work(bench_of_four.queued())
    with pytest.raises(ConflictError, match=f"No price of run {run.id} was read from the shop"):
        repair(bench_of_four, run)


def test_a_repair_after_the_end_of_the_promotion_is_refused(bench_of_four: Bench) -> None:
    run = applied_then_edited(bench_of_four)
    bench_of_four.set_run(run.id, promotion_ended_at=bench_of_four.clock.now())
    with pytest.raises(ConflictError, match="promotion"):
        repair(bench_of_four, run)
