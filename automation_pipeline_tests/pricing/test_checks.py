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
from automation_pipeline.pricing.models.shop import FailureSignal, ShopUnavailableError
from automation_pipeline.pricing.monitoring import mismatched_prices
from automation_pipeline.pricing.queries.runs import plan_checks
from automation_pipeline.pricing.rules.monitoring import ReconciliationReport
from automation_pipeline.pricing.runs import roll_back_run
from automation_pipeline.pricing.schedules import start_due_rules
from automation_pipeline.pricing.tables import RuleCheckRow, ShopRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import PRICES, FakeShop, product_variants
from automation_pipeline_tests.pricing.harness import PricingHarness


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(
        database, clock, FakeShop(*product_variants(1)), {"longest_pause_seconds": 0.0}
    )


def applied_with_checks(harness: PricingHarness) -> RuleRun:
    """An applied run whose checks are planned by the test's clock."""
    run = harness.work(harness.queued_run())
    plan(harness, run)
    return run


def plan(harness: PricingHarness, run: RuleRun) -> None:
    with harness.database.transaction() as session:
        plan_checks(session, run.id, harness.clock.now())


def request_checks(harness: PricingHarness) -> list[str]:
    return list(request_due_checks(database=harness.database, clock=harness.clock))


def test_a_check_is_requested_when_it_is_due(harness: PricingHarness) -> None:
    run = applied_with_checks(harness)
    assert request_checks(harness) == []
    harness.pass_minutes(3)
    [key] = request_checks(harness)
    assert key == f"rule-check-{run.id}-5m-{round(harness.clock.now().timestamp())}"
    assert (key, {"run_id": run.id, "check": "5m"}) in harness.requests()
    assert request_checks(harness) == []
    harness.pass_minutes(57)
    assert any(key.startswith(f"rule-check-{run.id}-1h-") for key in request_checks(harness))


def test_an_unfinished_check_is_requested_again_with_another_key(harness: PricingHarness) -> None:
    applied_with_checks(harness)
    harness.pass_minutes(3)
    [first] = request_checks(harness)
    harness.pass_minutes(9)
    assert request_checks(harness) == []
    harness.pass_minutes(1)
    [again] = request_checks(harness)
    assert again.startswith(f"{first}-")


def test_a_tick_requests_at_most_a_hundred_checks(harness: PricingHarness) -> None:
    run = harness.previewed_run()
    with harness.database.transaction() as session:
        session.add_all(
            RuleCheckRow(rule_run_id=run.id, name=f"manual-{number}", due_at=harness.clock.now())
            for number in range(101)
        )
    assert [len(request_checks(harness)) for _ in range(3)] == [100, 1, 0]


def test_a_finished_check_is_not_requested(harness: PricingHarness) -> None:
    run = applied_with_checks(harness)
    harness.pass_minutes(3)
    harness.run_async(reconcile_run(run.id, harness.context, name="5m"))
    assert request_checks(harness) == []


@pytest.mark.parametrize("minutes", [1, 120])
def test_a_run_that_ends_again_is_checked_again(harness: PricingHarness, minutes: float) -> None:
    run = applied_with_checks(harness)
    harness.pass_minutes(3)
    [first] = request_checks(harness)
    harness.run_async(reconcile_run(run.id, harness.context, name="5m"))
    harness.pass_minutes(minutes)
    plan(harness, run)
    assert request_checks(harness) == []
    harness.pass_minutes(3)
    [second] = request_checks(harness)
    assert second != first
    assert [key for key, _ in harness.requests() if key.startswith("rule-check-")] == [
        first,
        second,
    ]


BUSY, REFUSED = FailureSignal(status=500), FailureSignal(status=401)


@pytest.fixture
def three_product_harness(database: Database, clock: FakeClock) -> PricingHarness:
    """A harness whose worker never waits for targets that are not due."""
    return PricingHarness(
        database, clock, FakeShop(*product_variants(3)), {"longest_pause_seconds": 0.0}
    )


def applied(harness: PricingHarness, **rule: object) -> RuleRun:
    run = harness.work(harness.queued_run(harness.rule(**rule)))
    harness.shop.calls.clear()
    return run


def check_run(harness: PricingHarness, run: RuleRun, name: str = "5m") -> ReconciliationReport:
    return harness.run_async(reconcile_run(run.id, harness.context, name=name))


def test_unchanged_prices_are_not_mismatches(three_product_harness: PricingHarness) -> None:
    run = applied(three_product_harness)
    found = check_run(three_product_harness, run)
    assert (found.total_checked, found.mismatches, found.unverified) == (3, 0, ())
    assert three_product_harness.shop.calls == [("prices", ("101", "201", "301"))]
    with three_product_harness.database.reading() as session:
        first, second = checks_of(session, run.id)
    assert (first.name, first.checked_at, first.worst, first.report) == (
        "5m",
        three_product_harness.clock.now(),
        None,
        found,
    )
    assert (second.name, second.checked_at, second.report) == ("1h", None, None)
    assert three_product_harness.events("automation.reconciliation.mismatch") == []


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
    three_product_harness: PricingHarness,
    edit: dict[str, object],
    severity: str,
    difference: int | None,
) -> None:
    run = applied(three_product_harness)
    three_product_harness.shop.edit("201", **edit)
    found = check_run(three_product_harness, run)
    [detail] = found.details
    target = three_product_harness.targets(run.id)[1]
    assert (detail.target_id, detail.sku_id, detail.severity) == (
        str(target.id),
        "SKU-2-1",
        severity,
    )
    assert (detail.expected_price, detail.difference) == (900, difference)
    [event] = three_product_harness.events("automation.reconciliation.mismatch")
    assert event.key == f"{run.id}:{target.id}:mismatch:5m"
    payload = {
        "targetId": str(target.id),
        "runId": str(run.id),
        "expected": 900,
        "difference": difference,
    }
    assert (
        event.payload.items()
        >= {**payload, "severity": severity, "actual": detail.actual_price}.items()
    )
    assert (
        next(check for check in three_product_harness.checks(run.id) if check.name == "5m").worst
        == severity
    )


def test_a_removed_variant_is_unverified_and_not_a_mismatch(
    three_product_harness: PricingHarness,
) -> None:
    run = applied(three_product_harness)
    three_product_harness.shop.remove("101")
    three_product_harness.shop.edit("201", amount=1)
    found = check_run(three_product_harness, run)
    assert (found.total_checked, found.mismatches) == (2, 1)
    assert [one.reason for one in found.unverified] == [
        "the variant, or its price, is no longer in the shop"
    ]


def test_after_a_failed_read_all_prices_are_unverified(
    three_product_harness: PricingHarness,
) -> None:
    run = applied(three_product_harness)
    three_product_harness.shop.fail_always(PRICES, BUSY)
    found = check_run(three_product_harness, run)
    assert (found.total_checked, found.mismatches, len(found.unverified)) == (0, 0, 3)
    assert "The shop fails as the test specifies" in found.unverified[0].reason
    assert three_product_harness.events("automation.reconciliation.mismatch") == []


def test_a_check_runs_once(three_product_harness: PricingHarness) -> None:
    run = applied(three_product_harness)
    found = check_run(three_product_harness, run)
    three_product_harness.shop.edit("101", amount=1)
    assert check_run(three_product_harness, run) == found
    assert check_run(three_product_harness, run, "manual-1").mismatches == 1
    assert three_product_harness.shop.call_count("prices") == 2


def test_only_the_latest_applied_price_of_a_variant_is_expected(
    three_product_harness: PricingHarness,
) -> None:
    first = applied(three_product_harness)
    second = applied(three_product_harness, name="Later", selector={"sku": "SKU-1-1"})
    assert [one.status for one in three_product_harness.targets(second.id)] == ["APPLIED"]
    assert (
        check_run(three_product_harness, first).total_checked,
        check_run(three_product_harness, second).total_checked,
    ) == (2, 1)
    roll_back_run(
        second.id,
        database=three_product_harness.database,
        clock=three_product_harness.clock,
        actor="user:1",
    )
    three_product_harness.work(second)
    again = check_run(three_product_harness, first, "1h")
    assert (again.total_checked, again.mismatches) == (3, 0)


def test_a_price_that_is_being_written_is_unverified(three_product_harness: PricingHarness) -> None:
    run = applied(three_product_harness)
    three_product_harness.shop.edit("101", amount=1)
    three_product_harness.set_target(three_product_harness.targets(run.id)[0].id, is_writing=True)
    found = check_run(three_product_harness, run)
    assert (found.mismatches, [one.reason for one in found.unverified]) == (
        0,
        ["its price was being changed at the same time"],
    )


def test_a_target_rolled_back_during_the_check_is_not_checked(
    three_product_harness: PricingHarness,
) -> None:
    run = applied(three_product_harness)
    first = three_product_harness.targets(run.id)[0]

    async def roll_back_target(_kind: str, _subject: object) -> None:
        three_product_harness.shop.edit("101", amount=1000)
        three_product_harness.set_target(first.id, status="ROLLED_BACK")

    three_product_harness.shop._during_call = roll_back_target
    found = check_run(three_product_harness, run)
    assert (found.total_checked, found.mismatches) == (2, 0)


def test_an_open_circuit_leaves_the_check_due(
    three_product_harness: PricingHarness,
) -> None:
    run = applied(three_product_harness)
    with three_product_harness.database.transaction() as session:
        shop = session.get_one(ShopRow, three_product_harness.storefront.name)
        shop.circuit, shop.until = "open", shop.measured_at + timedelta(days=36500)
    with pytest.raises(ShopUnavailableError):
        check_run(three_product_harness, run)
    assert {check.checked_at for check in three_product_harness.checks(run.id)} == {None}


def test_a_refused_token_stops_after_the_first_batch(three_product_harness: PricingHarness) -> None:
    three_product_harness.shop = FakeShop(*product_variants(300, 2))
    run = applied(three_product_harness)
    three_product_harness.shop_options["calls_at_once"] = 1
    three_product_harness.shop.fail_always(PRICES, REFUSED)
    assert len(check_run(three_product_harness, run).unverified) == 600
    assert three_product_harness.shop.call_count("prices") == 1


def test_a_run_of_another_shop_cannot_be_verified(three_product_harness: PricingHarness) -> None:
    run = applied(three_product_harness)
    three_product_harness.set_run(run.id, shop="other.test")
    found = check_run(three_product_harness, run)
    assert {one.reason for one in found.unverified} == {
        "it was applied in another shop, other.test"
    }
    assert three_product_harness.shop.calls == []


def test_a_run_without_applied_prices_cannot_be_checked(
    three_product_harness: PricingHarness,
) -> None:
    preview = three_product_harness.previewed_run()
    with pytest.raises(
        ConflictError, match=f"Run {preview.id} is PREVIEW: it has no applied price"
    ):
        check_run(three_product_harness, preview)
    with pytest.raises(InvalidInputError, match="There is no such check"):
        check_run(three_product_harness, preview, "tomorrow")
    with pytest.raises(NotFoundError):
        check_run(three_product_harness, preview.model_copy(update={"id": 987654}))


def test_a_rolled_back_run_gets_an_empty_check(three_product_harness: PricingHarness) -> None:
    run = applied(three_product_harness)
    roll_back_run(
        run.id,
        database=three_product_harness.database,
        clock=three_product_harness.clock,
        actor="user:1",
    )
    three_product_harness.work(run)
    assert check_run(three_product_harness, run).total_checked == 0


YESTERDAY = timedelta(days=1)


@pytest.fixture
def four_product_harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(
        database, clock, FakeShop(*product_variants(4)), {"longest_pause_seconds": 0.0}
    )


def applied_by_rule(harness: PricingHarness, ago: timedelta = YESTERDAY, **rule: object) -> RuleRun:
    run = harness.work(harness.queued_run(harness.rule(**rule)))
    at = harness.clock.now() - ago
    harness.set_run(run.id, queued_at=at, started_at=at, finished_at=at)
    harness.shop.calls.clear()
    return run


def reconcile_daily(harness: PricingHarness) -> list[ReconciliationReport]:
    return harness.run_async(reconcile_all(harness.context))


def test_reconciliation_of_all_runs_reads_each_variant_once(
    four_product_harness: PricingHarness,
) -> None:
    first = applied_by_rule(four_product_harness)
    second = applied_by_rule(
        four_product_harness, name="Later", selector={"sku": ["SKU-1-1", "SKU-2-1"]}
    )
    four_product_harness.shop.edit("101", amount=1)
    reports = {
        one.run_id: (one.total_checked, one.mismatches)
        for one in reconcile_daily(four_product_harness)
    }
    assert reports == {str(first.id): (2, 0), str(second.id): (2, 1)}
    [(_, variant_ids)] = four_product_harness.shop.calls
    assert sorted(variant_ids) == ["101", "201", "301", "401"]
    checks = {check.name: check for check in four_product_harness.checks(second.id)}
    assert (checks["2026-05-04"].mismatches, checks["2026-05-04"].worst) == (1, "critical")
    [event] = four_product_harness.events("automation.reconciliation.mismatch")
    assert event.key.endswith(":mismatch:2026-05-04")


def test_each_run_has_one_check_per_day(four_product_harness: PricingHarness) -> None:
    run = applied_by_rule(four_product_harness)
    assert (
        len(reconcile_daily(four_product_harness)),
        len(reconcile_daily(four_product_harness)),
    ) == (1, 0)
    four_product_harness.clock.advance(timedelta(days=1))
    assert len(reconcile_daily(four_product_harness)) == 1
    assert {check.name for check in four_product_harness.checks(run.id)} == {
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
    four_product_harness: PricingHarness, ago: timedelta, checked: int
) -> None:
    applied_by_rule(four_product_harness, ago)
    assert len(reconcile_daily(four_product_harness)) == checked


def test_the_name_of_a_daily_check_is_the_local_date(four_product_harness: PricingHarness) -> None:
    run = applied_by_rule(four_product_harness)
    four_product_harness.clock.advance(timedelta(hours=13))
    reconcile_daily(four_product_harness)
    assert four_product_harness.checks(run.id)[-1].name == "2026-05-05"


def test_reconciliation_can_be_switched_off(four_product_harness: PricingHarness) -> None:
    applied_by_rule(four_product_harness)
    four_product_harness.shop_options["reconciles"] = False
    assert (reconcile_daily(four_product_harness), four_product_harness.shop.calls) == ([], [])


def test_runs_of_other_shops_are_not_reconciled(four_product_harness: PricingHarness) -> None:
    four_product_harness.set_run(applied_by_rule(four_product_harness).id, shop="other.test")
    assert reconcile_daily(four_product_harness) == []


def test_a_run_with_all_prices_replaced_gets_an_empty_report_that_clears_its_mismatches(
    four_product_harness: PricingHarness,
) -> None:
    run = four_product_harness.work(four_product_harness.queued_run())
    four_product_harness.shop.edit("101", amount=5000)
    four_product_harness.run_async(reconcile_run(run.id, four_product_harness.context, name="5m"))
    four_product_harness.clock.advance_one_second()
    # A second run replaces every price, like a repair of the whole run.
    later = four_product_harness.work(
        four_product_harness.queued_run(four_product_harness.rule(name="Later"))
    )
    for one in (run, later):
        at = four_product_harness.clock.now() - YESTERDAY
        four_product_harness.set_run(one.id, queued_at=at, started_at=at, finished_at=at)
    reports = {report.run_id: report for report in reconcile_daily(four_product_harness)}
    assert (reports[str(run.id)].total_checked, reports[str(later.id)].total_checked) == (0, 4)
    with four_product_harness.database.reading() as session:
        newest = latest_conclusive_check(session, run.id)
        assert newest is not None
        assert (newest.name, newest.worst, newest.unverified) == ("2026-05-04", None, 0)
        assert dict(mismatched_prices(session, four_product_harness.clock.now())) == {}


def test_without_applied_prices_the_shop_is_not_called(
    four_product_harness: PricingHarness,
) -> None:
    run = applied_by_rule(four_product_harness)
    for target in four_product_harness.targets(run.id):
        four_product_harness.set_target(target.id, status="ROLLED_BACK")
    assert [
        (report.total_checked, report.unverified)
        for report in reconcile_daily(four_product_harness)
    ] == [(0, ())]
    assert (reconcile_daily(four_product_harness), four_product_harness.shop.calls) == ([], [])


def check_prices(harness: PricingHarness, run: RuleRun, name: str) -> None:
    harness.run_async(reconcile_run(run.id, harness.context, name=name))
    harness.clock.advance_one_second()


def repair(harness: PricingHarness, run: RuleRun) -> RuleRun:
    return repair_run(run.id, database=harness.database, clock=harness.clock, actor="user:5")


def applied_then_edited(harness: PricingHarness, **rule: object) -> RuleRun:
    """An applied run with two prices edited by hand, one of them to another currency."""
    run = harness.work(harness.queued_run(harness.rule(**rule)))
    harness.shop.edit("201", amount=1)
    harness.shop.edit("301", currency="USD")
    check_prices(harness, run, "5m")
    return run


def test_a_repair_has_only_the_mismatches_in_the_same_currency(
    four_product_harness: PricingHarness,
) -> None:
    run = applied_then_edited(four_product_harness)
    created = repair(four_product_harness, run)
    assert (created.status, created.trigger, created.parent_run_id, created.created_by) == (
        "PREVIEW",
        "repair",
        run.id,
        "user:5",
    )
    assert (created.total_targets, created.rule_version_hash) == (1, run.rule_version_hash)
    assert created.previewed_at == four_product_harness.clock.now()
    assert created.explain is not None
    assert created.explain["repairs"] == {"runId": str(run.id), "check": "5m"}
    [target] = four_product_harness.targets(created.id)
    assert (target.variant_id, target.sku_id, target.product_id) == ("201", "SKU-2-1", "2")
    assert (target.before_json["unit_amount"], target.after_json["unit_amount"]) == (1, 900)
    assert target.writes_compare_at is False


def test_a_repair_is_applied_during_the_cooldown_of_its_rule(
    four_product_harness: PricingHarness,
) -> None:
    run = applied_then_edited(four_product_harness, cooldownMinutes=600)
    ended = four_product_harness.work(four_product_harness.queue(repair(four_product_harness, run)))
    assert (ended.status, four_product_harness.shop.amounts()["201"]) == ("APPLIED", 900)
    check_prices(four_product_harness, ended, "5m")
    assert {check.name: check.mismatches for check in four_product_harness.checks(ended.id)} == {
        "5m": 0,
        "1h": None,
    }


def test_prices_corrected_by_hand_need_no_repair(four_product_harness: PricingHarness) -> None:
    run = applied_then_edited(four_product_harness)
    four_product_harness.shop.edit("201", amount=900)
    check_prices(four_product_harness, run, "manual-1")
    with pytest.raises(
        ConflictError, match=f"Run {run.id} needs no repair: its last check, manual-1"
    ):
        repair(four_product_harness, run)


def test_a_repair_ignores_checks_that_read_no_price(four_product_harness: PricingHarness) -> None:
    run = applied_then_edited(four_product_harness)
    four_product_harness.shop.fail_always(PRICES, FailureSignal(status=500))
    check_prices(four_product_harness, run, "manual-1")
    assert repair(four_product_harness, run).total_targets == 1


def test_a_rolled_back_price_is_not_repaired(four_product_harness: PricingHarness) -> None:
    run = applied_then_edited(four_product_harness)
    roll_back_run(
        run.id,
        database=four_product_harness.database,
        clock=four_product_harness.clock,
        actor="user:1",
        force=True,
    )
    four_product_harness.work(run)
    with pytest.raises(ConflictError, match="needs no repair"):
        repair(four_product_harness, run)


def test_the_end_of_a_repaired_promotion_restores_the_original_prices(
    four_product_harness: PricingHarness,
) -> None:
    run = four_product_harness.work(
        four_product_harness.queued_run(four_product_harness.rule(endsAt="2026-05-04T11:00:00Z"))
    )
    four_product_harness.shop.edit("201", amount=2500)
    check_prices(four_product_harness, run, "5m")
    repaired = four_product_harness.work(
        four_product_harness.queue(repair(four_product_harness, run))
    )
    assert (repaired.status, four_product_harness.shop.amounts()["201"]) == ("APPLIED", 900)
    four_product_harness.pass_minutes(61)
    for _ in range(2):
        for run_id in start_due_rules(
            database=four_product_harness.database,
            clock=four_product_harness.clock,
            shop=four_product_harness.storefront.name,
        ).ended:
            four_product_harness.work_id(run_id)
    assert four_product_harness.run(run.id).status == "ROLLED_BACK"
    assert set(four_product_harness.shop.amounts().values()) == {1000}


def test_a_repair_without_a_check_is_refused(four_product_harness: PricingHarness) -> None:
    run = four_product_harness.work(four_product_harness.queued_run())
    with pytest.raises(ConflictError, match=f"No price of run {run.id} was read from the shop"):
        repair(four_product_harness, run)


def test_a_repair_after_the_end_of_the_promotion_is_refused(
    four_product_harness: PricingHarness,
) -> None:
    run = applied_then_edited(four_product_harness)
    four_product_harness.set_run(run.id, promotion_ended_at=four_product_harness.clock.now())
    with pytest.raises(ConflictError, match="promotion"):
        repair(four_product_harness, run)
