"""Prometheus metrics of enrichment."""

import asyncio
from datetime import timedelta

from prometheus_client.parser import text_string_to_metric_families

from automation_pipeline.api.metrics import exposition
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.metrics import observe
from automation_pipeline.enrichment.jobs import work_enrichment
from automation_pipeline.enrichment.models import LATENCY_MS, RATE_LIMITED, Requester, SourceApi
from automation_pipeline.enrichment.requests import request_enrichment
from automation_pipeline.enrichment.sources import set_rest
from automation_pipeline.enrichment.sweep import sweep_enrichments
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.api.health.conftest import MakeServices
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.registries import (
    NO_BACKOFF,
    SIREN,
    FakeRegistry,
    record,
    registries,
)

REQUESTER = Requester(tenant_id="main", correlation_id="c-1", actor="user:12")


def read_metrics(services: Services) -> dict[str, dict[str, float]]:
    """Sample values of `enrichment_` metrics by name and label values."""
    values: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(exposition(services).decode()):
        for sample in family.samples:
            if sample.name.startswith("enrichment_"):
                values.setdefault(sample.name, {})[" ".join(sample.labels.values())] = sample.value
    return values


def enrich(database: Database, clock: FakeClock) -> None:
    given, context = {"siren": SIREN}, {"database": database, "clock": clock}
    created = request_enrichment(given, REQUESTER, options=NO_BACKOFF, **context)
    assert created.job_id is not None
    sources = registries(database, {SourceApi.SEARCH: FakeRegistry(record())})
    asyncio.run(work_enrichment(created.job_id, registries=sources, owner="a", **context))


def test_enrichment_metrics_are_zero_without_requests(make_services: MakeServices) -> None:
    document = read_metrics(make_services())
    assert set(document["enrichment_status"].values()) == {0}
    assert document["enrichment_stale_backlog"] == {"": 0}
    assert document["enrichment_source_resting"] == dict.fromkeys(SourceApi, 0)
    assert set(document["enrichment_duration_ms_bucket"].values()) == {0}


def test_enrichment_metrics_count_companies_sources_and_backlog(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    enrich(database, clock)
    with database.transaction() as session:
        set_rest(session, SourceApi.INPI, timedelta(days=90), "Banned.", clock.now())
    document = read_metrics(make_services())
    assert (
        document["enrichment_status"]["SUCCESS"],
        document["enrichment_source_calls_today"][SourceApi.SEARCH],
    ) == (1, 1)
    assert document["enrichment_source_resting"][SourceApi.INPI] == 1
    clock.advance(timedelta(days=31))
    sources = registries(database, {SourceApi.SEARCH: FakeRegistry()}, calls_a_day=1)
    sweep_enrichments(registries=sources, database=database, clock=clock, limit=50)
    document = read_metrics(make_services())
    assert document["enrichment_status"]["STALE"] == 1
    assert document["enrichment_stale_backlog"] == {"": 1}
    assert document["enrichment_source_calls_today"][SourceApi.SEARCH] == 0


def test_enrichment_counters_and_histograms_are_exposed(make_services: MakeServices) -> None:
    services = make_services()
    services.meter.count(RATE_LIMITED, source=SourceApi.INPI)
    observe(services.meter, LATENCY_MS, 800)
    services.metering.flush()
    document = read_metrics(services)
    assert document["enrichment_rate_limited_total"] == {SourceApi.INPI: 1}
    assert (
        document["enrichment_source_latency_ms_count"],
        document["enrichment_source_latency_ms_sum"],
    ) == (
        {"": 1},
        {"": 800},
    )
    assert "enrichment_source_latency_ms_bucket_total" not in document
