"""Job routes of organisations."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.org_jobs.models.job_types import JOB_TYPES
from automation_pipeline_tests.api.conftest import Login, Member
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.org_jobs.data import SERVICE, OrgJobsData

PATH = "/api/org-jobs"
OF_ACME = {"org": "acme"}
CALL: dict[str, Any] = {"type": "HTTPS_CALL", "payload": {"url": "https://example.com/warm"}}


def test_a_job_can_be_created_without_a_schedule(operator: TestClient, orgs: OrgJobsData) -> None:
    answered = operator.post(PATH, json={**CALL, "priority": 2}, params=OF_ACME)
    job = answered.json()["data"]
    assert (answered.status_code, job["orgId"], job["status"], job["priority"]) == (
        201,
        "acme",
        "pending",
        2,
    )
    assert (job["scheduleId"], len(job["runs"]), job["createdBy"]) == (
        None,
        1,
        "machine:environment",
    )
    assert operator.get(f"{PATH}/{job['id']}").json()["data"] == job


@every_case(
    ("body", "field"),
    [
        ({}, "type"),
        ({"type": "NO_SUCH_TYPE"}, "type"),
        ({**CALL, "payload": {}}, "payload.url"),
        ({**CALL, "priority": 10}, "priority"),
        ({**CALL, "colour": "red"}, "colour"),
        ({"type": "SERVER_RESTART"}, "serverInstanceId"),
        ({"type": "SERVER_RESTART", "serverInstanceId": "987654"}, "serverInstanceId"),
    ],
)
def test_each_invalid_field_is_named(
    operator: TestClient, body: dict[str, Any], field: str
) -> None:
    refused = operator.post(PATH, json=body, params=OF_ACME)
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")
    assert field in [fault["field"] for fault in refused.json()["details"]]


def test_a_server_of_another_organisation_looks_missing(member: Member, orgs: OrgJobsData) -> None:
    hidden, acme = orgs.server("globex"), member("acme")
    answers = [
        acme.post(PATH, json={"type": "SERVER_RESTART", "serverInstanceId": server_id})
        for server_id in (hidden, 987654)
    ]
    assert [answered.status_code for answered in answers] == [400, 400]
    document = [
        answered.json()["details"][0]["message"].replace(str(hidden), "987654")
        for answered in answers
    ]
    assert document[0] == document[1]
    assert orgs.jobs() == []


def test_an_idempotency_key_creates_one_job(operator: TestClient, orgs: OrgJobsData) -> None:
    answers = [
        operator.post(PATH, json=CALL, params=OF_ACME, headers={"Idempotency-Key": "a"})
        for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    assert len(orgs.jobs()) == 1


def test_the_list_is_newest_first_and_can_be_filtered(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    schedule_id, server_id = orgs.schedule(), orgs.server()
    by_schedule = str(orgs.job(schedule_id=schedule_id))
    by_server = str(orgs.job(server_instance_id=server_id, of_type=SERVICE))
    ended = str(orgs.job("globex", run={"status": "cancelled", "finished_at": orgs.now}))
    for query, ids in (
        ({}, [ended, by_server, by_schedule]),
        ({"org": "acme"}, [by_server, by_schedule]),
        ({"status": "cancelled"}, [ended]),
        ({"type": "HTTPS_CALL"}, [by_server]),
        ({"schedule": schedule_id}, [by_schedule]),
        ({"server": server_id}, [by_server]),
        ({"batch": 1}, []),
        ({"limit": 1, "offset": 1}, [by_server]),
    ):
        assert [one["id"] for one in operator.get(PATH, params=query).json()["data"]] == ids


@pytest.mark.parametrize("depth", [100, 300])
def test_a_stored_result_nested_too_deeply_does_not_break_the_list(
    operator: TestClient, orgs: OrgJobsData, depth: int
) -> None:
    deep: dict[str, Any] = {}
    for _ in range(depth):
        deep = {"a": deep}
    job_id = orgs.job(run={"status": "success", "result": deep, "finished_at": orgs.now})
    (listed,) = operator.get(PATH).json()["data"]
    assert operator.get(f"{PATH}/{job_id}").json()["data"] == listed
    note = {"note": "It is nested too deeply to be shown."}
    assert listed["runs"][0]["result"] == (deep if depth == 100 else note)


@pytest.mark.parametrize("what", [PATH, "/api/org-schedules", "run-now"])
def test_a_payload_nested_too_deeply_is_refused(
    operator: TestClient, orgs: OrgJobsData, what: str
) -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    body: dict[str, Any] = {"payload": {"url": "https://example.com/", "body": deep}}
    path = what
    if what == PATH:
        body |= {"type": "HTTPS_CALL"}
    elif what == "run-now":
        path = f"/api/org-schedules/{orgs.schedule(job_type='HTTPS_CALL', payload=CALL['payload'])}/run-now"
    else:
        body |= {"name": "Deep", "cronExpression": "0 2 * * *", "jobType": "HTTPS_CALL"}
    refused = operator.post(path, json=body, params={} if what == "run-now" else OF_ACME)
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")
    assert refused.json()["details"][0]["field"].startswith("payload.body.a")
    assert orgs.jobs() == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (
            {**CALL, "payload": {"url": "https://example.com/", "body": {"a\ud800": 1}}},
            "payload.body.a\\ud800",
        ),
        (
            {**CALL, "payload": {**CALL["payload"], "headers": {"a\ud800": "1"}}},
            "payload.headers.a\\ud800",
        ),
        ({**CALL, "a\ud800": 1}, "a\\ud800"),
    ],
)
def test_a_field_name_with_a_lone_surrogate_is_escaped(
    operator: TestClient, orgs: OrgJobsData, body: dict[str, Any], field: str
) -> None:
    sent = {"content": json.dumps(body), "headers": {"Content-Type": "application/json"}}
    refused = operator.post(PATH, params=OF_ACME, **sent)
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")
    assert refused.json()["details"] == [
        {"field": field, "message": "must not hold half a character"}
    ]
    assert orgs.jobs() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("org", "No!"), ("status", "done"), ("schedule", "12"), ("server", "x"), ("batch", "0")],
)
def test_an_invalid_query_parameter_is_named(operator: TestClient, name: str, value: str) -> None:
    refused = operator.get(PATH, params={name: value})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, name)


def test_job_types_show_their_payload_schemas_and_permissions(member: Member) -> None:
    types = {
        one["name"]: one
        for one in member("acme", "org-jobs.read").get(f"{PATH}/types").json()["data"]
    }
    assert set(types) == set(JOB_TYPES)
    assert (types["HTTPS_CALL"]["performer"], types["HTTPS_CALL"]["permission"]) == (
        "service",
        None,
    )
    assert types["PRICING_RULE_APPLY"]["permission"] == "pricing.runs"
    assert "url" in types["HTTPS_CALL"]["payloadSchema"]["properties"]


def test_queues_are_listed_for_all_organisations_or_one(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    orgs.job()
    orgs.running_job()
    orgs.organisation("globex")
    queues = {one["orgId"]: one for one in operator.get(f"{PATH}/queues").json()["data"]}
    assert (queues["acme"]["waiting"], queues["acme"]["running"], queues["acme"]["name"]) == (
        1,
        1,
        "jobs:acme",
    )
    assert queues["globex"]["waiting"] == 0
    assert [
        one["orgId"] for one in operator.get(f"{PATH}/queues", params=OF_ACME).json()["data"]
    ] == ["acme"]


def test_a_pending_job_is_cancelled_and_its_log_names_the_actor(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    job_id = orgs.job()
    answered = operator.post(f"{PATH}/{job_id}/cancel", json={"reason": "Done by hand"})
    assert (answered.status_code, answered.json()["data"]["status"]) == (200, "cancelled")
    (move,) = operator.get(f"{PATH}/{job_id}/log").json()["data"]
    assert (move["toState"], move["actor"]) == ("cancelled", "machine:environment")
    assert operator.get(f"{PATH}/{job_id}/log", params={"after": move["id"]}).json()["data"] == []


def test_a_running_job_is_asked_to_stop_or_cancelled_immediately(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    job_id = orgs.running_job()
    requested = operator.post(f"{PATH}/{job_id}/cancel").json()["data"]
    assert (requested["status"], requested["runs"][0]["cancelledBy"]) == (
        "running",
        "machine:environment",
    )
    ended = operator.post(f"{PATH}/{job_id}/cancel", json={"atOnce": True}).json()["data"]
    assert ended["status"] == "cancelled"


@pytest.mark.parametrize(
    ("body", "field"), [({"atOnce": "yes"}, "atOnce"), ({"reason": 5}, "reason")]
)
def test_an_invalid_body_names_the_field(
    operator: TestClient, orgs: OrgJobsData, body: dict[str, Any], field: str
) -> None:
    refused = operator.post(f"{PATH}/{orgs.job()}/cancel", json=body)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, field)


def test_a_failed_job_is_retried_once_per_key_and_a_pending_job_is_not(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    job_id = orgs.job(run={"status": "failed", "error_code": "FAILED", "finished_at": orgs.now})
    orgs.set_job(job_id, finished_at=orgs.now)
    key = {"Idempotency-Key": "again"}
    answers = [operator.post(f"{PATH}/{job_id}/retry", headers=key) for _ in range(2)]
    assert (answers[0].status_code, answers[0].json()) == (202, answers[1].json())
    assert [run["status"] for run in answers[0].json()["data"]["runs"]] == ["failed", "pending"]
    assert operator.post(f"{PATH}/{job_id}/retry").status_code == 409


def test_a_restricted_job_type_needs_its_permission(
    login: Login, member: Member, orgs: OrgJobsData
) -> None:
    run = {"type": "PRICING_RULE_APPLY", "payload": {"ruleId": "1"}}
    acme = member("acme")
    for unpermitted in (login({"org-jobs.write": "ALL"}), acme):
        assert unpermitted.post(PATH, json=run, params=OF_ACME).status_code == 403
    permitted = login({"org-jobs.write": "ALL", "pricing.runs.write": "ALL"})
    job_id = permitted.post(PATH, json=run, params=OF_ACME).json()["data"]["id"]
    assert acme.post(f"{PATH}/{job_id}/retry").status_code == 403
    assert acme.post(f"{PATH}/{job_id}/cancel").status_code == 200
