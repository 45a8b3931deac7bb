"""Prometheus metrics of pricing."""

from datetime import timedelta

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event

from automation_pipeline.api.metrics import exposition
from automation_pipeline.bootstrap import Services
from automation_pipeline.pricing.queries.runs import get_run
from automation_pipeline.pricing.worker import observe_durations
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import MetricsFlusher, MetricValue, add_metrics
from automation_pipeline_tests.api.health.conftest import MakeServices
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.pricing.rows import (
    change_run,
    make_check,
    make_ended_run,
    make_rule,
    make_run,
    make_shop,
)

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def read_metrics(services: Services) -> dict[str, dict[str, float]]:
    """Sample values of `rules_` metrics by name and label values."""
    values: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(exposition(services).decode()):
        for sample in family.samples:
            if sample.name.startswith("rules_"):
                values.setdefault(sample.name, {})[" ".join(sample.labels.values())] = sample.value
    return values


def test_pricing_metrics_are_minimal_without_runs(make_services: MakeServices) -> None:
    document = read_metrics(make_services())
    assert "rules_apply_success_rate" not in document
    assert document["rules_queue_age_seconds"] == {"": 0}
    assert document["rules_reconcile_mismatch"] == {"info": 0, "warning": 0, "critical": 0}
    assert set(document["rules_apply_duration_ms_bucket"].values()) == {0}


def test_success_rate_and_dead_letters_are_reported_per_project(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    make_ended_run(database, clock, 3, 1, project_id="shoes")
    make_ended_run(database, clock, 1, 0, project_id="hats")
    make_ended_run(database, clock, 0, 2, project_id="old", ended=timedelta(hours=2))
    document = read_metrics(make_services())
    assert document["rules_apply_success_rate"] == {"shoes": 0.75, "hats": 1}
    assert document["rules_dlq_size"] == {"shoes": 1, "hats": 0, "old": 2}


def test_run_durations_are_a_histogram(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    services, now = make_services(), clock.now()
    for seconds in (1, 4, 20, 100_000):
        began, queued = now - seconds * SECOND, now - (seconds + 60) * SECOND
        run_id = make_ended_run(
            database, clock, 1, ended=timedelta(0), started_at=began, queued_at=queued
        )
        with database.reading() as session:
            observe_durations(services.meter, get_run(session, run_id))
    MetricsFlusher(services.meter, lambda: database).flush()
    document = read_metrics(services)
    assert {name.partition("_ms_")[2] for name in document if "_ms" in name} == {
        "bucket",
        "sum",
        "count",
    }
    buckets = {
        int(float(bound)): count
        for bound, count in document["rules_apply_duration_ms_bucket"].items()
        if bound != "+Inf"
    }
    assert buckets == {
        1_000: 1, 5_000: 2, 15_000: 2, 60_000: 3, 300_000: 3, 900_000: 3, 3_600_000: 3, 14_400_000: 3,
    }  # fmt: skip
    assert (
        document["rules_apply_duration_ms_bucket"]["+Inf"]
        == document["rules_apply_duration_ms_count"][""]
        == 4
    )
    assert document["rules_apply_duration_ms_sum"] == {"": 100_025_000}
    waited = document["rules_queue_ms_bucket"]
    assert (waited["15000.0"], waited["60000.0"], document["rules_queue_ms_sum"][""]) == (
        0,
        4,
        240_000,
    )


def test_a_retried_run_keeps_its_histogram_counts(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    services = make_services()
    run_id = make_ended_run(database, clock, 1, 1)
    with database.reading() as session:
        observe_durations(services.meter, get_run(session, run_id))
    MetricsFlusher(services.meter, lambda: database).flush()
    before = {name: values for name, values in read_metrics(services).items() if "_ms_" in name}
    change_run(database, run_id, status="APPLYING", finished_at=None, retry_cycle=1)
    assert {
        name: values for name, values in read_metrics(services).items() if "_ms_" in name
    } == before
    assert before["rules_apply_duration_ms_count"] == {"": 1}


def test_mismatches_come_from_the_latest_check_of_each_run(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    now = clock.now()
    repaired, changed, other, long_ago = (make_ended_run(database, clock, 1) for _ in range(4))
    make_check(database, repaired, "5m", now - 9 * MINUTE, "critical", 7)
    make_check(database, repaired, "1h", now - MINUTE)
    make_check(database, changed, "5m", now - 9 * MINUTE, "info", 1)
    make_check(database, changed, "1h", now - MINUTE, "critical", 2)
    make_check(database, other, "5m", now, "critical", 3)
    make_check(database, long_ago, "5m", now - timedelta(days=31), "warning", 9)
    assert read_metrics(make_services())["rules_reconcile_mismatch"] == {
        "info": 0,
        "warning": 0,
        "critical": 5,
    }


def test_the_latest_check_with_a_result_counts(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    now = clock.now()
    early, unread, without, back = (make_ended_run(database, clock, 1) for _ in range(4))
    make_check(database, early, "1h", now, "critical", 1)
    make_check(database, early, "manual-1", now - MINUTE)
    make_check(database, unread, "5m", now - MINUTE, "warning", 2)
    make_check(database, unread, "1h", now, total_checked=0, unverified=2)
    make_check(database, without, "5m", now - MINUTE, "critical", 4)
    make_check(database, without, "2026-05-04", now, total_checked=0)
    make_check(database, back, "5m", now, "critical", 8)
    change_run(database, back, status="ROLLED_BACK")
    assert read_metrics(make_services())["rules_reconcile_mismatch"] == {
        "info": 0,
        "warning": 2,
        "critical": 1,
    }


def test_circuit_queue_and_guardrail_metrics_are_reported(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    make_shop(database, circuit="open")
    for minutes in (2, 7):
        make_run(
            database,
            make_rule(database, clock),
            "QUEUED",
            clock.now() - minutes * MINUTE,
            ["QUEUED"],
        )
    change_run(database, 1, blocked=4)
    change_run(database, 2, blocked=1)
    document = read_metrics(make_services())
    shop = "shop.example"
    assert document["rules_circuit_state"] == {
        f"{shop} closed": 0,
        f"{shop} open": 1,
        f"{shop} half_open": 0,
    }
    assert document["rules_queue_age_seconds"] == {"": 420}
    assert document["rules_guardrail_blocked_total"] == {"default": 5}


def test_worker_counters_are_exposed_with_their_labels(
    make_services: MakeServices, database: Database
) -> None:
    with database.transaction() as session:
        add_metrics(session, [MetricValue("rules_429_count_total", 'shop="shop.example"', 3)])
        add_metrics(session, [MetricValue("rules_target_retries_total", 'kind="manual"', 2)])
    document = read_metrics(make_services())
    assert document["rules_429_count_total"] == {"shop.example": 3}
    assert document["rules_target_retries_total"] == {"manual": 2}


def test_metrics_take_a_constant_number_of_queries(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    statements: list[str] = []
    event.listen(
        database.engine, "before_cursor_execute", lambda *given: statements.append(given[2])
    )
    services = make_services()
    make_rule(database, clock)  # a pending event adds the query for its age
    statements.clear()
    read_metrics(services)
    few = len(statements)
    for project in ("a", "b", "c", "d"):
        make_check(
            database,
            make_ended_run(database, clock, 2, 2, project_id=project),
            "5m",
            clock.now(),
            "info",
            1,
        )
    make_shop(database, 1)
    statements.clear()
    read_metrics(services)
    assert len(statements) == few
