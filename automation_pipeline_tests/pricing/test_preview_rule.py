"""A preview: a run of a rule, planned, and nothing else."""

import pytest

from automation_pipeline.core.errors import NotFoundError, PermanentError
from automation_pipeline.pricing.models.runs import PricingRunState, RuleRunFilter
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.pricing_rules import delete_rule, update_rule
from automation_pipeline.pricing.queries.views import list_runs
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import PAGES, FakeShop, shelf, variant
from automation_pipeline_tests.pricing.bench import Bench


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(2, 2)))


def test_a_preview_is_a_planned_run_that_nobody_works_on(bench: Bench) -> None:
    rule = bench.rule()
    run = bench.previewed(rule)
    assert (run.status, run.wish, run.previewed_at) == (
        PricingRunState.PREVIEW,
        None,
        bench.clock.now(),
    )
    assert (run.rule_id, run.rule_name, run.rule_version) == (rule.id, "A tenth off", 1)
    assert (run.created_by, run.shop) == ("user:1", "shop.test")
    assert (run.total_targets, run.targets.preview) == (4, 4)
    assert bench.requests() == []
    assert bench.shop.written == []


def test_a_disabled_rule_can_be_looked_at(bench: Bench) -> None:
    assert bench.previewed(bench.rule(enabled=False)).total_targets == 4


def test_a_deleted_rule_cannot(bench: Bench) -> None:
    rule = bench.rule()
    delete_rule(rule.id, database=bench.database, clock=bench.clock, actor="user:1")
    with pytest.raises(NotFoundError, match=f"Pricing rule {rule.id} not found"):
        bench.previewed(rule)
    assert bench.shop.called == []


def test_where_the_shop_fails_there_is_no_run(bench: Bench) -> None:
    bench.shop.fail_always(PAGES, FailureSignal(status=401))
    with pytest.raises(PermanentError, match="The shop fails as it was told to"):
        bench.previewed()
    with bench.database.reading() as session:
        assert list_runs(session, RuleRunFilter(), 9, 0) == []


def test_a_rule_that_changes_while_it_is_previewed_leaves_a_run_of_the_version_that_was_priced(
    bench: Bench,
) -> None:
    async def change(_kind: str, _place: object) -> None:
        transform = {"transform": {"op": "set", "value": 1}}
        update_rule(rule.id, transform, database=bench.database, clock=bench.clock, actor="user:1")

    bench.shop = FakeShop(variant("1", "1", 1000), meanwhile=change)
    rule = bench.rule()
    run = bench.previewed(rule)
    assert (run.rule_version, run.rule_version_hash) == (1, rule.version_hash)
    assert [target.after_json["unit_amount"] for target in bench.targets(run.id)] == [900]


def test_each_preview_is_a_run_of_its_own(bench: Bench) -> None:
    rule = bench.rule()
    assert bench.previewed(rule).id != bench.previewed(rule).id
