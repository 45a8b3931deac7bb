"""Cancelling: what was not begun is not begun any more, what was applied stays."""

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.pricing import worker as take_back_prices
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.runs import (
    cancel_run,
    retry_run,
    roll_back_run,
    sweep_rule_runs,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.at_work import until_unwanted
from automation_pipeline_tests.pricing.bench import Bench

# Of a call that never left, it is known that it wrote nothing.
UNREACHED, GONE = FailureSignal(code="ECONNREFUSED"), FailureSignal(status=404)


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(
        database, clock, FakeShop(*shelf(3)), {"longest_pause_seconds": 0.0, "calls_at_once": 1}
    )


def cancel(bench: Bench, run: RuleRun, actor: str = "user:7") -> RuleRun:
    return cancel_run(run.id, database=bench.database, clock=bench.clock, actor=actor)


def retry(bench: Bench, run: RuleRun) -> RuleRun:
    return retry_run(run.id, database=bench.database, clock=bench.clock, actor="user:7")


def sweep(bench: Bench) -> None:
    sweep_rule_runs(database=bench.database, clock=bench.clock)


def kinds(bench: Bench, run: RuleRun) -> dict[str, str | None]:
    return {str(target.variant_id): target.error_type for target in bench.targets(run.id)}


def waiting_for_one(bench: Bench) -> RuleRun:
    """Two of its prices stand in the shop, and one waits for its next attempt."""
    run = bench.queued()
    bench.shop.fail_once("2", UNREACHED)
    return bench.work(run)


def test_a_queued_run_is_over_at_once(bench: Bench) -> None:
    run = bench.queued()
    bench.shop.called.clear()
    ended = cancel(bench, run)
    assert (ended.status, ended.targets.failed, ended.targets.cancelled, ended.success_rate) == (
        "FAILED",
        3,
        3,
        None,
    )
    assert ended.error_message == "; ".join(["The run was cancelled before it was tried"] * 3)
    assert set(kinds(bench, run).values()) == {"cancelled"}
    assert bench.moves("rule run", run.id)[1:] == [("QUEUED", "APPLYING"), ("APPLYING", "FAILED")]
    first = bench.targets(run.id)[0]
    assert bench.moves("rule target", first.id)[1:] == [
        ("QUEUED", "APPLYING"),
        ("APPLYING", "FAILED"),
    ]
    assert (bench.work(run).status, bench.shop.called) == ("FAILED", [])
    [told] = bench.events("rule.run.ended")
    assert (told.payload["cancelledCount"], told.payload["successRate"]) == (3, None)
    assert (bench.run_row(run.id).cancelled_by, bench.run_row(run.id).lease_owner) == (
        "user:7",
        None,
    )


def test_a_run_at_work_stops_before_its_next_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.queued()
    told: list[RuleRun] = []
    until_unwanted(bench, lambda: told.append(cancel(bench, run)), monkeypatch)
    ended = bench.work(run)
    assert [one.status for one in told] == ["APPLYING"]
    assert (ended.status, ended.targets.applied, ended.targets.cancelled) == ("PARTIAL", 1, 2)
    assert (ended.success_rate, bench.shop.times("write")) == (1.0, 1)
    assert bench.shop.amounts() == {"101": 900, "201": 1000, "301": 1000}
    left = bench.targets(run.id)[1]
    back_and_forth = [
        ("QUEUED", "APPLYING"),
        ("APPLYING", "QUEUED"),
        ("QUEUED", "APPLYING"),
        ("APPLYING", "FAILED"),
    ]
    assert bench.moves("rule target", left.id)[1:] == back_and_forth
    assert (left.attempts, left.is_writing, left.outcome_unknown) == (0, False, False)


def test_what_is_applied_stays_and_what_waits_is_cancelled(bench: Bench) -> None:
    run = waiting_for_one(bench)
    ended = cancel(bench, run)
    assert (ended.status, ended.targets.applied, ended.targets.cancelled) == ("PARTIAL", 2, 1)
    assert (ended.success_rate, ended.resume_at, ended.finished_at is not None) == (1.0, None, True)
    assert bench.shop.amounts() == {"101": 900, "201": 1000, "301": 900}
    assert {check.name for check in bench.checks(run.id)} == {"5m", "1h"}


def test_real_failures_still_count_and_are_told_before_the_cancelled_ones(bench: Bench) -> None:
    run = bench.queued()
    bench.shop.fail_once("2", UNREACHED)
    bench.shop.fail_always("3", GONE)
    bench.work(run)
    ended = cancel(bench, run)
    assert (ended.targets.applied, ended.targets.failed, ended.targets.cancelled) == (1, 2, 1)
    assert ended.success_rate == 0.5
    assert str(ended.error_message).startswith("The shop fails as it was told to (write)")


@pytest.mark.parametrize(
    ("price", "state", "kind"), [(1000, "FAILED", "cancelled"), (900, "APPLIED", None)]
)
def test_what_a_lost_worker_was_at_is_looked_at_before_it_is_cancelled(
    price: int, state: str, kind: str | None, bench: Bench
) -> None:
    run = waiting_for_one(bench)
    [waiting] = [target for target in bench.targets(run.id) if target.status == "QUEUED"]
    bench.set_target(waiting.id, status="APPLYING", is_writing=True)
    bench.shop.edit("201", amount=price)
    bench.shop.called.clear()
    asked = len(bench.requests())
    assert (cancel(bench, run).status, len(bench.requests())) == ("APPLYING", asked + 1)
    ended = bench.work(run)
    found = bench.targets(run.id)[1]
    assert (found.status, found.error_type, found.outcome_unknown, found.is_writing) == (
        state,
        kind,
        False,
        False,
    )
    assert (ended.finished_at is not None, bench.shop.times("write")) == (True, 0)
    assert len(bench.changes(run.id)) == ended.targets.applied


def test_an_answer_that_was_lost_is_not_taken_for_a_price_that_was_never_tried(
    bench: Bench,
) -> None:
    run = bench.queued()
    bench.shop.lose_answer_once("2")
    assert bench.work(run).status == "APPLYING"
    assert cancel(bench, run).status == "APPLYING"
    ended = bench.work(run)
    assert (ended.status, ended.targets.applied, bench.shop.times_written("201")) == (
        "APPLIED",
        3,
        1,
    )


def test_who_cancels_again_while_it_is_at_work_changes_nothing(bench: Bench) -> None:
    run = bench.queued()
    bench.hold_again(run.id)
    first = cancel(bench, run, "user:7")
    bench.pass_minutes(1)
    again = cancel(bench, run, "user:8")
    assert (again.status, again.cancel_requested_at) == ("QUEUED", first.cancel_requested_at)
    assert bench.run_row(run.id).cancelled_by == "user:7"
    bench.expire_hold(run.id)
    assert cancel(bench, run, "user:9").status == "FAILED"


def test_a_run_that_was_only_asked_for_is_never_planned(bench: Bench) -> None:
    asked = bench.asked_for(bench.rule())
    for _ in range(2):
        cancelled = cancel(bench, bench.run(asked))
        assert (cancelled.status, cancelled.wish) == ("PREVIEW", None)
    assert (bench.work_id(asked).status, bench.shop.called) == ("PREVIEW", [])
    with pytest.raises(ConflictError, match="was cancelled"):
        bench.queue(bench.run(asked))


def test_a_retry_that_was_asked_for_is_forgotten_and_may_be_asked_for_again(bench: Bench) -> None:
    run = waiting_for_one(bench)
    cancel(bench, run)
    retry(bench, run)
    cancelled = cancel(bench, run)
    assert (cancelled.status, cancelled.wish) == ("PARTIAL", None)
    assert [target.is_wished for target in bench.targets(run.id)] == [False] * 3
    bench.shop.called.clear()
    assert (bench.work(run).status, bench.shop.called) == ("PARTIAL", [])
    retry(bench, run)
    assert bench.work(run).status == "APPLIED"


def test_a_variant_that_a_lost_worker_was_taking_back_is_free_again_when_the_rollback_is_cancelled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.work(bench.queued())
    roll_back_run(run.id, database=bench.database, clock=bench.clock, actor="user:7")

    class LostError(Exception):
        """The worker's process is gone."""

    def lost(*_given: object) -> None:
        raise LostError

    with monkeypatch.context() as patch:
        patch.setattr(take_back_prices, "save_rollback_outcomes", lost)
        with pytest.raises(LostError):
            bench.work(run)
    bench.hold_again(run.id)
    assert cancel(bench, run).wish is None
    other = bench.queued(bench.rule(name="Other", onDrift="overwrite"))
    sweep(bench)
    assert bench.work(other).status == "APPLYING"
    bench.expire_hold(run.id)
    sweep(bench)
    bench.make_due(other.id)
    assert bench.work(other).status == "APPLIED"


def test_what_was_cancelled_may_be_tried_again(bench: Bench) -> None:
    run = bench.queued()
    cancel(bench, run)
    asked = retry(bench, run)
    assert (asked.wish, asked.cancel_requested_at) == ("retry", None)
    ended = bench.work(run)
    assert (ended.status, ended.success_rate, ended.targets.applied) == ("APPLIED", 1.0, 3)


def test_nothing_is_to_be_cancelled_of_a_preview_or_of_what_has_ended(bench: Bench) -> None:
    preview = bench.previewed()
    with pytest.raises(
        ConflictError, match=f"Run {preview.id} is a preview that nobody asked to be applied"
    ):
        cancel(bench, preview)
    ended = bench.work(bench.queue(preview))
    with pytest.raises(
        ConflictError, match=f"Run {ended.id} is APPLIED: there is nothing to cancel"
    ):
        cancel(bench, ended)
    assert bench.run_row(ended.id).cancel_requested_at is None
    with pytest.raises(NotFoundError):
        cancel_run(99, database=bench.database, clock=bench.clock, actor="user:7")
