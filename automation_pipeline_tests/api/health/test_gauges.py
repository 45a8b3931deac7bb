"""Gauges of the metrics page, counted from rows with a constant number of queries."""

from datetime import timedelta

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event, update

from automation_pipeline.api.metrics import exposition, labels_of
from automation_pipeline.audits.models.audits import AuditStatus
from automation_pipeline.automation.tables import NotificationRow, RunRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import (
    DAEMON,
    MetricValue,
    add_metrics,
    record_heartbeat,
)
from automation_pipeline.storage.outbox import NEVER, OutboxRow, enqueue
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests, mark_refused
from automation_pipeline.storage.statements import database_time
from automation_pipeline_tests.api.health.conftest import MakeServices
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.automation.post import make_ended_run
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.factories import make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.storage.processes import event as make_event


def families(services: Services) -> list[Metric]:
    """Metric families except histograms."""
    found = text_string_to_metric_families(exposition(services).decode())
    return [family for family in found if family.type != "histogram"]


def numbers(services: Services) -> dict[str, float]:
    """Sample values by `name{label=value}`."""
    values = {}
    for family in families(services):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            values[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return values


def add_run(
    database: Database, clock: FakeClock, schedule_id: int, status: str, *counts: int
) -> None:
    successful, failed, ignored = counts or (0, 0, 0)
    with database.transaction() as session:
        session.add(
            RunRow(
                schedule_id=schedule_id, status=status, trigger="manual", started_at=clock.now(), config_snapshot={},
                successful_fiches=successful, failed_fiches=failed, ignored_fiches=ignored,
            )
        )  # fmt: skip


def test_an_empty_system_has_zero_gauges(make_services: MakeServices) -> None:
    assert set(numbers(make_services()).values()) == {0}


def test_runs_and_fiches_are_counted_by_status(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    schedule_id = make_schedule(database, clock).id
    add_run(database, clock, schedule_id, "running")
    add_run(database, clock, schedule_id, "partial", 5, 2, 1)
    add_run(database, clock, schedule_id, "partial", 1, 1, 0)
    add_run(database, clock, schedule_id, "completed", 7, 0, 3)
    result = numbers(make_services())
    runs = {"pending": 0, "running": 1, "partial": 2, "completed": 1}
    assert {name: result[f"automation_runs{{status={name}}}"] for name in runs} == runs
    fiches = {"successful": 13, "failed": 3, "ignored": 4}
    assert {name: result[f"automation_fiches{{outcome={name}}}"] for name in fiches} == fiches


def test_queue_depths_are_reported_per_queue(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    with database.transaction() as session:
        file_requests(
            session,
            [NewRunRequest(f"request-{number}", "audit_fiche", {}, {}) for number in range(3)],
            clock.now(),
        )
        mark_refused(session, "request-1", "No")
    harness = AuditHarness(database, clock)
    harness.sell("1")
    harness.audit("1", harness.configure())
    result = numbers(make_services())
    assert (
        result["automation_queue_depth{queue=run_requests}"],
        result["automation_queue_depth{queue=audits}"],
    ) == (2, 0)
    with database.transaction() as session:
        harness_row = harness.row()
        session.execute(update(type(harness_row)).values(status=AuditStatus.RUNNING))
    assert numbers(make_services())["automation_queue_depth{queue=audits}"] == 1


def test_outbox_gauges_report_lag_and_parked_events(
    make_services: MakeServices, database: Database
) -> None:
    with database.transaction() as session:
        enqueue(
            session, [make_event("old"), make_event("new"), make_event("parked"), make_event("out")]
        )
        now = database_time(session)
        ages = {"old": 90, "new": 5, "parked": 9000, "out": 9999}
        for key, age in ages.items():
            values = {"occurred_at": now - timedelta(seconds=age)}
            values |= {"available_at": NEVER} if key == "parked" else {}
            values |= {"published_at": now} if key == "out" else {}
            session.execute(update(OutboxRow).where(OutboxRow.event_key == key).values(**values))
    result = numbers(make_services())
    assert (result["automation_outbox_waiting"], result["automation_outbox_parked"]) == (2, 1)
    assert 90 <= result["automation_outbox_lag_seconds"] < 600


def test_failed_notifications_and_daemon_silence_are_reported(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    make_ended_run(
        database, clock, webhookUrl="https://hooks.example.com/run", notifyEmails=["a@example.com"]
    )
    with database.transaction() as session:
        session.execute(
            update(NotificationRow)
            .where(NotificationRow.channel == "email")
            .values(status="failed")
        )
        record_heartbeat(session, DAEMON)
    result = numbers(make_services())
    assert result["automation_notifications_failed"] == 1
    assert 0 <= result["automation_daemon_silence_seconds"] < 600


def test_counts_of_all_processes_are_exposed_as_counters(
    make_services: MakeServices, database: Database
) -> None:
    with database.transaction() as session:
        add_metrics(
            session, [MetricValue("provider_calls_total", 'provider="crm",status="200"', 3)]
        )
        add_metrics(
            session, [MetricValue("provider_calls_total", 'provider="crm",status="200"', 2)]
        )
        add_metrics(
            session, [MetricValue("provider_calls_total", 'provider="llm",status="429"', 1)]
        )
    [counter] = [family for family in families(make_services()) if family.type == "counter"]
    assert [(dict(sample.labels), sample.value) for sample in counter.samples] == [
        ({"provider": "crm", "status": "200"}, 5),
        ({"provider": "llm", "status": "429"}, 1),
    ]


@every_case(
    ("written", "labels"),
    [
        ("", {}),
        ('a="1"', {"a": "1"}),
        ('a="x,y=\\"z\\"",b="back\\\\slash"', {"a": 'x,y="z"', "b": "back\\slash"}),
        ('a="two\\nlines"', {"a": "two\nlines"}),
    ],
)
def test_labels_are_unescaped(written: str, labels: dict[str, str]) -> None:
    assert labels_of(written) == labels


def test_metrics_take_a_constant_number_of_queries(
    make_services: MakeServices, database: Database, clock: FakeClock
) -> None:
    statements: list[str] = []
    event.listen(
        database.engine, "before_cursor_execute", lambda *given: statements.append(given[2])
    )
    exposition(make_services())
    few = len(statements)
    schedule_id = make_schedule(database, clock).id
    for _ in range(20):
        add_run(database, clock, schedule_id, "completed", 1, 1, 1)
    statements.clear()
    exposition(make_services())
    assert len(statements) == few <= 25
