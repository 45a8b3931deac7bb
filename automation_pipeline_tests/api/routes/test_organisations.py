"""Organisation routes: managed by operators, readable by each organisation."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline_tests.api.conftest import Login, Member
from automation_pipeline_tests.org_jobs.data import OrgJobsData

PATH = "/api/organisations"
GLOBEX = {"id": "globex", "name": "Globex", "maxRunning": 3}


def test_an_organisation_id_can_be_used_once(operator: TestClient) -> None:
    headers = {"Idempotency-Key": "globex"}
    first, second = (operator.post(PATH, json=GLOBEX, headers=headers) for _ in range(2))
    assert (first.status_code, first.json(), second.json()) == (201, first.json(), first.json())
    assert operator.post(PATH, json=GLOBEX).status_code == 409
    shown = operator.get(f"{PATH}/globex").json()["data"]
    assert (shown["name"], shown["maxRunning"], shown["suspendedAt"]) == ("Globex", 3, None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"id": "Globex!", "name": "x"}, "id"),
        ({"id": "globex"}, "name"),
        ({**GLOBEX, "maxRunning": 0}, "maxRunning"),
        ({**GLOBEX, "colour": "red"}, "colour"),
    ],
)
def test_each_invalid_field_is_named(
    operator: TestClient, body: dict[str, Any], field: str
) -> None:
    refused = operator.post(PATH, json=body)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, field)


def test_organisations_are_listed_by_id_and_searched_by_name(operator: TestClient) -> None:
    operator.post(PATH, json=GLOBEX)
    assert [one["id"] for one in operator.get(PATH).json()["data"]] == ["acme", "globex"]
    assert [one["id"] for one in operator.get(PATH, params={"q": "glob"}).json()["data"]] == [
        "globex"
    ]
    assert operator.get(PATH, params={"limit": 1, "offset": 1}).json()["data"][0]["id"] == "globex"


def test_organisation_fields_can_be_changed_except_the_id(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    changed = operator.patch(
        f"{PATH}/acme", json={"maxRunning": 7, "maintenanceUntil": "2026-05-05T00:00:00+02:00"}
    )
    assert changed.json()["data"]["maintenanceUntil"] == "2026-05-04T22:00:00.000Z"
    assert (orgs.organisation_row().max_running, orgs.organisation_row().name) == (7, "Acme")
    refused = operator.patch(f"{PATH}/acme", json={"id": "other"})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "id")


def test_suspending_pauses_schedules_and_resuming_restores_them(
    operator: TestClient, orgs: OrgJobsData
) -> None:
    schedule_id = orgs.schedule()
    suspended = operator.post(f"{PATH}/acme/suspend", json={"reason": "Unpaid"}).json()["data"]
    assert (suspended["suspendReason"], orgs.schedule_row(schedule_id).state) == (
        "Unpaid",
        "PAUSED",
    )
    assert operator.post(f"{PATH}/acme/suspend").json()["data"] == suspended
    assert operator.post(f"{PATH}/acme/resume").json()["data"]["suspendedAt"] is None
    assert orgs.schedule_row(schedule_id).state == "ACTIVE"


@pytest.mark.parametrize("named", ["Acme", "a_b", "-a", "a" * 41, "a--b"])
def test_a_malformed_organisation_id_is_400(operator: TestClient, named: str) -> None:
    refused = operator.get(f"{PATH}/{named}")
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "org_id")


def test_an_organisation_token_can_read_only_its_own_organisation(member: Member) -> None:
    member("globex")
    acme = member("acme", "org-jobs.read")
    assert [one["id"] for one in acme.get(PATH).json()["data"]] == ["acme"]
    assert acme.get(f"{PATH}/acme").json()["data"]["id"] == "acme"
    other, missing = (acme.get(f"{PATH}/{org_id}") for org_id in ("globex", "initech"))
    assert (other.status_code, missing.status_code) == (404, 404)
    assert other.json()["error"].replace("globex", "initech") == missing.json()["error"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", ""), ("PATCH", "/acme"), ("POST", "/acme/suspend"), ("POST", "/acme/resume")],
)
def test_an_organisation_token_cannot_manage_organisations(
    member: Member, method: str, path: str
) -> None:
    assert member("acme").request(method, PATH + path, json={}).status_code == 403


def test_reading_other_organisations_needs_the_organisations_permission(
    operator: TestClient, login: Login
) -> None:
    assert operator.get(f"{PATH}/acme").status_code == 200
    assert login({"org-jobs.read": "ALL"}).get(f"{PATH}/acme").status_code == 403
    assert login({"organisations.read": "ALL"}).get(f"{PATH}/acme").status_code == 200
