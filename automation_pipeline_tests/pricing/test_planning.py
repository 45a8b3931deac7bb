"""Planning: the whole catalogue is read, every variant is counted once, and the plan is stored with the run."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from automation_pipeline.core.errors import (
    ConflictError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.core.retry import Backoff
from automation_pipeline.pricing import planning
from automation_pipeline.pricing.models.runs import PricingRunState, RuleRunFilter
from automation_pipeline.pricing.models.shop import CallResult, CataloguePage, FailureSignal
from automation_pipeline.pricing.planning import Draft
from automation_pipeline.pricing.pricing_rules import delete_rule, update_rule
from automation_pipeline.pricing.queries.runs import list_runs, skipped_of
from automation_pipeline.pricing.rules import runs as run_rules
from automation_pipeline.pricing.rules.evaluation import plan_target, price
from automation_pipeline.pricing.shop import read_catalogue
from automation_pipeline.pricing.tables import PriceChangeRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import database_time
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import PAGES, FakeShop, product_variants, variant
from automation_pipeline_tests.pricing.harness import PricingHarness
from automation_pipeline_tests.pricing.rules.rules import rule


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(database, clock)


@pytest.fixture
def no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_rules, "RETRY_BACKOFF", Backoff(base_seconds=0, cap_seconds=0))


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    executed: list[str] = []

    def record(*call: object) -> None:
        executed.append(str(call[2]))

    event.listen(database.engine, "before_cursor_execute", record)
    try:
        yield executed
    finally:
        event.remove(database.engine, "before_cursor_execute", record)


def test_a_changed_variant_is_a_target_with_old_and_new_price(
    harness: PricingHarness,
) -> None:
    harness.shop.add(
        variant("11", "1", 1999, title="Shirt", variant_title="Red", sku="S"),
        variant("21", "2", 1005),
    )
    run = harness.plan(harness.request_run(harness.rule()))
    first, second = harness.targets(run.id)
    assert second.after_json == {"unit_amount": 905, "currency": "EUR", "compare_at": None}
    assert (first.before_json["unit_amount"], first.after_json["unit_amount"]) == (1999, 1799)
    assert (first.title, first.sku_id, first.shop, first.status) == (
        "Shirt · Red",
        "S",
        "shop.test",
        "PREVIEW",
    )
    assert first.trace_json is not None
    assert first.trace_json["finalPrice"] == 1799
    assert run.previewed_at == harness.clock.now()


def test_the_counts_of_a_plan_add_up(harness: PricingHarness) -> None:
    harness.set_policy(maxPctDelta=0.2)
    harness.shop.add(
        variant("1", "1", 1000),
        variant("2", "1", None),
        variant("3", "2", 900),
        variant("4", "3", 5000),
        variant("5", "4", 1000, currency="USD"),
        variant("6", "5", 1000, is_active=False),
        variant("7", "6", 1000, tags=("kept",)),
    )
    rule = harness.rule(selector={"not": {"tag": "kept"}}, transform={"op": "set", "value": 900})
    run = harness.plan(harness.request_run(rule))
    assert [target.variant_id for target in harness.targets(run.id)] == ["1"]
    assert (run.matched, run.total_targets, run.skipped, run.blocked) == (6, 1, 4, 1)
    assert run.explain is not None
    assert run.explain | {"selector": 0, "transform": 0} == {
        "catalogueVariants": 7,
        "matchedProducts": 5,
        "matchedVariants": 6,
        "skippedTargets": 4,
        "skippedByReason": {"no_change": 1, "no_price": 1, "not_active": 1, "other_currency": 1},
        "blocked": 1,
        "selector": 0,
        "transform": 0,
        "conflicts": [],
    }


def test_skipped_and_blocked_variants_are_stored_with_reasons(harness: PricingHarness) -> None:
    harness.set_policy(maxPctDelta=0.15, currency="EUR", floor=950)
    harness.shop.add(
        variant("1", "1", 1000),
        variant("2", "1", None),
        variant("3", "1", 0),
        variant("4", "2", 9999),
    )
    run = harness.plan(harness.request_run(harness.rule()))
    with harness.database.reading() as session:
        values = {one.variant_id: one for one in skipped_of(session, run.id, limit=10)}
        blocked = skipped_of(session, run.id, reason="blocked", limit=10)
    assert {id_: one.reason for id_, one in values.items()} == {
        "1": "blocked",
        "2": "no_price",
        "3": "zero_price",
    }
    assert values["2"].why == "It has no price."
    assert blocked == [values["1"]]
    assert (values["1"].current_amount, values["1"].proposed_amount) == (1000, 900)
    assert values["1"].checks == (
        {"name": "floor", "ok": False, "floor": 950, "proposedAmount": 900},
    )


def test_the_daily_budget_counts_changes_since_local_midnight(harness: PricingHarness) -> None:
    harness.set_policy(autoApply=True, dailyChangeBudgetPct=0.15)
    harness.shop.add(variant("1", "1", 1000), variant("2", "2", 1000))
    rule = harness.rule()
    first = harness.queued_run(harness.rule(name="Before"))
    # 10:00 UTC is noon in Paris, where the day began at 22:00 UTC.
    add_price_change(harness, first.id, "1", hours_ago=11.9)
    add_price_change(harness, first.id, "2", hours_ago=12.1)
    run = harness.plan(harness.request_run(rule))
    assert [target.variant_id for target in harness.targets(run.id)] == ["2"]
    (blocked,) = harness.skipped(run.id)
    assert blocked.checks == [
        {
            "name": "dailyBudget",
            "ok": False,
            "deltaPct": 0.1,
            "used": 0.1,
            "limit": 0.15,
            "remaining": 0.05,
        }
    ]


def add_price_change(
    harness: PricingHarness, run_id: int, variant_id: str, *, hours_ago: float
) -> None:
    target = next(one for one in harness.targets(run_id) if one.variant_id == variant_id)
    with harness.database.transaction() as session:
        session.add(
            PriceChangeRow(
                event_key=f"change-{variant_id}",
                tenant_id="main",
                project_id="default",
                shop="shop.test",
                kind="apply",
                source="rule:1",
                rule_run_id=run_id,
                target_id=target.id,
                product_id=target.product_id,
                variant_id=variant_id,
                currency="EUR",
                from_amount=1000,
                to_amount=900,
                was_found=False,
                applied_at=harness.clock.now() - timedelta(hours=hours_ago),
            )
        )


def test_planned_variants_of_a_product_are_adjacent(harness: PricingHarness) -> None:
    harness.shop = FakeShop(*(variant(str(n), str(n % 3)) for n in range(9)), page_size=2)
    run = harness.plan(harness.request_run(harness.rule()))
    assert [target.product_id for target in harness.targets(run.id)] == list("000111222")


def test_a_variant_listed_twice_is_planned_once(harness: PricingHarness) -> None:
    async def reorder(_kind: str, cursor: object) -> None:
        if cursor == "1":
            harness.shop.remove("1")
            harness.shop.add(variant("1", "1"))

    harness.shop = FakeShop(
        variant("1", "1"), variant("2", "2"), variant("3", "3"), page_size=1, during_call=reorder
    )
    run = harness.plan(harness.request_run(harness.rule()))
    assert Counter(target.variant_id for target in harness.targets(run.id)) == {"1": 1, "2": 1}


def test_a_run_is_planned_with_the_rule_version_of_its_request(harness: PricingHarness) -> None:
    harness.shop.add(variant("1", "1", 1000))
    rule = harness.rule()
    run_id = harness.request_run(rule)
    services = {"database": harness.database, "clock": harness.clock}
    update_rule(rule.id, {"transform": {"op": "set", "value": 1}}, **services, actor="user:1")
    harness.plan(run_id)
    assert [target.after_json["unit_amount"] for target in harness.targets(run_id)] == [900]


def test_another_run_on_the_same_variants_is_reported(harness: PricingHarness) -> None:
    harness.shop.add(variant("1", "1"), variant("2", "2"))
    one = harness.queued_run(harness.rule(selector={"product": ["1"]}))
    harness.queued_run(harness.rule(selector={"product": ["2"]}))
    run = harness.plan(harness.request_run(harness.rule(selector={"product": ["1"]})))
    assert run.explain is not None
    assert run.explain["conflicts"] == [str(one.id)]


def test_a_planned_run_is_not_planned_again(harness: PricingHarness) -> None:
    harness.shop.add(variant("1", "1"))
    run = harness.previewed_run()
    harness.shop.add(variant("2", "2"))
    harness.pass_minutes(1)
    assert harness.plan(run.id) == run
    assert harness.shop.call_count("page") == 1


def test_a_cancelled_run_is_not_planned(harness: PricingHarness) -> None:
    run_id = harness.request_run(harness.rule())
    harness.set_run(run_id, cancel_requested_at=harness.clock.now())
    assert harness.plan(run_id).previewed_at is None
    assert harness.shop.calls == []


def test_a_run_cancelled_during_planning_gets_no_targets(harness: PricingHarness) -> None:
    async def cancel(_kind: str, _cursor: object) -> None:
        harness.set_run(run_id, cancel_requested_at=harness.clock.now())

    harness.shop = FakeShop(variant("1", "1"), during_call=cancel)
    run_id = harness.request_run(harness.rule())
    run = harness.plan(run_id)
    assert (run.previewed_at, harness.targets(run_id)) == (None, [])


@pytest.mark.usefixtures("no_retry_delay")
def test_a_failed_page_is_read_again(harness: PricingHarness) -> None:
    harness.shop = FakeShop(*product_variants(4), page_size=2)
    harness.shop.fail_once(PAGES, *[FailureSignal(status=500)] * 3)
    run = harness.plan(harness.request_run(harness.rule()))
    assert (run.total_targets, harness.shop.call_count("page")) == (4, 5)


@pytest.mark.usefixtures("no_retry_delay")
@pytest.mark.parametrize(
    ("signal", "error", "calls"),
    [
        (FailureSignal(status=500), TransientError, 4),
        (FailureSignal(status=401), PermanentError, 1),
        (FailureSignal(status=402), PermanentError, 1),
        (FailureSignal(status=422), PermanentError, 1),
    ],
)
def test_repeated_page_failures_discard_the_plan(
    signal: FailureSignal, error: type[Exception], calls: int, harness: PricingHarness
) -> None:
    harness.shop = FakeShop(*product_variants(4), page_size=2)
    run_id = harness.request_run(harness.rule())

    async def fail_second_page(_kind: str, cursor: object) -> None:
        if cursor == "2":
            harness.shop.fail_always(PAGES, signal)

    harness.shop = FakeShop(*product_variants(4), page_size=2, during_call=fail_second_page)
    with pytest.raises(error, match=r"The shop fails as the test specifies \(page\)\."):
        harness.plan(run_id)
    assert harness.shop.call_count("page") == 1 + calls
    assert (harness.run(run_id).previewed_at, harness.targets(run_id), harness.skipped(run_id)) == (
        None,
        [],
        [],
    )
    harness.shop = FakeShop(*product_variants(4), page_size=2)
    assert harness.plan(run_id).total_targets == 4


def test_a_long_retry_after_stops_planning(harness: PricingHarness) -> None:
    harness.shop.fail_always(PAGES, FailureSignal(code="THROTTLED"), retry_after_seconds=300)
    with pytest.raises(TransientError) as refused:
        harness.plan(harness.request_run(harness.rule()))
    assert refused.value.retry_after_seconds == 300
    assert harness.shop.call_count("page") == 1


@pytest.mark.parametrize(("retry_after", "minutes"), [(None, 5), (240.0, 5), (600.0, 10)])
def test_a_requested_run_is_planned_again_after_five_minutes_or_later(
    retry_after: float | None, minutes: int, harness: PricingHarness
) -> None:
    run_id = harness.request_run(harness.rule())
    harness.shop.fail_always(
        PAGES, FailureSignal(code="THROTTLED"), retry_after_seconds=retry_after
    )
    harness.shop_options["longest_pause_seconds"] = 0.0
    before = database_now_of(harness)
    with pytest.raises(TransientError):
        harness.plan(run_id)
    run = harness.run(run_id)
    assert str(run.error_message).startswith("The shop fails")
    assert run.resume_at is not None
    assert before <= run.resume_at - timedelta(minutes=minutes) <= database_now_of(harness)


def database_now_of(harness: PricingHarness) -> datetime:
    with harness.database.reading() as session:
        return database_time(session)


def test_a_run_of_another_shop_is_not_planned(harness: PricingHarness) -> None:
    run_id = harness.request_run(harness.rule())
    harness.set_run(run_id, shop="old.test")
    with pytest.raises(ConflictError, match=r"is for old\.test"):
        harness.plan(run_id)


def test_an_unknown_run_is_not_found(harness: PricingHarness) -> None:
    with pytest.raises(NotFoundError, match="Rule run 7 not found"):
        harness.plan(7)


def test_no_transaction_is_open_while_the_shop_is_called(harness: PricingHarness) -> None:
    async def write(_kind: str, _cursor: object) -> None:
        with harness.database.unless_busy():
            written.append(True)

    written: list[bool] = []
    harness.shop = FakeShop(*product_variants(3), page_size=1, during_call=write)
    harness.plan(harness.request_run(harness.rule()))
    assert written == [True] * 3


def test_one_of_two_concurrent_plans_is_stored(harness: PricingHarness) -> None:
    both_calling = threading.Barrier(2, timeout=60)

    async def wait_for_both(_kind: str, _cursor: object) -> None:
        both_calling.wait()

    harness.shop = FakeShop(*product_variants(5, 2), during_call=wait_for_both)
    run_id = harness.request_run(harness.rule())
    threads = [threading.Thread(target=harness.plan, args=(run_id,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert harness.shop.call_count("page") == 2
    assert (
        Counter(target.variant_id for target in harness.targets(run_id)).most_common(1)[0][1] == 1
    )
    assert (len(harness.targets(run_id)), harness.run(run_id).total_targets) == (10, 10)


def test_the_number_of_statements_per_page_is_constant(harness: PricingHarness) -> None:
    def statements_of(pages: int) -> int:
        harness.shop = FakeShop(*product_variants(pages * 25, 10))
        run_id = harness.request_run(harness.rule())
        with statements(harness.database) as executed:
            harness.plan(run_id)
        assert len(harness.targets(run_id)) == pages * 250
        assert harness.shop.call_count("page") == pages
        return len(executed)

    one, two, twelve = statements_of(1), statements_of(2), statements_of(12)
    # Three thousand targets are three statements.
    assert twelve - one == 11 * (two - one) + 2


@pytest.fixture
def two_product_harness(database: Database, clock: FakeClock) -> PricingHarness:
    return PricingHarness(database, clock, FakeShop(*product_variants(2, 2)))


def test_a_preview_is_planned_without_a_worker_request(two_product_harness: PricingHarness) -> None:
    rule = two_product_harness.rule()
    run = two_product_harness.previewed_run(rule)
    assert (run.status, run.wish, run.previewed_at) == (
        PricingRunState.PREVIEW,
        None,
        two_product_harness.clock.now(),
    )
    assert (run.rule_id, run.rule_name, run.rule_version) == (rule.id, "A tenth off", 1)
    assert (run.created_by, run.shop) == ("user:1", "shop.test")
    assert (run.total_targets, run.targets.preview) == (4, 4)
    assert two_product_harness.requests() == []
    assert two_product_harness.shop.written == []


def test_a_disabled_rule_can_be_previewed(two_product_harness: PricingHarness) -> None:
    assert (
        two_product_harness.previewed_run(two_product_harness.rule(enabled=False)).total_targets
        == 4
    )


def test_a_deleted_rule_cannot_be_previewed(two_product_harness: PricingHarness) -> None:
    rule = two_product_harness.rule()
    delete_rule(
        rule.id,
        database=two_product_harness.database,
        clock=two_product_harness.clock,
        actor="user:1",
    )
    with pytest.raises(NotFoundError, match=f"Pricing rule {rule.id} not found"):
        two_product_harness.previewed_run(rule)
    assert two_product_harness.shop.calls == []


def test_a_failed_preview_leaves_no_run(two_product_harness: PricingHarness) -> None:
    two_product_harness.shop.fail_always(PAGES, FailureSignal(status=401))
    with pytest.raises(PermanentError, match="The shop fails as the test specifies"):
        two_product_harness.previewed_run()
    with two_product_harness.database.reading() as session:
        assert list_runs(session, RuleRunFilter(), 9, 0) == []


def test_a_preview_keeps_the_rule_version_that_was_priced(
    two_product_harness: PricingHarness,
) -> None:
    async def change(_kind: str, _cursor: object) -> None:
        transform = {"transform": {"op": "set", "value": 1}}
        update_rule(
            rule.id,
            transform,
            database=two_product_harness.database,
            clock=two_product_harness.clock,
            actor="user:1",
        )

    two_product_harness.shop = FakeShop(variant("1", "1", 1000), during_call=change)
    rule = two_product_harness.rule()
    run = two_product_harness.previewed_run(rule)
    assert (run.rule_version, run.rule_version_hash) == (1, rule.version_hash)
    assert [target.after_json["unit_amount"] for target in two_product_harness.targets(run.id)] == [
        900
    ]


def test_each_preview_is_a_new_run(two_product_harness: PricingHarness) -> None:
    rule = two_product_harness.rule()
    assert two_product_harness.previewed_run(rule).id != two_product_harness.previewed_run(rule).id


async def pages(harness: PricingHarness) -> list[list[str]]:
    async with aclosing(read_catalogue(harness.context)) as found:
        return [[one.variant_id for one in page.variants] async for page in found]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (2, [["101", "201"], ["301"]]),
        (3, [["101", "201", "301"]]),
        (1, [["101"], ["201"], ["301"]]),
    ],
)
def test_every_page_of_the_catalogue_is_read_once(
    size: int, expected: list[list[str]], database: Database, clock: FakeClock
) -> None:
    harness = PricingHarness(database, clock, FakeShop(*product_variants(3), page_size=size))
    assert harness.run_async(pages(harness)) == expected


def test_an_empty_shop_has_one_empty_page(database: Database, clock: FakeClock) -> None:
    harness = PricingHarness(database, clock)
    assert harness.run_async(pages(harness)) == [[]]


class RepeatingCatalogue(FakeShop):
    """Pages through `cursors`, then returns the last cursor forever."""

    def __init__(self, *cursors: str) -> None:
        super().__init__()
        self.cursors = cursors

    async def page(self, after: str | None) -> CallResult[CataloguePage]:
        self.calls.append(("page", [after or ""]))
        return CallResult(
            CataloguePage([variant()], self.cursors[min(len(self.calls), len(self.cursors)) - 1])
        )


@pytest.mark.parametrize("cursors", [("1",), ("1", "2", "1", "end"), ("1", "2", "3", "2", "end")])
def test_an_endless_catalogue_is_refused(
    cursors: tuple[str, ...], database: Database, clock: FakeClock
) -> None:
    shop = RepeatingCatalogue(*cursors)
    harness = PricingHarness(database, clock, shop)
    with pytest.raises(PermanentError, match="the same page of its catalogue repeatedly"):
        harness.run_async(pages(harness))
    assert len(shop.calls) == max(len(cursors) - 1, 2)


TENTH_OFF = rule({"op": "percent", "value": -10})
products = st.lists(st.integers(0, 3), max_size=20)


def add_to_draft(draft: Draft, *amounts: int | None, products: list[int] | None = None) -> None:
    product_ids = products or [1] * len(amounts)
    variants = [
        variant(str(number), str(product), amount)
        for number, (amount, product) in enumerate(zip(amounts, product_ids, strict=True))
    ]
    draft.add(plan_target(price(TENTH_OFF, one), None, Decimal(0)) for one in draft.new(variants))


@given(products)
def test_variants_of_a_product_are_adjacent_and_keep_their_order(its: list[int]) -> None:
    with Draft() as draft:
        add_to_draft(draft, *[1000] * len(its), products=its)
        kept = [(str(row["product_id"]), int(str(row["variant_id"]))) for row in draft.targets()]
    order = list(dict.fromkeys(str(product) for product in its))
    assert kept == sorted(kept, key=lambda row: (order.index(row[0]), row[1]))
    assert len(kept) == len(its)


def test_large_amounts_are_exact() -> None:
    with Draft() as draft:
        add_to_draft(draft, 10**12, 999_999_999_999)
        kept = [row["after_json"] for row in draft.targets()]
    assert kept == [
        {"unit_amount": 900_000_000_000, "currency": "EUR", "compare_at": None},
        {"unit_amount": 899_999_999_999, "currency": "EUR", "compare_at": None},
    ]


def test_a_large_draft_is_spooled_to_a_file() -> None:
    many = planning._IN_MEMORY_BYTES // 400
    with Draft() as draft:
        add_to_draft(draft, *[1000] * many)
        assert [row["variant_id"] for row in draft.targets()] == [
            str(number) for number in range(many)
        ]


def test_unchanged_variants_are_counted_and_not_stored() -> None:
    with Draft() as draft:
        add_to_draft(draft, 1, None, 1000)
        assert [row["reason"] for row in draft.skipped()] == ["no_price"]
        assert (draft.tally.skipped, draft.tally.targets, draft.tally.catalogue) == (2, 1, 3)


def test_a_draft_drops_repeated_variants() -> None:
    with Draft() as draft:
        assert len(draft.new([variant("1"), variant("1"), variant("2")])) == 2
        assert draft.new([variant("2")]) == []
