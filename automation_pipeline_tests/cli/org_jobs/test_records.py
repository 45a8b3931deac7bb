"""Alerts that were raised, and who changed what."""

from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.webhooks import AlertSeverity
from automation_pipeline.org_jobs.queries.health import add_alerts
from automation_pipeline.org_jobs.rules.health import OrgAlertCondition, OrgJobsAlertName
from automation_pipeline_tests.cli.org_jobs.counter import Counter


def test_alerts_are_listed_newest_first(counter: Counter) -> None:
    raised = [
        OrgAlertCondition(
            org_id=org_id,
            name=OrgJobsAlertName.SCHEDULE_FAILED,
            severity=AlertSeverity.WARNING,
            subject="s-1",
            message=f"Failed [{number}] times",
        )
        for number, org_id in enumerate(["acme", None])
    ]
    with counter.terminal.database.transaction() as session:
        add_alerts(session, raised, SystemClock().now(), has_webhook=False)
    assert [one["id"] for one in counter.json("alerts")["alerts"]] == ["2", "1"]
    assert [one["orgId"] for one in counter.json("alerts", "--org", "acme")["alerts"]] == ["acme"]
    assert "acme schedule_failed warning s-1 Failed [0] times unsent" in counter.said(
        "alerts", "--org", "acme"
    )


def test_the_log_says_who_did_what_newest_first(counter: Counter) -> None:
    counter.org("globex")
    counter.json("orgs", "update", "acme", "--name", "New [name]")
    log = counter.json("audit-log", "--org", "acme")["log"]
    assert [(one["entity"], one["action"]) for one in log] == [
        ("organisation", "update"),
        ("organisation", "create"),
    ]
    assert 'cli:ada update organisation acme name: "Acme" -> "New [name]"' in counter.said(
        "audit-log"
    )
    page = counter.json("audit-log", "--limit", "1")
    assert page["more"] is True
    older = counter.json("audit-log", "--after", page["log"][0]["id"])["log"]
    assert [one["orgId"] for one in older] == ["globex", "acme"]
