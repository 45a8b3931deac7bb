"""Whether the shop still has a run's prices: differences, what could not be read, and what is
nobody's business."""

from datetime import timedelta

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.pricing.checks import reconcile_run
from automation_pipeline.pricing.models.history import ReconciliationReport
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal, ShopRestingError
from automation_pipeline.pricing.queries.checks import checks_of
from automation_pipeline.pricing.runs import roll_back_run
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.shop import PRICES, FakeShop, shelf
from automation_pipeline_tests.pricing.bench import Bench

BUSY, REFUSED = FailureSignal(status=500), FailureSignal(status=401)


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    """Nobody waits for another try."""
    return Bench(database, clock, FakeShop(*shelf(3)), {"longest_pause_seconds": 0.0})


def applied(bench: Bench, **rule: object) -> RuleRun:
    run = bench.work(bench.queued(bench.rule(**rule)))
    bench.shop.called.clear()
    return run


def look(bench: Bench, run: RuleRun, name: str = "5m") -> ReconciliationReport:
    return bench.loop(reconcile_run(run.id, bench.context, name=name))


def test_prices_that_stand_are_no_news(bench: Bench) -> None:
    run = applied(bench)
    found = look(bench, run)
    assert (found.total_checked, found.mismatches, found.unverified) == (3, 0, ())
    assert bench.shop.called == [("prices", ("101", "201", "301"))]
    with bench.database.reading() as session:
        first, second = checks_of(session, run.id)
    assert (first.name, first.checked_at, first.worst, first.report) == (
        "5m",
        bench.clock.now(),
        None,
        found,
    )
    assert (second.name, second.checked_at, second.report) == ("1h", None, None)
    assert bench.events("automation.reconciliation.mismatch") == []


@pytest.mark.parametrize(
    ("edited", "severity", "difference"),
    [
        ({"amount": 901}, "info", 1),
        ({"amount": 909}, "warning", 9),
        ({"amount": 910}, "critical", 10),
        ({"currency": "USD"}, "critical", None),
    ],
)
def test_every_difference_is_told_with_its_weight(
    bench: Bench, edited: dict[str, object], severity: str, difference: int | None
) -> None:
    run = applied(bench)
    bench.shop.edit("201", **edited)
    found = look(bench, run)
    [detail] = found.details
    target = bench.targets(run.id)[1]
    assert (detail.target_id, detail.sku_id, detail.severity) == (
        str(target.id),
        "SKU-2-1",
        severity,
    )
    assert (detail.expected_price, detail.difference) == (900, difference)
    [event] = bench.events("automation.reconciliation.mismatch")
    assert event.key == f"{run.id}:{target.id}:mismatch:5m"
    told = {
        "targetId": str(target.id),
        "runId": str(run.id),
        "expected": 900,
        "difference": difference,
    }
    assert (
        event.payload.items()
        >= {**told, "severity": severity, "actual": detail.actual_price}.items()
    )
    assert next(check for check in bench.checks(run.id) if check.name == "5m").worst == severity


def test_what_is_gone_is_not_verified_and_no_mismatch(bench: Bench) -> None:
    run = applied(bench)
    bench.shop.remove("101")
    bench.shop.edit("201", amount=1)
    found = look(bench, run)
    assert (found.total_checked, found.mismatches) == (2, 1)
    assert [one.reason for one in found.unverified] == [
        "the variant, or its price, is not in the shop any more"
    ]


def test_a_read_that_fails_proves_nothing(bench: Bench) -> None:
    run = applied(bench)
    bench.shop.fail_always(PRICES, BUSY)
    found = look(bench, run)
    assert (found.total_checked, found.mismatches, len(found.unverified)) == (0, 0, 3)
    assert "The shop fails as it was told to" in found.unverified[0].reason
    assert bench.events("automation.reconciliation.mismatch") == []


def test_a_check_that_was_made_is_not_made_again(bench: Bench) -> None:
    run = applied(bench)
    found = look(bench, run)
    bench.shop.edit("101", amount=1)
    assert look(bench, run) == found
    assert look(bench, run, "manual-1").mismatches == 1
    assert bench.shop.times("prices") == 2


def test_only_what_was_applied_last_is_expected(bench: Bench) -> None:
    first = applied(bench)
    second = applied(bench, name="Later", selector={"sku": "SKU-1-1"})
    assert [one.status for one in bench.targets(second.id)] == ["APPLIED"]
    assert (look(bench, first).total_checked, look(bench, second).total_checked) == (2, 1)
    roll_back_run(second.id, database=bench.database, clock=bench.clock, actor="user:1")
    bench.work(second)
    again = look(bench, first, "1h")
    assert (again.total_checked, again.mismatches) == (3, 0)


def test_what_is_being_changed_is_left_open(bench: Bench) -> None:
    run = applied(bench)
    bench.shop.edit("101", amount=1)
    bench.set_target(bench.targets(run.id)[0].id, is_writing=True)
    found = look(bench, run)
    assert (found.mismatches, [one.reason for one in found.unverified]) == (
        0,
        ["its price was being changed meanwhile"],
    )


def test_what_is_taken_back_during_the_look_is_left_out(bench: Bench) -> None:
    run = applied(bench)
    first = bench.targets(run.id)[0]

    async def taken_back(_kind: str, _subject: object) -> None:
        bench.shop.edit("101", amount=1000)
        bench.set_target(first.id, status="ROLLED_BACK")

    bench.shop._meanwhile = taken_back
    found = look(bench, run)
    assert (found.total_checked, found.mismatches) == (2, 0)


def test_a_shop_that_wants_to_be_left_alone_leaves_the_check_due(bench: Bench) -> None:
    run = applied(bench)
    with bench.database.transaction() as session:
        shop = session.get_one(ShopRow, bench.front.name)
        shop.circuit, shop.until = "open", shop.measured_at + timedelta(days=36500)
    with pytest.raises(ShopRestingError):
        look(bench, run)
    assert {check.checked_at for check in bench.checks(run.id)} == {None}


def test_a_token_that_is_refused_is_not_tried_for_every_lot(bench: Bench) -> None:
    bench.shop = FakeShop(*shelf(300, 2))
    run = applied(bench)
    bench.knobs["calls_at_once"] = 1
    bench.shop.fail_always(PRICES, REFUSED)
    assert len(look(bench, run).unverified) == 600
    assert bench.shop.times("prices") == 1


def test_a_run_of_another_shop_cannot_be_verified(bench: Bench) -> None:
    run = applied(bench)
    bench.set_run(run.id, shop="other.test")
    found = look(bench, run)
    assert {one.reason for one in found.unverified} == {
        "it was applied in another shop, other.test"
    }
    assert bench.shop.called == []


def test_what_cannot_be_checked_is_refused(bench: Bench) -> None:
    preview = bench.previewed()
    with pytest.raises(
        ConflictError, match=f"Run {preview.id} is PREVIEW: nothing of it is applied"
    ):
        look(bench, preview)
    with pytest.raises(InvalidInputError, match="There is no such check"):
        look(bench, preview, "tomorrow")
    with pytest.raises(NotFoundError):
        look(bench, preview.model_copy(update={"id": 987654}))


def test_a_run_of_which_nothing_is_left_is_checked_all_the_same(bench: Bench) -> None:
    run = applied(bench)
    roll_back_run(run.id, database=bench.database, clock=bench.clock, actor="user:1")
    bench.work(run)
    assert look(bench, run).total_checked == 0
