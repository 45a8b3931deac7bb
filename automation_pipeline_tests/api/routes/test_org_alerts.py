"""Alert and audit log routes."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.org_jobs.tables import OrgAlertRow
from automation_pipeline_tests.api.conftest import Member
from automation_pipeline_tests.org_jobs.data import OrgJobsData


def alert(orgs: OrgJobsData, org_id: str | None, subject: str) -> None:
    values = {"severity": "critical", "message": "Late", "status": "unsent"}
    with orgs.database.transaction() as session:
        row = OrgAlertRow(org_id=org_id, name="oldest_due", subject=subject, **values)
        row.raised_at = row.next_retry_at = orgs.now
        session.add(row)


def test_alerts_are_listed_newest_first_and_scheduler_alerts_only_to_operators(
    operator: TestClient, member: Member, orgs: OrgJobsData
) -> None:
    alert(orgs, "acme", "1")
    alert(orgs, None, "scheduler")
    alert(orgs, "acme", "2")
    assert [one["subject"] for one in operator.get("/api/org-alerts").json()["data"]] == [
        "2",
        "scheduler",
        "1",
    ]
    assert [one["subject"] for one in member("acme").get("/api/org-alerts").json()["data"]] == [
        "2",
        "1",
    ]
    page = operator.get("/api/org-alerts", params={"org": "acme", "limit": 1, "offset": 1}).json()
    assert ([one["subject"] for one in page["data"]], page["offset"]) == (["1"], 1)


def test_the_audit_log_can_be_paged_and_filtered(operator: TestClient, orgs: OrgJobsData) -> None:
    for name in ("one", "two"):
        operator.post("/api/org-servers", json={"name": name}, params={"org": "acme"})
    operator.post("/api/org-hosts", json={"name": "rack"}, params={"org": "acme"})
    entries = operator.get("/api/org-audit-log").json()["data"]
    assert [(entry["entity"], entry["action"]) for entry in entries] == [
        ("server", "create")
    ] * 2 + [("host", "create")]
    narrowed: list[tuple[dict[str, Any], slice]] = [
        ({"entity": "server"}, slice(0, 2)),
        ({"entity": "server", "entity_id": entries[1]["entityId"]}, slice(1, 2)),
        ({"after": entries[0]["id"], "limit": 1}, slice(1, 2)),
        ({"org": "globex"}, slice(0, 0)),
        ({"newest": True, "limit": 1}, slice(2, 3)),
    ]
    for query, wanted in narrowed:
        assert operator.get("/api/org-audit-log", params=query).json()["data"] == entries[wanted]


@pytest.mark.parametrize(
    ("path", "name"), [("/api/org-alerts", "org"), ("/api/org-audit-log", "after")]
)
def test_an_invalid_query_parameter_is_named(operator: TestClient, path: str, name: str) -> None:
    refused = operator.get(path, params={name: "No!"})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, name)
