"""Prometheus metrics of organisation schedules and jobs."""

from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event

from automation_pipeline.api.metrics import exposition
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.metrics import observe
from automation_pipeline.org_jobs.events import FIRE_LATENCY_MS, FIRES
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import MetricsFlusher
from automation_pipeline_tests.api.health.conftest import MakeServices
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.org_jobs.data import ORG, OTHER_ORG, READING, SERVICE, OrgJobsData


@pytest.fixture
def data(database: Database, clock: FakeClock) -> OrgJobsData:
    return OrgJobsData(database, clock)


def read_metrics(services: Services) -> dict[str, dict[str, float]]:
    """Sample values by metric name and label values."""
    values: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(exposition(services).decode()):
        for sample in family.samples:
            values.setdefault(sample.name, {})[" ".join(sample.labels.values())] = sample.value
    return values


def test_schedule_metrics_are_zero_without_schedules(make_services: MakeServices) -> None:
    document = read_metrics(make_services())
    assert (document["schedules_due_backlog"], document["schedules_oldest_due_age_seconds"]) == (
        {"": 0},
        {"": 0},
    )
    assert set(document["schedules_state"].values()) == {0}
    assert (document["org_jobs_queue_depth"], document["org_jobs_queue_depth_max"]) == (
        {"agent": 0, "service": 0},
        {"": 0},
    )
    assert document["org_jobs_running"] == {"": 0}
    assert set(document["schedules_fire_latency_ms_bucket"].values()) == {0}


def test_due_schedules_are_counted_with_the_age_of_the_oldest(
    make_services: MakeServices, data: OrgJobsData
) -> None:
    for minutes in (1, 5):
        due = data.now - timedelta(minutes=minutes)
        data.schedule(next_run_at=due, next_scheduled_for=due)
    data.schedule()
    data.schedule(state="PAUSED", enabled=False)
    data.schedule(state="INVALID_CRON", deleted_at=data.now)
    document = read_metrics(make_services())
    assert (document["schedules_due_backlog"], document["schedules_oldest_due_age_seconds"]) == (
        {"": 2},
        {"": 300},
    )
    assert document["schedules_state"] == {
        "ACTIVE": 3,
        "PAUSED": 1,
        "INVALID_CRON": 0,
        "COMPLETED": 0,
    }


def test_queue_metrics_do_not_name_organisations(
    make_services: MakeServices, data: OrgJobsData
) -> None:
    for of_type in (READING, READING, SERVICE):
        data.job(ORG, of_type)
    data.running_job(ORG, SERVICE)
    data.running_job(OTHER_ORG, READING)
    ended = data.job(OTHER_ORG, SERVICE)
    data.set_run(data.run_row(ended).id, status="success", finished_at=data.now)
    data.job(OTHER_ORG, READING)
    document = read_metrics(make_services())
    assert document["org_jobs_queue_depth"] == {"agent": 3, "service": 1}
    assert document["org_jobs_queue_depth_max"] == {"": 3}
    assert document["org_jobs_running"] == {"": 2}


def test_schedule_counters_and_histograms_are_exposed(
    make_services: MakeServices, database: Database
) -> None:
    services = make_services()
    services.meter.count(FIRES, outcome="skipped", reason="overlap")
    services.meter.count(FIRES, outcome="dispatched", reason="")
    observe(services.meter, FIRE_LATENCY_MS, 2_000)
    MetricsFlusher(services.meter, lambda: database).flush()
    document = read_metrics(services)
    assert document["schedules_fire_count_total"] == {"skipped overlap": 1, "dispatched ": 1}
    assert document["schedules_fire_latency_ms_count"] == {"": 1}
    assert document["schedules_fire_latency_ms_sum"] == {"": 2_000}
    assert document["schedules_fire_latency_ms_bucket"]["5000.0"] == 1


def test_metrics_take_a_constant_number_of_queries(
    make_services: MakeServices, data: OrgJobsData
) -> None:
    statements: list[str] = []
    event.listen(
        data.database.engine, "before_cursor_execute", lambda *given: statements.append(given[2])
    )
    services, counts = make_services(), []
    for orgs in ((), ("a", "b", "c")):
        for org_id in orgs:
            data.running_job(org_id, schedule_id=data.schedule(org_id))
        statements.clear()
        read_metrics(services)
        counts.append(len(statements))
    assert counts[0] == counts[1]
