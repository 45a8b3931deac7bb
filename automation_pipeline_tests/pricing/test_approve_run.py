"""A second person says yes to the prices of a preview."""

from collections.abc import Callable

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.pricing_rules import update_rule
from automation_pipeline.pricing.runs import approve_run
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


def previewed_by_another(bench: Bench) -> RuleRun:
    return bench.previewed(actor="user:3")


def asked_for_in_dagster(bench: Bench) -> RuleRun:
    run = bench.plan(bench.asked_for(bench.rule()))
    bench.set_run(run.id, created_by="launchpad")
    return run


def scheduled(bench: Bench) -> RuleRun:
    return bench.plan(bench.scheduled(bench.rule()))


@pytest.mark.parametrize("made", [previewed_by_another, asked_for_in_dagster, scheduled])
def test_the_author_of_the_rule_cannot_approve_whoever_made_the_run(
    made: Callable[[Bench], RuleRun], bench: Bench
) -> None:
    bench.guard()
    run = made(bench)
    with pytest.raises(
        ConflictError, match="approved by somebody else than the author of its rule"
    ):
        bench.approve(run, actor=CREATOR)
    assert bench.run(run.id).approved_by is None
    assert bench.approve(run).approved_by == APPROVER


def test_the_author_is_whoever_wrote_the_version_that_the_run_is_of(bench: Bench) -> None:
    bench.guard()
    rule = bench.rule()
    change = {"transform": {"op": "percent", "value": -20}}
    update_rule(rule.id, change, database=bench.database, clock=bench.clock, actor=APPROVER)
    run = bench.previewed(rule, actor="user:3")
    with pytest.raises(ConflictError, match="the author of its rule"):
        bench.approve(run)
    assert bench.approve(run, actor=CREATOR).approved_by == CREATOR


def test_an_approval_by_the_author_gives_way_once_a_second_person_is_wanted(bench: Bench) -> None:
    run = bench.approve(previewed_by_another(bench), actor=CREATOR)
    bench.guard()
    assert bench.approve(run).approved_by == APPROVER


@pytest.mark.parametrize("policy", [None, {"autoApply": True}])
def test_the_creator_may_approve_where_nobody_needs_to(
    policy: dict[str, object] | None, bench: Bench
) -> None:
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
    with pytest.raises(NotFoundError, match="Rule run 99 not found"):
        approve_run(99, database=bench.database, clock=bench.clock, actor="user:2")
