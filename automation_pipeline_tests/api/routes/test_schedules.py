"""Automation schedule routes: create, list, change, pause and access."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline_tests.api.conftest import Login

PATH = "/api/automation/schedules"
DAILY: dict[str, Any] = {
    "name": "Nightly",
    "scheduleType": "DAILY",
    "timeOfDay": "02:00",
    "ficheSelection": {"mode": "date_range", "dateRange": "yesterday", "groupes": ["NORD"]},
}


def created(client: TestClient, **fields: Any) -> dict[str, Any]:
    answered = client.post(PATH, json={**DAILY, **fields})
    assert answered.status_code == 201, answered.text
    return answered.json()["data"]


def test_a_schedule_is_stored_and_shown_with_its_next_due_time(client: TestClient) -> None:
    stored = created(client)
    assert stored["id"] == "1"
    assert stored["createdBy"] == "machine:environment"
    shown = client.get(f"{PATH}/1").json()["data"]
    assert shown == {**stored, "runs": []}
    assert shown["nextDueAt"] == "2026-05-05T02:00:00.000Z"


def test_an_invalid_schedule_names_each_field(client: TestClient) -> None:
    answered = client.post(PATH, json={**DAILY, "timeOfDay": "25:00", "nonsense": 1})
    assert answered.status_code == 400
    refused = answered.json()
    assert (refused["error"], refused["code"]) == (
        "Invalid automation schedule data",
        "VALIDATION_ERROR",
    )
    assert {fault["field"] for fault in refused["details"]} == {"timeOfDay", "nonsense"}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"{", "INVALID_JSON"),
        (b"", "INVALID_JSON"),
        (b"\xff", "INVALID_JSON"),
        (b"[]", "VALIDATION_ERROR"),
    ],
)
def test_a_schedule_body_that_is_not_an_object_is_refused(
    client: TestClient, content: bytes, code: str
) -> None:
    answered = client.post(PATH, content=content)
    assert (answered.status_code, answered.json()["code"]) == (400, code)


@pytest.mark.parametrize("named", ["x", "0", "-1", "1.5", "99999999999999999999"])
def test_a_malformed_id_is_a_bad_request(client: TestClient, named: str) -> None:
    answered = client.get(f"{PATH}/{named}")
    assert (answered.status_code, answered.json()["details"][0]["field"]) == (400, "schedule_id")


def test_an_idempotency_key_creates_one_schedule_and_replays_the_response(
    client: TestClient,
) -> None:
    headers = {"Idempotency-Key": "abc"}
    first, second = (client.post(PATH, json=DAILY, headers=headers) for _ in range(2))
    assert first.json() == second.json()
    assert second.headers["idempotent-replay"] == "true"
    assert client.get(PATH).json()["count"] == 1
    other = client.post(PATH, json={**DAILY, "name": "Other"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "CONFLICT")


def test_a_refused_request_does_not_use_up_its_idempotency_key(client: TestClient) -> None:
    headers = {"Idempotency-Key": "abc"}
    assert (
        client.post(
            PATH, json={**DAILY, "specificAuditConfigs": ["99"]}, headers=headers
        ).status_code
        == 400
    )
    assert client.post(PATH, json=DAILY, headers=headers).status_code == 201


def test_a_schedule_can_be_skipped_paused_and_resumed(client: TestClient) -> None:
    created(client)
    assert (
        client.post(f"{PATH}/1/skip-next").json()["data"]["skipped"] == "2026-05-05T02:00:00.000Z"
    )
    coming = client.get(
        f"{PATH}/1/next", params={"after": "2026-05-06T00:00:00Z", "count": 1}
    ).json()["data"]
    assert coming == {"occurrences": ["2026-05-06T02:00:00.000Z"]}
    paused = client.post(f"{PATH}/1/pause", json={"reason": "Holidays"}).json()["data"]
    assert (paused["isActive"], paused["pausedReason"]) == (False, "Holidays")
    assert client.post(f"{PATH}/1/resume").json()["data"]["isActive"] is True
    assert client.get(f"{PATH}/1/occurrences").json()["data"] == []


def test_the_list_can_be_paged(client: TestClient) -> None:
    for _ in range(5):
        created(client)
    client.post(f"{PATH}/3/pause")
    document = client.get(PATH, params={"limit": 2, "offset": 1}).json()
    assert ([one["id"] for one in document["data"]], document["count"]) == (["4", "2"], 2)
    assert [one["id"] for one in client.get(PATH, params={"offset": 3}).json()["data"]] == ["1"]
    for wrong in ({"limit": 1001}, {"limit": 0}, {"offset": -1}):
        assert client.get(PATH, params=wrong).json()["details"][0]["field"] in wrong


def test_deleting_a_schedule_twice_is_404(client: TestClient) -> None:
    created(client)
    assert client.delete(f"{PATH}/1").json() == {
        "success": True,
        "message": "Schedule deleted successfully",
    }
    assert client.delete(f"{PATH}/1").status_code == 404


class TestScope:
    def test_a_group_scope_sees_only_schedules_of_its_groupes(
        self, client: TestClient, login: Login
    ) -> None:
        created(client)
        everything = {"mode": "date_range", "dateRange": "yesterday"}
        created(client, ficheSelection=everything)
        created(client, ficheSelection={**everything, "groupes": ["NORD", "SUD"]})
        nord = login({"automation.read": "GROUP"}, groupes=["NORD"])
        assert [one["id"] for one in nord.get(PATH).json()["data"]] == ["1"]
        hidden, missing = nord.get(f"{PATH}/2"), nord.get(f"{PATH}/9")
        assert hidden.status_code == missing.status_code == 404
        assert hidden.json()["error"].replace("2", "9") == missing.json()["error"]

    def test_paging_counts_only_visible_items(self, client: TestClient, login: Login) -> None:
        for groupe in ("NORD", "SUD", "NORD", "SUD", "NORD"):
            created(client, ficheSelection={**DAILY["ficheSelection"], "groupes": [groupe]})
        nord = login({"automation.read": "GROUP"}, groupes=["NORD"])
        pages = [
            nord.get(PATH, params={"limit": 2, "offset": offset}).json() for offset in (0, 2, 4)
        ]
        assert [[one["id"] for one in page["data"]] for page in pages] == [["5", "3"], ["1"], []]
        assert [page["count"] for page in pages] == [2, 1, 0]

    def test_a_group_scope_creates_schedules_only_for_its_groupes(self, login: Login) -> None:
        nord = login({"automation.write": "GROUP", "automation.read": "GROUP"}, groupes=["NORD"])
        stored = created(nord)
        assert stored["createdBy"] == "user:12"
        wider = {"mode": "date_range", "dateRange": "yesterday", "groupes": ["NORD", "SUD"]}
        for answered in (
            nord.post(PATH, json={**DAILY, "ficheSelection": wider}),
            nord.patch(f"{PATH}/{stored['id']}", json={"ficheSelection": wider}),
            nord.post(
                "/api/automation/trigger",
                json={"scheduleId": stored["id"], "overrideFicheSelection": wider},
            ),
        ):
            assert (answered.status_code, answered.json()["code"]) == (403, "AUTHORIZATION_ERROR")

    def test_creating_a_schedule_needs_the_write_permission(self, login: Login) -> None:
        assert login({"automation.read": "ALL"}).post(PATH, json=DAILY).status_code == 403


@pytest.mark.parametrize(
    "after",
    [
        "9999-12-31T23:59:59.999999Z",
        "0001-01-01T00:00:00+14:00",
        "9990-01-01",
        "0001-01-01",
        "3000-01-01",
    ],
)
def test_occurrences_in_a_distant_year_are_refused(client: TestClient, after: str) -> None:
    created(client)
    refused = client.get(f"{PATH}/1/next", params={"after": after})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "after")


def test_a_time_without_a_zone_is_utc(client: TestClient) -> None:
    created(client)
    asked = {"after": "2999-12-31T23:59:59", "count": 1}
    assert client.get(f"{PATH}/1/next", params=asked).json()["data"] == {
        "occurrences": ["3000-01-01T02:00:00.000Z"]
    }
