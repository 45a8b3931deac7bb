"""Queueing: a preview is applied as it was seen, once, and only where nothing stands in its way."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.pricing.models.rules import PricingRule
from automation_pipeline.pricing.models.runs import (
    PricingRunState,
    RuleRun,
    RuleTrigger,
)
from automation_pipeline.pricing.pricing_rules import delete_rule, update_rule
from automation_pipeline.pricing.queries.rules import get_rule
from automation_pipeline.pricing.runs import queue_run
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import APPROVER, CREATOR, Bench
from automation_pipeline_tests.processes import CREW, at_once


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(2, 2)))


def prices(bench: Bench, run: RuleRun) -> list[tuple[object, ...]]:
    return [
        (row.id, row.variant_id, row.before_json, row.after_json) for row in bench.targets(run.id)
    ]


def rule_of(bench: Bench, run: RuleRun) -> PricingRule:
    with bench.database.reading() as session:
        return get_rule(session, run.rule_id)


def change(bench: Bench, run: RuleRun, **fields: object) -> None:
    update_rule(run.rule_id, fields, database=bench.database, clock=bench.clock, actor="user:1")


def test_what_is_queued_is_exactly_what_was_previewed(bench: Bench) -> None:
    run = bench.previewed()
    seen = prices(bench, run)
    change(bench, run, name="Another name")
    bench.shop.edit("101", amount=1)
    queued = bench.queue(run, actor="user:3")
    assert prices(bench, queued) == seen
    assert (queued.status, queued.queued_at, queued.targets.queued) == (
        PricingRunState.QUEUED,
        bench.clock.now(),
        4,
    )
    assert bench.run_row(run.id).queued_by == "user:3"


def test_every_move_is_logged_and_a_worker_is_asked_for(bench: Bench) -> None:
    run = bench.queued()
    assert bench.moves("rule run", run.id) == [("PREVIEW", "QUEUED")]
    assert [bench.moves("rule target", row.id) for row in bench.targets(run.id)] == [
        [("PREVIEW", "QUEUED")]
    ] * 4
    assert bench.requests() == [(f"rule-run-{run.id}-1", {"run_id": run.id})]
    (event,) = bench.events("rule.apply.queued")
    assert event.correlation_id == f"rule-run-{run.id}"
    assert event.payload == {
        "runId": str(run.id),
        "ruleId": str(run.rule_id),
        "projectId": "default",
        "targets": 4,
        "queuedBy": CREATOR,
    }


def test_a_run_that_a_worker_was_asked_for_is_not_wished_for_any_more(bench: Bench) -> None:
    run = bench.plan(bench.asked_for(bench.rule()))
    assert bench.queue(run).wish is None


def disable(bench: Bench, run: RuleRun) -> None:
    change(bench, run, enabled=False)


def delete(bench: Bench, run: RuleRun) -> None:
    delete_rule(run.rule_id, database=bench.database, clock=bench.clock, actor="user:1")


def reprice(bench: Bench, run: RuleRun) -> None:
    change(bench, run, transform={"op": "percent", "value": -20})


def let_it_grow_old(bench: Bench, _run: RuleRun) -> None:
    bench.clock.pass_time(timedelta(minutes=15, microseconds=1))


def guard(bench: Bench, _run: RuleRun) -> None:
    bench.guard()


def guard_and_approve_oneself(bench: Bench, run: RuleRun) -> None:
    bench.approve(run, actor=CREATOR)
    bench.guard()


def let_the_author_approve_and_guard(bench: Bench, run: RuleRun) -> None:
    """A run that a schedule has made was approved by whoever wrote its rule, when nobody had to."""
    bench.set_run(run.id, created_by="schedule")
    guard_and_approve_oneself(bench, run)


def queue(bench: Bench, run: RuleRun) -> None:
    bench.queue(run)


def cancel(bench: Bench, run: RuleRun) -> None:
    bench.set_run(run.id, cancel_requested_at=bench.clock.now())


def forget_the_plan(bench: Bench, run: RuleRun) -> None:
    bench.set_run(run.id, previewed_at=None)


def queue_another(bench: Bench, run: RuleRun) -> None:
    other = bench.previewed(rule_of(bench, run))
    bench.queue(other)


def apply_another(bench: Bench, run: RuleRun) -> None:
    """An hour's rest, of which a minute is over."""
    change(bench, run, cooldownMinutes=60)
    now = bench.clock.now() - timedelta(minutes=1)
    other = bench.previewed(rule_of(bench, run))
    times = dict.fromkeys(("queued_at", "started_at", "finished_at"), now)
    bench.set_run(other.id, status="APPLIED", **times)


def end_its_promotion(bench: Bench, run: RuleRun) -> None:
    change(bench, run, endsAt=iso(bench.clock.now()))


def wish_another_tried_again(bench: Bench, run: RuleRun) -> None:
    other = bench.previewed(rule_of(bench, run))
    times = dict.fromkeys(("queued_at", "started_at", "finished_at"), bench.clock.now())
    bench.set_run(other.id, status="PARTIAL", wish="retry", **times)


@pytest.mark.parametrize(
    ("hinder", "words"),
    [
        (disable, "is disabled: enable it first"),
        (delete, "was deleted: its previews cannot be applied any more"),
        (reprice, "The rule was changed after the preview: preview it again"),
        (let_it_grow_old, "The preview is older than 15 minutes: preview the rule again"),
        (guard, "The run must be approved first"),
        (guard_and_approve_oneself, "must be approved by somebody else than its creator"),
        (
            let_the_author_approve_and_guard,
            "must be approved by somebody else than the author of its rule",
        ),
        (queue, "is QUEUED: only a preview can be approved or queued"),
        (cancel, "was cancelled: preview the rule again"),
        (forget_the_plan, "is not planned yet: wait until its preview is there"),
        (queue_another, "Another run of rule 1 is queued or being applied"),
        (
            end_its_promotion,
            "is over since 2026-05-04T10:00:00.000Z: what is applied now would be taken back at once",
        ),
        (
            wish_another_tried_again,
            "Run 2 of pricing rule 1 waits to be tried again: wait for its end, or cancel it",
        ),
        (apply_another, "rests until 2026-05-04T10:59:00.000Z after its last run"),
    ],
)
def test_what_stands_in_its_way_is_said_and_nothing_is_moved(
    hinder: Callable[[Bench, RuleRun], None], words: str, bench: Bench
) -> None:
    run = bench.previewed()
    hinder(bench, run)
    before = bench.run(run.id), bench.statuses(run.id), bench.requests(), bench.events()
    with pytest.raises(ConflictError, match=words):
        bench.queue(run)
    assert (bench.run(run.id), bench.statuses(run.id), bench.requests(), bench.events()) == before


def test_a_preview_of_exactly_fifteen_minutes_may_be_applied(bench: Bench) -> None:
    run = bench.previewed()
    bench.pass_minutes(15)
    assert bench.queue(run).status is PricingRunState.QUEUED


def test_a_second_persons_approval_lets_it_through(bench: Bench) -> None:
    bench.guard()
    run = bench.approve(bench.previewed())
    assert bench.queue(run).approved_by == APPROVER


def test_a_project_that_applies_by_itself_needs_no_approval(bench: Bench) -> None:
    bench.guard(autoApply=True)
    assert bench.queued().status is PricingRunState.QUEUED


def test_force_cuts_the_rest_short_and_nothing_else(bench: Bench) -> None:
    run = bench.previewed()
    apply_another(bench, run)
    disable(bench, run)
    with pytest.raises(ConflictError, match="is disabled"):
        bench.queue(run, force=True)
    change(bench, run, enabled=True)
    assert bench.queue(run, force=True).status is PricingRunState.QUEUED


def test_a_run_that_was_asked_for_with_force_is_queued_so(bench: Bench) -> None:
    rule = bench.rule(cooldownMinutes=60)
    other = bench.previewed(rule)
    times = dict.fromkeys(("queued_at", "started_at", "finished_at"), bench.clock.now())
    bench.set_run(other.id, status="APPLIED", **times)
    run = bench.plan(bench.asked_for(rule, force=True))
    assert bench.queue(run).status is PricingRunState.QUEUED


def test_a_repair_is_applied_whatever_the_rule_says_by_now(bench: Bench) -> None:
    run = bench.previewed()
    bench.set_run(run.id, trigger=RuleTrigger.REPAIR.value)
    reprice(bench, run)
    assert bench.queue(run).status is PricingRunState.QUEUED


def test_a_repair_is_applied_though_the_promotion_is_over(bench: Bench) -> None:
    run = bench.previewed()
    bench.set_run(run.id, trigger=RuleTrigger.REPAIR.value)
    end_its_promotion(bench, run)
    assert bench.queue(run).status is PricingRunState.QUEUED


def test_a_repair_grows_old_all_the_same(bench: Bench) -> None:
    run = bench.previewed()
    bench.set_run(run.id, trigger=RuleTrigger.REPAIR.value)
    let_it_grow_old(bench, run)
    with pytest.raises(ConflictError, match="older than 15 minutes"):
        bench.queue(run)


def test_only_a_schedule_may_find_that_no_price_would_change(bench: Bench) -> None:
    rule = bench.rule(selector={"sku": "nowhere"})
    with pytest.raises(InvalidInputError, match="nothing to apply: no price would change"):
        bench.queued(rule)
    empty = bench.plan(bench.asked_for(rule, trigger=RuleTrigger.SCHEDULE))
    assert bench.queue(empty).status is PricingRunState.QUEUED


def test_a_run_that_never_was_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFoundError, match="Rule run 99 not found"):
        queue_run(99, database=bench.database, clock=bench.clock, actor="user:1")


def outcome(run_id: int, database: Database, clock: Clock) -> str:
    try:
        return queue_run(run_id, database=database, clock=clock, actor="user:1").status
    except ConflictError as refusal:
        return str(refusal)


def test_of_many_who_queue_a_preview_at_once_one_does(bench: Bench) -> None:
    run = bench.previewed()
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda _: outcome(run.id, bench.database, bench.clock), range(4)))
    refusal = f"Rule run {run.id} is QUEUED: only a preview can be approved or queued."
    assert sorted(said) == sorted(["QUEUED", *[refusal] * 3])
    assert bench.moves("rule run", run.id) == [("PREVIEW", "QUEUED")]
    assert len(bench.requests()) == 1


def queue_in_a_process(url: str, run_id: int, clock: StandingClock) -> str:
    database = Database(url)
    try:
        return outcome(run_id, database, clock)
    finally:
        database.dispose()


def test_of_the_previews_of_a_rule_that_processes_queue_at_once_one_is_queued(
    bench: Bench, database_url: str
) -> None:
    rule = bench.rule()
    runs = [bench.previewed(rule) for _ in range(CREW)]
    said = at_once(queue_in_a_process, *((database_url, run.id, bench.clock) for run in runs))
    refusal = f"Another run of rule {rule.id} is queued or being applied."
    assert sorted(said) == sorted(["QUEUED", *[refusal] * (CREW - 1)])
    assert sorted(bench.run(run.id).status for run in runs) == ["PREVIEW"] * (CREW - 1) + ["QUEUED"]
