"""The times of a run are counted when it ends, once."""

import pytest

from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.runs import retry_run, roll_back_run
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(2)), {"longest_pause_seconds": 0.0})


def counted(bench: Bench) -> dict[str, float]:
    """How many times were counted of each spread since this was asked last."""
    found: dict[str, float] = {}
    for (name, labels), amount in bench.meter.drain().items():
        if name.endswith("_ms_bucket"):
            assert labels.startswith("le=")
            found[name] = found.get(name, 0) + amount
    return found


ONCE = {"rules_apply_duration_ms_bucket": 1, "rules_queue_ms_bucket": 1}


def test_a_run_is_counted_when_it_ends_and_not_before(bench: Bench) -> None:
    bench.shop.fail_once("2", FailureSignal(status=503))
    run = bench.queued()
    assert (bench.work(run).status, counted(bench)) == ("APPLYING", {})
    bench.make_due(run.id)
    assert (bench.work(run).status, counted(bench)) == ("APPLIED", ONCE)


def test_a_run_that_is_tried_again_or_taken_back_is_not_counted_again(bench: Bench) -> None:
    bench.shop.refuse("201")
    run = bench.work(bench.queued())
    assert (run.status, counted(bench)) == ("PARTIAL", ONCE)
    assert (tried_again(bench, run).status, counted(bench)) == ("PARTIAL", {})
    roll_back_run(run.id, database=bench.database, clock=bench.clock, actor="user:7")
    assert (bench.work(run).status, counted(bench)) == ("ROLLED_BACK", {})


def tried_again(bench: Bench, run: RuleRun) -> RuleRun:
    retry_run(run.id, database=bench.database, clock=bench.clock, actor="user:7", force=True)
    return bench.work(run)


def test_the_sum_is_what_the_run_says_of_itself(bench: Bench) -> None:
    run = bench.work(bench.queued())
    assert run.started_at is not None
    assert run.finished_at is not None
    took = (run.finished_at - run.started_at).total_seconds() * 1000
    assert bench.meter.drain()["rules_apply_duration_ms_sum", ""] == pytest.approx(took, abs=1)
