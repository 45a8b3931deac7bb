"""Asking for a rollback: what is refused, and what the worker is left with."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.runs import retry_run, roll_back_run
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(3)), {"longest_pause_seconds": 0.0})


def ask(bench: Bench, run: RuleRun, **how: object) -> RuleRun:
    return roll_back_run(run.id, database=bench.database, clock=bench.clock, actor="user:7", **how)


def wished(bench: Bench, run: RuleRun) -> set[str | None]:
    return {target.variant_id for target in bench.targets(run.id) if target.is_wished}


def test_a_rollback_is_a_wish_and_a_worker_is_asked_for(bench: Bench) -> None:
    run = bench.work(bench.queued())
    before = len(bench.requests())
    asked = ask(bench, run)
    row = bench.run_row(run.id)
    assert (asked.status, asked.wish, row.wished_by, row.rollbacks, row.rollback_force) == (
        "APPLIED",
        "rollback",
        "user:7",
        1,
        False,
    )
    assert wished(bench, run) == {"101", "201", "301"}
    assert [config for _, config in bench.requests()[before:]] == [{"run_id": run.id}]
    assert bench.shop.amounts() == {"101": 900, "201": 900, "301": 900}


def test_some_prices_alone_may_be_asked_for(bench: Bench) -> None:
    run = bench.work(bench.queued())
    ask(bench, run, target_ids=[bench.targets(run.id)[1].id], force=True)
    assert (wished(bench, run), bench.run_row(run.id).rollback_force) == ({"201"}, True)


def test_who_asks_twice_is_told_that_it_is_under_way(bench: Bench) -> None:
    run = bench.work(bench.queued())
    ask(bench, run)
    with pytest.raises(ConflictError, match="waits to be worked on already: rollback"):
        ask(bench, run)
    with pytest.raises(ConflictError, match="waits to be worked on already: rollback"):
        retry_run(run.id, database=bench.database, clock=bench.clock, actor="user:7")
    assert bench.run_row(run.id).rollbacks == 1


def test_of_two_who_ask_at_once_one_is_heard(bench: Bench) -> None:
    run = bench.work(bench.queued())

    def heard(_: int) -> bool:
        try:
            ask(bench, run)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(heard, range(4))) == 1
    assert bench.run_row(run.id).rollbacks == 1


def test_what_is_not_applied_cannot_be_taken_back(bench: Bench) -> None:
    preview = bench.previewed()
    with pytest.raises(ConflictError, match="A run that is PREVIEW cannot be rolled back"):
        ask(bench, preview)
    run = bench.work(bench.queue(preview))
    with pytest.raises(ConflictError, match="no applied price"):
        ask(bench, run, target_ids=[])
    with pytest.raises(InvalidInputError) as refused:
        ask(bench, run, target_ids=[987654])
    assert refused.value.fields == (("targetIds", "987654 is not an applied target of the run"),)
    assert bench.run_row(run.id).wish is None


def test_a_run_that_is_being_applied_cannot_be_taken_back(bench: Bench) -> None:
    with pytest.raises(ConflictError, match="A run that is QUEUED cannot be rolled back"):
        ask(bench, bench.queued())


def test_a_run_that_does_not_exist_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFoundError, match="987654 not found"):
        roll_back_run(987654, database=bench.database, clock=bench.clock, actor="user:7")
