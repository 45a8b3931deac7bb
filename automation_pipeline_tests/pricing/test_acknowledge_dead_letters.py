"""Taking dead letters off the list."""

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.monitoring import acknowledge_dead_letters
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench
from automation_pipeline_tests.pricing.dead_letters import dead_targets, failing

KINDS = {"101": "server", "201": "not_found"}


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(3)), {"longest_pause_seconds": 0.0})


def acknowledge(bench: Bench, target_ids: list[int] | None, project_id: str = "default") -> int:
    return acknowledge_dead_letters(
        project_id, target_ids, database=bench.database, clock=bench.clock, actor="user:9"
    )


def test_all_of_a_project_are_acknowledged_once(bench: Bench) -> None:
    run = failing(bench, KINDS)
    assert (
        acknowledge(bench, None, "toys"),
        acknowledge(bench, None),
        acknowledge(bench, None),
    ) == (0, 2, 0)
    dead = [target for target in bench.targets(run.id) if target.status == "FAILED"]
    assert {(one.acknowledged_at, one.acknowledged_by) for one in dead} == {
        (bench.clock.now(), "user:9")
    }


def test_one_that_is_none_is_named_and_nothing_is_kept(bench: Bench) -> None:
    run = failing(bench, KINDS)
    dead = dead_targets(bench, run)
    applied = next(target.id for target in bench.targets(run.id) if target.status == "APPLIED")
    with pytest.raises(InvalidInputError) as refused:
        acknowledge(bench, [dead[0], applied])
    assert refused.value.fields == (
        ("targetIds", f"{applied} is not a dead letter of project default"),
    )
    assert (acknowledge(bench, dead), acknowledge(bench, dead)) == (2, 0)
