"""Rules with their versions, guardrails, due rules and ended promotions."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from sqlalchemy import event, insert, select

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.core.retry import Backoff
from automation_pipeline.pricing.models.rules import Policy, parse_policy, parse_rule
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.pricing_rules import (
    add_rule,
    delete_rule,
    get_rule,
    list_rules,
    lock_rule,
    policy_of,
    put_policy,
    remove_policy,
    rule_at,
    save_rule,
    versions_of,
)
from automation_pipeline.pricing.rules import runs as run_rules
from automation_pipeline.pricing.rules.runs import DuePriceRules
from automation_pipeline.pricing.runs import cancel_run, roll_back_run
from automation_pipeline.pricing.schedules import lock_planned_rules, start_due_rules
from automation_pipeline.pricing.tables import RuleRow, RuleRunRow, RuleTargetRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.statements import database_now
from automation_pipeline.storage.types import Table
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import PRICES, FakeShop, product_variants
from automation_pipeline_tests.pricing.harness import PricingHarness
from automation_pipeline_tests.pricing.rows import (
    delete_all,
    make_rule,
    make_run,
    run_rows,
    start_due,
)
from automation_pipeline_tests.pricing.rules.rules import any_selector, any_transform, rule

TEN_PERCENT, TWENTY_PERCENT = (rule({"op": "percent", "value": value}) for value in (-10, -20))


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(selector=any_selector, transform=any_transform())
def test_a_stored_rule_is_read_back_unchanged(
    selector: dict[str, object],
    transform: dict[str, object],
    database: Database,
    clock: FakeClock,
) -> None:
    written = rule(transform, selector=selector, endsAt="2026-06-01T00:00:00.123456Z")
    with database.transaction() as session:
        added = add_rule(session, written, project_id="eu", actor="user:1", now=clock.now())
        assert get_rule(session, added.id).as_input == written
        assert rule_at(session, added.id, 1) == parse_rule(
            versions_of(session, added.id, 1, 0)[0].rule
        )
        assert rule_at(session, added.id, 1).transform == written.transform
        assert rule_at(session, added.id, 1).selector == written.selector


def test_old_versions_of_a_rule_stay_unchanged(database: Database, clock: FakeClock) -> None:
    with database.transaction() as session:
        id_ = add_rule(session, TEN_PERCENT, project_id="eu", actor="user:1", now=clock.now()).id
        clock.advance_one_second()
        renamed = TEN_PERCENT.model_copy(update={"name": "Other"})
        assert save_rule(session, id_, renamed, actor="user:2", now=clock.now()).version == 1
        assert save_rule(session, id_, TWENTY_PERCENT, actor="user:3", now=clock.now()).version == 2
        assert save_rule(session, id_, TEN_PERCENT, actor="user:4", now=clock.now()).version == 3
        kept = versions_of(session, id_, 10, 0)
        assert [(one.version, one.created_by) for one in kept] == [
            (3, "user:4"),
            (2, "user:3"),
            (1, "user:1"),
        ]
        assert [one.version for one in versions_of(session, id_, 1, 1)] == [2]
        assert kept[0].version_hash == kept[2].version_hash != kept[1].version_hash
        assert rule_at(session, id_, 1) == TEN_PERCENT
        assert rule_at(session, id_, 2) == TWENTY_PERCENT


def test_an_unknown_version_is_not_found(database: Database, clock: FakeClock) -> None:
    known = make_rule(database, clock)
    with database.reading() as session:
        with pytest.raises(NotFoundError, match=f"Pricing rule {known.id} has no version 2"):
            rule_at(session, known.id, 2)
        with pytest.raises(NotFoundError, match="Pricing rule 99 not found"):
            versions_of(session, 99, 10, 0)


@pytest.mark.parametrize("read", [get_rule, lock_rule])
def test_a_deleted_rule_is_found_on_request_only(
    read: object, database: Database, clock: FakeClock
) -> None:
    assert callable(read)
    gone = make_rule(database, clock)
    delete_rule(gone.id, database=database, clock=clock, actor="user:12")
    with database.transaction() as session:
        with pytest.raises(NotFoundError, match=f"^Pricing rule {gone.id} not found"):
            read(session, gone.id)
        assert read(session, gone.id, deleted_too=True).deleted_at == clock.now()
        assert len(versions_of(session, gone.id, 10, 0)) == 1


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, ["Été à 50 %", "Winter_sale", "Wintersale", "Summer sale"]),
        ({"project_id": "eu"}, ["Winter_sale", "Wintersale"]),
        ({"project_id": "nowhere"}, []),
        ({"enabled": True}, ["Été à 50 %", "Wintersale", "Summer sale"]),
        ({"enabled": False}, ["Winter_sale"]),
        ({"q": "SALE"}, ["Winter_sale", "Wintersale", "Summer sale"]),
        ({"q": "winter_s"}, ["Winter_sale"]),
        ({"q": "%"}, ["Été à 50 %"]),
        ({"q": "été"}, ["Été à 50 %"]),
        ({"q": "winter", "enabled": True, "project_id": "eu"}, ["Wintersale"]),
        ({"q": ""}, ["Été à 50 %", "Winter_sale", "Wintersale", "Summer sale"]),
    ],
)
def test_rules_are_listed_by_filter_newest_first(
    filters: Mapping[str, object], names: list[str], database: Database, clock: FakeClock
) -> None:
    make_rule(database, clock)
    make_rule(database, clock, project_id="eu", name="Wintersale")
    make_rule(database, clock, project_id="eu", name="Winter_sale", enabled=False)
    make_rule(database, clock, name="Été à 50 %")
    gone = make_rule(database, clock, name="Gone sale in winter_s 50 %")
    delete_rule(gone.id, database=database, clock=clock, actor="user:12")
    with database.reading() as session:
        assert [one.name for one in list_rules(session, **filters, limit=10, offset=0)] == names
        assert [one.name for one in list_rules(session, **filters, limit=2, offset=1)] == names[1:3]


def test_times_are_stored_with_microseconds(database: Database, clock: FakeClock) -> None:
    clock.advance(timedelta(microseconds=123_456))
    known = make_rule(database, clock, scheduleAt="2026-06-01T02:00:00.654321+02:00")
    with database.reading() as session:
        read = get_rule(session, known.id)
    assert read == known
    assert (read.updated_at, f"{read.schedule_at:%H:%M:%S.%f}") == (clock.now(), "00:00:00.654321")


@pytest.mark.parametrize("database_kind", ["postgres"])
def test_a_foreign_key_check_does_not_wait_for_a_locked_rule(
    database: Database, clock: FakeClock
) -> None:
    """PostgreSQL takes this lock when a run of the rule is written twice in one transaction."""
    held = make_rule(database, clock)
    checked = select(RuleRow.id).where(RuleRow.id == held.id)
    with database.transaction() as session, database.transaction() as other:
        lock_rule(session, held.id)
        assert (
            other.scalar(checked.with_for_update(read=True, key_share=True, nowait=True)) == held.id
        )


STRICT_POLICY = parse_policy(
    {
        "autoApply": True,
        "maxPctDelta": 0.15,
        "floor": 100,
        "ceilings": {"sku-1": 9000},
        "dailyChangeBudgetPct": "0.25",
        "currency": "EUR",
    }
)
DEFAULT_POLICY = parse_policy({})


def test_a_policy_is_stored_replaced_and_removed_for_its_project_only(
    database: Database, clock: FakeClock
) -> None:
    context = {"database": database, "clock": clock, "actor": "user:1"}

    def policies() -> list[Policy | None]:
        with database.reading() as session:
            return [policy_of(session, project) for project in ("eu", "default")]

    for policy in (STRICT_POLICY, DEFAULT_POLICY):
        put_policy("eu", as_document(policy), **context)
        assert policies() == [policy, None]
    remove_policy("eu", **context)
    assert policies() == [None, None]
    with pytest.raises(NotFoundError, match="Project eu has no pricing policy"):
        remove_policy("eu", **context)


HOUR = timedelta(hours=1)
MANY = 400


def counted(database: Database, clock: FakeClock) -> tuple[DuePriceRules, int]:
    statements: list[str] = []

    def count(*given: object) -> None:
        statements.append(str(given[2]))

    event.listen(database.engine, "before_cursor_execute", count)
    report = start_due(database, clock)
    event.remove(database.engine, "before_cursor_execute", count)
    return report, len(statements)


def one_of_each(database: Database, clock: FakeClock) -> None:
    now = clock.now()
    make_rule(database, clock, scheduleAt=now.isoformat())
    busy = make_rule(database, clock, scheduleAt=now.isoformat())
    make_run(database, busy, "QUEUED", now)
    make_rule(
        database, clock, scheduleAt=(now - 2 * HOUR).isoformat(), endsAt=(now - HOUR).isoformat()
    )
    run_of_ended_promotion = make_rule(database, clock, endsAt=now.isoformat())
    make_run(database, run_of_ended_promotion, "APPLIED", now, ["APPLIED"])


def multiply_rows(database: Database) -> None:
    """Copy every rule with its runs and targets `MANY` - 1 times."""
    with database.transaction() as session:
        for table, references in (
            (RuleRow, ()),
            (RuleRunRow, ("rule_id",)),
            (RuleTargetRow, ("rule_run_id",)),
        ):
            _copy(session, table, references)


def _copy(session: Session, table: type[Table], references: tuple[str, ...]) -> None:
    rows = [dict(row) for row in session.execute(select(*table.__table__.columns)).mappings()]
    copies = [
        {**row, **{name: row[name] + 1000 * copy for name in ("id", *references)}}
        for copy in range(1, MANY)
        for row in rows
    ]
    if table is RuleTargetRow:
        copies = [{**row, "variant_id": f"v{row['id']}"} for row in copies]
    session.execute(insert(table.__table__), copies)


def test_the_number_of_statements_is_constant_in_due_rules(
    database: Database, clock: FakeClock
) -> None:
    one_of_each(database, clock)
    report, for_one = counted(database, clock)
    assert [len(ids) for ids in (report.started, report.missed, report.ended, report.put_off)] == [
        1
    ] * 4
    clock.advance(HOUR)
    delete_all(database)
    one_of_each(database, clock)
    multiply_rows(database)
    report, for_many = counted(database, clock)
    assert [len(ids) for ids in (report.started, report.missed, report.ended, report.put_off)] == [
        MANY
    ] * 4
    assert list(report.ended) == sorted(report.ended, reverse=True)
    assert for_many <= for_one + 1
    report, idle = counted(database, clock)
    assert (len(report.put_off), report.started, report.ended, report.missed) == (MANY, (), (), ())
    assert idle < for_one
    assert len(run_rows(database)) == 3 * MANY


@pytest.mark.parametrize("how_many", [0, 3])
def test_a_tick_without_due_rules_takes_at_most_three_queries(
    how_many: int, database: Database, clock: FakeClock
) -> None:
    for _ in range(how_many):
        make_rule(database, clock, scheduleAt=(clock.now() + HOUR).isoformat())
    report, statements = counted(database, clock)
    assert report == DuePriceRules()
    assert statements <= 3


@pytest.mark.parametrize("database_kind", ["postgres"])
def test_a_foreign_key_check_does_not_wait_for_a_locked_due_rule(
    database: Database, clock: FakeClock
) -> None:
    due = make_rule(database, clock, scheduleAt=clock.now().isoformat())
    checked = select(RuleRow.id).where(RuleRow.id == due.id)
    with database.transaction() as session, database.transaction() as other:
        assert [rule.id for rule in lock_planned_rules(session, clock.now())] == [due.id]
        assert (
            other.scalar(checked.with_for_update(read=True, key_share=True, nowait=True)) == due.id
        )


FORMER = {"101": 1000, "201": 1000, "301": 1000}
BUSY, REFUSED, CLOSED, ODD = (
    FailureSignal(status=500),
    FailureSignal(status=401),
    FailureSignal(status=423),
    FailureSignal(status=302),
)
NOTHING = DuePriceRules()


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    """A harness whose worker never waits for targets that are not due."""
    return PricingHarness(
        database, clock, FakeShop(*product_variants(3)), {"longest_pause_seconds": 0.0}
    )


@pytest.fixture(autouse=True)
def _slow_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long retry waits, so that nothing is due before `make_due`."""
    monkeypatch.setattr(
        run_rules, "RETRY_BACKOFF", Backoff(base_seconds=2000, cap_seconds=64000, jitter=0.2)
    )


def tick(harness: PricingHarness) -> DuePriceRules:
    return start_due_rules(
        database=harness.database, clock=harness.clock, shop=harness.storefront.name
    )


def run_of_ended_promotion(harness: PricingHarness) -> RuleRun:
    """An applied run of a promotion that has ended."""
    run = harness.work(harness.queued_run(harness.rule(endsAt="2026-05-04T11:00:00Z")))
    harness.pass_minutes(61)
    return run


def work_to_the_end(harness: PricingHarness, run: RuleRun) -> RuleRun:
    """Work on the run until no action is requested."""
    worked = harness.work(run)
    while worked.wish is not None:
        harness.end_shop_pause()
        harness.make_due(run.id)
        worked = harness.work(run)
    return worked


@pytest.mark.parametrize(
    ("subject", "signal", "kind"),
    [
        ("2", BUSY, "server"),
        ("2", ODD, "unknown"),
        ("2", REFUSED, "authentication"),
        (PRICES, REFUSED, "authentication"),
        (PRICES, CLOSED, "shop_closed"),
    ],
)
def test_a_failed_rollback_at_the_end_of_a_promotion_is_retried_after_ten_minutes(
    subject: str, signal: FailureSignal, kind: str, harness: PricingHarness
) -> None:
    run = run_of_ended_promotion(harness)
    harness.shop.fail_always(subject, signal)
    for _ in range(2):
        assert tick(harness) == DuePriceRules(ended=(run.id,))
        ended = work_to_the_end(harness, run)
        row = harness.run_row(run.id)
        assert (ended.status, row.promotion_ended_at, row.wish) == ("APPLIED", None, None)
        assert kind in {target.error_type for target in harness.targets(run.id)}
        assert (row.resume_at - row.updated_at).total_seconds() == 600
        harness.set_run(run.id, resume_at=database_now(3600.0))
        assert tick(harness) == NOTHING
        harness.make_due(run.id)
    harness.shop.stop_failing(subject)
    assert tick(harness) == DuePriceRules(ended=(run.id,))
    assert (work_to_the_end(harness, run).status, harness.shop.amounts()) == ("ROLLED_BACK", FORMER)
    assert tick(harness) == NOTHING


def test_edited_and_missing_prices_are_not_retried_at_the_end_of_a_promotion(
    harness: PricingHarness,
) -> None:
    run = run_of_ended_promotion(harness)
    harness.shop.edit("201", amount=1234)
    harness.shop.remove("301")
    tick(harness)
    ended = work_to_the_end(harness, run)
    assert (ended.rollback_state, ended.resume_at) == ("PARTIAL", None)
    assert harness.run_row(run.id).promotion_ended_at == harness.clock.now()
    assert tick(harness) == NOTHING


def test_a_cancelled_end_of_a_promotion_is_not_retried(harness: PricingHarness) -> None:
    harness.shop_options["calls_at_once"] = 1
    run = run_of_ended_promotion(harness)
    harness.shop.fail_always("3", ODD)
    harness.shop.fail_always("2", BUSY)
    tick(harness)
    harness.work(run)
    cancel_run(run.id, database=harness.database, clock=harness.clock, actor="user:7")
    harness.make_due(run.id)
    harness.work(run)
    assert harness.statuses(run.id)["301"] == "APPLIED"
    assert harness.run_row(run.id).promotion_ended_at is not None
    assert tick(harness) == NOTHING


def test_a_failed_manual_rollback_is_not_retried(harness: PricingHarness) -> None:
    run = harness.work(harness.queued_run())
    harness.shop.fail_always(PRICES, REFUSED)
    roll_back_run(run.id, database=harness.database, clock=harness.clock, actor="user:7")
    ended = harness.work(run)
    assert (ended.status, ended.wish, ended.resume_at) == ("APPLIED", None, None)
