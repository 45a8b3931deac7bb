"""Create, claim, request and read runs."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, update

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.core.logs import correlated
from automation_pipeline.pricing.models.runs import (
    LostRunClaimError,
    PricingRunState,
    RuleRunFilter,
    RuleTrigger,
    RunAction,
    TargetCounts,
    TargetState,
)
from automation_pipeline.pricing.queries.runs import (
    NewRun,
    RunClaim,
    active_run_of,
    add_run,
    add_runs,
    blocking_reason,
    claim_run,
    claimed_run,
    extend_claim,
    file_run_requests,
    get_run,
    last_applied_at,
    list_runs,
    open_runs_of,
    release_claim,
    result_of,
    runs_by_id,
    seconds_until_free,
    skipped_of,
    targets_of,
    transitions_of,
)
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import filed_requests
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import FakeShop, product_variants, variant
from automation_pipeline_tests.pricing.harness import PricingHarness
from automation_pipeline_tests.pricing.processes import try_claim as try_claim_in_process
from automation_pipeline_tests.pricing.rows import (
    SHOP,
    make_rule,
    make_run,
    run_row,
    stored_requests,
)
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes


def test_a_new_run_has_the_current_version_of_its_rule(
    database: Database, clock: FakeClock
) -> None:
    rule = make_rule(database, clock, project_id="eu")
    with correlated("abc"), database.transaction() as session:
        new = NewRun(rule=rule, shop=SHOP, trigger=RuleTrigger.CLI, actor="cli:me")
        id_ = add_run(session, new, clock.now())
    row = run_row(database, id_)
    assert (row.status, row.wish, row.wished_by, row.trigger, row.shop) == (
        "PREVIEW",
        None,
        None,
        "cli",
        SHOP,
    )
    assert (row.project_id, row.rule_id, row.rule_version, row.rule_version_hash) == (
        "eu",
        rule.id,
        1,
        rule.version_hash,
    )
    assert row.run_metadata == {
        "actor": "cli:me",
        "correlationId": "abc",
        "source": "cli",
        "force": False,
    }
    assert (row.created_by, row.created_at, row.updated_at) == ("cli:me", clock.now(), clock.now())
    assert (row.requests, row.retry_cycle, row.lease_token, row.rollback_state) == (0, 0, 0, "NONE")
    assert stored_requests(database) == []


def test_a_new_run_keeps_its_request_scheduled_time_and_parent(
    database: Database, clock: FakeClock
) -> None:
    rule, at = make_rule(database, clock), clock.now() - timedelta(hours=1)
    with database.transaction() as session:
        new = NewRun(rule=rule, shop=SHOP, trigger=RuleTrigger.REPAIR, actor="user:1")
        parent = add_run(session, new, clock.now())
        more = replace(
            new, wish=RunAction.APPLY, scheduled_for=at, parent_run_id=parent, force=True
        )
        child = add_run(session, more, clock.now())
    row = run_row(database, child)
    assert (row.wish, row.wished_by, row.scheduled_for, row.parent_run_id) == (
        "apply",
        "user:1",
        at,
        parent,
    )
    assert row.run_metadata is not None
    assert (row.run_metadata["force"], row.run_metadata["correlationId"]) == (True, None)


def test_worker_requests_of_a_run_are_numbered(database: Database, clock: FakeClock) -> None:
    rule = make_rule(database, clock)
    with database.transaction() as session:
        new = NewRun(rule=rule, shop=SHOP, trigger=RuleTrigger.API, actor="user:1")
        id_ = add_run(session, new, clock.now())
        keys = [file_run_requests(session, [id_], clock.now())[id_] for _ in range(3)]
        requests = filed_requests(session, keys)
    assert keys == [f"rule-run-{id_}-{number}" for number in (1, 2, 3)]
    assert stored_requests(database) == [(key, "rule_run", {"run_id": id_}) for key in keys]
    tags = {"pricing/run_id": str(id_), "pricing/rule_id": str(rule.id)}
    assert [dict(request.tags) for request in requests] == [tags] * 3
    assert run_row(database, id_).requests == 3


def test_a_rule_gets_one_run_per_scheduled_time(database: Database, clock: FakeClock) -> None:
    rules = [make_rule(database, clock) for _ in range(3)]

    def scheduled(at: timedelta) -> list[NewRun]:
        due_at = clock.now() + at
        return [
            NewRun(
                rule=rule,
                shop=SHOP,
                trigger=RuleTrigger.SCHEDULE,
                actor="schedule",
                scheduled_for=due_at,
            )
            for rule in rules
        ]

    with database.transaction() as session:
        first = add_runs(session, scheduled(timedelta(0))[:2], clock.now())
        second = add_runs(session, scheduled(timedelta(0)), clock.now())
        third = add_runs(session, scheduled(timedelta(hours=1)), clock.now())
        assert add_runs(session, [], clock.now()) == {}
        assert file_run_requests(session, [], clock.now()) == {}
        assert file_run_requests(session, [9999], clock.now()) == {}
    assert (set(first), set(second), set(third)) == (
        {rules[0].id, rules[1].id},
        {rules[2].id},
        {rule.id for rule in rules},
    )
    assert len({*first.values(), *second.values(), *third.values()}) == 6


@pytest.fixture
def run_id(database: Database, clock: Clock) -> int:
    return make_run(database, make_rule(database, clock), "QUEUED", clock.now())


def try_claim(database: Database, run_id: int, owner: str = "one") -> RunClaim | None:
    with database.transaction() as session:
        return claim_run(session, run_id, owner, 60.0)


def expire(database: Database, run_id: int) -> None:
    with database.transaction() as session:
        session.execute(
            update(RuleRunRow).where(RuleRunRow.id == run_id).values(lease_until=database_now(-1.0))
        )


def test_one_of_several_concurrent_processes_claims_a_run(
    database: Database, database_url: str, run_id: int
) -> None:
    tokens = run_in_processes(
        try_claim_in_process,
        *[(database_url, run_id, str(number)) for number in range(PROCESS_COUNT)],
    )
    assert sorted(tokens) == [0] * (PROCESS_COUNT - 1) + [1]
    assert run_row(database, run_id).lease_owner == str(tokens.index(1))


def test_each_new_claim_has_a_higher_fencing_token(database: Database, run_id: int) -> None:
    first = try_claim(database, run_id)
    assert try_claim(database, run_id, "two") is None
    expire(database, run_id)
    second = try_claim(database, run_id, "two")
    with database.transaction() as session:
        release_claim(session, RunClaim(run_id, 2))
    third = try_claim(database, run_id, "three")
    assert [run_claim and run_claim.token for run_claim in (first, second, third)] == [1, 2, 3]


def test_an_extended_claim_does_not_expire(database: Database, run_id: int) -> None:
    run_claim = try_claim(database, run_id)
    assert run_claim is not None
    with database.transaction() as session:
        extend_claim(session, run_claim, 3600.0)
    with database.reading() as session:
        assert 3500 < seconds_until_free(session, run_id) < 3601
    with database.transaction() as session:
        assert claimed_run(session, run_claim).id == run_id


@pytest.mark.parametrize("taken_by_another", [True, False])
def test_a_lost_claim_can_be_neither_extended_nor_released(
    database: Database, run_id: int, taken_by_another: bool
) -> None:
    lost = try_claim(database, run_id)
    assert lost is not None
    expire(database, run_id)
    if taken_by_another:
        try_claim(database, run_id, "two")
    before = run_row(database, run_id)
    for use in (
        lambda session: extend_claim(session, lost, 60.0),
        lambda session: claimed_run(session, lost),
    ):
        with (
            pytest.raises(LostRunClaimError, match=f"Rule run {run_id} belongs to another process"),
            database.transaction() as session,
        ):
            use(session)
    after = run_row(database, run_id)
    assert (after.lease_owner, after.lease_until) == (before.lease_owner, before.lease_until)
    if taken_by_another:
        with database.transaction() as session:
            release_claim(session, lost)
        assert run_row(database, run_id).lease_owner == "two"


def test_claiming_an_unknown_run_is_not_found(database: Database) -> None:
    assert try_claim(database, 99) is None
    with (
        pytest.raises(NotFoundError, match="Rule run 99 not found"),
        database.transaction() as session,
    ):
        claimed_run(session, RunClaim(99, 1))
    with database.reading() as session:
        assert seconds_until_free(session, 99) == 0.0


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(database, clock, FakeShop(*product_variants(2, 3)))


def settle(harness: PricingHarness, run_id: int, *rows: dict[str, Any]) -> list[int]:
    """Update the first targets with one dict of columns each; the rest stay queued."""
    ids = [target.id for target in harness.targets(run_id)]
    with harness.database.transaction() as session:
        for id_, columns in zip(ids, rows, strict=False):
            session.execute(update(RuleTargetRow).where(RuleTargetRow.id == id_).values(**columns))
    return ids


def applied(harness: PricingHarness) -> dict[str, Any]:
    return {"status": "APPLIED", "applied_at": harness.clock.now(), "duration_ms": 95}


def failed(kind: str) -> dict[str, Any]:
    return {
        "status": "FAILED",
        "error_type": kind,
        "error_retryable": False,
        "error_message": f"It was {kind}.",
    }


def test_runs_found_by_id_equal_single_reads(harness: PricingHarness) -> None:
    runs = [harness.queued_run(), harness.previewed_run()]
    settle(harness, runs[0].id, applied(harness), failed("not_found"))
    with harness.database.reading() as session:
        assert runs_by_id(session, [runs[1].id, 99, runs[0].id]) == {
            run.id: harness.run(run.id) for run in runs
        }
        assert runs_by_id(session, []) == {}


def test_a_run_counts_its_targets_by_state(harness: PricingHarness) -> None:
    run = harness.queued_run()
    settle(
        harness,
        run.id,
        applied(harness),
        applied(harness),
        failed("not_found"),
        failed("cancelled"),
    )
    shown = harness.run(run.id)
    assert shown.targets == TargetCounts(queued=2, applied=2, failed=2, cancelled=1)
    assert shown.success_rate == 0.6667


def test_a_run_without_targets_has_no_success_rate(harness: PricingHarness) -> None:
    run = harness.run(harness.request_run(harness.rule()))
    assert (run.targets, run.success_rate, run.explain) == (TargetCounts(), None, None)


def test_a_run_is_serialised_with_ids_as_strings(harness: PricingHarness) -> None:
    document = as_document(harness.previewed_run())
    assert (document["id"], document["ruleName"], document["previewedAt"]) == (
        "1",
        "A tenth off",
        "2026-05-04T10:00:00.000Z",
    )


def test_runs_are_listed_newest_first_with_filters_and_pages(harness: PricingHarness) -> None:
    one, two = harness.rule(), harness.rule(project_id="other")
    runs = [
        harness.previewed_run(one).id,
        harness.previewed_run(two).id,
        harness.queued_run(one).id,
        harness.request_run(two),
    ]
    chosen = {
        RuleRunFilter(): runs[::-1],
        RuleRunFilter(project_id="other"): [runs[3], runs[1]],
        RuleRunFilter(rule_id=one.id): [runs[2], runs[0]],
        RuleRunFilter(status=PricingRunState.QUEUED): [runs[2]],
        RuleRunFilter(trigger=RuleTrigger.LAUNCHPAD): [runs[3]],
        RuleRunFilter(project_id="other", status=PricingRunState.QUEUED): [],
    }
    with harness.database.reading() as session:
        for what, expected in chosen.items():
            assert [run.id for run in list_runs(session, what, 10, 0)] == expected
        assert [run.id for run in list_runs(session, RuleRunFilter(), 2, 1)] == [runs[2], runs[1]]


def test_the_number_of_queries_per_page_of_runs_is_constant(harness: PricingHarness) -> None:
    rule = harness.rule()
    for _ in range(5):
        harness.previewed_run(rule)
    executed: list[object] = []
    event.listen(
        harness.database.engine, "before_cursor_execute", lambda *call: executed.append(call[2])
    )
    statement_counts: list[int] = []
    for limit in (1, 5):
        executed.clear()
        with harness.database.reading() as session:
            assert [
                run.targets.preview for run in list_runs(session, RuleRunFilter(), limit, 0)
            ] == [6] * limit
        statement_counts.append(len(executed))
    assert statement_counts[0] == statement_counts[1]


def test_targets_are_read_page_by_page(harness: PricingHarness) -> None:
    run = harness.queued_run()
    ids = settle(harness, run.id, applied(harness))
    with harness.database.reading() as session:
        first = targets_of(session, run.id, limit=4)
        rest = targets_of(session, run.id, limit=4, after_id=first[-1].id)
        queued = targets_of(session, run.id, status=TargetState.QUEUED, limit=10)
    assert [target.id for target in [*first, *rest]] == ids
    assert [target.id for target in queued] == ids[1:]
    assert (first[0].before.unit_amount, first[0].after.unit_amount, first[0].warnings) == (
        1000,
        900,
        (),
    )


def test_skipped_variants_are_read_by_reason(harness: PricingHarness) -> None:
    harness.shop.add(
        variant("1", "9", None), variant("2", "9", 0), variant("3", "9", 0), variant("4", "9", 1)
    )
    run = harness.previewed_run()
    with harness.database.reading() as session:
        everything = skipped_of(session, run.id, limit=10)
        assert [one.variant_id for one in everything] == ["1", "2", "3"]
        assert skipped_of(session, run.id, reason="zero_price", limit=1, offset=1) == everything[2:]


def test_the_result_of_a_run_lists_every_ended_target(harness: PricingHarness) -> None:
    run = harness.queued_run()
    times = {"status": "PARTIAL", "started_at": harness.clock.now()}
    harness.set_run(run.id, **times, finished_at=harness.clock.now() + timedelta(seconds=31.24))
    ids = settle(
        harness,
        run.id,
        applied(harness),
        failed("not_found"),
        failed("cancelled"),
        {**applied(harness), "status": "ROLLED_BACK"},
    )
    with harness.database.reading() as session:
        result = result_of(session, run.id)
    assert (result.total_targets, result.applied_targets, result.failed_targets) == (3, 1, 2)
    assert (result.duration, result.success_rate) == (31240, 0.6667)
    first, second, _ = result.results
    assert (first.target_id, first.success, first.external_id, first.applied_price) == (
        str(ids[0]),
        True,
        "101",
        900,
    )
    assert (first.error, first.duration) == (None, 95)
    assert (second.success, second.applied_price, second.error) == (
        False,
        None,
        "It was not_found.",
    )


def test_the_log_holds_only_transitions_of_the_run_and_its_targets(harness: PricingHarness) -> None:
    harness.queued_run(harness.rule(selector={"product": ["1"]}))
    run = harness.queued_run(harness.rule(selector={"product": ["2"]}))
    targets = {str(target.id) for target in harness.targets(run.id)}
    with harness.database.reading() as session:
        lines = transitions_of(session, run.id, 10)
        assert transitions_of(session, run.id, 2, after_id=lines[0].id) == lines[1:3]
    assert [(line.machine, line.entity_id) for line in lines[:1]] == [("rule run", str(run.id))]
    assert {line.entity_id for line in lines[1:]} == targets
    assert {(line.from_state, line.to_state, line.actor) for line in lines} == {
        ("PREVIEW", "QUEUED", "user:1")
    }


def test_an_unknown_run_is_not_found(harness: PricingHarness) -> None:
    with harness.database.reading() as session:
        for read in (
            lambda: get_run(session, 99),
            lambda: targets_of(session, 99, limit=1),
            lambda: skipped_of(session, 99, limit=1),
            lambda: result_of(session, 99),
            lambda: transitions_of(session, 99, 1),
        ):
            with pytest.raises(NotFoundError, match="Rule run 99 not found"):
                read()


ENDED = ("APPLIED", "PARTIAL", "FAILED", "ROLLED_BACK")


@pytest.mark.parametrize(
    ("status", "requested", "cancelled", "is_open", "is_active"),
    [
        ("PREVIEW", None, False, False, False),
        ("PREVIEW", "apply", False, True, False),
        ("PREVIEW", "apply", True, False, False),
        ("QUEUED", None, False, True, True),
        ("QUEUED", None, True, True, True),
        ("APPLYING", None, True, True, True),
        *((status, None, False, False, False) for status in ENDED),
        ("PARTIAL", "retry", False, True, False),
        ("APPLIED", "rollback", False, False, False),
    ],
)
def test_runs_that_block_another_run_of_the_rule(
    status: str,
    requested: str | None,
    *,
    cancelled: bool,
    is_open: bool,
    is_active: bool,
    database: Database,
    clock: FakeClock,
) -> None:
    rule, other = make_rule(database, clock), make_rule(database, clock)
    run_id = make_run(
        database,
        rule,
        status,
        clock.now(),
        wish=requested,
        cancel_requested_at=clock.now() if cancelled else None,
    )
    with database.reading() as session:
        found, active = (
            open_runs_of(session, [rule.id]).get(rule.id),
            active_run_of(session, rule.id),
        )
        both = open_runs_of(session, [rule.id, other.id])
        blocks_other = blocking_reason(session, rule.id) is not None
        assert blocking_reason(session, other.id) is None
    assert (found and (found.id, found.status)) == ((run_id, status) if is_open else None)
    assert both == ({rule.id: found} if is_open else {})
    assert active == (run_id if is_active else None)
    assert blocks_other is (is_active or requested == "retry")


def test_the_cooldown_counts_from_the_last_applied_run(
    database: Database, clock: FakeClock
) -> None:
    rule, now = make_rule(database, clock), clock.now()
    with database.reading() as session:
        assert last_applied_at(session, rule.id) is None
    for hours, status in ((5, "APPLIED"), (4, "PARTIAL"), (3, "FAILED"), (2, "ROLLED_BACK")):
        make_run(database, rule, status, now - timedelta(hours=hours))
    with database.reading() as session:
        assert last_applied_at(session, rule.id) == now - timedelta(hours=4)
