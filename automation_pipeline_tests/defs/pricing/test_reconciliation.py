"""The job `rule_reconciliation` and its schedule: one check of a run, or all monitored runs."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from automation_pipeline.defs.pricing import daily_pricing_reconciliation, rule_reconciliation
from automation_pipeline.orchestration.pricing import NOT_CONFIGURED
from automation_pipeline.pricing.models.runs import RuleRun
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.defs.pricing.shop_services import (
    RESOURCES,
    execute,
    harness_with_services,
    metadata_of,
    refusal,
)
from automation_pipeline_tests.pricing.harness import PricingHarness

OP = "reconcile"


@pytest.fixture
def harness(database: Database, monkeypatch: pytest.MonkeyPatch) -> PricingHarness:
    return harness_with_services(database, monkeypatch)


@pytest.fixture
def changed(harness: PricingHarness) -> RuleRun:
    """An applied run, one of whose prices was changed by hand."""
    ended = harness.work(harness.queued_run())
    harness.shop.edit("201", amount=1500)
    return ended


def test_a_check_of_a_run_reports_the_changed_prices(
    harness: PricingHarness, changed: RuleRun
) -> None:
    page = metadata_of(execute(rule_reconciliation, OP, run_id=changed.id, check="5m"))
    assert (page["runs"], page["checked"], page["mismatches"], page["unverified"]) == (1, 3, 1, 0)
    assert "| SKU-2-1 | 900 | 1500 | critical |" in str(page["details"])
    [check] = [one for one in harness.checks(changed.id) if one.name == "5m"]
    assert (check.mismatches, check.worst) == (1, "critical")


def test_a_check_that_reads_no_price_fails_with_the_reason(
    harness: PricingHarness, changed: RuleRun
) -> None:
    harness.shop.refuse_everything(FailureSignal(status=401))
    message = refusal(execute(rule_reconciliation, OP, run_id=changed.id, check="5m"))
    assert message.startswith("None of 3 prices could be read: ")


def test_every_manual_check_gets_its_own_name(harness: PricingHarness, changed: RuleRun) -> None:
    for _ in range(2):
        assert execute(rule_reconciliation, OP, run_id=changed.id).success
    names = [one.name for one in harness.checks(changed.id) if one.checked_at]
    assert names == ["manual-1", "manual-2"]


def test_without_a_run_id_all_monitored_runs_are_checked(
    harness: PricingHarness, changed: RuleRun
) -> None:
    harness.clock.advance(timedelta(hours=2))
    page = metadata_of(execute(rule_reconciliation, OP))
    assert (page["runs"], page["mismatches"]) == (1, 1)


def test_a_named_check_requires_a_run_id(harness: PricingHarness) -> None:
    assert refusal(execute(rule_reconciliation, OP, check="5m")).startswith(
        "check names a check of one run"
    )


@pytest.mark.parametrize("run_id", [0, -1, 2**63])
def test_a_run_id_out_of_bounds_is_rejected(harness: PricingHarness, run_id: int) -> None:
    assert refusal(execute(rule_reconciliation, OP, run_id=run_id)).startswith(
        "Invalid config: run_id: must be from 1"
    )


def test_an_unknown_check_name_is_rejected_with_one_sentence(
    harness: PricingHarness, changed: RuleRun
) -> None:
    for name in ("", "2h"):
        message = refusal(execute(rule_reconciliation, OP, run_id=changed.id, check=name))
        assert message.startswith("There is no such check: check: must be 5m")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"shop_api_base_url": None}, NOT_CONFIGURED),
        (
            {"worker_enable_reconciliation": False},
            "WORKER_ENABLE_RECONCILIATION is off: only manual reconciliations run.",
        ),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_daily_reconciliation_runs_only_with_a_configured_shop(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, object],
    expected: str | None,
) -> None:
    harness_with_services(database, monkeypatch, **settings)
    tick = datetime(2026, 5, 4, 4, 0, tzinfo=UTC)
    with dg.build_schedule_context(scheduled_execution_time=tick, resources=RESOURCES) as context:
        result = daily_pricing_reconciliation(context)
    if expected is None:
        assert isinstance(result, dg.RunRequest)
        assert result.run_key == "2026-05-04"
    else:
        assert isinstance(result, dg.SkipReason)
        assert result.skip_message == expected


def test_a_check_without_prices_succeeds(harness: PricingHarness) -> None:
    page = metadata_of(execute(rule_reconciliation, OP))
    assert (page["runs"], page["checked"], page["unverified"]) == (0, 0, 0)


def test_a_partly_unreadable_check_succeeds_and_an_unreadable_price_is_named(
    harness: PricingHarness, changed: RuleRun
) -> None:
    harness.shop.remove("101")
    page = metadata_of(execute(rule_reconciliation, OP, run_id=changed.id))
    assert page["checked"] == 2
