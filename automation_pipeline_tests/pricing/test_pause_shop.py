"""A shop that is paused: no price is written, everything is read, and nobody loses anything by
it."""

from datetime import timedelta

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import ShopShown
from automation_pipeline.pricing.shop import (
    MAX_REASON_LENGTH,
    pause_shop,
    resume_shop,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.at_work import until_unwanted
from automation_pipeline_tests.pricing.bench import Bench

SHOP = "shop.test"


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(3)), {"calls_at_once": 1})


def pause(bench: Bench, reason: str | None = "Stocktaking", actor: str = "user:7") -> ShopShown:
    return pause_shop(SHOP, database=bench.database, actor=actor, reason=reason)


def resume(bench: Bench) -> None:
    resume_shop(SHOP, database=bench.database, clock=bench.clock)


def lasts_long(bench: Bench, run: RuleRun) -> None:
    """Longer than any target may take."""
    for target in bench.targets(run.id):
        if target.began_at is not None:
            bench.set_target(target.id, began_at=target.began_at - timedelta(minutes=20))


def test_nothing_is_called_for_a_run_of_a_paused_shop(bench: Bench) -> None:
    run = bench.queued()
    pause(bench)
    bench.shop.called.clear()
    left = bench.work(run)
    row = bench.run_row(run.id)
    assert (left.status, left.resume_at, row.lease_owner, bench.shop.called) == (
        "APPLYING",
        None,
        None,
        [],
    )
    assert set(bench.statuses(run.id).values()) == {"QUEUED"}


def test_what_can_be_read_is_read(bench: Bench) -> None:
    pause(bench)
    assert bench.previewed().total_targets == 3
    assert bench.shop.written == []


def test_a_run_in_the_middle_stops_before_its_next_call_and_is_later_applied_to_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.queued()
    with monkeypatch.context() as patch:
        until_unwanted(bench, lambda: pause(bench), patch)
        left = bench.work(run)
    assert (left.status, left.resume_at, bench.run_row(run.id).lease_owner) == (
        "APPLYING",
        None,
        None,
    )
    assert bench.statuses(run.id) == {"101": "APPLIED", "201": "QUEUED", "301": "QUEUED"}
    assert [target.attempts for target in bench.targets(run.id)] == [0, 0, 0]
    lasts_long(bench, run)
    resume(bench)
    assert bench.work(run).status == "APPLIED"
    assert [bench.shop.times_written(one) for one in ("101", "201", "301")] == [1, 1, 1]


def test_the_first_pause_lasts_with_the_newest_reason(bench: Bench) -> None:
    first, second = pause(bench), pause(bench, "Sale", "user:8")
    assert first.paused_at is not None
    assert (second.paused_at, second.paused_by, second.pause_reason) == (
        first.paused_at,
        "user:8",
        "Sale",
    )


def test_a_shop_that_was_never_called_can_be_paused(bench: Bench) -> None:
    paused = pause_shop("new.shop", database=bench.database, actor="user:7")
    assert (paused.shop, paused.paused_at is not None, paused.pause_reason) == (
        "new.shop",
        True,
        None,
    )
    run = bench.queued()
    assert bench.work(run).status == "APPLIED"


def test_a_reason_has_its_length(bench: Bench) -> None:
    pause(bench, "x" * MAX_REASON_LENGTH)
    with pytest.raises(InvalidInputError) as refusal:
        pause(bench, "x" * (MAX_REASON_LENGTH + 1))
    assert refusal.value.fields == (("reason", "must have at most 1000 characters"),)
