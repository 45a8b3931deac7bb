"""Runs are requested, approved, queued and cancelled."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.pricing import worker
from automation_pipeline.pricing.models.rules import PricingRule
from automation_pipeline.pricing.models.runs import PricingRunState, RuleRun, RuleTrigger
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.pricing_rules import delete_rule, get_rule, update_rule
from automation_pipeline.pricing.runs import (
    approve_run,
    cancel_run,
    queue_run,
    retry_run,
    roll_back_run,
    sweep_rule_runs,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import FakeShop, shelf
from automation_pipeline_tests.pricing.bench import APPROVER, CREATOR, Bench, until_stopped
from automation_pipeline_tests.pricing.rows import (
    a_rule,
    a_run,
    change_run,
    requested_run,
    run_row,
    run_rows,
    start_due_or_request,
    stored_requests,
)
from automation_pipeline_tests.processes import CREW, at_once

HOUR = timedelta(hours=1)


def test_a_requested_run_is_stored_with_a_worker_request(
    database: Database, clock: StandingClock
) -> None:
    rule = a_rule(database, clock)
    update_rule(rule.id, {"currency": "EUR"}, database=database, clock=clock, actor="user:12")
    id_ = requested_run(rule, database, clock)
    row = run_row(database, id_)
    assert (row.status, row.wish, row.wished_by, row.trigger) == (
        "PREVIEW",
        "apply",
        "user:12",
        "api",
    )
    assert (row.rule_version, row.rule_version_hash != rule.version_hash) == (2, True)
    assert row.run_metadata == {
        "actor": "user:12",
        "correlationId": None,
        "source": "api",
        "force": False,
    }
    assert stored_requests(database) == [(f"rule-run-{id_}-1", "rule_run", {"run_id": id_})]


@pytest.mark.parametrize(
    ("status", "requested", "words"),
    [
        ("PREVIEW", "apply", "waits to be applied"),
        ("QUEUED", None, "is QUEUED"),
        ("APPLYING", None, "is APPLYING"),
        ("FAILED", "retry", "waits to be applied"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_second_active_run_of_a_rule_is_refused(
    status: str,
    requested: str | None,
    words: str,
    *,
    force: bool,
    database: Database,
    clock: StandingClock,
) -> None:
    rule, other = a_rule(database, clock), a_rule(database, clock)
    run_id = a_run(database, rule, status, clock.now(), wish=requested)
    with pytest.raises(
        ConflictError, match=f"Run {run_id} of pricing rule {rule.id} {words}: wait for its end"
    ):
        requested_run(rule, database, clock, force=force)
    assert len(run_rows(database)) == 1
    assert stored_requests(database) == []
    requested_run(other, database, clock)


def test_previews_and_cancelled_requests_block_no_run(
    database: Database, clock: StandingClock
) -> None:
    rule = a_rule(database, clock)
    a_run(database, rule, "PREVIEW", clock.now())
    first = requested_run(rule, database, clock)
    change_run(database, first, cancel_requested_at=clock.now())
    assert requested_run(rule, database, clock) > first


@pytest.mark.parametrize(
    ("status", "ago", "has_cooldown"),
    [
        ("APPLIED", timedelta(minutes=59), True),
        ("PARTIAL", timedelta(0), True),
        ("APPLIED", HOUR, False),
        ("FAILED", timedelta(minutes=5), False),
        ("ROLLED_BACK", timedelta(minutes=5), False),
    ],
)
def test_a_rule_is_refused_during_its_cooldown_unless_forced(
    status: str, ago: timedelta, *, has_cooldown: bool, database: Database, clock: StandingClock
) -> None:
    rule = a_rule(database, clock, cooldownMinutes=60)
    a_run(database, rule, status, clock.now() - ago)
    if has_cooldown:
        until = clock.now() - ago + HOUR
        with pytest.raises(
            ConflictError, match=f"rests until {until:%Y-%m-%dT%H:%M:%S}.000Z after its last run"
        ):
            requested_run(rule, database, clock)
        assert stored_requests(database) == []
    row = run_row(database, requested_run(rule, database, clock, force=has_cooldown))
    assert row.run_metadata is not None
    assert row.run_metadata["force"] is has_cooldown


def test_a_disabled_or_deleted_rule_is_not_run(database: Database, clock: StandingClock) -> None:
    disabled, gone = a_rule(database, clock, enabled=False), a_rule(database, clock)
    delete_rule(gone.id, database=database, clock=clock, actor="user:12")
    with pytest.raises(
        ConflictError, match=f"Pricing rule {disabled.id} is disabled: enable it first"
    ):
        requested_run(disabled, database, clock, force=True)
    with pytest.raises(NotFoundError, match=f"Pricing rule {gone.id} not found"):
        requested_run(gone, database, clock)
    assert run_rows(database) == []


def test_one_of_several_concurrent_requests_creates_a_run(
    database: Database, database_url: str, clock: StandingClock
) -> None:
    rule = a_rule(database, clock)
    now = f"{clock.now():%Y-%m-%dT%H:%M}"
    assert sorted(at_once(start_due_or_request, *[(database_url, now, rule.id)] * CREW)) == [0] * (
        CREW - 1
    ) + [1]
    assert len(run_rows(database)) == len(stored_requests(database)) == 1


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(1)))


def test_an_approval_stores_who_and_when(bench: Bench) -> None:
    bench.guard()
    run = bench.previewed()
    bench.pass_minutes(1)
    approved = bench.approve(run)
    assert (approved.approved_by, approved.approved_at) == (APPROVER, bench.clock.now())


def test_a_repeated_approval_changes_nothing(bench: Bench) -> None:
    first = bench.approve(bench.previewed())
    bench.pass_minutes(1)
    assert bench.approve(first) == first


def test_a_second_approver_is_refused(bench: Bench) -> None:
    run = bench.approve(bench.previewed())
    with pytest.raises(ConflictError, match="was approved by user:2 already"):
        bench.approve(run, actor="user:3")
    assert bench.run(run.id).approved_by == APPROVER


def test_the_creator_cannot_approve_when_a_second_person_is_required(bench: Bench) -> None:
    bench.guard()
    with pytest.raises(ConflictError, match="approved by a person other than its creator"):
        bench.approve(bench.previewed(), actor=CREATOR)


def previewed_by_another(bench: Bench) -> RuleRun:
    return bench.previewed(actor="user:3")


def requested_in_dagster(bench: Bench) -> RuleRun:
    run = bench.plan(bench.asked_for(bench.rule()))
    bench.set_run(run.id, created_by="launchpad")
    return run


def scheduled(bench: Bench) -> RuleRun:
    return bench.plan(bench.scheduled(bench.rule()))


@pytest.mark.parametrize("made", [previewed_by_another, requested_in_dagster, scheduled])
def test_the_author_of_the_rule_cannot_approve_a_run_of_another_person(
    made: Callable[[Bench], RuleRun], bench: Bench
) -> None:
    bench.guard()
    run = made(bench)
    with pytest.raises(
        ConflictError, match="approved by a person other than the author of its rule"
    ):
        bench.approve(run, actor=CREATOR)
    assert bench.run(run.id).approved_by is None
    assert bench.approve(run).approved_by == APPROVER


def test_the_author_is_that_of_the_rule_version_of_the_run(bench: Bench) -> None:
    bench.guard()
    rule = bench.rule()
    change = {"transform": {"op": "percent", "value": -20}}
    update_rule(rule.id, change, database=bench.database, clock=bench.clock, actor=APPROVER)
    run = bench.previewed(rule, actor="user:3")
    with pytest.raises(ConflictError, match="the author of its rule"):
        bench.approve(run)
    assert bench.approve(run, actor=CREATOR).approved_by == CREATOR


def test_another_person_replaces_an_approval_by_the_author_when_required(bench: Bench) -> None:
    run = bench.approve(previewed_by_another(bench), actor=CREATOR)
    bench.guard()
    assert bench.approve(run).approved_by == APPROVER


@pytest.mark.parametrize("policy", [None, {"autoApply": True}])
def test_the_creator_may_approve_when_no_approval_is_required(
    policy: dict[str, object] | None, bench: Bench
) -> None:
    if policy:
        bench.guard(**policy)
    assert bench.approve(bench.previewed(), actor=CREATOR).approved_by == CREATOR


def test_another_person_replaces_an_approval_by_the_creator_when_required(bench: Bench) -> None:
    run = bench.approve(bench.previewed(), actor=CREATOR)
    bench.guard()
    assert bench.approve(run).approved_by == APPROVER


def test_only_a_planned_preview_can_be_approved(bench: Bench) -> None:
    run = bench.run(bench.asked_for(bench.rule()))
    with pytest.raises(ConflictError, match="is not planned yet"):
        bench.approve(run)
    queued = bench.queued()
    with pytest.raises(ConflictError, match="is QUEUED: only a preview can be approved"):
        bench.approve(queued)
    cancelled = bench.previewed()
    bench.set_run(cancelled.id, cancel_requested_at=bench.clock.now())
    with pytest.raises(ConflictError, match="was cancelled"):
        bench.approve(cancelled)
    with pytest.raises(NotFoundError, match="Rule run 99 not found"):
        approve_run(99, database=bench.database, clock=bench.clock, actor="user:2")


@pytest.fixture
def bench_of_two(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeShop(*shelf(2, 2)))


def prices(bench_of_two: Bench, run: RuleRun) -> list[tuple[object, ...]]:
    return [
        (row.id, row.variant_id, row.before_json, row.after_json)
        for row in bench_of_two.targets(run.id)
    ]


def rule_of(bench_of_two: Bench, run: RuleRun) -> PricingRule:
    with bench_of_two.database.reading() as session:
        return get_rule(session, run.rule_id)


def change(bench_of_two: Bench, run: RuleRun, **fields: object) -> None:
    update_rule(
        run.rule_id,
        fields,
        database=bench_of_two.database,
        clock=bench_of_two.clock,
        actor="user:1",
    )


def test_a_queued_run_has_the_previewed_targets(bench_of_two: Bench) -> None:
    run = bench_of_two.previewed()
    seen = prices(bench_of_two, run)
    change(bench_of_two, run, name="Another name")
    bench_of_two.shop.edit("101", amount=1)
    queued = bench_of_two.queue(run, actor="user:3")
    assert prices(bench_of_two, queued) == seen
    assert (queued.status, queued.queued_at, queued.targets.queued) == (
        PricingRunState.QUEUED,
        bench_of_two.clock.now(),
        4,
    )
    assert bench_of_two.run_row(run.id).queued_by == "user:3"


def test_queueing_logs_transitions_and_requests_a_worker(bench_of_two: Bench) -> None:
    run = bench_of_two.queued()
    assert bench_of_two.moves("rule run", run.id) == [("PREVIEW", "QUEUED")]
    assert [bench_of_two.moves("rule target", row.id) for row in bench_of_two.targets(run.id)] == [
        [("PREVIEW", "QUEUED")]
    ] * 4
    assert bench_of_two.requests() == [(f"rule-run-{run.id}-1", {"run_id": run.id})]
    (event,) = bench_of_two.events("rule.apply.queued")
    assert event.correlation_id == f"rule-run-{run.id}"
    assert event.payload == {
        "runId": str(run.id),
        "ruleId": str(run.rule_id),
        "projectId": "default",
        "targets": 4,
        "queuedBy": CREATOR,
    }


def test_queueing_clears_the_request(
    bench_of_two: Bench,
) -> None:
    run = bench_of_two.plan(bench_of_two.asked_for(bench_of_two.rule()))
    assert bench_of_two.queue(run).wish is None


def disable(bench_of_two: Bench, run: RuleRun) -> None:
    change(bench_of_two, run, enabled=False)


def delete(bench_of_two: Bench, run: RuleRun) -> None:
    delete_rule(
        run.rule_id, database=bench_of_two.database, clock=bench_of_two.clock, actor="user:1"
    )


def reprice(bench_of_two: Bench, run: RuleRun) -> None:
    change(bench_of_two, run, transform={"op": "percent", "value": -20})


def make_preview_stale(bench_of_two: Bench, _run: RuleRun) -> None:
    bench_of_two.clock.pass_time(timedelta(minutes=15, microseconds=1))


def require_approval(bench_of_two: Bench, _run: RuleRun) -> None:
    bench_of_two.guard()


def approve_as_creator_then_require_approval(bench_of_two: Bench, run: RuleRun) -> None:
    bench_of_two.approve(run, actor=CREATOR)
    bench_of_two.guard()


def approve_as_author_then_require_approval(bench_of_two: Bench, run: RuleRun) -> None:
    """The author of the rule approved a scheduled run before the project required an approval."""
    bench_of_two.set_run(run.id, created_by="schedule")
    approve_as_creator_then_require_approval(bench_of_two, run)


def queue(bench_of_two: Bench, run: RuleRun) -> None:
    bench_of_two.queue(run)


def cancel(bench_of_two: Bench, run: RuleRun) -> None:
    bench_of_two.set_run(run.id, cancel_requested_at=bench_of_two.clock.now())


def remove_plan(bench_of_two: Bench, run: RuleRun) -> None:
    bench_of_two.set_run(run.id, previewed_at=None)


def queue_another(bench_of_two: Bench, run: RuleRun) -> None:
    other = bench_of_two.previewed(rule_of(bench_of_two, run))
    bench_of_two.queue(other)


def apply_another(bench_of_two: Bench, run: RuleRun) -> None:
    """Apply another run of the rule a minute ago, with a cooldown of an hour."""
    change(bench_of_two, run, cooldownMinutes=60)
    now = bench_of_two.clock.now() - timedelta(minutes=1)
    other = bench_of_two.previewed(rule_of(bench_of_two, run))
    times = dict.fromkeys(("queued_at", "started_at", "finished_at"), now)
    bench_of_two.set_run(other.id, status="APPLIED", **times)


def end_its_promotion(bench_of_two: Bench, run: RuleRun) -> None:
    change(bench_of_two, run, endsAt=iso(bench_of_two.clock.now()))


def request_a_retry_of_another(bench_of_two: Bench, run: RuleRun) -> None:
    other = bench_of_two.previewed(rule_of(bench_of_two, run))
    times = dict.fromkeys(("queued_at", "started_at", "finished_at"), bench_of_two.clock.now())
    bench_of_two.set_run(other.id, status="PARTIAL", wish="retry", **times)


@pytest.mark.parametrize(
    ("obstacle", "words"),
    [
        (disable, "is disabled: enable it first"),
        (delete, "was deleted: its previews can no longer be applied"),
        (reprice, "The rule was changed after the preview: preview it again"),
        (make_preview_stale, "The preview is older than 15 minutes: preview the rule again"),
        (require_approval, "The run must be approved first"),
        (
            approve_as_creator_then_require_approval,
            "must be approved by a person other than its creator",
        ),
        (
            approve_as_author_then_require_approval,
            "must be approved by a person other than the author of its rule",
        ),
        (queue, "is QUEUED: only a preview can be approved or queued"),
        (cancel, "was cancelled: preview the rule again"),
        (remove_plan, "is not planned yet: wait for its preview"),
        (queue_another, "Another run of rule 1 is queued or being applied"),
        (
            end_its_promotion,
            "ended at 2026-05-04T10:00:00.000Z: prices applied now would be rolled back at once",
        ),
        (
            request_a_retry_of_another,
            "Run 2 of pricing rule 1 waits for a retry: wait for its end, or cancel it",
        ),
        (apply_another, "rests until 2026-05-04T10:59:00.000Z after its last run"),
    ],
)
def test_a_run_that_cannot_be_queued_names_the_reason_and_stays_unchanged(
    obstacle: Callable[[Bench, RuleRun], None], words: str, bench_of_two: Bench
) -> None:
    run = bench_of_two.previewed()
    obstacle(bench_of_two, run)
    before = (
        bench_of_two.run(run.id),
        bench_of_two.statuses(run.id),
        bench_of_two.requests(),
        bench_of_two.events(),
    )
    with pytest.raises(ConflictError, match=words):
        bench_of_two.queue(run)
    assert (
        bench_of_two.run(run.id),
        bench_of_two.statuses(run.id),
        bench_of_two.requests(),
        bench_of_two.events(),
    ) == before


def test_a_preview_of_exactly_fifteen_minutes_can_be_queued(bench_of_two: Bench) -> None:
    run = bench_of_two.previewed()
    bench_of_two.pass_minutes(15)
    assert bench_of_two.queue(run).status is PricingRunState.QUEUED


def test_a_run_approved_by_a_second_person_can_be_queued(bench_of_two: Bench) -> None:
    bench_of_two.guard()
    run = bench_of_two.approve(bench_of_two.previewed())
    assert bench_of_two.queue(run).approved_by == APPROVER


def test_a_project_with_auto_apply_needs_no_approval(bench_of_two: Bench) -> None:
    bench_of_two.guard(autoApply=True)
    assert bench_of_two.queued().status is PricingRunState.QUEUED


def test_force_skips_only_the_cooldown(bench_of_two: Bench) -> None:
    run = bench_of_two.previewed()
    apply_another(bench_of_two, run)
    disable(bench_of_two, run)
    with pytest.raises(ConflictError, match="is disabled"):
        bench_of_two.queue(run, force=True)
    change(bench_of_two, run, enabled=True)
    assert bench_of_two.queue(run, force=True).status is PricingRunState.QUEUED


def test_a_forced_request_skips_the_cooldown(bench_of_two: Bench) -> None:
    rule = bench_of_two.rule(cooldownMinutes=60)
    other = bench_of_two.previewed(rule)
    times = dict.fromkeys(("queued_at", "started_at", "finished_at"), bench_of_two.clock.now())
    bench_of_two.set_run(other.id, status="APPLIED", **times)
    run = bench_of_two.plan(bench_of_two.asked_for(rule, force=True))
    assert bench_of_two.queue(run).status is PricingRunState.QUEUED


def test_a_repair_can_be_queued_after_a_change_of_the_rule(bench_of_two: Bench) -> None:
    run = bench_of_two.previewed()
    bench_of_two.set_run(run.id, trigger=RuleTrigger.REPAIR.value)
    reprice(bench_of_two, run)
    assert bench_of_two.queue(run).status is PricingRunState.QUEUED


def test_a_repair_can_be_queued_after_the_end_of_the_promotion(bench_of_two: Bench) -> None:
    run = bench_of_two.previewed()
    bench_of_two.set_run(run.id, trigger=RuleTrigger.REPAIR.value)
    end_its_promotion(bench_of_two, run)
    assert bench_of_two.queue(run).status is PricingRunState.QUEUED


def test_a_repair_also_becomes_stale(bench_of_two: Bench) -> None:
    run = bench_of_two.previewed()
    bench_of_two.set_run(run.id, trigger=RuleTrigger.REPAIR.value)
    make_preview_stale(bench_of_two, run)
    with pytest.raises(ConflictError, match="older than 15 minutes"):
        bench_of_two.queue(run)


def test_only_a_scheduled_run_may_have_no_targets(bench_of_two: Bench) -> None:
    rule = bench_of_two.rule(selector={"sku": "nowhere"})
    with pytest.raises(InvalidInputError, match="nothing to apply: no price would change"):
        bench_of_two.queued(rule)
    empty = bench_of_two.plan(bench_of_two.asked_for(rule, trigger=RuleTrigger.SCHEDULE))
    assert bench_of_two.queue(empty).status is PricingRunState.QUEUED


def test_an_unknown_run_is_not_found(bench_of_two: Bench) -> None:
    with pytest.raises(NotFoundError, match="Rule run 99 not found"):
        queue_run(99, database=bench_of_two.database, clock=bench_of_two.clock, actor="user:1")


def outcome(run_id: int, database: Database, clock: Clock) -> str:
    try:
        return queue_run(run_id, database=database, clock=clock, actor="user:1").status
    except ConflictError as refusal:
        return str(refusal)


def test_one_of_many_concurrent_calls_queues_the_preview(bench_of_two: Bench) -> None:
    run = bench_of_two.previewed()
    with ThreadPoolExecutor(4) as pool:
        result = list(
            pool.map(lambda _: outcome(run.id, bench_of_two.database, bench_of_two.clock), range(4))
        )
    refusal = f"Rule run {run.id} is QUEUED: only a preview can be approved or queued."
    assert sorted(result) == sorted(["QUEUED", *[refusal] * 3])
    assert bench_of_two.moves("rule run", run.id) == [("PREVIEW", "QUEUED")]
    assert len(bench_of_two.requests()) == 1


def queue_in_process(url: str, run_id: int, clock: StandingClock) -> str:
    database = Database(url)
    try:
        return outcome(run_id, database, clock)
    finally:
        database.dispose()


def test_one_of_several_concurrently_queued_previews_of_a_rule_is_queued(
    bench_of_two: Bench, database_url: str
) -> None:
    rule = bench_of_two.rule()
    runs = [bench_of_two.previewed(rule) for _ in range(CREW)]
    result = at_once(
        queue_in_process, *((database_url, run.id, bench_of_two.clock) for run in runs)
    )
    refusal = f"Another run of rule {rule.id} is queued or being applied."
    assert sorted(result) == sorted(["QUEUED", *[refusal] * (CREW - 1)])
    assert sorted(bench_of_two.run(run.id).status for run in runs) == ["PREVIEW"] * (CREW - 1) + [
        "QUEUED"
    ]


# A call that never reached the shop is known to have written nothing.
UNREACHED, GONE = FailureSignal(code="ECONNREFUSED"), FailureSignal(status=404)


@pytest.fixture
def bench_of_three(database: Database, clock: StandingClock) -> Bench:
    return Bench(
        database, clock, FakeShop(*shelf(3)), {"longest_pause_seconds": 0.0, "calls_at_once": 1}
    )


def cancel_run_by(bench_of_three: Bench, run: RuleRun, actor: str = "user:7") -> RuleRun:
    return cancel_run(
        run.id, database=bench_of_three.database, clock=bench_of_three.clock, actor=actor
    )


def retry(bench_of_three: Bench, run: RuleRun) -> RuleRun:
    return retry_run(
        run.id, database=bench_of_three.database, clock=bench_of_three.clock, actor="user:7"
    )


def sweep(bench_of_three: Bench) -> None:
    sweep_rule_runs(database=bench_of_three.database, clock=bench_of_three.clock)


def kinds(bench_of_three: Bench, run: RuleRun) -> dict[str, str | None]:
    return {str(target.variant_id): target.error_type for target in bench_of_three.targets(run.id)}


def run_with_one_waiting_target(bench_of_three: Bench) -> RuleRun:
    """A run with two applied targets and one that waits for its next attempt."""
    run = bench_of_three.queued()
    bench_of_three.shop.fail_once("2", UNREACHED)
    return bench_of_three.work(run)


def test_cancelling_a_queued_run_ends_it_at_once(bench_of_three: Bench) -> None:
    run = bench_of_three.queued()
    bench_of_three.shop.called.clear()
    ended = cancel_run_by(bench_of_three, run)
    assert (ended.status, ended.targets.failed, ended.targets.cancelled, ended.success_rate) == (
        "FAILED",
        3,
        3,
        None,
    )
    assert ended.error_message == "; ".join(["The run was cancelled before the attempt"] * 3)
    assert set(kinds(bench_of_three, run).values()) == {"cancelled"}
    assert bench_of_three.moves("rule run", run.id)[1:] == [
        ("QUEUED", "APPLYING"),
        ("APPLYING", "FAILED"),
    ]
    first = bench_of_three.targets(run.id)[0]
    assert bench_of_three.moves("rule target", first.id)[1:] == [
        ("QUEUED", "APPLYING"),
        ("APPLYING", "FAILED"),
    ]
    assert (bench_of_three.work(run).status, bench_of_three.shop.called) == ("FAILED", [])
    [events] = bench_of_three.events("rule.run.ended")
    assert (events.payload["cancelledCount"], events.payload["successRate"]) == (3, None)
    assert (
        bench_of_three.run_row(run.id).cancelled_by,
        bench_of_three.run_row(run.id).lease_owner,
    ) == (
        "user:7",
        None,
    )


def test_a_cancelled_run_stops_before_its_next_call(
    bench_of_three: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench_of_three.queued()
    messages: list[RuleRun] = []
    until_stopped(
        bench_of_three, lambda: messages.append(cancel_run_by(bench_of_three, run)), monkeypatch
    )
    ended = bench_of_three.work(run)
    assert [one.status for one in messages] == ["APPLYING"]
    assert (ended.status, ended.targets.applied, ended.targets.cancelled) == ("PARTIAL", 1, 2)
    assert (ended.success_rate, bench_of_three.shop.times("write")) == (1.0, 1)
    assert bench_of_three.shop.amounts() == {"101": 900, "201": 1000, "301": 1000}
    left = bench_of_three.targets(run.id)[1]
    back_and_forth = [
        ("QUEUED", "APPLYING"),
        ("APPLYING", "QUEUED"),
        ("QUEUED", "APPLYING"),
        ("APPLYING", "FAILED"),
    ]
    assert bench_of_three.moves("rule target", left.id)[1:] == back_and_forth
    assert (left.attempts, left.is_writing, left.outcome_unknown) == (0, False, False)


def test_a_cancel_keeps_applied_targets_and_cancels_waiting_ones(bench_of_three: Bench) -> None:
    run = run_with_one_waiting_target(bench_of_three)
    ended = cancel_run_by(bench_of_three, run)
    assert (ended.status, ended.targets.applied, ended.targets.cancelled) == ("PARTIAL", 2, 1)
    assert (ended.success_rate, ended.resume_at, ended.finished_at is not None) == (1.0, None, True)
    assert bench_of_three.shop.amounts() == {"101": 900, "201": 1000, "301": 900}
    assert {check.name for check in bench_of_three.checks(run.id)} == {"5m", "1h"}


def test_real_failures_are_shown_before_cancelled_targets(
    bench_of_three: Bench,
) -> None:
    run = bench_of_three.queued()
    bench_of_three.shop.fail_once("2", UNREACHED)
    bench_of_three.shop.fail_always("3", GONE)
    bench_of_three.work(run)
    ended = cancel_run_by(bench_of_three, run)
    assert (ended.targets.applied, ended.targets.failed, ended.targets.cancelled) == (1, 2, 1)
    assert ended.success_rate == 0.5
    assert str(ended.error_message).startswith("The shop fails as the test asks (write)")


@pytest.mark.parametrize(
    ("price", "state", "kind"), [(1000, "FAILED", "cancelled"), (900, "APPLIED", None)]
)
def test_targets_of_a_lost_worker_are_read_before_they_are_cancelled(
    price: int, state: str, kind: str | None, bench_of_three: Bench
) -> None:
    run = run_with_one_waiting_target(bench_of_three)
    [waiting] = [target for target in bench_of_three.targets(run.id) if target.status == "QUEUED"]
    bench_of_three.set_target(waiting.id, status="APPLYING", is_writing=True)
    bench_of_three.shop.edit("201", amount=price)
    bench_of_three.shop.called.clear()
    requested = len(bench_of_three.requests())
    assert (cancel_run_by(bench_of_three, run).status, len(bench_of_three.requests())) == (
        "APPLYING",
        requested + 1,
    )
    ended = bench_of_three.work(run)
    found = bench_of_three.targets(run.id)[1]
    assert (found.status, found.error_type, found.outcome_unknown, found.is_writing) == (
        state,
        kind,
        False,
        False,
    )
    assert (ended.finished_at is not None, bench_of_three.shop.times("write")) == (True, 0)
    assert len(bench_of_three.changes(run.id)) == ended.targets.applied


def test_a_target_with_a_lost_answer_is_not_cancelled_as_untried(
    bench_of_three: Bench,
) -> None:
    run = bench_of_three.queued()
    bench_of_three.shop.lose_answer_once("2")
    assert bench_of_three.work(run).status == "APPLYING"
    assert cancel_run_by(bench_of_three, run).status == "APPLYING"
    ended = bench_of_three.work(run)
    assert (ended.status, ended.targets.applied, bench_of_three.shop.times_written("201")) == (
        "APPLIED",
        3,
        1,
    )


def test_a_second_cancellation_changes_nothing(bench_of_three: Bench) -> None:
    run = bench_of_three.queued()
    bench_of_three.hold_again(run.id)
    first = cancel_run_by(bench_of_three, run, "user:7")
    bench_of_three.pass_minutes(1)
    again = cancel_run_by(bench_of_three, run, "user:8")
    assert (again.status, again.cancel_requested_at) == ("QUEUED", first.cancel_requested_at)
    assert bench_of_three.run_row(run.id).cancelled_by == "user:7"
    bench_of_three.expire_hold(run.id)
    assert cancel_run_by(bench_of_three, run, "user:9").status == "FAILED"


def test_a_cancelled_request_is_not_planned(bench_of_three: Bench) -> None:
    requested = bench_of_three.asked_for(bench_of_three.rule())
    for _ in range(2):
        cancelled = cancel_run_by(bench_of_three, bench_of_three.run(requested))
        assert (cancelled.status, cancelled.wish) == ("PREVIEW", None)
    assert (bench_of_three.work_id(requested).status, bench_of_three.shop.called) == ("PREVIEW", [])
    with pytest.raises(ConflictError, match="was cancelled"):
        bench_of_three.queue(bench_of_three.run(requested))


def test_a_cancelled_retry_may_be_requested_again(
    bench_of_three: Bench,
) -> None:
    run = run_with_one_waiting_target(bench_of_three)
    cancel_run_by(bench_of_three, run)
    retry(bench_of_three, run)
    cancelled = cancel_run_by(bench_of_three, run)
    assert (cancelled.status, cancelled.wish) == ("PARTIAL", None)
    assert [target.is_wished for target in bench_of_three.targets(run.id)] == [False] * 3
    bench_of_three.shop.called.clear()
    assert (bench_of_three.work(run).status, bench_of_three.shop.called) == ("PARTIAL", [])
    retry(bench_of_three, run)
    assert bench_of_three.work(run).status == "APPLIED"


def test_cancelling_a_rollback_frees_the_variants_of_its_lost_worker(
    bench_of_three: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench_of_three.work(bench_of_three.queued())
    roll_back_run(
        run.id, database=bench_of_three.database, clock=bench_of_three.clock, actor="user:7"
    )

    class LostError(Exception):
        """Simulates the death of the worker process."""

    def raise_lost(*_given: object) -> None:
        raise LostError

    with monkeypatch.context() as patch:
        patch.setattr(worker, "save_rollback_outcomes", raise_lost)
        with pytest.raises(LostError):
            bench_of_three.work(run)
    bench_of_three.hold_again(run.id)
    assert cancel_run_by(bench_of_three, run).wish is None
    other = bench_of_three.queued(bench_of_three.rule(name="Other", onDrift="overwrite"))
    sweep(bench_of_three)
    assert bench_of_three.work(other).status == "APPLYING"
    bench_of_three.expire_hold(run.id)
    sweep(bench_of_three)
    bench_of_three.make_due(other.id)
    assert bench_of_three.work(other).status == "APPLIED"


def test_cancelled_targets_may_be_retried(bench_of_three: Bench) -> None:
    run = bench_of_three.queued()
    cancel_run_by(bench_of_three, run)
    requested = retry(bench_of_three, run)
    assert (requested.wish, requested.cancel_requested_at) == ("retry", None)
    ended = bench_of_three.work(run)
    assert (ended.status, ended.success_rate, ended.targets.applied) == ("APPLIED", 1.0, 3)


def test_a_preview_and_an_ended_run_cannot_be_cancelled(
    bench_of_three: Bench,
) -> None:
    preview = bench_of_three.previewed()
    with pytest.raises(
        ConflictError, match=f"Run {preview.id} is a preview without a request to apply it"
    ):
        cancel_run_by(bench_of_three, preview)
    ended = bench_of_three.work(bench_of_three.queue(preview))
    with pytest.raises(
        ConflictError, match=f"Run {ended.id} is APPLIED: there is nothing to cancel"
    ):
        cancel_run_by(bench_of_three, ended)
    assert bench_of_three.run_row(ended.id).cancel_requested_at is None
    with pytest.raises(NotFoundError):
        cancel_run(99, database=bench_of_three.database, clock=bench_of_three.clock, actor="user:7")
