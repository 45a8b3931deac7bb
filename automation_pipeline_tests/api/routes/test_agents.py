"""Agent routes: claims, heartbeats, progress, results and access."""

from collections.abc import Generator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from automation_pipeline.bootstrap import Services
from automation_pipeline_tests.api.conftest import MACHINE, Login, client_of
from automation_pipeline_tests.api.openapi_check import openapi_check
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.org_jobs.agent import Agent, make_agent
from automation_pipeline_tests.org_jobs.data import CHANGING, ORG, OTHER_ORG, READING, OrgJobsData

PATHS = ("heartbeat", "claim")
EVERYTHING = {"org-jobs.agents.read": "ALL", "org-jobs.agents.write": "ALL"}


@pytest.fixture
def agent(services: Services, clock: FakeClock) -> Agent:
    return make_agent(OrgJobsData(services.database, clock))


@pytest.fixture
def machine(api: FastAPI) -> Generator[TestClient]:
    """A client with a machine token. Validates responses against the OpenAPI document."""
    with client_of(api, MACHINE) as created:
        created.event_hooks = {"response": [openapi_check(api)]}
        yield created


def org_client(machine: TestClient, api: FastAPI, org_id: str) -> TestClient:
    request = {
        "name": org_id,
        "permissions": ["org-jobs.agents.write"],
        "scope": "ALL",
        "orgId": org_id,
    }
    return client_of(api, machine.post("/api/admin/tokens", json=request).json()["data"]["token"])


def host_path(agent: Agent, what: str) -> str:
    return f"/api/agents/hosts/{agent.host_id}/{what}"


def run_path(job: dict[str, Any], what: str) -> str:
    return f"/api/agents/runs/{job['runId']}/{what}"


def with_lease(job: dict[str, Any], **given: object) -> dict[str, object]:
    return {"attemptNo": job["attemptNo"], "leaseToken": job["leaseToken"], **given}


def test_an_agent_claims_a_job_and_reports_progress_and_result(
    machine: TestClient, agent: Agent
) -> None:
    job_id = agent.add_job(payload={"graceSeconds": 30})
    assert machine.get(host_path(agent, "runs")).json() == {"success": True, "data": []}
    (job,) = machine.post(host_path(agent, "claim")).json()["data"]
    assert {
        name: job[name]
        for name in ("jobId", "attemptNo", "maxAttempts", "leaseToken", "status", "type")
    } == {
        "jobId": str(job_id),
        "attemptNo": 1,
        "maxAttempts": 3,
        "leaseToken": 1,
        "status": "pending",
        "type": CHANGING.name,
    }
    assert (job["serverInstanceId"], job["payload"], job["deadlineAt"]) == (
        str(agent.server_id),
        {"graceSeconds": 30},
        None,
    )
    assert machine.get(host_path(agent, "runs")).json()["data"] == [job]
    orders = machine.post(
        run_path(job, "progress"), json=with_lease(job, percent=50, message="Half")
    ).json()["data"]
    assert (orders["cancelRequested"], set(orders)) == (
        False,
        {"cancelRequested", "leaseExpiresAt", "deadlineAt"},
    )
    (held,) = machine.get(host_path(agent, "runs")).json()["data"]
    assert (held["status"], held["deadlineAt"]) == ("running", orders["deadlineAt"])
    ended = machine.post(
        run_path(job, "result"), json=with_lease(job, status="success", result={"a": 1})
    )
    assert (ended.status_code, ended.json()["data"]["status"], ended.json()["data"]["result"]) == (
        200,
        "success",
        {"a": 1},
    )
    again = machine.post(
        run_path(job, "result"), json=with_lease(job, status="success", result={"a": 1})
    )
    assert again.json() == ended.json()
    other = machine.post(run_path(job, "result"), json=with_lease(job, status="failed"))
    assert (other.status_code, other.json()["code"]) == (409, "CONFLICT")
    stopped = machine.post(run_path(job, "progress"), json=with_lease(job))
    assert (stopped.status_code, "stop working on it" in stopped.json()["error"]) == (409, True)


def test_a_claim_returns_at_most_the_requested_number_of_jobs(
    machine: TestClient, agent: Agent
) -> None:
    for _ in range(3):
        agent.add_job(READING)
    assert len(machine.post(host_path(agent, "claim"), json={"most": 2}).json()["data"]) == 2
    assert len(machine.post(host_path(agent, "claim"), json={}).json()["data"]) == 1
    assert machine.post(host_path(agent, "claim")).json()["data"] == []


def test_a_heartbeat_stores_the_agent_version(machine: TestClient, agent: Agent) -> None:
    agent.data.set_host(agent.host_id, last_seen_at=None)
    document = machine.post(host_path(agent, "heartbeat"), json={"agentVersion": "1.4.0"}).json()[
        "data"
    ]
    assert (document["id"], document["orgId"], document["agentVersion"]) == (
        str(agent.host_id),
        ORG,
        "1.4.0",
    )
    assert document["lastSeenAt"] is not None
    assert machine.post(host_path(agent, "heartbeat")).json()["data"]["agentVersion"] == "1.4.0"


@pytest.mark.parametrize(
    ("what", "text", "fields"),
    [
        ("progress", {"percent": 101}, {"percent"}),
        ("progress", {"attemptNo": "1"}, {"attemptNo"}),
        ("result", {}, {"status"}),
        (
            "result",
            {"status": "failed", "errorCode": "disk full", "error": "x" * 2001},
            {"errorCode", "error"},
        ),
        ("result", {"status": "success", "result": {"a": "x" * 65_536}}, {"result"}),
    ],
)
def test_invalid_agent_reports_name_each_field(
    machine: TestClient, agent: Agent, what: str, text: dict[str, object], fields: set[str]
) -> None:
    agent.add_job()
    (job,) = machine.post(host_path(agent, "claim")).json()["data"]
    refused = machine.post(run_path(job, what), json=with_lease(job) | text)
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")
    assert {fault["field"] for fault in refused.json()["details"]} == fields


def test_a_result_nested_too_deeply_is_refused_and_not_stored(
    machine: TestClient, agent: Agent
) -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    job_id = agent.add_job()
    (job,) = machine.post(host_path(agent, "claim")).json()["data"]
    refused = machine.post(
        run_path(job, "result"), json=with_lease(job, status="success", result=deep)
    )
    assert refused.status_code == 400
    assert refused.json()["details"] == [
        {"field": "result", "message": "must not be nested more than 20 deep"}
    ]
    run = agent.data.run_row(job_id)
    assert (run.status, run.result) == ("pending", None)
    assert (
        machine.post(run_path(job, "result"), json=with_lease(job, status="success")).status_code
        == 200
    )


@pytest.mark.parametrize(
    ("what", "text"), [("claim", {"most": 0}), ("heartbeat", {"agentVersion": 1})]
)
def test_invalid_host_requests_name_each_field(
    machine: TestClient, agent: Agent, what: str, text: dict[str, Any]
) -> None:
    refused = machine.post(host_path(agent, what), json=text)
    assert (refused.status_code, [fault["field"] for fault in refused.json()["details"]]) == (
        400,
        list(text),
    )


class TestAccess:
    def test_an_organisation_can_access_only_its_own_hosts_and_runs(
        self, machine: TestClient, api: FastAPI, agent: Agent
    ) -> None:
        agent.add_job()
        own, other = (
            org_client(machine, api, ORG),
            org_client(machine, api, agent.data.organisation(OTHER_ORG)),
        )
        for what in PATHS:
            hidden = other.post(host_path(agent, what))
            assert (hidden.status_code, hidden.json()["code"]) == (404, "NOT_FOUND")
        assert other.get(host_path(agent, "runs")).status_code == 404
        (job,) = own.post(host_path(agent, "claim")).json()["data"]
        for what, result in (("progress", {}), ("result", {"status": "success"})):
            hidden = other.post(run_path(job, what), json=with_lease(job, **result))
            missing = other.post(f"/api/agents/runs/987654/{what}", json=with_lease(job, **result))
            assert (hidden.status_code, missing.status_code) == (404, 404)
            assert hidden.json()["error"].replace(job["runId"], "987654") == missing.json()["error"]
        assert own.get(host_path(agent, "runs")).json()["data"] == [job]
        assert (
            own.post(run_path(job, "result"), json=with_lease(job, status="success")).status_code
            == 200
        )

    @pytest.mark.parametrize("scope", ["SELF", "GROUP"])
    def test_a_caller_without_an_organisation_needs_the_scope_all(
        self, login: Login, agent: Agent, scope: str
    ) -> None:
        limited = login(dict.fromkeys(EVERYTHING, scope), groupes=["NORD"])
        for what in PATHS:
            assert limited.post(host_path(agent, what)).status_code == 403
        assert login(EVERYTHING).post(host_path(agent, "claim")).status_code == 200

    def test_the_permission_for_jobs_does_not_allow_claiming_them(
        self, login: Login, agent: Agent
    ) -> None:
        manager = login({"org-jobs.read": "ALL", "org-jobs.write": "ALL"})
        assert manager.post(host_path(agent, "claim")).status_code == 403
