"""The asset of a day's runs: counts in the zone of the partitions, and its checks."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from automation_pipeline.defs.pricing import pricing_runs, pricing_runs_checks
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.defs.pricing.shop_services import RESOURCES, harness_with_services
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.pricing.rows import make_check, make_ended_run

DAY = "2026-05-04"
MIDNIGHT = datetime(2026, 5, 3, 22, 0, tzinfo=UTC)  # in Paris


@pytest.fixture(autouse=True)
def _services(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    harness_with_services(database, monkeypatch)


def materialize() -> tuple[dict[str, object], dict[str, tuple[bool, str]]]:
    """The metadata, and the result and severity of each check."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [pricing_runs, pricing_runs_checks],  # type: ignore[list-item]  checks are taken too
            partition_key=DAY,
            resources=RESOURCES,
            instance=instance,
        )
    [event] = result.asset_materializations_for_node("pricing_runs")
    page = {name: value.value for name, value in event.metadata.items()}
    return page, {
        one.check_name: (one.passed, one.severity.value)
        for one in result.get_asset_check_evaluations()
    }


def test_a_day_without_runs_passes_all_checks() -> None:
    page, checks = materialize()
    assert (page["runs"], "success_rate" in page, "table" in page) == (0, False, False)
    assert {passed for passed, _ in checks.values()} == {True}


def test_the_runs_that_ended_on_the_day_are_counted(database: Database) -> None:
    clock = FakeClock(MIDNIGHT)
    for hours in (-1, 0, 23, 24):
        make_ended_run(database, clock, 3, 1, ended=timedelta(hours=-hours))
    page, checks = materialize()
    assert (page["runs"], page["applied"], page["failed"], page["dead_letters"]) == (2, 6, 2, 2)
    assert page["success_rate"] == 0.75
    assert "| 2 | Summer sale | default | api | PARTIAL | 3 | 1 | 120.0 |" in str(page["table"])
    assert {passed for passed, _ in checks.values()} == {True}


def test_a_day_with_failures_fails_its_checks(database: Database) -> None:
    clock = FakeClock(MIDNIGHT + timedelta(hours=3))
    bad = make_ended_run(database, clock, 40, 51, status="APPLIED")
    make_check(database, bad, "5m", clock.now(), "critical", 1)
    _, checks = materialize()
    assert checks == {
        "success_rate": (False, "WARN"),
        "dead_letters": (False, "WARN"),
        "no_mismatch": (False, "ERROR"),
        "invariants": (False, "ERROR"),
    }
