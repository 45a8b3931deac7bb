"""The end of a promotion that fails for a reason that may pass is tried again, until nothing of
that kind is left."""

import pytest

from automation_pipeline.core.retry import Backoff
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.rules import runs as retrying
from automation_pipeline.pricing.rules.runs import DuePriceRules
from automation_pipeline.pricing.runs import (
    cancel_run,
    roll_back_run,
    start_due_rules,
)
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import PRICES, FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench

FORMER = {"101": 1000, "201": 1000, "301": 1000}
BUSY, REFUSED, CLOSED, ODD = (
    FailureSignal(status=500),
    FailureSignal(status=401),
    FailureSignal(status=423),
    FailureSignal(status=302),
)
NOTHING = DuePriceRules()


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    """A worker that never waits: what is not due yet is left for later."""
    return Bench(database, clock, FakeShop(*shelf(3)), {"longest_pause_seconds": 0.0})


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine is so slow that what waits is due before the test says so."""
    monkeypatch.setattr(
        retrying, "RETRY_BACKOFF", Backoff(base_seconds=2000, cap_seconds=64000, jitter=0.2)
    )


def look(bench: Bench) -> DuePriceRules:
    return start_due_rules(database=bench.database, clock=bench.clock, shop=bench.front.name)


def over(bench: Bench) -> RuleRun:
    """Applied in a promotion that is over by now."""
    run = bench.work(bench.queued(bench.rule(endsAt="2026-05-04T11:00:00Z")))
    bench.pass_minutes(61)
    return run


def worked_off(bench: Bench, run: RuleRun) -> RuleRun:
    """With all the tries that it takes."""
    worked = bench.work(run)
    while worked.wish is not None:
        bench.rested()
        bench.make_due(run.id)
        worked = bench.work(run)
    return worked


@pytest.mark.parametrize(
    ("subject", "signal", "kind"),
    [
        ("2", BUSY, "server"),
        ("2", ODD, "unknown"),
        ("2", REFUSED, "authentication"),
        (PRICES, REFUSED, "authentication"),
        (PRICES, CLOSED, "shop_closed"),
    ],
)
def test_an_end_that_failed_is_tried_again_after_a_rest(
    subject: str, signal: FailureSignal, kind: str, bench: Bench
) -> None:
    run = over(bench)
    bench.shop.fail_always(subject, signal)
    for _ in range(2):
        assert look(bench) == DuePriceRules(ended=(run.id,))
        ended = worked_off(bench, run)
        row = bench.run_row(run.id)
        assert (ended.status, row.promotion_ended_at, row.wish) == ("APPLIED", None, None)
        assert kind in {target.error_type for target in bench.targets(run.id)}
        assert (row.resume_at - row.updated_at).total_seconds() == 600
        bench.set_run(run.id, resume_at=database_now(3600.0))
        assert look(bench) == NOTHING
        bench.make_due(run.id)
    bench.shop.fail_no_more(subject)
    assert look(bench) == DuePriceRules(ended=(run.id,))
    assert (worked_off(bench, run).status, bench.shop.amounts()) == ("ROLLED_BACK", FORMER)
    assert look(bench) == NOTHING


def test_what_was_edited_or_is_gone_is_left_for_good(bench: Bench) -> None:
    run = over(bench)
    bench.shop.edit("201", amount=1234)
    bench.shop.remove("301")
    look(bench)
    ended = worked_off(bench, run)
    assert (ended.rollback_state, ended.resume_at) == ("PARTIAL", None)
    assert bench.run_row(run.id).promotion_ended_at == bench.clock.now()
    assert look(bench) == NOTHING


def test_an_end_that_somebody_has_called_off_is_not_tried_again(bench: Bench) -> None:
    bench.knobs["calls_at_once"] = 1
    run = over(bench)
    bench.shop.fail_always("3", ODD)
    bench.shop.fail_always("2", BUSY)
    look(bench)
    bench.work(run)
    cancel_run(run.id, database=bench.database, clock=bench.clock, actor="user:7")
    bench.make_due(run.id)
    bench.work(run)
    assert bench.statuses(run.id)["301"] == "APPLIED"
    assert bench.run_row(run.id).promotion_ended_at is not None
    assert look(bench) == NOTHING


def test_a_rollback_by_hand_that_fails_is_not_tried_again(bench: Bench) -> None:
    run = bench.work(bench.queued())
    bench.shop.fail_always(PRICES, REFUSED)
    roll_back_run(run.id, database=bench.database, clock=bench.clock, actor="user:7")
    ended = bench.work(run)
    assert (ended.status, ended.wish, ended.resume_at) == ("APPLIED", None, None)
