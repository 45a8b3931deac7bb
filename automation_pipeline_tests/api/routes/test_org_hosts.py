"""Host routes of organisations."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline_tests.api.conftest import Member
from automation_pipeline_tests.org_jobs.data import OrgJobsData

PATH = "/api/org-hosts"


def test_a_host_is_created_for_the_named_organisation(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    created = operator.post(PATH, json={"name": "rack-1"}, params={"org": "acme"})
    host = created.json()["data"]
    assert (created.status_code, host["orgId"], host["lastSeenAt"]) == (201, "acme", None)
    assert orgs.host_row(int(host["id"])).name == "rack-1"
    assert orgs.audit()[-1].actor == "machine:environment"


def test_an_organisation_token_does_not_need_the_org_parameter(member: Member) -> None:
    acme = member("acme")
    assert acme.post(PATH, json={"name": "rack-1"}).json()["data"]["orgId"] == "acme"
    assert acme.post(PATH, json={"name": "rack-2"}, params={"org": "acme"}).status_code == 201


def test_a_caller_without_an_organisation_must_name_an_existing_one(operator: TestClient) -> None:
    refused = operator.post(PATH, json={"name": "rack-1"})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "org")
    assert (
        operator.post(PATH, json={"name": "rack-1"}, params={"org": "initech"}).status_code == 404
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "name"), ({"name": " "}, "name"), ({"name": "x", "maintenanceUntil": "soon"}, None)],
)
def test_each_invalid_field_is_named(
    operator: TestClient, body: dict[str, Any], field: str | None
) -> None:
    refused = operator.post(PATH, json=body, params={"org": "acme"})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (
        400,
        field or "maintenanceUntil",
    )


def test_host_names_are_unique_within_an_organisation(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    host_id = orgs.host(name="rack-1")
    orgs.host("globex", name="rack-2")
    assert operator.post(PATH, json={"name": "rack-1"}, params={"org": "acme"}).status_code == 409
    assert (
        operator.patch(f"{PATH}/{host_id}", json={"name": "rack-2"}).json()["data"]["name"]
        == "rack-2"
    )


def test_hosts_are_listed_for_one_organisation_or_all(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    for org_id in ("acme", "globex"):
        orgs.host(org_id, name=f"of-{org_id}")
    assert operator.get(PATH).json()["count"] == 2
    assert [
        one["orgId"] for one in operator.get(PATH, params={"org": "globex"}).json()["data"]
    ] == ["globex"]
    assert [one["name"] for one in operator.get(PATH, params={"q": "ACME"}).json()["data"]] == [
        "of-acme"
    ]


def test_only_a_host_without_servers_can_be_deleted(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    free, busy = orgs.host(), orgs.host()
    orgs.server(host_id=busy)
    assert operator.delete(f"{PATH}/{free}").status_code == 204
    assert operator.get(f"{PATH}/{free}").status_code == 404
    assert operator.delete(f"{PATH}/{busy}").status_code == 409


@pytest.mark.parametrize("named", ["x", "0", "01"])
def test_a_malformed_id_is_a_bad_request(operator: TestClient, named: str) -> None:
    refused = operator.get(f"{PATH}/{named}")
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "host_id")
