"""A second person says yes to the prices of a preview."""

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.pricing.stages.approve_run import approve_run
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import APPROVER, CREATOR, Bench


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(1)))


def test_an_approval_says_by_whom_and_when(bench: Bench) -> None:
    bench.guard()
    run = bench.previewed()
    bench.pass_minutes(1)
    approved = bench.approve(run)
    assert (approved.approved_by, approved.approved_at) == (APPROVER, bench.clock.now())


def test_approving_twice_is_approving_once(bench: Bench) -> None:
    first = bench.approve(bench.previewed())
    bench.pass_minutes(1)
    assert bench.approve(first) == first


def test_of_two_approvers_the_first_is_remembered(bench: Bench) -> None:
    run = bench.approve(bench.previewed())
    with pytest.raises(ConflictError, match="was approved by user:2 already"):
        bench.approve(run, actor="user:3")
    assert bench.run(run.id).approved_by == APPROVER


def test_the_creator_cannot_approve_where_a_second_person_is_wanted(bench: Bench) -> None:
    bench.guard()
    with pytest.raises(ConflictError, match="approved by somebody else than its creator"):
        bench.approve(bench.previewed(), actor=CREATOR)


@pytest.mark.parametrize("policy", [None, {"autoApply": True}])
def test_the_creator_may_approve_where_nobody_needs_to(policy: dict[str, object] | None, bench: Bench) -> None:
    if policy:
        bench.guard(**policy)
    assert bench.approve(bench.previewed(), actor=CREATOR).approved_by == CREATOR


def test_an_approval_by_the_creator_gives_way_once_a_second_person_is_wanted(bench: Bench) -> None:
    run = bench.approve(bench.previewed(), actor=CREATOR)
    bench.guard()
    assert bench.approve(run).approved_by == APPROVER


def test_only_a_planned_preview_can_be_approved(bench: Bench) -> None:
    asked_for = bench.run(bench.asked_for(bench.rule()))
    with pytest.raises(ConflictError, match="is not planned yet"):
        bench.approve(asked_for)
    queued = bench.queued()
    with pytest.raises(ConflictError, match="is QUEUED: only a preview can be approved"):
        bench.approve(queued)
    cancelled = bench.previewed()
    bench.set_run(cancelled.id, cancel_requested_at=bench.clock.now())
    with pytest.raises(ConflictError, match="was cancelled"):
        bench.approve(cancelled)
    with pytest.raises(NotFoundError, match="Rule run 99 does not exist"):
        approve_run(99, database=bench.database, clock=bench.clock, actor="user:2")
