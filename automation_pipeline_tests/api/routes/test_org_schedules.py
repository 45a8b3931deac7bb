"""Schedule routes of organisations: create, list, show, change, delete and preview."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.bootstrap import Services
from automation_pipeline_tests.api.conftest import Login, Member
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.org_jobs.data import OrgJobsData

PATH = "/api/org-schedules"
OF_ACME = {"org": "acme"}
CALL: dict[str, Any] = {
    "name": "Warm the cache",
    "cronExpression": "*/15 * * * *",
    "jobType": "HTTPS_CALL",
    "payload": {"url": "https://example.com/warm"},
}
RUN = {
    "name": "Run",
    "cronExpression": "@daily",
    "jobType": "AUTOMATION_RUN",
    "payload": {"scheduleId": "1"},
}
NOWHERE = "00000000-0000-4000-8000-000000000000"


def created(client: TestClient, **more: Any) -> dict[str, Any]:
    answered = client.post(PATH, json={**CALL, **more}, params=OF_ACME)
    assert answered.status_code == 201, answered.text
    return answered.json()["data"]


def test_a_schedule_is_created_for_the_named_organisation(operator: TestClient) -> None:
    schedule = created(operator, timezone="Europe/Paris", retryPolicy={"maxRetries": 0})
    assert (schedule["orgId"], schedule["state"], schedule["version"]) == ("acme", "ACTIVE", 1)
    assert schedule["nextRunAt"] == "2026-05-04T10:15:00.000Z"
    assert schedule["retryPolicy"]["maxRetries"] == 0
    assert schedule["createdBy"] == "machine:environment"
    shown = operator.get(f"{PATH}/{schedule['id']}")
    assert shown.json()["data"] == schedule


def test_a_schedule_of_an_agent_type_needs_a_server(member: Member, orgs: OrgJobsData) -> None:
    acme = member("acme")
    server_id = orgs.server(host_id=orgs.host())
    restart = {"name": "Restart", "cronExpression": "@daily", "jobType": "SERVER_RESTART"}
    answered = acme.post(PATH, json={**restart, "serverInstanceId": server_id})
    assert answered.json()["data"]["serverInstanceId"] == str(server_id)
    refused = acme.post(PATH, json=restart)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "serverInstanceId")


@every_case(
    ("more", "field"),
    [
        ({"name": ""}, "name"),
        ({"cronExpression": "0 2 * *"}, "cronExpression"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"jobType": "NO_SUCH_TYPE"}, "jobType"),
        ({"payload": {"url": "ftp://example.com/"}}, "payload.url"),
        ({"payload": {"url": "https://example.com/", "password": "x"}}, "payload.password"),
        ({"executionWindowStart": "02:00"}, "executionWindowEnd"),
        ({"executionWindowStart": "2:00", "executionWindowEnd": "06:00"}, "executionWindowStart"),
        ({"retryPolicy": {"maxRetries": 11}}, "retryPolicy.maxRetries"),
        ({"overlapPolicy": "MAYBE"}, "overlapPolicy"),
        ({"colour": "red"}, "colour"),
        ({"serverInstanceId": "987654"}, "serverInstanceId"),
    ],
)
def test_each_invalid_field_is_named(
    operator: TestClient, more: dict[str, Any], field: str
) -> None:
    refused = operator.post(PATH, json={**CALL, **more}, params=OF_ACME)
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")
    assert field in [fault["field"] for fault in refused.json()["details"]]


PRIVATE_CALL, ALLOWED_CALL = (
    {"url": "https://169.254.169.254/meta"},
    {"url": "http://localhost:3000/warm"},
)


def test_a_forbidden_call_url_is_refused_before_it_is_saved(
    operator: TestClient, services: Services, orgs: OrgJobsData
) -> None:
    """Sends every request that saves or starts a call, with a private URL and then an allowed one."""
    services.settings = services.settings.model_copy(
        update={"org_jobs_https_allowed_origins": ("http://localhost:3000",)}
    )
    stored = created(operator)["id"]
    old = orgs.schedule(job_type="HTTPS_CALL", payload=PRIVATE_CALL)  # stored by an earlier version
    day = {"from": "2026-05-01T00:00:00Z", "until": "2026-05-02T00:00:00Z"}
    requests: list[tuple[str, str, Callable[[Any], Any]]] = [
        ("POST", PATH, lambda call: {**CALL, "payload": call}),
        ("POST", f"{PATH}/preview", lambda call: {**CALL, "payload": call}),
        ("PATCH", f"{PATH}/{stored}", lambda call: {"payload": call}),
        ("POST", f"{PATH}/{stored}/run-now", lambda call: {"payload": call}),
        ("POST", "/api/org-jobs", lambda call: {"type": "HTTPS_CALL", "payload": call}),
    ]
    why = "url IP not allowed unless ORG_JOBS_HTTPS_ALLOWED_ORIGINS lists its origin. Got https://169.254.169.254"
    for method, path, body in requests:
        params = {} if stored in path else OF_ACME
        refused = operator.request(method, path, json=body(PRIVATE_CALL), params=params)
        fault = {"field": "payload.url", "message": why}
        assert (refused.status_code, refused.json()["details"]) == (400, [fault]), path
        assert operator.request(method, path, json=body(ALLOWED_CALL), params=params).is_success, (
            path
        )
    for action, sent in (("run-now", {}), ("backfill", day)):
        refused = operator.post(f"{PATH}/{old}/{action}", json=sent)
        assert (refused.status_code, why in refused.json()["error"]) == (409, True), refused.text
    assert (
        operator.patch(f"{PATH}/{old}", json={"enabled": False}).json()["data"]["state"] == "PAUSED"
    )


def test_an_idempotency_key_creates_one_schedule(operator: TestClient, orgs: OrgJobsData) -> None:
    answers = [
        operator.post(PATH, json=CALL, params=OF_ACME, headers={"Idempotency-Key": "a"})
        for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    assert operator.get(PATH).json()["count"] == 1
    other = operator.post(
        PATH, json={**CALL, "name": "x"}, params=OF_ACME, headers={"Idempotency-Key": "a"}
    )
    assert other.status_code == 409


def test_a_server_of_another_organisation_looks_missing(member: Member, orgs: OrgJobsData) -> None:
    acme, hidden = member("acme"), orgs.server("globex")
    mine = orgs.schedule()
    restart = {"name": "Restart", "cronExpression": "@daily", "jobType": "SERVER_RESTART"}
    answers = [
        response
        for server_id in (hidden, 987654)
        for response in (
            acme.post(PATH, json={**restart, "serverInstanceId": server_id}),
            acme.patch(f"{PATH}/{mine}", json={"serverInstanceId": server_id}),
        )
    ]
    assert {answered.status_code for answered in answers} == {400}
    document = [
        answered.json()["details"][0]["message"].replace(str(hidden), "987654")
        for answered in answers
    ]
    assert document[:2] == document[2:]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["Second", "Third", "First"]),
        ({"state": "PAUSED"}, ["Second"]),
        ({"job_type": "HTTPS_CALL"}, ["Third"]),
        ({"q": "fir"}, ["First"]),
        ({"org": "globex"}, ["Third"]),
        ({"org": "acme", "limit": 1, "offset": 1}, ["First"]),
    ],
)
def test_the_list_is_newest_first_and_can_be_filtered(
    operator: TestClient, orgs: OrgJobsData, query: dict[str, Any], names: list[str]
) -> None:
    orgs.schedule(name="First")
    orgs.advance_minutes(1)
    orgs.schedule("globex", name="Third", job_type="HTTPS_CALL")
    orgs.advance_minutes(1)
    orgs.schedule(name="Second", state="PAUSED", enabled=False)
    assert [one["name"] for one in operator.get(PATH, params=query).json()["data"]] == names


def test_schedules_can_be_filtered_by_server(operator: TestClient, orgs: OrgJobsData) -> None:
    wanted = orgs.schedule()
    orgs.schedule()
    server_id = orgs.schedule_row(wanted).server_instance_id
    assert [
        one["id"] for one in operator.get(PATH, params={"server": server_id}).json()["data"]
    ] == [wanted]


def test_changing_the_cron_expression_updates_the_next_run(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    schedule_id = orgs.schedule(description="Old")
    changed = operator.patch(
        f"{PATH}/{schedule_id}", json={"cronExpression": "0 5 * * *", "description": None}
    )
    document = changed.json()["data"]
    assert (document["nextRunAt"], document["description"]) == ("2026-05-05T05:00:00.000Z", None)
    assert document["version"] == 2
    refused = operator.patch(
        f"{PATH}/{schedule_id}", json={"cronExpression": "x", "state": "ACTIVE"}
    )
    assert {fault["field"] for fault in refused.json()["details"]} >= {"state"}


def test_deleting_a_schedule_cancels_pending_jobs_and_keeps_running_ones(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    schedule_id = orgs.schedule()
    waiting, running = orgs.job(schedule_id=schedule_id), orgs.running_job(schedule_id=schedule_id)
    path = f"{PATH}/{schedule_id}"
    answers = [operator.delete(path), operator.get(path), operator.delete(path)]
    assert [answered.status_code for answered in answers] == [204, 404, 404]
    assert operator.get(PATH).json()["count"] == 0
    assert [orgs.job_row(job_id).status for job_id in (waiting, running)] == [
        "cancelled",
        "running",
    ]


@every_case(
    "named", ["x", "12", NOWHERE[:-1], f"{NOWHERE}0", "%7B" + NOWHERE + "%7D", NOWHERE + "%0a"]
)
def test_a_malformed_uuid_is_400(operator: TestClient, named: str) -> None:
    refused = operator.get(f"{PATH}/{named}")
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "org_schedule_id")


def test_an_uppercase_uuid_is_accepted(operator: TestClient, orgs: OrgJobsData) -> None:
    schedule_id = orgs.schedule()
    assert operator.get(f"{PATH}/{schedule_id.upper()}").json()["data"]["id"] == schedule_id


class TestPreview:
    def test_a_preview_lists_occurrences_and_stores_nothing(self, operator: TestClient) -> None:
        answered = operator.post(f"{PATH}/preview", json=CALL, params={"count": 3})
        assert (answered.status_code, len(answered.json()["data"]["runs"])) == (200, 3)
        assert operator.get(PATH).json()["count"] == 0

    def test_a_preview_names_invalid_fields(self, operator: TestClient) -> None:
        refused = operator.post(f"{PATH}/preview", json={**CALL, "cronExpression": "61 * * * *"})
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (
            400,
            "cronExpression",
        )

    def test_a_preview_can_start_at_another_time(self, operator: TestClient) -> None:
        after = {"after": "2027-01-01T00:00:00+01:00", "count": 1}
        runs = operator.post(f"{PATH}/preview", json=CALL, params=after).json()["data"]["runs"]
        assert runs[0]["scheduledFor"] == "2026-12-31T23:15:00.000Z"

    @pytest.mark.parametrize(
        ("name", "value"), [("count", "0"), ("after", "soon"), ("after", "0001-01-01T00:00:00Z")]
    )
    def test_an_invalid_query_parameter_is_named(
        self, operator: TestClient, name: str, value: str
    ) -> None:
        refused = operator.post(f"{PATH}/preview", json=CALL, params={name: value})
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, name)

    def test_a_reader_can_preview_schedules(self, member: Member) -> None:
        assert member("acme", "org-jobs.read").post(f"{PATH}/preview", json=CALL).status_code == 200


class TestRestrictedTypes:
    """Job types that run automations or change prices need the permission to do so directly."""

    def test_creating_a_restricted_schedule_needs_its_permission(
        self, operator: TestClient, login: Login, member: Member
    ) -> None:
        for unpermitted in (login({"org-jobs.write": "ALL"}), member("acme")):
            refused = unpermitted.post(PATH, json=RUN, params=OF_ACME)
            assert (refused.status_code, "automation.write" in refused.json()["error"]) == (
                403,
                True,
            )
        permitted = login({"org-jobs.write": "ALL", "automation.write": "ALL"})
        assert permitted.post(PATH, json=RUN, params=OF_ACME).status_code == 201
        assert operator.get(PATH).json()["count"] == 1

    def test_changing_a_schedule_to_or_of_a_restricted_type_needs_its_permission(
        self, member: Member, orgs: OrgJobsData
    ) -> None:
        acme = member("acme")
        payload = {"scheduleId": "1"}
        other, restricted = (
            orgs.schedule(),
            orgs.schedule(job_type="AUTOMATION_RUN", payload=payload, state="PAUSED"),
        )
        change = {"jobType": "AUTOMATION_RUN", "payload": payload, "serverInstanceId": None}
        assert acme.patch(f"{PATH}/{other}", json=change).status_code == 403
        assert (
            acme.patch(f"{PATH}/{restricted}", json={"payload": {"scheduleId": "2"}}).status_code
            == 403
        )
        assert orgs.schedule_row(restricted).payload == payload
