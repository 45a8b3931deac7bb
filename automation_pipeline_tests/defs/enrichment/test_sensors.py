"""The sensor `sweep_enrichments`: what a tick does and reports."""

from datetime import timedelta

import dagster as dg
import pytest
from sqlalchemy import select, update

from automation_pipeline import bootstrap
from automation_pipeline.defs.enrichment import company_enrichment, sweep_enrichments
from automation_pipeline.enrichment.models import NOT_CONFIGURED
from automation_pipeline.enrichment.tables import EnrichmentJobRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import all_metrics
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.defs.enrichment.register_services import (
    RESOURCES,
    execute,
    refusal,
    set_up_enrichment,
)


def tick() -> str:
    with dg.build_sensor_context(resources=RESOURCES) as context:
        result = sweep_enrichments(context)
    assert isinstance(result, dg.SkipReason)
    return result.skip_message or ""


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_without_the_required_register_a_tick_is_skipped_with_the_reason(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up_enrichment(database, monkeypatch, configured=False)
    assert tick() == NOT_CONFIGURED


def test_an_old_company_becomes_stale_and_is_refreshed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = set_up_enrichment(database, monkeypatch)
    answer = setup.request()
    result = execute(company_enrichment, job_id=answer.job_id)
    assert result.success, refusal(result)
    bootstrap.services().meter.count("before_total")
    assert (
        tick() == "0 companies became stale; 0 refreshes and 0 replacement workers were requested."
    )
    with database.reading() as session:
        assert "before_total" in [one.name for one in all_metrics(session)]
    setup.clock.advance(timedelta(days=33))
    assert (
        tick() == "1 companies became stale; 1 refreshes and 0 replacement workers were requested."
    )
    with database.reading() as session:
        triggers = session.scalars(
            select(EnrichmentJobRow.trigger).order_by(EnrichmentJobRow.id)
        ).all()
    assert triggers == ["REQUEST_CREATED", "STALE_SWEEP"]


def test_a_worker_is_requested_again_for_a_job_without_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = set_up_enrichment(database, monkeypatch)
    setup.request()
    with database.transaction() as session:
        session.execute(update(RunRequestRow).values(state="refused"))
    setup.clock.advance(timedelta(hours=1))
    assert tick().endswith(" and 1 replacement workers were requested.")
