"""Resuming a shop: its runs are asked for again, and its circuit is closed."""

import pytest
from sqlalchemy import update

from automation_pipeline.pricing.models.shop import ShopShown
from automation_pipeline.pricing.shop import pause_shop, resume_shop
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import mark_taken
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench

SHOP = "shop.test"


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(2)))


def resume(bench: Bench, shop: str = SHOP) -> ShopShown:
    return resume_shop(shop, database=bench.database, clock=bench.clock)


def taken(bench: Bench, *keys: str) -> None:
    with bench.database.transaction() as session:
        for key in keys:
            mark_taken(session, key, "dagster")


def test_a_run_that_had_to_leave_is_asked_for_again_and_goes_on(bench: Bench) -> None:
    run, other = bench.queued(), bench.queued(bench.rule(name="Other"))
    pause_shop(SHOP, database=bench.database, actor="user:7")
    taken(bench, *(key for key, _ in bench.requests()))
    bench.work(run)
    bench.set_run(other.id, shop="another.shop")
    resumed = resume(bench)
    assert (resumed.paused_at, resumed.paused_by, resumed.pause_reason) == (None, None, None)
    assert [key for key, _ in bench.requests()][2:] == [f"rule-run-{run.id}-2"]
    assert bench.work(run).status == "APPLIED"


def test_a_run_that_is_asked_for_already_is_not_asked_for_twice(bench: Bench) -> None:
    bench.queued()
    pause_shop(SHOP, database=bench.database, actor="user:7")
    resume(bench)
    resume(bench)
    assert len(bench.requests()) == 1


def test_an_open_circuit_is_closed_with_it(bench: Bench) -> None:
    with bench.database.transaction() as session:
        session.execute(
            update(ShopRow).values(
                circuit="open",
                streaks={"write": {"throttles": 6, "failures": 2}},
                opened_by="write",
                until=database_now(900.0),
            )
        )
    circuit = resume(bench).circuit
    assert (circuit.state, circuit.throttles, circuit.failures, circuit.until) == (
        "closed",
        0,
        0,
        None,
    )
    assert bench.work(bench.queued()).status == "APPLIED"
