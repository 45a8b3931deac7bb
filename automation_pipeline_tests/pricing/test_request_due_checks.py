"""Reconciliations are asked for when they are due, and again when nobody has made them."""

import pytest

from automation_pipeline.pricing.checks import reconcile_run, request_due_checks
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.queries.runs import plan_checks
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(1)), {"longest_pause_seconds": 0.0})


def finished(bench: Bench) -> RuleRun:
    """By the clock of the test."""
    run = bench.work(bench.queued())
    plan(bench, run)
    return run


def plan(bench: Bench, run: RuleRun) -> None:
    with bench.database.transaction() as session:
        plan_checks(session, run.id, bench.clock.now())


def ask(bench: Bench) -> list[str]:
    return list(request_due_checks(database=bench.database, clock=bench.clock))


def test_a_check_is_asked_for_when_it_is_due(bench: Bench) -> None:
    run = finished(bench)
    assert ask(bench) == []
    bench.pass_minutes(3)
    [key] = ask(bench)
    assert key == f"rule-check-{run.id}-5m-{round(bench.clock.now().timestamp())}"
    assert (key, {"run_id": run.id, "check": "5m"}) in bench.requests()
    assert ask(bench) == []
    bench.pass_minutes(57)
    assert any(key.startswith(f"rule-check-{run.id}-1h-") for key in ask(bench))


def test_what_nobody_has_made_is_asked_for_again_under_another_key(bench: Bench) -> None:
    finished(bench)
    bench.pass_minutes(3)
    [first] = ask(bench)
    bench.pass_minutes(9)
    assert ask(bench) == []
    bench.pass_minutes(1)
    [again] = ask(bench)
    assert again.startswith(f"{first}-")


def test_what_was_made_is_not_asked_for(bench: Bench) -> None:
    run = finished(bench)
    bench.pass_minutes(3)
    bench.loop(reconcile_run(run.id, bench.context, name="5m"))
    assert ask(bench) == []


@pytest.mark.parametrize("minutes", [1, 120])
def test_a_run_that_ends_a_second_time_is_looked_at_a_second_time_when_it_is_due(
    bench: Bench, minutes: float
) -> None:
    run = finished(bench)
    bench.pass_minutes(3)
    [first] = ask(bench)
    bench.loop(reconcile_run(run.id, bench.context, name="5m"))
    bench.pass_minutes(minutes)
    plan(bench, run)
    assert ask(bench) == []
    bench.pass_minutes(3)
    [second] = ask(bench)
    assert second != first
    assert [key for key, _ in bench.requests() if key.startswith("rule-check-")] == [first, second]
