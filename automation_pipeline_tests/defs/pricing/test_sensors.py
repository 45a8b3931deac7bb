"""The sensors of pricing: what a tick does and reports, and that it is skipped without a shop."""

import json
from datetime import timedelta

import dagster as dg
import pytest
from sqlalchemy import update

from automation_pipeline.core.clock import iso
from automation_pipeline.defs.pricing import (
    due_pricing_rules,
    due_rule_checks,
    pricing_alerts,
    sweep_rule_runs,
)
from automation_pipeline.orchestration.pricing import NOT_CONFIGURED
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.clients.receiver import receiver, respond
from automation_pipeline_tests.defs.pricing.shop_services import RESOURCES, harness_with_services
from automation_pipeline_tests.pricing.rows import alert_rows, make_ended_run

SENSORS = [due_pricing_rules, due_rule_checks, sweep_rule_runs, pricing_alerts]


def tick(sensor: dg.SensorDefinition) -> str:
    with dg.build_sensor_context(resources=RESOURCES) as context:
        result = sensor(context)
    assert isinstance(result, dg.SkipReason)
    return result.skip_message or ""


@pytest.mark.parametrize("sensor", SENSORS, ids=lambda sensor: sensor.name)
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_without_a_shop_a_tick_is_skipped(
    database: Database, monkeypatch: pytest.MonkeyPatch, sensor: dg.SensorDefinition
) -> None:
    harness_with_services(database, monkeypatch, shop_api_base_url=None, shop_api_token=None)
    assert tick(sensor) == NOT_CONFIGURED


@pytest.mark.parametrize("sensor", SENSORS, ids=lambda sensor: sensor.name)
def test_an_idle_pricing_tick_is_skipped(
    database: Database, monkeypatch: pytest.MonkeyPatch, sensor: dg.SensorDefinition
) -> None:
    harness_with_services(database, monkeypatch)
    assert tick(sensor)


def test_a_due_rule_is_started(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = harness_with_services(database, monkeypatch)
    harness.rule(scheduleAt=iso(harness.clock.now() - timedelta(seconds=1)))
    tick(due_pricing_rules)
    assert [config for _, config in harness.requests()] == [{"run_id": 1}]
    assert harness.run(1).trigger == "schedule"


def test_a_due_check_is_requested(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = harness_with_services(database, monkeypatch)
    ended = harness.work(harness.queued_run())
    assert tick(due_rule_checks) == "No check is due."
    harness.clock.advance(timedelta(minutes=6))
    assert tick(due_rule_checks).startswith("Filed rule-check-")
    assert harness.requests()[-1][1] == {"run_id": ended.id, "check": "5m"}


def test_without_reconciliation_no_check_is_requested(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness_with_services(database, monkeypatch, worker_enable_reconciliation=False)
    assert tick(due_rule_checks) == "WORKER_ENABLE_RECONCILIATION is off."


def test_a_worker_is_requested_again_for_a_run_without_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = harness_with_services(database, monkeypatch)
    run = harness.queued_run()
    assert tick(sweep_rule_runs) == "No run lacks a worker."
    with database.transaction() as session:
        session.execute(update(RunRequestRow).values(state="refused"))
    assert tick(sweep_rule_runs) == f"Requested workers for runs {run.id}."
    assert len(harness.requests()) == 2


def test_an_alert_is_raised_and_delivered(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as hook:
        url = f"{hook.url}/alerts"
        harness = harness_with_services(
            database,
            monkeypatch,
            pricing_alert_webhook_url=url,
            webhook_allowed_origins=(hook.url,),
        )
        make_ended_run(database, harness.clock, 89, 11)
        assert tick(pricing_alerts) == "Raised 1 alerts; tried 1 webhooks."
        assert tick(pricing_alerts) == "Raised 0 alerts; tried 0 webhooks."
        assert [call.path for call in hook.calls] == ["/alerts"]
    assert [row.status for row in alert_rows(database)] == ["sent"]


def test_warnings_go_to_slack_and_critical_alerts_to_pagerduty(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as slack, receiver() as pager:
        pager.answer(respond(202, "accepted"))
        harness = harness_with_services(
            database,
            monkeypatch,
            pricing_alert_webhook_url=f"{slack.url}/services/T1/B1/x",
            pricing_alert_webhook_shape="slack",
            pricing_critical_alert_webhook_url=f"{pager.url}/v2/enqueue",
            pricing_critical_alert_webhook_shape="pagerduty",
            pagerduty_routing_key="routing-key-1",
            webhook_secret="signing-secret",
            webhook_allowed_origins=(slack.url, pager.url),
        )
        make_ended_run(database, harness.clock, 96, 4, project_id="hats")
        make_ended_run(database, harness.clock, 89, 11, project_id="shoes")
        assert tick(pricing_alerts) == "Raised 2 alerts; tried 2 webhooks."
        [message], [event] = slack.calls, pager.calls
    raised_at = iso(harness.clock.now())
    assert json.loads(message.body) == {
        "text": "WARNING: success_rate (pricing.alert)\nOnly 96.0% of 100 price changes succeeded.\n"
        f"project: hats\nraisedAt: {raised_at}",
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }
    critical = next(row for row in alert_rows(database) if row.project_id == "shoes")
    assert json.loads(event.body) == {
        "routing_key": "routing-key-1",
        "event_action": "trigger",
        "dedup_key": "pricing.alert:success_rate:shoes",
        "payload": {
            "summary": "Only 89.0% of 100 price changes succeeded.",
            "source": "automation-pipeline",
            "severity": "critical",
            "timestamp": raised_at,
            "group": "pricing.alert",
            "class": "success_rate",
            "custom_details": {"id": str(critical.id), "project": "shoes"},
        },
    }
    for call in (message, event):
        headers = {name.lower(): value for name, value in call.headers.items()}
        assert headers["content-type"] == "application/json"
        assert not [name for name in headers if name.startswith("x-automation")]
    assert {row.status for row in alert_rows(database)} == {"sent"}


def test_an_alert_without_a_webhook_is_only_stored(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = harness_with_services(database, monkeypatch)
    make_ended_run(database, harness.clock, 89, 11)
    assert tick(pricing_alerts) == "Raised 1 alerts; tried 0 webhooks."
    assert [row.status for row in alert_rows(database)] == ["unsent"]
