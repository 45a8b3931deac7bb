"""The asset of the companies: their counts by status and age, and its checks."""

from datetime import timedelta

import dagster as dg
import pytest

from automation_pipeline.defs.enrichment import companies, companies_checks, company_enrichment
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.defs.enrichment.register_services import (
    RESOURCES,
    execute,
    set_up_enrichment,
)
from automation_pipeline_tests.fakes.registries import SIREN


def materialize() -> tuple[dict[str, object], dict[str, bool]]:
    """The metadata, and whether each check passed."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [companies, companies_checks], resources=RESOURCES, instance=instance
        )  # type: ignore[list-item]  checks are taken too
    [event] = result.asset_materializations_for_node("companies")
    page = {name: value.value for name, value in event.metadata.items()}
    return page, {one.check_name: one.passed for one in result.get_asset_check_evaluations()}


def test_without_companies_all_checks_pass(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up_enrichment(database, monkeypatch)
    page, checks = materialize()
    assert (page["companies"], page["masked"]) == (0, 0)
    assert checks == {"coverage": True, "freshness": True}


def test_companies_are_counted_by_status_and_age(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = set_up_enrichment(database, monkeypatch)
    for siren in (SIREN, "732829320"):
        execute(company_enrichment, job_id=setup.request(siren).job_id)
    page, checks = materialize()
    assert (page["companies"], page["status_success"], page["status_failed"]) == (1, 1, 1)
    assert "| up to a day | 1 |" in str(page["ages"])
    assert "| API_RECHERCHE_ENTREPRISES |  | – | 0 | 2 |" in str(page["sources"])
    assert checks == {"coverage": True, "freshness": True}
    setup.clock.advance(timedelta(days=31))
    page, checks = materialize()
    assert ("| older | 1 |" in str(page["ages"]), checks["freshness"]) == (True, False)
