"""Every price that was written, filtered and paged."""

from datetime import timedelta

import pytest

from automation_pipeline.pricing.models.history import PriceChange, PriceChangeFilter
from automation_pipeline.pricing.queries.monitoring import price_changes
from automation_pipeline.pricing.runs import roll_back_run
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(3)), {"longest_pause_seconds": 0.0})


def find(
    bench: Bench, *, limit: int = 100, after_id: int = 0, **chosen: object
) -> list[PriceChange]:
    with bench.database.reading() as session:
        return price_changes(session, PriceChangeFilter(**chosen), limit, after_id)


def test_changes_are_found_by_run_variant_project_and_time(bench: Bench) -> None:
    first = bench.work(bench.queued(bench.rule(project_id="toys")))
    second = bench.work(bench.queued(bench.rule(selector={"sku": "SKU-1-1"})))
    roll_back_run(second.id, database=bench.database, clock=bench.clock, actor="user:1")
    bench.work(second)
    assert [
        (one.kind, one.from_amount, one.to_amount) for one in find(bench, variant_id="101")
    ] == [
        ("apply", 1000, 900),
        ("apply", 900, 810),
        ("rollback", 810, 900),
    ]
    assert len(find(bench, run_id=first.id)) == 3
    assert {one.rule_run_id for one in find(bench, project_id="toys")} == {first.id}
    [last] = find(bench)[-1:]
    assert len(find(bench, since=last.applied_at - timedelta(days=1))) == 5
    assert find(bench, since=last.applied_at + timedelta(days=1)) == []
    assert last.source == f"rule:{second.rule_id}"


def test_pages_follow_each_other(bench: Bench) -> None:
    bench.work(bench.queued())
    page = find(bench, limit=2)
    assert len(page) == 2
    assert len(find(bench, limit=2, after_id=page[-1].id)) == 1
