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
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import FakeShop, product_variants
from automation_pipeline_tests.pricing.harness import (
    APPROVER,
    CREATOR,
    PricingHarness,
    stop_during_first_write,
)
from automation_pipeline_tests.pricing.rows import (
    change_run,
    make_rule,
    make_run,
    requested_run,
    run_row,
    run_rows,
    start_due_or_request,
    stored_requests,
)
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes

HOUR = timedelta(hours=1)


def test_a_requested_run_is_stored_with_a_worker_request(
    database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock)
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
    clock: FakeClock,
) -> None:
    rule, other = make_rule(database, clock), make_rule(database, clock)
    run_id = make_run(database, rule, status, clock.now(), wish=requested)
    with pytest.raises(
        ConflictError, match=f"Run {run_id} of pricing rule {rule.id} {words}: wait for its end"
    ):
        requested_run(rule, database, clock, force=force)
    assert len(run_rows(database)) == 1
    assert stored_requests(database) == []
    requested_run(other, database, clock)


def test_previews_and_cancelled_requests_block_no_run(database: Database, clock: FakeClock) -> None:
    rule = make_rule(database, clock)
    make_run(database, rule, "PREVIEW", clock.now())
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
    status: str, ago: timedelta, *, has_cooldown: bool, database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, cooldownMinutes=60)
    make_run(database, rule, status, clock.now() - ago)
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


def test_a_disabled_or_deleted_rule_is_not_run(database: Database, clock: FakeClock) -> None:
    disabled, gone = make_rule(database, clock, enabled=False), make_rule(database, clock)
    delete_rule(gone.id, database=database, clock=clock, actor="user:12")
    with pytest.raises(
        ConflictError, match=f"Pricing rule {disabled.id} is disabled: enable it first"
    ):
        requested_run(disabled, database, clock, force=True)
    with pytest.raises(NotFoundError, match=f"Pricing rule {gone.id} not found"):
        requested_run(gone, database, clock)
    assert run_rows(database) == []


def test_one_of_several_concurrent_requests_creates_a_run(
    database: Database, database_url: str, clock: FakeClock
) -> None:
    rule = make_rule(database, clock)
    now = f"{clock.now():%Y-%m-%dT%H:%M}"
    assert sorted(
        run_in_processes(start_due_or_request, *[(database_url, now, rule.id)] * PROCESS_COUNT)
    ) == [0] * (PROCESS_COUNT - 1) + [1]
    assert len(run_rows(database)) == len(stored_requests(database)) == 1


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(database, clock, FakeShop(*product_variants(1)))


def test_an_approval_stores_who_and_when(harness: PricingHarness) -> None:
    harness.set_policy()
    run = harness.previewed_run()
    harness.pass_minutes(1)
    approved = harness.approve(run)
    assert (approved.approved_by, approved.approved_at) == (APPROVER, harness.clock.now())


def test_a_repeated_approval_changes_nothing(harness: PricingHarness) -> None:
    first = harness.approve(harness.previewed_run())
    harness.pass_minutes(1)
    assert harness.approve(first) == first


def test_a_second_approver_is_refused(harness: PricingHarness) -> None:
    run = harness.approve(harness.previewed_run())
    with pytest.raises(ConflictError, match="was approved by user:2 already"):
        harness.approve(run, actor="user:3")
    assert harness.run(run.id).approved_by == APPROVER


def test_the_creator_cannot_approve_when_a_second_person_is_required(
    harness: PricingHarness,
) -> None:
    harness.set_policy()
    with pytest.raises(ConflictError, match="approved by a person other than its creator"):
        harness.approve(harness.previewed_run(), actor=CREATOR)


def previewed_by_another(harness: PricingHarness) -> RuleRun:
    return harness.previewed_run(actor="user:3")


def requested_in_dagster(harness: PricingHarness) -> RuleRun:
    run = harness.plan(harness.request_run(harness.rule()))
    harness.set_run(run.id, created_by="launchpad")
    return run


def scheduled(harness: PricingHarness) -> RuleRun:
    return harness.plan(harness.scheduled_run(harness.rule()))


@pytest.mark.parametrize("created", [previewed_by_another, requested_in_dagster, scheduled])
def test_the_author_of_the_rule_cannot_approve_a_run_of_another_person(
    created: Callable[[PricingHarness], RuleRun], harness: PricingHarness
) -> None:
    harness.set_policy()
    run = created(harness)
    with pytest.raises(
        ConflictError, match="approved by a person other than the author of its rule"
    ):
        harness.approve(run, actor=CREATOR)
    assert harness.run(run.id).approved_by is None
    assert harness.approve(run).approved_by == APPROVER


def test_the_author_is_that_of_the_rule_version_of_the_run(harness: PricingHarness) -> None:
    harness.set_policy()
    rule = harness.rule()
    change = {"transform": {"op": "percent", "value": -20}}
    update_rule(rule.id, change, database=harness.database, clock=harness.clock, actor=APPROVER)
    run = harness.previewed_run(rule, actor="user:3")
    with pytest.raises(ConflictError, match="the author of its rule"):
        harness.approve(run)
    assert harness.approve(run, actor=CREATOR).approved_by == CREATOR


def test_another_person_replaces_an_approval_by_the_author_when_required(
    harness: PricingHarness,
) -> None:
    run = harness.approve(previewed_by_another(harness), actor=CREATOR)
    harness.set_policy()
    assert harness.approve(run).approved_by == APPROVER


@pytest.mark.parametrize("policy", [None, {"autoApply": True}])
def test_the_creator_may_approve_when_no_approval_is_required(
    policy: dict[str, object] | None, harness: PricingHarness
) -> None:
    if policy:
        harness.set_policy(**policy)
    assert harness.approve(harness.previewed_run(), actor=CREATOR).approved_by == CREATOR


def test_another_person_replaces_an_approval_by_the_creator_when_required(
    harness: PricingHarness,
) -> None:
    run = harness.approve(harness.previewed_run(), actor=CREATOR)
    harness.set_policy()
    assert harness.approve(run).approved_by == APPROVER


def test_only_a_planned_preview_can_be_approved(harness: PricingHarness) -> None:
    run = harness.run(harness.request_run(harness.rule()))
    with pytest.raises(ConflictError, match="is not planned yet"):
        harness.approve(run)
    queued = harness.queued_run()
    with pytest.raises(ConflictError, match="is QUEUED: only a preview can be approved"):
        harness.approve(queued)
    cancelled = harness.previewed_run()
    harness.set_run(cancelled.id, cancel_requested_at=harness.clock.now())
    with pytest.raises(ConflictError, match="was cancelled"):
        harness.approve(cancelled)
    with pytest.raises(NotFoundError, match="Rule run 99 not found"):
        approve_run(99, database=harness.database, clock=harness.clock, actor="user:2")


@pytest.fixture
def two_product_harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(database, clock, FakeShop(*product_variants(2, 2)))


def prices(harness: PricingHarness, run: RuleRun) -> list[tuple[object, ...]]:
    return [
        (row.id, row.variant_id, row.before_json, row.after_json) for row in harness.targets(run.id)
    ]


def rule_of(harness: PricingHarness, run: RuleRun) -> PricingRule:
    with harness.database.reading() as session:
        return get_rule(session, run.rule_id)


def change(harness: PricingHarness, run: RuleRun, **fields: object) -> None:
    update_rule(
        run.rule_id,
        fields,
        database=harness.database,
        clock=harness.clock,
        actor="user:1",
    )


def test_a_queued_run_has_the_previewed_targets(two_product_harness: PricingHarness) -> None:
    run = two_product_harness.previewed_run()
    seen = prices(two_product_harness, run)
    change(two_product_harness, run, name="Another name")
    two_product_harness.shop.edit("101", amount=1)
    queued = two_product_harness.queue(run, actor="user:3")
    assert prices(two_product_harness, queued) == seen
    assert (queued.status, queued.queued_at, queued.targets.queued) == (
        PricingRunState.QUEUED,
        two_product_harness.clock.now(),
        4,
    )
    assert two_product_harness.run_row(run.id).queued_by == "user:3"


def test_queueing_logs_transitions_and_requests_a_worker(
    two_product_harness: PricingHarness,
) -> None:
    run = two_product_harness.queued_run()
    assert two_product_harness.transitions("rule run", run.id) == [("PREVIEW", "QUEUED")]
    assert [
        two_product_harness.transitions("rule target", row.id)
        for row in two_product_harness.targets(run.id)
    ] == [[("PREVIEW", "QUEUED")]] * 4
    assert two_product_harness.requests() == [(f"rule-run-{run.id}-1", {"run_id": run.id})]
    (event,) = two_product_harness.events("rule.apply.queued")
    assert event.correlation_id == f"rule-run-{run.id}"
    assert event.payload == {
        "runId": str(run.id),
        "ruleId": str(run.rule_id),
        "projectId": "default",
        "targets": 4,
        "queuedBy": CREATOR,
    }


def test_queueing_clears_the_request(
    two_product_harness: PricingHarness,
) -> None:
    run = two_product_harness.plan(two_product_harness.request_run(two_product_harness.rule()))
    assert two_product_harness.queue(run).wish is None


def disable(harness: PricingHarness, run: RuleRun) -> None:
    change(harness, run, enabled=False)


def delete(harness: PricingHarness, run: RuleRun) -> None:
    delete_rule(run.rule_id, database=harness.database, clock=harness.clock, actor="user:1")


def reprice(harness: PricingHarness, run: RuleRun) -> None:
    change(harness, run, transform={"op": "percent", "value": -20})


def make_preview_stale(harness: PricingHarness, _run: RuleRun) -> None:
    harness.clock.advance(timedelta(minutes=15, microseconds=1))


def require_approval(harness: PricingHarness, _run: RuleRun) -> None:
    harness.set_policy()


def approve_as_creator_then_require_approval(harness: PricingHarness, run: RuleRun) -> None:
    harness.approve(run, actor=CREATOR)
    harness.set_policy()


def approve_as_author_then_require_approval(harness: PricingHarness, run: RuleRun) -> None:
    """The author of the rule approved a scheduled run before the project required an approval."""
    harness.set_run(run.id, created_by="schedule")
    approve_as_creator_then_require_approval(harness, run)


def queue(harness: PricingHarness, run: RuleRun) -> None:
    harness.queue(run)


def cancel(harness: PricingHarness, run: RuleRun) -> None:
    harness.set_run(run.id, cancel_requested_at=harness.clock.now())


def remove_plan(harness: PricingHarness, run: RuleRun) -> None:
    harness.set_run(run.id, previewed_at=None)


def queue_another(harness: PricingHarness, run: RuleRun) -> None:
    other = harness.previewed_run(rule_of(harness, run))
    harness.queue(other)


def apply_another(harness: PricingHarness, run: RuleRun) -> None:
    """Apply another run of the rule a minute ago, with a cooldown of an hour."""
    change(harness, run, cooldownMinutes=60)
    now = harness.clock.now() - timedelta(minutes=1)
    other = harness.previewed_run(rule_of(harness, run))
    times = dict.fromkeys(("queued_at", "started_at", "finished_at"), now)
    harness.set_run(other.id, status="APPLIED", **times)


def end_its_promotion(harness: PricingHarness, run: RuleRun) -> None:
    change(harness, run, endsAt=iso(harness.clock.now()))


def request_a_retry_of_another(harness: PricingHarness, run: RuleRun) -> None:
    other = harness.previewed_run(rule_of(harness, run))
    times = dict.fromkeys(("queued_at", "started_at", "finished_at"), harness.clock.now())
    harness.set_run(other.id, status="PARTIAL", wish="retry", **times)


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
    obstacle: Callable[[PricingHarness, RuleRun], None],
    words: str,
    two_product_harness: PricingHarness,
) -> None:
    run = two_product_harness.previewed_run()
    obstacle(two_product_harness, run)
    before = (
        two_product_harness.run(run.id),
        two_product_harness.statuses(run.id),
        two_product_harness.requests(),
        two_product_harness.events(),
    )
    with pytest.raises(ConflictError, match=words):
        two_product_harness.queue(run)
    assert (
        two_product_harness.run(run.id),
        two_product_harness.statuses(run.id),
        two_product_harness.requests(),
        two_product_harness.events(),
    ) == before


def test_a_preview_of_exactly_fifteen_minutes_can_be_queued(
    two_product_harness: PricingHarness,
) -> None:
    run = two_product_harness.previewed_run()
    two_product_harness.pass_minutes(15)
    assert two_product_harness.queue(run).status is PricingRunState.QUEUED


def test_a_run_approved_by_a_second_person_can_be_queued(
    two_product_harness: PricingHarness,
) -> None:
    two_product_harness.set_policy()
    run = two_product_harness.approve(two_product_harness.previewed_run())
    assert two_product_harness.queue(run).approved_by == APPROVER


def test_a_project_with_auto_apply_needs_no_approval(two_product_harness: PricingHarness) -> None:
    two_product_harness.set_policy(autoApply=True)
    assert two_product_harness.queued_run().status is PricingRunState.QUEUED


def test_force_skips_only_the_cooldown(two_product_harness: PricingHarness) -> None:
    run = two_product_harness.previewed_run()
    apply_another(two_product_harness, run)
    disable(two_product_harness, run)
    with pytest.raises(ConflictError, match="is disabled"):
        two_product_harness.queue(run, force=True)
    change(two_product_harness, run, enabled=True)
    assert two_product_harness.queue(run, force=True).status is PricingRunState.QUEUED


def test_a_forced_request_skips_the_cooldown(two_product_harness: PricingHarness) -> None:
    rule = two_product_harness.rule(cooldownMinutes=60)
    other = two_product_harness.previewed_run(rule)
    times = dict.fromkeys(
        ("queued_at", "started_at", "finished_at"), two_product_harness.clock.now()
    )
    two_product_harness.set_run(other.id, status="APPLIED", **times)
    run = two_product_harness.plan(two_product_harness.request_run(rule, force=True))
    assert two_product_harness.queue(run).status is PricingRunState.QUEUED


@pytest.mark.parametrize("change_rule", [reprice, end_its_promotion])
def test_a_repair_can_be_queued_after_a_change_of_the_rule(
    change_rule: Callable[[PricingHarness, RuleRun], None], two_product_harness: PricingHarness
) -> None:
    run = two_product_harness.previewed_run()
    two_product_harness.set_run(run.id, trigger=RuleTrigger.REPAIR.value)
    change_rule(two_product_harness, run)
    assert two_product_harness.queue(run).status is PricingRunState.QUEUED


def test_a_repair_also_becomes_stale(two_product_harness: PricingHarness) -> None:
    run = two_product_harness.previewed_run()
    two_product_harness.set_run(run.id, trigger=RuleTrigger.REPAIR.value)
    make_preview_stale(two_product_harness, run)
    with pytest.raises(ConflictError, match="older than 15 minutes"):
        two_product_harness.queue(run)


def test_only_a_scheduled_run_may_have_no_targets(two_product_harness: PricingHarness) -> None:
    rule = two_product_harness.rule(selector={"sku": "nowhere"})
    with pytest.raises(InvalidInputError, match="nothing to apply: no price would change"):
        two_product_harness.queued_run(rule)
    empty = two_product_harness.plan(
        two_product_harness.request_run(rule, trigger=RuleTrigger.SCHEDULE)
    )
    assert two_product_harness.queue(empty).status is PricingRunState.QUEUED


def test_an_unknown_run_is_not_found(two_product_harness: PricingHarness) -> None:
    with pytest.raises(NotFoundError, match="Rule run 99 not found"):
        queue_run(
            99,
            database=two_product_harness.database,
            clock=two_product_harness.clock,
            actor="user:1",
        )


def outcome(run_id: int, database: Database, clock: Clock) -> str:
    try:
        return queue_run(run_id, database=database, clock=clock, actor="user:1").status
    except ConflictError as refusal:
        return str(refusal)


def test_one_of_many_concurrent_calls_queues_the_preview(
    two_product_harness: PricingHarness,
) -> None:
    run = two_product_harness.previewed_run()
    with ThreadPoolExecutor(4) as pool:
        result = list(
            pool.map(
                lambda _: outcome(run.id, two_product_harness.database, two_product_harness.clock),
                range(4),
            )
        )
    refusal = f"Rule run {run.id} is QUEUED: only a preview can be approved or queued."
    assert sorted(result) == sorted(["QUEUED", *[refusal] * 3])
    assert two_product_harness.transitions("rule run", run.id) == [("PREVIEW", "QUEUED")]
    assert len(two_product_harness.requests()) == 1


def queue_in_process(url: str, run_id: int, clock: FakeClock) -> str:
    database = Database(url)
    try:
        return outcome(run_id, database, clock)
    finally:
        database.dispose()


def test_one_of_several_concurrently_queued_previews_of_a_rule_is_queued(
    two_product_harness: PricingHarness, database_url: str
) -> None:
    rule = two_product_harness.rule()
    runs = [two_product_harness.previewed_run(rule) for _ in range(PROCESS_COUNT)]
    result = run_in_processes(
        queue_in_process, *((database_url, run.id, two_product_harness.clock) for run in runs)
    )
    refusal = f"Another run of rule {rule.id} is queued or being applied."
    assert sorted(result) == sorted(["QUEUED", *[refusal] * (PROCESS_COUNT - 1)])
    assert sorted(two_product_harness.run(run.id).status for run in runs) == ["PREVIEW"] * (
        PROCESS_COUNT - 1
    ) + ["QUEUED"]


# A call that never reached the shop is known to have written nothing.
UNREACHED, GONE = FailureSignal(code="ECONNREFUSED"), FailureSignal(status=404)


@pytest.fixture
def three_product_harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(
        database,
        clock,
        FakeShop(*product_variants(3)),
        {"longest_pause_seconds": 0.0, "calls_at_once": 1},
    )


def cancel_run_by(harness: PricingHarness, run: RuleRun, actor: str = "user:7") -> RuleRun:
    return cancel_run(run.id, database=harness.database, clock=harness.clock, actor=actor)


def retry(harness: PricingHarness, run: RuleRun) -> RuleRun:
    return retry_run(run.id, database=harness.database, clock=harness.clock, actor="user:7")


def sweep(harness: PricingHarness) -> None:
    sweep_rule_runs(database=harness.database, clock=harness.clock)


def kinds(harness: PricingHarness, run: RuleRun) -> dict[str, str | None]:
    return {str(target.variant_id): target.error_type for target in harness.targets(run.id)}


def run_with_one_waiting_target(harness: PricingHarness) -> RuleRun:
    """A run with two applied targets and one that waits for its next attempt."""
    run = harness.queued_run()
    harness.shop.fail_once("2", UNREACHED)
    return harness.work(run)


def test_cancelling_a_queued_run_ends_it_at_once(three_product_harness: PricingHarness) -> None:
    run = three_product_harness.queued_run()
    three_product_harness.shop.calls.clear()
    ended = cancel_run_by(three_product_harness, run)
    assert (ended.status, ended.targets.failed, ended.targets.cancelled, ended.success_rate) == (
        "FAILED",
        3,
        3,
        None,
    )
    assert ended.error_message == "; ".join(["The run was cancelled before the attempt"] * 3)
    assert set(kinds(three_product_harness, run).values()) == {"cancelled"}
    assert three_product_harness.transitions("rule run", run.id)[1:] == [
        ("QUEUED", "APPLYING"),
        ("APPLYING", "FAILED"),
    ]
    first = three_product_harness.targets(run.id)[0]
    assert three_product_harness.transitions("rule target", first.id)[1:] == [
        ("QUEUED", "APPLYING"),
        ("APPLYING", "FAILED"),
    ]
    assert (three_product_harness.work(run).status, three_product_harness.shop.calls) == (
        "FAILED",
        [],
    )
    [events] = three_product_harness.events("rule.run.ended")
    assert (events.payload["cancelledCount"], events.payload["successRate"]) == (3, None)
    assert (
        three_product_harness.run_row(run.id).cancelled_by,
        three_product_harness.run_row(run.id).lease_owner,
    ) == (
        "user:7",
        None,
    )


def test_a_cancelled_run_stops_before_its_next_call(
    three_product_harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = three_product_harness.queued_run()
    cancelled_runs: list[RuleRun] = []
    stop_during_first_write(
        three_product_harness,
        lambda: cancelled_runs.append(cancel_run_by(three_product_harness, run)),
        monkeypatch,
    )
    ended = three_product_harness.work(run)
    assert [one.status for one in cancelled_runs] == ["APPLYING"]
    assert (ended.status, ended.targets.applied, ended.targets.cancelled) == ("PARTIAL", 1, 2)
    assert (ended.success_rate, three_product_harness.shop.call_count("write")) == (1.0, 1)
    assert three_product_harness.shop.amounts() == {"101": 900, "201": 1000, "301": 1000}
    left = three_product_harness.targets(run.id)[1]
    back_and_forth = [
        ("QUEUED", "APPLYING"),
        ("APPLYING", "QUEUED"),
        ("QUEUED", "APPLYING"),
        ("APPLYING", "FAILED"),
    ]
    assert three_product_harness.transitions("rule target", left.id)[1:] == back_and_forth
    assert (left.attempts, left.is_writing, left.outcome_unknown) == (0, False, False)


def test_a_cancel_keeps_applied_targets_and_cancels_waiting_ones(
    three_product_harness: PricingHarness,
) -> None:
    run = run_with_one_waiting_target(three_product_harness)
    ended = cancel_run_by(three_product_harness, run)
    assert (ended.status, ended.targets.applied, ended.targets.cancelled) == ("PARTIAL", 2, 1)
    assert (ended.success_rate, ended.resume_at, ended.finished_at is not None) == (1.0, None, True)
    assert three_product_harness.shop.amounts() == {"101": 900, "201": 1000, "301": 900}
    assert {check.name for check in three_product_harness.checks(run.id)} == {"5m", "1h"}


def test_real_failures_are_shown_before_cancelled_targets(
    three_product_harness: PricingHarness,
) -> None:
    run = three_product_harness.queued_run()
    three_product_harness.shop.fail_once("2", UNREACHED)
    three_product_harness.shop.fail_always("3", GONE)
    three_product_harness.work(run)
    ended = cancel_run_by(three_product_harness, run)
    assert (ended.targets.applied, ended.targets.failed, ended.targets.cancelled) == (1, 2, 1)
    assert ended.success_rate == 0.5
    assert str(ended.error_message).startswith("The shop fails as the test specifies (write)")


@pytest.mark.parametrize(
    ("price", "state", "kind"), [(1000, "FAILED", "cancelled"), (900, "APPLIED", None)]
)
def test_targets_of_a_lost_worker_are_read_before_they_are_cancelled(
    price: int, state: str, kind: str | None, three_product_harness: PricingHarness
) -> None:
    run = run_with_one_waiting_target(three_product_harness)
    [waiting] = [
        target for target in three_product_harness.targets(run.id) if target.status == "QUEUED"
    ]
    three_product_harness.set_target(waiting.id, status="APPLYING", is_writing=True)
    three_product_harness.shop.edit("201", amount=price)
    three_product_harness.shop.calls.clear()
    requested = len(three_product_harness.requests())
    assert (
        cancel_run_by(three_product_harness, run).status,
        len(three_product_harness.requests()),
    ) == (
        "APPLYING",
        requested + 1,
    )
    ended = three_product_harness.work(run)
    found = three_product_harness.targets(run.id)[1]
    assert (found.status, found.error_type, found.outcome_unknown, found.is_writing) == (
        state,
        kind,
        False,
        False,
    )
    assert (ended.finished_at is not None, three_product_harness.shop.call_count("write")) == (
        True,
        0,
    )
    assert len(three_product_harness.changes(run.id)) == ended.targets.applied


def test_a_target_with_a_lost_answer_is_not_cancelled_as_untried(
    three_product_harness: PricingHarness,
) -> None:
    run = three_product_harness.queued_run()
    three_product_harness.shop.lose_answer_once("2")
    assert three_product_harness.work(run).status == "APPLYING"
    assert cancel_run_by(three_product_harness, run).status == "APPLYING"
    ended = three_product_harness.work(run)
    assert (
        ended.status,
        ended.targets.applied,
        three_product_harness.shop.write_count("201"),
    ) == (
        "APPLIED",
        3,
        1,
    )


def test_the_error_of_a_run_lists_at_most_ten_failures(
    three_product_harness: PricingHarness,
) -> None:
    three_product_harness.shop.add(*product_variants(12))
    ended = cancel_run_by(three_product_harness, three_product_harness.queued_run())
    assert (ended.targets.failed, str(ended.error_message).count("; ")) == (12, 9)


def test_a_second_cancellation_changes_nothing(three_product_harness: PricingHarness) -> None:
    run = three_product_harness.queued_run()
    three_product_harness.renew_claim(run.id)
    first = cancel_run_by(three_product_harness, run, "user:7")
    three_product_harness.pass_minutes(1)
    again = cancel_run_by(three_product_harness, run, "user:8")
    assert (again.status, again.cancel_requested_at) == ("QUEUED", first.cancel_requested_at)
    assert three_product_harness.run_row(run.id).cancelled_by == "user:7"
    three_product_harness.expire_claim(run.id)
    assert cancel_run_by(three_product_harness, run, "user:9").status == "FAILED"


def test_a_cancelled_request_is_not_planned(three_product_harness: PricingHarness) -> None:
    requested = three_product_harness.request_run(three_product_harness.rule())
    for _ in range(2):
        cancelled = cancel_run_by(three_product_harness, three_product_harness.run(requested))
        assert (cancelled.status, cancelled.wish) == ("PREVIEW", None)
    assert (three_product_harness.work_id(requested).status, three_product_harness.shop.calls) == (
        "PREVIEW",
        [],
    )
    with pytest.raises(ConflictError, match="was cancelled"):
        three_product_harness.queue(three_product_harness.run(requested))


def test_a_cancelled_retry_may_be_requested_again(
    three_product_harness: PricingHarness,
) -> None:
    run = run_with_one_waiting_target(three_product_harness)
    cancel_run_by(three_product_harness, run)
    retry(three_product_harness, run)
    cancelled = cancel_run_by(three_product_harness, run)
    assert (cancelled.status, cancelled.wish) == ("PARTIAL", None)
    assert [target.is_wished for target in three_product_harness.targets(run.id)] == [False] * 3
    three_product_harness.shop.calls.clear()
    assert (three_product_harness.work(run).status, three_product_harness.shop.calls) == (
        "PARTIAL",
        [],
    )
    retry(three_product_harness, run)
    assert three_product_harness.work(run).status == "APPLIED"


def test_cancelling_a_rollback_frees_the_variants_of_its_lost_worker(
    three_product_harness: PricingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = three_product_harness.work(three_product_harness.queued_run())
    roll_back_run(
        run.id,
        database=three_product_harness.database,
        clock=three_product_harness.clock,
        actor="user:7",
    )

    class LostError(Exception):
        """Simulates the death of the worker process."""

    def raise_lost(*_given: object) -> None:
        raise LostError

    with monkeypatch.context() as patch:
        patch.setattr(worker, "save_rollback_outcomes", raise_lost)
        with pytest.raises(LostError):
            three_product_harness.work(run)
    three_product_harness.renew_claim(run.id)
    assert cancel_run_by(three_product_harness, run).wish is None
    other = three_product_harness.queued_run(
        three_product_harness.rule(name="Other", onDrift="overwrite")
    )
    sweep(three_product_harness)
    assert three_product_harness.work(other).status == "APPLYING"
    three_product_harness.expire_claim(run.id)
    sweep(three_product_harness)
    three_product_harness.make_due(other.id)
    assert three_product_harness.work(other).status == "APPLIED"


def test_cancelled_targets_may_be_retried(three_product_harness: PricingHarness) -> None:
    run = three_product_harness.queued_run()
    cancel_run_by(three_product_harness, run)
    requested = retry(three_product_harness, run)
    assert (requested.wish, requested.cancel_requested_at) == ("retry", None)
    ended = three_product_harness.work(run)
    assert (ended.status, ended.success_rate, ended.targets.applied) == ("APPLIED", 1.0, 3)


def test_a_preview_and_an_ended_run_cannot_be_cancelled(
    three_product_harness: PricingHarness,
) -> None:
    preview = three_product_harness.previewed_run()
    with pytest.raises(
        ConflictError, match=f"Run {preview.id} is a preview without a request to apply it"
    ):
        cancel_run_by(three_product_harness, preview)
    ended = three_product_harness.work(three_product_harness.queue(preview))
    with pytest.raises(
        ConflictError, match=f"Run {ended.id} is APPLIED: there is nothing to cancel"
    ):
        cancel_run_by(three_product_harness, ended)
    assert three_product_harness.run_row(ended.id).cancel_requested_at is None
    with pytest.raises(NotFoundError):
        cancel_run(
            99,
            database=three_product_harness.database,
            clock=three_product_harness.clock,
            actor="user:7",
        )
