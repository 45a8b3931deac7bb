"""A worker that has lost its run: whatever it brings is not written down, and it stops."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from automation_pipeline.pricing.models.runs import LostRunClaimError, PricingRunState, RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal, classify_failure
from automation_pipeline.pricing.ports import ApplyContext
from automation_pipeline.pricing.queries.runs import (
    RunClaim,
    begin_applying,
    claim_run,
    claimed_run,
)
from automation_pipeline.pricing.rules.runs import (
    AppliedResult,
    WorkTarget,
    requeue_unchanged,
)
from automation_pipeline.pricing.tables import (
    PriceChangeRow,
    RuleRunRow,
    RuleTargetRow,
)
from automation_pipeline.pricing.worker import TargetWork, WaitForTargets
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline.storage.transitions import TransitionRow
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.pricing.at_work import during_first_write
from automation_pipeline_tests.pricing.bench import Bench

ALL = (RuleRunRow, RuleTargetRow, PriceChangeRow, TransitionRow, OutboxRow)
REFUSED = classify_failure(FailureSignal(status=401), "The shop does not know us.")


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(3)), {"longest_pause_seconds": 0.0})


def everything(bench: Bench) -> list[dict[str, object]]:
    with bench.database.reading() as session:
        rows = [row for table in ALL for row in session.scalars(select(table).order_by(table.id))]
        return [
            {column.key: getattr(row, column.key) for column in row.__mapper__.column_attrs}
            for row in rows
        ]


def held(bench: Bench, run: RuleRun, owner: str = "one") -> RunClaim:
    with bench.database.transaction() as session:
        hold = claim_run(session, run.id, owner, 60.0)
        assert hold is not None
        row = claimed_run(session, hold)
        if row.status == PricingRunState.QUEUED:
            begin_applying(session, row, database_time(session))
        return hold


def taken_over(bench: Bench, run: RuleRun) -> RunClaim:
    bench.expire_hold(run.id)
    return held(bench, run, "another")


def applying(bench: Bench, hold: RunClaim) -> TargetWork:
    return TargetWork(hold, ApplyContext.of(bench.context, bench.shop))


def claimed(bench: Bench, hold: RunClaim) -> list[WorkTarget]:
    step = applying(bench, hold).take()
    assert not isinstance(step, WaitForTargets)
    return list(step)


@pytest.mark.parametrize(
    "use",
    [
        lambda work, _: work.keep(),
        lambda work, _: work.take(),
        lambda work, targets: work.save([requeue_unchanged(target) for target in targets]),
        lambda work, _: work.save([]),
        lambda work, _: work.give_up(REFUSED),
        lambda work, _: work.leave(5.0),
    ],
)
def test_whoever_lost_the_run_changes_nothing_of_it(
    bench: Bench, use: Callable[[TargetWork, list[WorkTarget]], Any]
) -> None:
    run = bench.queued()
    hold = held(bench, run)
    targets = claimed(bench, hold)
    taken_over(bench, run)
    before = everything(bench)
    with pytest.raises(
        LostRunClaimError, match=f"Rule run {run.id} is worked on by another process"
    ):
        use(applying(bench, hold), targets)
    assert everything(bench) == before


def test_who_loses_the_run_in_the_middle_writes_nothing_down_and_the_next_one_reads(
    bench: Bench,
) -> None:
    run = bench.queued()
    bench.knobs["calls_at_once"] = 1
    during_first_write(bench, lambda: taken_over(bench, run))
    with pytest.raises(LostRunClaimError):
        bench.work(run)
    assert set(bench.statuses(run.id).values()) == {"APPLYING"}
    assert (bench.run_row(run.id).lease_owner, bench.changes(run.id)) == ("another", [])
    bench.expire_hold(run.id)
    ended = bench.work(run)
    assert (ended.status, bench.run_row(run.id).lease_token) == ("APPLIED", 3)
    assert [bench.shop.times_written(one) for one in ("101", "201", "301")] == [1, 1, 1]
    assert [row.was_found for row in bench.changes(run.id)] == [True, False, False]


def test_who_comes_back_for_the_rest_has_the_run_to_itself(bench: Bench) -> None:
    run = bench.queued()
    first = held(bench, run)
    applying(bench, first).leave(5.0)
    row = bench.run_row(run.id)
    assert (row.lease_owner, row.lease_until, row.resume_at is not None) == (None, None, True)
    assert claimed(bench, held(bench, run))


def test_a_chunk_takes_as_many_statements_for_many_targets_as_for_few(bench: Bench) -> None:
    counted: dict[int, list[int]] = {}
    for variants in (5, 250):
        bench.shop = FakeShop(*shelf(1, variants))
        run = bench.queued(bench.rule(name=f"{variants}", onDrift="overwrite"))
        work = applying(bench, held(bench, run))
        with statements(bench.database) as claiming:
            targets = work.take()
        assert not isinstance(targets, WaitForTargets)
        assert len(targets) == variants
        with statements(bench.database) as settling:
            work.save([requeue_unchanged(target) for target in targets])
        work.take()
        with statements(bench.database) as applied:
            work.save(bench_applied(targets))
        assert set(bench.statuses(run.id).values()) == {"APPLIED"}
        with statements(bench.database) as ending:
            assert work.take() == []
        counted[variants] = [len(claiming), len(settling), len(applied), len(ending)]
    assert counted[5] == counted[250]


def bench_applied(targets: list[WorkTarget]) -> list[AppliedResult]:
    return [
        AppliedResult(target, target.before, request_id="request-1", duration_ms=5)
        for target in targets
    ]
