"""Server routes of organisations."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline_tests.api.conftest import Member
from automation_pipeline_tests.org_jobs.data import OrgJobsData

PATH = "/api/org-servers"
OF_ACME = {"org": "acme"}


def test_a_server_can_be_created_with_or_without_a_host(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    host_id = orgs.host()
    without_host = operator.post(PATH, json={"name": "valheim"}, params=OF_ACME)
    with_host = operator.post(PATH, json={"name": "rust", "hostId": str(host_id)}, params=OF_ACME)
    assert (without_host.status_code, without_host.json()["data"]["hostId"]) == (201, None)
    assert with_host.json()["data"]["hostId"] == str(host_id)
    found = operator.get(PATH, params={"host": host_id}).json()["data"]
    assert [one["name"] for one in found] == ["rust"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "x", "hostId": "99"}, "hostId"),
        ({"name": "x", "isEnabled": 1}, "isEnabled"),
    ],
)
def test_each_invalid_field_is_named(
    operator: TestClient, body: dict[str, Any], field: str
) -> None:
    refused = operator.post(PATH, json=body, params=OF_ACME)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (
        400,
        field,
    )


def test_a_host_of_another_organisation_looks_missing(member: Member, orgs: OrgJobsData) -> None:
    hidden, acme = orgs.host("globex"), member("acme")
    server_id = orgs.server()
    answers = [
        response
        for host_id in (hidden, 987654)
        for response in (
            acme.post(PATH, json={"name": "x", "hostId": host_id}),
            acme.patch(f"{PATH}/{server_id}", json={"hostId": host_id}),
        )
    ]
    assert {answered.status_code for answered in answers} == {400}
    message = [
        answered.text.replace(str(hidden), "987654").partition("requestId")[0]
        for answered in answers
    ]
    assert message[:2] == message[2:]
    assert orgs.server_row(server_id).host_id is None


def test_a_server_can_be_disabled_but_not_moved_to_another_organisation(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    server_id = orgs.server(name="valheim")
    changed = operator.patch(f"{PATH}/{server_id}", json={"isEnabled": False}).json()["data"]
    assert (changed["isEnabled"], changed["name"]) == (False, "valheim")
    assert operator.patch(f"{PATH}/{server_id}", json={"orgId": "globex"}).status_code == 400


def test_only_an_unused_server_can_be_deleted(operator: TestClient, orgs: OrgJobsData) -> None:
    free, busy = orgs.server(), orgs.server()
    orgs.schedule(server_instance_id=busy)
    assert operator.delete(f"{PATH}/{free}").status_code == 204
    assert operator.get(f"{PATH}/{free}").status_code == 404
    assert operator.delete(f"{PATH}/{busy}").status_code == 409


def test_an_idempotency_key_creates_one_server(operator: TestClient) -> None:
    created = [
        operator.post(PATH, json={"name": "rust"}, params=OF_ACME, headers={"Idempotency-Key": "a"})
        for _ in range(2)
    ]
    assert created[0].json() == created[1].json()
    assert operator.get(PATH).json()["count"] == 1
