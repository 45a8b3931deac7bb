"""Job types that organisations define for their agents."""

from typing import Any

from fastapi.testclient import TestClient

from automation_pipeline_tests.api.conftest import Member
from automation_pipeline_tests.org_jobs.data import OrgJobsData

PATH = "/api/org-jobs/types"
EXPORT: dict[str, Any] = {
    "name": "REPORT_EXPORT",
    "summary": "Export the report.",
    "isMutation": False,
    "limitSeconds": 600,
    "payloadSchema": {
        "type": "object",
        "required": ["format"],
        "properties": {"format": {"enum": ["csv"]}, "token": {"type": "string"}},
    },
}


def names(client: TestClient, **params: str) -> dict[str, Any]:
    return {one["name"]: one for one in client.get(PATH, params=params).json()["data"]}


def test_a_job_type_can_be_created_used_changed_and_deleted(
    member: Member, orgs: OrgJobsData
) -> None:
    acme = member("acme", "org-jobs.write", "org-jobs.read")
    created = acme.post(PATH, json=EXPORT)
    assert (created.status_code, created.json()["data"]["orgId"]) == (201, "acme")
    assert acme.post(PATH, json=EXPORT).status_code == 409
    assert names(acme)["REPORT_EXPORT"]["payloadSchema"] == EXPORT["payloadSchema"]
    assert "REPORT_EXPORT" not in names(member("globex", "org-jobs.read"))
    server = str(orgs.server("acme"))
    wanted = {"type": "REPORT_EXPORT", "serverInstanceId": server}
    refused = acme.post("/api/org-jobs", json={**wanted, "payload": {"format": "pdf"}})
    assert [one["field"] for one in refused.json()["details"]] == ["payload.format"]
    secret = {"format": "csv", "token": {"secretRef": "TOKEN"}}
    job = acme.post("/api/org-jobs", json={**wanted, "payload": secret}).json()["data"]
    assert (job["type"], job["performer"], job["payload"]) == ("REPORT_EXPORT", "agent", secret)
    in_use = acme.delete(f"{PATH}/REPORT_EXPORT")
    assert (in_use.status_code, "in use by 0 schedules and 1 jobs" in in_use.text) == (409, True)
    kept = acme.put(f"{PATH}/REPORT_EXPORT", json={"limitSeconds": 60}).json()["data"]
    assert (kept["summary"], kept["limitSeconds"]) == (EXPORT["summary"], 60)
    assert kept["payloadSchema"] == EXPORT["payloadSchema"]
    fields = {"summary": "Export it.", "payloadSchema": None}
    changed = acme.put(f"{PATH}/REPORT_EXPORT", json=fields).json()["data"]
    assert (changed["summary"], changed["isMutation"], changed["payloadSchema"]) == (
        "Export it.",
        EXPORT.get("isMutation", True),
        None,
    )
    acme.post(f"/api/org-jobs/{job['id']}/cancel", json={"atOnce": True})
    assert acme.delete(f"{PATH}/REPORT_EXPORT").status_code == 204
    assert acme.delete(f"{PATH}/REPORT_EXPORT").status_code == 404
    entries = acme.get("/api/org-audit-log", params={"entity": "job_type"}).json()["data"]
    assert sorted(one["action"] for one in entries) == ["create", "delete", "update", "update"]


def test_a_job_type_with_schedules_cannot_be_deleted(member: Member, orgs: OrgJobsData) -> None:
    acme = member("acme", "org-jobs.write", "org-jobs.read")
    acme.post(PATH, json={**EXPORT, "name": "SERVER_RESTART"})
    schedule = {
        "name": "Nightly",
        "cronExpression": "0 2 * * *",
        "jobType": "restart",
        "serverInstanceId": str(orgs.server("acme")),
        "payload": {"format": "csv"},
    }
    assert acme.post("/api/org-schedules/preview", json=schedule).status_code == 200
    refused_preview = acme.post(
        "/api/org-schedules/preview", json={**schedule, "payload": {}}
    ).json()
    assert [one["field"] for one in refused_preview["details"]] == ["payload.format"]
    stored = acme.post("/api/org-schedules", json=schedule).json()["data"]
    assert stored["jobType"] == "SERVER_RESTART"
    assert acme.delete(f"{PATH}/SERVER_RESTART").status_code == 409
    run_now = acme.post(f"/api/org-schedules/{stored['id']}/run-now", json={})
    assert run_now.status_code in {200, 201, 202}
