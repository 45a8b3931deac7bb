"""The daily look: which runs, each variant once, one report a run and day."""

from datetime import timedelta

import pytest

from automation_pipeline.pricing.checks import reconcile_all, reconcile_run
from automation_pipeline.pricing.models.history import ReconciliationReport
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.queries.checks import latest_conclusive_check
from automation_pipeline.pricing.queries.monitoring import mismatched_prices
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench

YESTERDAY = timedelta(days=1)


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(4)), {"longest_pause_seconds": 0.0})


def applied(bench: Bench, ago: timedelta = YESTERDAY, **rule: object) -> RuleRun:
    run = bench.work(bench.queued(bench.rule(**rule)))
    at = bench.clock.now() - ago
    bench.set_run(run.id, queued_at=at, started_at=at, finished_at=at)
    bench.shop.called.clear()
    return run


def look(bench: Bench) -> list[ReconciliationReport]:
    return bench.loop(reconcile_all(bench.context))


def test_all_runs_are_looked_at_in_one_read_and_each_variant_once(bench: Bench) -> None:
    first = applied(bench)
    second = applied(bench, name="Later", selector={"sku": ["SKU-1-1", "SKU-2-1"]})
    bench.shop.edit("101", amount=1)
    reports = {one.run_id: (one.total_checked, one.mismatches) for one in look(bench)}
    assert reports == {str(first.id): (2, 0), str(second.id): (2, 1)}
    [(_, asked)] = bench.shop.called
    assert sorted(asked) == ["101", "201", "301", "401"]
    checks = {check.name: check for check in bench.checks(second.id)}
    assert (checks["2026-05-04"].mismatches, checks["2026-05-04"].worst) == (1, "critical")
    [event] = bench.events("automation.reconciliation.mismatch")
    assert event.key.endswith(":mismatch:2026-05-04")


def test_a_day_has_one_look_and_the_next_day_another(bench: Bench) -> None:
    run = applied(bench)
    assert (len(look(bench)), len(look(bench))) == (1, 0)
    bench.clock.pass_time(timedelta(days=1))
    assert len(look(bench)) == 1
    assert {check.name for check in bench.checks(run.id)} == {
        "5m",
        "1h",
        "2026-05-04",
        "2026-05-05",
    }


@pytest.mark.parametrize(
    ("ago", "looked_at"),
    [
        (timedelta(minutes=60), 0),
        (timedelta(minutes=61), 1),
        (timedelta(days=30), 1),
        (timedelta(days=30, minutes=1), 0),
    ],
)
def test_a_run_is_watched_from_its_second_hour_to_its_thirtieth_day(
    bench: Bench, ago: timedelta, looked_at: int
) -> None:
    applied(bench, ago)
    assert len(look(bench)) == looked_at


def test_a_day_is_that_of_the_zone(bench: Bench) -> None:
    run = applied(bench)
    bench.clock.pass_time(timedelta(hours=13))
    look(bench)
    assert bench.checks(run.id)[-1].name == "2026-05-05"


def test_who_wants_no_reconciliation_has_none(bench: Bench) -> None:
    applied(bench)
    bench.knobs["reconciles"] = False
    assert (look(bench), bench.shop.called) == ([], [])


def test_runs_of_other_shops_are_not_looked_at(bench: Bench) -> None:
    bench.set_run(applied(bench).id, shop="other.test")
    assert look(bench) == []


def test_a_run_whose_prices_were_all_repaired_has_an_empty_report_that_clears_what_was_found(
    bench: Bench,
) -> None:
    run = bench.work(bench.queued())
    bench.shop.edit("101", amount=5000)
    bench.loop(reconcile_run(run.id, bench.context, name="5m"))
    bench.clock.pass_time_a_second()
    # All of it is applied over, as by a repair of every price.
    later = bench.work(bench.queued(bench.rule(name="Later")))
    for one in (run, later):
        at = bench.clock.now() - YESTERDAY
        bench.set_run(one.id, queued_at=at, started_at=at, finished_at=at)
    reports = {report.run_id: report for report in look(bench)}
    assert (reports[str(run.id)].total_checked, reports[str(later.id)].total_checked) == (0, 4)
    with bench.database.reading() as session:
        newest = latest_conclusive_check(session, run.id)
        assert newest is not None
        assert (newest.name, newest.worst, newest.unverified) == ("2026-05-04", None, 0)
        assert dict(mismatched_prices(session, bench.clock.now())) == {}


def test_where_no_run_has_a_price_left_the_shop_is_not_asked(bench: Bench) -> None:
    run = applied(bench)
    for target in bench.targets(run.id):
        bench.set_target(target.id, status="ROLLED_BACK")
    assert [(report.total_checked, report.unverified) for report in look(bench)] == [(0, ())]
    assert (look(bench), bench.shop.called) == ([], [])
