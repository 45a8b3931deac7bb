"""The sensors of organisations' jobs: what a tick does and reports."""

import json
from datetime import timedelta

import dagster as dg
import pytest

from automation_pipeline.defs.org_jobs import due_org_schedules, org_job_alerts, org_job_queue
from automation_pipeline.org_jobs import runs
from automation_pipeline.org_jobs.events import FIRES
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.monitoring import all_metrics
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.clients.receiver import receiver
from automation_pipeline_tests.defs.org_jobs.org_services import RESOURCES, data_with_services
from automation_pipeline_tests.org_jobs.data import ORG, SERVICE, OrgJobsData

SENSORS = [due_org_schedules, org_job_queue, org_job_alerts]


def tick(sensor: dg.SensorDefinition) -> str:
    with dg.build_sensor_context(resources=RESOURCES) as context:
        result = sensor(context)
        assert isinstance(result, dg.SkipReason)
        return result.skip_message or ""


@pytest.fixture
def data(database: Database, monkeypatch: pytest.MonkeyPatch) -> OrgJobsData:
    return data_with_services(database, monkeypatch)


def due(data: OrgJobsData, **columns: object) -> str:
    at = data.now - timedelta(seconds=5)
    return data.schedule(job_type=SERVICE.name, next_run_at=at, next_scheduled_for=at, **columns)  # type: ignore[arg-type]


@pytest.mark.parametrize("sensor", SENSORS, ids=lambda sensor: sensor.name)
def test_an_idle_tick_is_skipped_and_stores_metrics(
    data: OrgJobsData, sensor: dg.SensorDefinition
) -> None:
    data.meter.count("before_total")
    assert tick(sensor)
    with data.database.reading() as session:
        assert "before_total" in [one.name for one in all_metrics(session)]


def test_a_due_schedule_is_dispatched_and_counted(data: OrgJobsData) -> None:
    schedule = due(data)
    assert tick(due_org_schedules) == "Dispatched 1."
    assert tick(due_org_schedules) == "Dispatched 0."
    [job] = data.jobs(schedule)
    assert (job.status, job.type) == ("pending", SERVICE.name)
    with data.database.reading() as session:
        assert [one.value for one in all_metrics(session) if one.name == FIRES] == [1]


def test_a_schedule_resumes_after_its_pause(data: OrgJobsData) -> None:
    over = data.now - timedelta(seconds=1)
    schedule = data.schedule(
        state="PAUSED", enabled=False, paused_until=over, job_type=SERVICE.name
    )
    assert tick(due_org_schedules) == "Resumed 1. Dispatched 0."
    assert data.schedule_row(schedule).state == "ACTIVE"


def test_a_worker_is_requested_once_for_a_ready_job(data: OrgJobsData) -> None:
    job_id = data.job(of_type=SERVICE)
    assert tick(org_job_queue).endswith("Requested 1 workers.")
    assert tick(org_job_queue).endswith("Requested 0 workers.")
    assert [config for _, config in data.requests()] == [{"job_run_id": data.run_row(job_id).id}]


def test_an_attempt_whose_worker_is_lost_is_given_up(data: OrgJobsData) -> None:
    job_id = data.running_job(of_type=SERVICE)
    data.set_run(data.run_row(job_id).id, lease_until=database_now(-1.0))
    assert tick(org_job_queue).startswith("Ended 1 stale")
    assert data.run_row(job_id).attempt_no == 2


def test_an_error_in_one_part_of_a_tick_does_not_stop_the_others(
    data: OrgJobsData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_kwargs: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(runs, "reap_jobs", broken)
    data.job(of_type=SERVICE)
    with pytest.raises(Exception, match="a bug"):
        tick(org_job_queue)
    assert len(data.requests()) == 1


def test_an_alert_is_raised_and_sent_to_the_webhook(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as hook:
        url = f"{hook.url}/alerts"
        data = data_with_services(
            database,
            monkeypatch,
            org_jobs_alert_webhook_url=url,
            webhook_allowed_origins=(hook.url,),
        )
        data.schedule(state="INVALID_CRON")
        assert tick(org_job_alerts) == "Raised 1 alerts; tried 1 webhooks."
        assert tick(org_job_alerts) == "Raised 0 alerts; tried 0 webhooks."
        assert [call.path for call in hook.calls] == ["/alerts"]
    assert [row.status for row in data.alerts()] == ["sent"]


def test_each_severity_uses_its_own_webhook_and_shape(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as events, receiver() as slack:
        data = data_with_services(
            database,
            monkeypatch,
            org_jobs_alert_webhook_url=f"{events.url}/v2/enqueue",
            org_jobs_alert_webhook_shape="pagerduty",
            org_jobs_critical_alert_webhook_url=f"{slack.url}/services",
            org_jobs_critical_alert_webhook_shape="slack",
            pagerduty_routing_key="routing-key-1",
            webhook_allowed_origins=(events.url, slack.url),
        )
        data.schedule(name="<!channel> & more", state="INVALID_CRON", next_run_at=None)
        failing = data.schedule(consecutive_failures=3)
        data.fire(failing, outcome="FAILED", error="No job could be made.")
        assert tick(org_job_alerts) == "Raised 2 alerts; tried 2 webhooks."
        [event], [message] = events.calls, slack.calls
    posted = json.loads(event.body)
    assert (posted["dedup_key"], posted["payload"]["severity"]) == (
        f"org_jobs.alert:schedule_failed:{failing}:{ORG}",
        "warning",
    )
    text = json.loads(message.body)["text"]
    assert text.startswith("CRITICAL: invalid_cron (org_jobs.alert)\n")
    assert "&lt;!channel&gt; &amp; more" in text
    assert f"orgId: {ORG}" in text.splitlines()
