"""Idempotency keys."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from automation_pipeline.automation.routes import schedules
from automation_pipeline_tests.api.conftest import MACHINE, Login

PATH = "/api/automation/schedules"
MANUAL: dict[str, Any] = {
    "name": "By hand",
    "scheduleType": "MANUAL",
    "ficheSelection": {"mode": "manual", "ficheIds": ["1"]},
}
KEY = {"Idempotency-Key": "once"}


def test_concurrent_requests_with_one_key_get_the_same_response(
    api: FastAPI, client: TestClient
) -> None:
    def ask(_number: int) -> Any:
        return TestClient(api, headers={"X-API-Key": MACHINE, **KEY}).post(PATH, json=MANUAL)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert {answered.status_code for answered in answers} == {201}
    assert len({answered.text for answered in answers}) == 1
    assert client.get(PATH).json()["count"] == 1


def test_a_failed_request_is_rolled_back_and_releases_its_key(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(schedules, "_schedule_answer", lambda *_a, **_k: 1 / 0)
        assert client.post(PATH, json=MANUAL, headers=KEY).status_code == 500
    assert client.get(PATH).json()["count"] == 0
    assert client.post(PATH, json=MANUAL, headers=KEY).status_code == 201


def test_idempotency_keys_are_scoped_to_the_caller(client: TestClient, login: Login) -> None:
    user = login({"automation.write": "ALL", "automation.read": "ALL"})
    ids = [one.post(PATH, json=MANUAL, headers=KEY).json()["data"]["id"] for one in (client, user)]
    assert ids == ["1", "2"]


def test_a_trigger_with_one_key_requests_one_run(client: TestClient) -> None:
    client.post(PATH, json=MANUAL)
    trigger = "/api/automation/trigger"
    first, second = (
        client.post(trigger, json={"scheduleId": 1}, headers=KEY).json() for _ in range(2)
    )
    assert first == second
    assert (first["run_id"], first["event_ids"]) == ("1", ["automation-run-1"])
    without = client.post(trigger, json={"scheduleId": 1})
    assert (without.status_code, without.json()["code"]) == (409, "CONFLICT")


@pytest.mark.parametrize("key", ["", "with space", "x" * 256])
def test_an_invalid_idempotency_key_is_refused(client: TestClient, key: str) -> None:
    answered = client.post(PATH, json=MANUAL, headers={"Idempotency-Key": key})
    assert (answered.status_code, answered.json()["details"][0]["field"]) == (
        400,
        "Idempotency-Key",
    )
