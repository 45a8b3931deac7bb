"""Alerts about schedules, jobs and hosts: raised as rows, and delivered to a webhook."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from automation_pipeline.core.alerts import AlertCondition, AlertReceiver, AlertSeverity
from automation_pipeline.core.webhooks import DeliveryPolicy, signature
from automation_pipeline.org_jobs.queries.health import ORG_ALERTS
from automation_pipeline.org_jobs.rules.health import OrgJobsAlertName
from automation_pipeline.org_jobs.tables import BatchRow
from automation_pipeline.storage.alerts import add_alerts, deliver_alerts, raise_alerts
from automation_pipeline_tests.fakes.post import FakeWebhookSender
from automation_pipeline_tests.org_jobs.bench import ORG, OTHER_ORG, SERVICE, Bench

MINUTE = timedelta(minutes=1)
SECRET = "s3cret"
URL = "https://hooks.example.com/jobs"
RECEIVERS = dict.fromkeys(AlertSeverity, AlertReceiver(URL))


def raised(bench: Bench, *, has_webhook: bool = True) -> list[tuple[str, str | None, str]]:
    receivers = RECEIVERS if has_webhook else {}
    found = raise_alerts(ORG_ALERTS, receivers, database=bench.database, clock=bench.clock)
    return [(one.name, one.org_id, one.subject) for one in found]


def failed_job(bench: Bench, error: str = "Broken.", org_id: str = ORG, **of_job: Any) -> int:
    job_id = bench.job(org_id, SERVICE, **of_job)
    ended = {"finished_at": bench.now}
    bench.set_run(
        bench.run_row(job_id).id, status="failed", error_code="FAILED", error=error, **ended
    )
    bench.set_job(job_id, **ended)
    return job_id


def batch(bench: Bench, schedule_id: str, status: str) -> int:
    day = bench.now - timedelta(days=1)
    row = BatchRow(
        org_id=ORG,
        schedule_id=schedule_id,
        type="backfill",
        status=status,
        behaviour="none",
        from_at=day,
        until_at=bench.now,
        total=1,
        created_by="user:1",
        created_at=day,
        finished_at=bench.now,
    )
    with bench.database.transaction() as session:
        session.add(row)
        session.flush()
        return row.id


def test_healthy_system_raises_no_alert(org_bench: Bench) -> None:
    org_bench.schedule()
    org_bench.server(host_id=org_bench.host())
    org_bench.job()
    assert raised(org_bench) == []


def test_failed_job_raises_one_alert_per_cooldown(
    org_bench: Bench,
) -> None:
    schedule = org_bench.schedule()
    first = failed_job(org_bench, "The server said no.", schedule_id=schedule)
    assert raised(org_bench) == [("job_run_failed", ORG, schedule)]
    [row] = org_bench.alerts()
    assert (row.severity, row.status, row.raised_at) == ("warning", "pending", org_bench.now)
    assert (
        row.message
        == f"A job has failed after the last attempt (HTTPS_CALL); the newest is job {first}: The server said no."
    )
    org_bench.pass_minutes(5)
    failed_job(org_bench, schedule_id=schedule)
    assert raised(org_bench) == []
    org_bench.pass_minutes(10)
    assert raised(org_bench) == [("job_run_failed", ORG, schedule)]
    org_bench.pass_minutes(20)
    assert raised(org_bench) == []


def test_alerts_about_jobs_without_a_schedule_are_per_type(org_bench: Bench) -> None:
    for org_id in (ORG, ORG, OTHER_ORG):
        failed_job(org_bench, org_id=org_id)
    assert sorted(raised(org_bench)) == [
        ("job_run_failed", ORG, f"{ORG}:HTTPS_CALL"),
        ("job_run_failed", OTHER_ORG, f"{OTHER_ORG}:HTTPS_CALL"),
    ]


def test_failing_schedule_raises_an_alert_and_its_pause_another(org_bench: Bench) -> None:
    schedule = org_bench.schedule(consecutive_failures=3, auto_pause_after=4)
    org_bench.fire(schedule, outcome="FAILED", error="No job could be made.")
    assert raised(org_bench) == [("schedule_failed", ORG, schedule)]
    org_bench.pass_minutes(1)
    org_bench.fire(schedule, outcome="FAILED", error="No job could be made.")
    paused = {"state": "PAUSED", "enabled": False, "next_run_at": None, "next_scheduled_for": None}
    org_bench.set_schedule(schedule, consecutive_failures=4, **paused)
    assert raised(org_bench) == [("schedule_failed", ORG, schedule)]
    assert [row.severity for row in org_bench.alerts()] == ["warning", "critical"]


def test_invalid_schedule_raises_one_alert(org_bench: Bench) -> None:
    gone = {"state": "INVALID_CRON", "next_run_at": None}
    schedule = org_bench.schedule(**gone)
    org_bench.schedule(**gone, deleted_at=org_bench.now)
    assert raised(org_bench) == [("invalid_cron", ORG, schedule)]
    org_bench.pass_minutes(60 * 24)
    assert raised(org_bench) == []


@pytest.mark.parametrize(("minutes", "is_raised"), [(5, False), (5.1, True)])
def test_overdue_schedule_raises_an_alert_about_the_scheduler(
    org_bench: Bench, minutes: float, is_raised: bool
) -> None:
    org_bench.schedule(next_run_at=org_bench.now, next_scheduled_for=org_bench.now)
    org_bench.pass_minutes(minutes)
    assert raised(org_bench) == ([("oldest_due", None, "scheduler")] if is_raised else [])


def test_schedule_planned_too_late_is_silent(org_bench: Bench) -> None:
    far = org_bench.now + timedelta(days=300)
    silent = org_bench.schedule(
        cron_expression="0 * * * *", next_run_at=far, next_scheduled_for=far
    )
    well = org_bench.schedule(cron_expression="0 * * * *", next_run_at=far, next_scheduled_for=far)
    org_bench.pass_minutes(125)
    assert raised(org_bench) == []
    org_bench.set_schedule(well, last_scheduled_for=org_bench.now - 5 * MINUTE)
    org_bench.pass_minutes(1)
    assert raised(org_bench) == [("silent_schedule", ORG, silent)]


def test_silent_host_raises_alerts(
    org_bench: Bench,
) -> None:
    host = org_bench.host()
    server = org_bench.server(host_id=host)
    org_bench.pass_minutes(4)
    assert raised(org_bench) == []
    org_bench.job(server_instance_id=server)
    assert raised(org_bench) == [("heartbeat_missed", ORG, str(host))]
    org_bench.pass_minutes(12)
    assert sorted(raised(org_bench)) == [("server_down", ORG, str(host))]
    org_bench.pass_minutes(30)
    assert sorted(raised(org_bench)) == [("heartbeat_missed", ORG, str(host))]


def test_jobs_at_work_on_a_silent_host_are_counted(org_bench: Bench) -> None:
    host = org_bench.host()
    job_id = org_bench.running_job()
    org_bench.set_run(org_bench.run_row(job_id).id, host_id=host)
    org_bench.pass_minutes(4)
    assert raised(org_bench) == [("heartbeat_missed", ORG, str(host))]
    assert "1 of its jobs are running and 0 are waiting" in org_bench.alerts()[0].message


@pytest.mark.parametrize("who", ["host", "organisation"])
def test_host_in_maintenance_may_be_silent(org_bench: Bench, who: str) -> None:
    host = org_bench.host()
    org_bench.job(server_instance_id=org_bench.server(host_id=host))
    until = org_bench.now + timedelta(hours=1)
    if who == "host":
        org_bench.set_host(host, maintenance_until=until)
    else:
        org_bench.organisation(maintenance_until=until)
    org_bench.pass_minutes(30)
    assert raised(org_bench) == []
    org_bench.pass_minutes(31)
    assert len(raised(org_bench)) == 2


def test_backfill_with_failed_jobs_raises_an_alert(org_bench: Bench) -> None:
    schedule = org_bench.schedule()
    spoilt = batch(org_bench, schedule, "completed_with_failures")
    batch(org_bench, schedule, "completed")
    assert raised(org_bench) == [("batch_failed", ORG, str(spoilt))]


def test_alert_without_a_webhook_is_only_stored(org_bench: Bench) -> None:
    failed_job(org_bench)
    raised(org_bench, has_webhook=False)
    assert [row.status for row in org_bench.alerts()] == ["unsent"]


def test_old_events_raise_no_alert(org_bench: Bench) -> None:
    failed_job(org_bench)
    org_bench.pass_minutes(61)
    assert raised(org_bench) == []


def test_the_number_of_alert_queries_is_constant(org_bench: Bench) -> None:
    def trouble(org_id: str) -> None:
        failed_job(
            org_bench, org_id=org_id, schedule_id=org_bench.schedule(org_id, consecutive_failures=3)
        )
        org_bench.job(
            org_id, server_instance_id=org_bench.server(org_id, host_id=org_bench.host(org_id))
        )
        org_bench.schedule(org_id, state="INVALID_CRON", next_run_at=None)

    asked: list[str] = []
    event.listen(
        org_bench.database.engine, "before_cursor_execute", lambda *given: asked.append(given[2])
    )
    counts: list[int] = []
    for orgs in (["a"], ["b", "c", "d"]):
        for org_id in orgs:
            trouble(org_id)
        org_bench.pass_minutes(4)
        asked.clear()
        assert raised(org_bench)
        counts.append(len([query for query in asked if not query.lstrip().startswith("INSERT")]))
    assert counts[0] == counts[1]


DOWN = AlertCondition(
    org_id=ORG,
    name=OrgJobsAlertName.SERVER_DOWN,
    severity=AlertSeverity.CRITICAL,
    subject="7",
    message="Host 'h1' has been silent for 16 min: its servers count as down.",
)


def deliver(bench: Bench, sender: FakeWebhookSender) -> int:
    work = deliver_alerts(
        ORG_ALERTS,
        RECEIVERS,
        sender=sender,
        secret=SECRET,
        patience=DeliveryPolicy(attempts=1),
        database=bench.database,
    )
    return asyncio.run(work)


def test_a_receiver_gets_an_alert_once_and_can_check_its_signature(org_bench: Bench) -> None:
    org_bench.organisation()
    with org_bench.database.transaction() as session:
        add_alerts(session, ORG_ALERTS, [DOWN], org_bench.now, RECEIVERS)
    sender = FakeWebhookSender()
    assert [deliver(org_bench, sender) for _ in range(2)] == [1, 0]
    [posted], [row] = sender.posted, org_bench.alerts()
    assert posted.url == URL
    assert json.loads(posted.body) == {
        "event": "org_jobs.alert",
        "alert": {
            "id": str(row.id),
            "name": "server_down",
            "severity": "critical",
            "subject": "7",
            "message": DOWN.message,
            "orgId": ORG,
            "raisedAt": "2026-05-04T10:00:00.000Z",
        },
    }
    headers = posted.headers
    assert (headers["X-Automation-Event"], headers["X-Automation-Delivery"]) == (
        "org_jobs.alert",
        f"org-jobs-alert-{row.id}",
    )
    moment = int(headers["X-Automation-Signature"].removeprefix("t=").partition(",")[0])
    assert headers["X-Automation-Signature"] == signature(SECRET, posted.body, moment)
    assert (row.status, row.attempts, row.status_code, row.sent_at is not None) == (
        "sent",
        1,
        200,
        True,
    )
