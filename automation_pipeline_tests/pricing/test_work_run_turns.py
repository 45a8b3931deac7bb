"""A run that is asked for waits until no other of its rule is in the way, and is not applied after
its promotion."""

import pytest

from automation_pipeline.core.clock import iso
from automation_pipeline.pricing.models.runs import RuleTrigger
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(3)))


def finish(bench: Bench, run_id: int) -> None:
    times = dict.fromkeys(("queued_at", "started_at", "finished_at"), bench.clock.now())
    bench.set_run(run_id, status="FAILED", wish=None, **times)


@pytest.mark.parametrize(
    ("status", "wish"), [("QUEUED", None), ("APPLYING", None), ("PARTIAL", "retry")]
)
def test_a_run_waits_its_turn_without_reading_the_catalogue(
    status: str, wish: str | None, bench: Bench
) -> None:
    rule = bench.rule()
    other, run_id = bench.previewed(rule), bench.scheduled(rule)
    finish(bench, other.id)
    bench.set_run(other.id, status=status, wish=wish)
    bench.shop.called.clear()
    waiting = bench.work_id(run_id)
    assert (waiting.status, waiting.wish, waiting.previewed_at, bench.shop.called) == (
        "PREVIEW",
        "apply",
        None,
        [],
    )
    assert waiting.resume_at is not None
    assert f"rule {rule.id} " in str(waiting.error_message)
    assert bench.run_row(run_id).lease_until is None
    finish(bench, other.id)
    ended = bench.work_id(run_id)
    assert (ended.status, ended.targets.applied, ended.error_message) == ("APPLIED", 3, None)


def test_a_run_that_is_overtaken_while_it_is_planned_waits_for_its_turn(bench: Bench) -> None:
    rule = bench.rule()
    other, run_id = bench.previewed(rule), bench.scheduled(rule)

    async def overtake(_kind: str, _subject: object) -> None:
        if bench.run(other.id).status == "PREVIEW":
            bench.queue(other)

    bench.shop._meanwhile = overtake
    waiting = bench.work_id(run_id)
    assert (waiting.status, waiting.wish, waiting.resume_at is not None) == (
        "PREVIEW",
        "apply",
        True,
    )
    assert waiting.previewed_at is not None
    finish(bench, other.id)
    assert bench.work_id(run_id).status == "APPLIED"


@pytest.mark.parametrize("trigger", [RuleTrigger.SCHEDULE, RuleTrigger.API])
def test_what_is_planned_after_its_promotion_is_not_applied(
    trigger: RuleTrigger, bench: Bench
) -> None:
    rule = bench.rule(endsAt="2026-05-04T11:00:00Z")
    run_id = (
        bench.scheduled(rule)
        if trigger is RuleTrigger.SCHEDULE
        else bench.asked_for(rule, trigger=trigger)
    )
    due_at = bench.clock.now()
    bench.pass_minutes(60)
    stays = bench.work_id(run_id)
    assert (stays.status, stays.wish, bench.shop.written) == ("PREVIEW", None, [])
    assert f"The promotion of pricing rule {rule.id} is over since 2026-05-04T11:00:00.000Z" in str(
        stays.error_message
    )
    told = [event.payload for event in bench.events("rule.scheduled.missed")]
    missed = {"ruleId": str(rule.id), "projectId": "default", "scheduledFor": iso(due_at)}
    assert told == ([missed] if trigger is RuleTrigger.SCHEDULE else [])
