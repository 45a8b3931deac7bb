"""Trying a project's dead letters again: which, and which runs cannot be."""

import pytest

from automation_pipeline.pricing.models.runs import RetriedRuns
from automation_pipeline.pricing.monitoring import acknowledge_dead_letters, retry_dead_letters
from automation_pipeline.pricing.runs import roll_back_run
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench
from automation_pipeline_tests.pricing.dead_letters import dead_targets, failing


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(4)), {"longest_pause_seconds": 0.0})


def retry(bench: Bench, *, force: bool = False) -> RetriedRuns:
    return retry_dead_letters(
        "default", database=bench.database, clock=bench.clock, actor="user:9", force=force
    )


def wished(bench: Bench, run_id: int) -> set[str | None]:
    return {target.variant_id for target in bench.targets(run_id) if target.is_wished}


def test_what_is_worth_it_is_tried_again_and_the_report_is_told(bench: Bench) -> None:
    run = failing(bench, {"101": "server", "201": "not_found"})
    retried = retry(bench)
    assert (retried.runs, retried.skipped) == ((run.id,), {})
    assert (wished(bench, run.id), bench.run(run.id).wish) == ({"101"}, "retry")
    [event] = bench.events("automation.dlq.report")
    assert event.payload["totalFailed"] == 2
    bench.shop.accept("101")
    assert bench.work(run).targets.applied == 3


def test_with_force_the_hopeless_are_tried_too(bench: Bench) -> None:
    run = failing(bench, {"101": "server", "201": "not_found"})
    assert list(retry(bench, force=True).runs) == [run.id]
    assert wished(bench, run.id) == {"101", "201"}


def test_what_is_acknowledged_is_left(bench: Bench) -> None:
    run = failing(bench, {"101": "server", "201": "server"})
    chosen = dead_targets(bench, run)[:1]
    acknowledge_dead_letters(
        "default", chosen, database=bench.database, clock=bench.clock, actor="user:9"
    )
    retry(bench)
    assert wished(bench, run.id) == {"201"}


def test_a_run_that_cannot_be_retried_now_is_skipped_and_the_others_are_not(bench: Bench) -> None:
    busy = failing(bench, {"101": "server"})
    roll_back_run(busy.id, database=bench.database, clock=bench.clock, actor="user:1")
    bench.shop.accept("101")
    free = failing(
        bench,
        {"201": "server"},
        name="Other",
        onDrift="overwrite",
        transform={"op": "set", "value": 500},
    )
    retried = retry(bench)
    assert list(retried.runs) == [free.id]
    assert list(retried.skipped) == [busy.id]
    assert "waits to be worked on already: rollback" in retried.skipped[busy.id]


def test_without_dead_letters_nothing_is_asked_for(bench: Bench) -> None:
    assert list(retry(bench).runs) == []
