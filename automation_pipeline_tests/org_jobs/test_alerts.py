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
from automation_pipeline_tests.fakes.senders import FakeWebhookSender
from automation_pipeline_tests.org_jobs.data import ORG, OTHER_ORG, SERVICE, OrgJobsData

MINUTE = timedelta(minutes=1)
SECRET = "s3cret"
URL = "https://hooks.example.com/jobs"
RECEIVERS = dict.fromkeys(AlertSeverity, AlertReceiver(URL))


def raised(data: OrgJobsData, *, has_webhook: bool = True) -> list[tuple[str, str | None, str]]:
    receivers = RECEIVERS if has_webhook else {}
    found = raise_alerts(ORG_ALERTS, receivers, database=data.database, clock=data.clock)
    return [(one.name, one.org_id, one.subject) for one in found]


def add_failed_job(
    data: OrgJobsData, error: str = "Broken.", org_id: str = ORG, **of_job: Any
) -> int:
    job_id = data.job(org_id, SERVICE, **of_job)
    ended = {"finished_at": data.now}
    data.set_run(
        data.run_row(job_id).id, status="failed", error_code="FAILED", error=error, **ended
    )
    data.set_job(job_id, **ended)
    return job_id


def add_batch(data: OrgJobsData, schedule_id: str, status: str) -> int:
    day = data.now - timedelta(days=1)
    row = BatchRow(
        org_id=ORG,
        schedule_id=schedule_id,
        type="backfill",
        status=status,
        behaviour="none",
        from_at=day,
        until_at=data.now,
        total=1,
        created_by="user:1",
        created_at=day,
        finished_at=data.now,
    )
    with data.database.transaction() as session:
        session.add(row)
        session.flush()
        return row.id


def test_healthy_system_raises_no_alert(data: OrgJobsData) -> None:
    data.schedule()
    data.server(host_id=data.host())
    data.job()
    assert raised(data) == []


def test_failed_job_raises_one_alert_per_cooldown(
    data: OrgJobsData,
) -> None:
    schedule = data.schedule()
    first = add_failed_job(data, "The server said no.", schedule_id=schedule)
    assert raised(data) == [("job_run_failed", ORG, schedule)]
    [row] = data.alerts()
    assert (row.severity, row.status, row.raised_at) == ("warning", "pending", data.now)
    assert (
        row.message
        == f"A job has failed after the last attempt (HTTPS_CALL); the newest is job {first}: The server said no."
    )
    data.advance_minutes(5)
    add_failed_job(data, schedule_id=schedule)
    assert raised(data) == []
    data.advance_minutes(10)
    assert raised(data) == [("job_run_failed", ORG, schedule)]
    data.advance_minutes(20)
    assert raised(data) == []


def test_alerts_about_jobs_without_a_schedule_are_per_type(data: OrgJobsData) -> None:
    for org_id in (ORG, ORG, OTHER_ORG):
        add_failed_job(data, org_id=org_id)
    assert sorted(raised(data)) == [
        ("job_run_failed", ORG, f"{ORG}:HTTPS_CALL"),
        ("job_run_failed", OTHER_ORG, f"{OTHER_ORG}:HTTPS_CALL"),
    ]


def test_failing_schedule_raises_an_alert_and_its_pause_another(data: OrgJobsData) -> None:
    schedule = data.schedule(consecutive_failures=3, auto_pause_after=4)
    data.fire(schedule, outcome="FAILED", error="No job could be made.")
    assert raised(data) == [("schedule_failed", ORG, schedule)]
    data.advance_minutes(1)
    data.fire(schedule, outcome="FAILED", error="No job could be made.")
    paused = {"state": "PAUSED", "enabled": False, "next_run_at": None, "next_scheduled_for": None}
    data.set_schedule(schedule, consecutive_failures=4, **paused)
    assert raised(data) == [("schedule_failed", ORG, schedule)]
    assert [row.severity for row in data.alerts()] == ["warning", "critical"]


def test_invalid_schedule_raises_one_alert(data: OrgJobsData) -> None:
    gone = {"state": "INVALID_CRON", "next_run_at": None}
    schedule = data.schedule(**gone)
    data.schedule(**gone, deleted_at=data.now)
    assert raised(data) == [("invalid_cron", ORG, schedule)]
    data.advance_minutes(60 * 24)
    assert raised(data) == []


@pytest.mark.parametrize(("minutes", "is_raised"), [(5, False), (5.1, True)])
def test_overdue_schedule_raises_an_alert_about_the_scheduler(
    data: OrgJobsData, minutes: float, is_raised: bool
) -> None:
    data.schedule(next_run_at=data.now, next_scheduled_for=data.now)
    data.advance_minutes(minutes)
    assert raised(data) == ([("oldest_due", None, "scheduler")] if is_raised else [])


def test_schedule_planned_too_late_is_silent(data: OrgJobsData) -> None:
    far = data.now + timedelta(days=300)
    silent = data.schedule(cron_expression="0 * * * *", next_run_at=far, next_scheduled_for=far)
    healthy = data.schedule(cron_expression="0 * * * *", next_run_at=far, next_scheduled_for=far)
    data.advance_minutes(125)
    assert raised(data) == []
    data.set_schedule(healthy, last_scheduled_for=data.now - 5 * MINUTE)
    data.advance_minutes(1)
    assert raised(data) == [("silent_schedule", ORG, silent)]


def test_silent_host_raises_alerts(
    data: OrgJobsData,
) -> None:
    host = data.host()
    server = data.server(host_id=host)
    data.advance_minutes(4)
    assert raised(data) == []
    data.job(server_instance_id=server)
    assert raised(data) == [("heartbeat_missed", ORG, str(host))]
    data.advance_minutes(12)
    assert sorted(raised(data)) == [("server_down", ORG, str(host))]
    data.advance_minutes(30)
    assert sorted(raised(data)) == [("heartbeat_missed", ORG, str(host))]


def test_jobs_at_work_on_a_silent_host_are_counted(data: OrgJobsData) -> None:
    host = data.host()
    job_id = data.running_job()
    data.set_run(data.run_row(job_id).id, host_id=host)
    data.advance_minutes(4)
    assert raised(data) == [("heartbeat_missed", ORG, str(host))]
    assert "1 of its jobs are running and 0 are waiting" in data.alerts()[0].message


@pytest.mark.parametrize("closed", ["host", "organisation"])
def test_host_in_maintenance_may_be_silent(data: OrgJobsData, closed: str) -> None:
    host = data.host()
    data.job(server_instance_id=data.server(host_id=host))
    until = data.now + timedelta(hours=1)
    if closed == "host":
        data.set_host(host, maintenance_until=until)
    else:
        data.organisation(maintenance_until=until)
    data.advance_minutes(30)
    assert raised(data) == []
    data.advance_minutes(31)
    assert len(raised(data)) == 2


def test_backfill_with_failed_jobs_raises_an_alert(data: OrgJobsData) -> None:
    schedule = data.schedule()
    failed = add_batch(data, schedule, "completed_with_failures")
    add_batch(data, schedule, "completed")
    assert raised(data) == [("batch_failed", ORG, str(failed))]


def test_alert_without_a_webhook_is_only_stored(data: OrgJobsData) -> None:
    add_failed_job(data, "x" * 301)
    raised(data, has_webhook=False)
    [row] = data.alerts()
    assert (row.status, row.message.rpartition(": ")[2]) == ("unsent", "x" * 300)


def test_old_events_raise_no_alert(data: OrgJobsData) -> None:
    add_failed_job(data)
    data.advance_minutes(61)
    assert raised(data) == []


def test_the_number_of_alert_queries_is_constant(data: OrgJobsData) -> None:
    def add_problems(org_id: str) -> None:
        add_failed_job(
            data, org_id=org_id, schedule_id=data.schedule(org_id, consecutive_failures=3)
        )
        data.job(org_id, server_instance_id=data.server(org_id, host_id=data.host(org_id)))
        data.schedule(org_id, state="INVALID_CRON", next_run_at=None)

    executed: list[str] = []
    event.listen(
        data.database.engine, "before_cursor_execute", lambda *given: executed.append(given[2])
    )
    counts: list[int] = []
    for orgs in (["a"], ["b", "c", "d"]):
        for org_id in orgs:
            add_problems(org_id)
        data.advance_minutes(4)
        executed.clear()
        assert raised(data)
        counts.append(len([query for query in executed if not query.lstrip().startswith("INSERT")]))
    assert counts[0] == counts[1]


DOWN = AlertCondition(
    org_id=ORG,
    name=OrgJobsAlertName.SERVER_DOWN,
    severity=AlertSeverity.CRITICAL,
    subject="7",
    message="Host 'h1' has been silent for 16 min: its servers count as down.",
)


def deliver(data: OrgJobsData, sender: FakeWebhookSender) -> int:
    work = deliver_alerts(
        ORG_ALERTS,
        RECEIVERS,
        sender=sender,
        secret=SECRET,
        policy=DeliveryPolicy(attempts=1),
        database=data.database,
    )
    return asyncio.run(work)


def test_a_receiver_gets_an_alert_once_and_can_check_its_signature(data: OrgJobsData) -> None:
    data.organisation()
    with data.database.transaction() as session:
        add_alerts(session, ORG_ALERTS, [DOWN], data.now, RECEIVERS)
    sender = FakeWebhookSender()
    assert [deliver(data, sender) for _ in range(2)] == [1, 0]
    [posted], [row] = sender.posted, data.alerts()
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
