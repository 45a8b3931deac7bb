"""Import of audit configurations: idempotent for the same file, a conflict for changed content."""

import pytest
from fastapi.testclient import TestClient

from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.audits.configurations import document

PATH = "/api/audit-configs/import"


def test_the_same_file_is_stored_once(client: TestClient) -> None:
    result = [client.post(PATH, json=document("Sales", 2)).json()["data"] for _ in range(2)]
    assert result == [
        {"id": "1", "name": "Sales", "outcome": outcome, "stepsCount": 2}
        for outcome in ("created", "unchanged")
    ]


def test_changed_content_needs_the_update_parameter(client: TestClient) -> None:
    client.post(PATH, json=document("Sales", 2))
    refused = client.post(PATH, json=document("Sales", 3))
    assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")
    assert (
        client.post(PATH, json=document("Sales", 3), params={"update": "true"}).json()["data"][
            "outcome"
        ]
        == "updated"
    )


def test_an_idempotency_key_imports_once(client: TestClient) -> None:
    key = {"Idempotency-Key": "once"}
    first, second = (client.post(PATH, json=document("Sales", 2), headers=key) for _ in range(2))
    assert first.json() == second.json()
    assert second.headers["Idempotent-Replay"] == "true"


@pytest.mark.parametrize(
    ("grants", "status"),
    [({"audit-configs.read": "ALL"}, 403), ({"audit-configs.write": "ALL"}, 200)],
)
def test_an_import_needs_the_write_permission(
    login: Login, grants: dict[str, str], status: int
) -> None:
    assert login(grants).post(PATH, json=document("Sales", 1)).status_code == status


def test_an_invalid_import_names_each_field(client: TestClient) -> None:
    answered = client.post(PATH, json={"name": "", "steps": []})
    assert answered.status_code == 400
    assert {fault["field"] for fault in answered.json()["details"]} == {"name", "steps"}
