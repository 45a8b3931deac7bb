"""Idempotency keys, and work that outlives its request."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from automation_pipeline.api import idempotency as module
from automation_pipeline.api.idempotency import Attempts
from automation_pipeline.automation.routes import schedules
from automation_pipeline_tests.api.conftest import MACHINE, Login

PATH = "/api/automation/schedules"
MANUAL: dict[str, Any] = {
    "name": "By hand",
    "scheduleType": "MANUAL",
    "ficheSelection": {"mode": "manual", "ficheIds": ["1"]},
}
KEY = {"Idempotency-Key": "once"}


def test_eight_who_ask_at_once_are_answered_alike(api: FastAPI, client: TestClient) -> None:
    def ask(_number: int) -> Any:
        return TestClient(api, headers={"X-API-Key": MACHINE, **KEY}).post(PATH, json=MANUAL)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert {answered.status_code for answered in answers} == {201}
    assert len({answered.text for answered in answers}) == 1
    assert client.get(PATH).json()["count"] == 1


def test_work_that_breaks_down_leaves_nothing_and_its_key_free(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(schedules, "_schedule_answer", lambda *_a, **_k: 1 / 0)
        assert client.post(PATH, json=MANUAL, headers=KEY).status_code == 500
    assert client.get(PATH).json()["count"] == 0
    assert client.post(PATH, json=MANUAL, headers=KEY).status_code == 201


def test_keys_of_two_callers_are_two_keys(client: TestClient, login: Login) -> None:
    user = login({"automation.write": "ALL", "automation.read": "ALL"})
    ids = [one.post(PATH, json=MANUAL, headers=KEY).json()["data"]["id"] for one in (client, user)]
    assert ids == ["1", "2"]


def test_a_run_is_asked_for_once(client: TestClient) -> None:
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
def test_a_key_that_is_none_is_refused(client: TestClient, key: str) -> None:
    answered = client.post(PATH, json=MANUAL, headers={"Idempotency-Key": key})
    assert (answered.status_code, answered.json()["details"][0]["field"]) == (
        400,
        "Idempotency-Key",
    )


LONG = 60.0


def test_what_ends_in_time_is_over_when_the_wait_is() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("done")

    asyncio.run(Attempts().wait_for(work(), LONG))
    assert done == ["done"]


def test_what_takes_longer_goes_on_and_is_waited_for_at_the_end() -> None:
    done: list[str] = []

    async def shut_down() -> None:
        attempts, gate = Attempts(), asyncio.Event()

        async def work() -> None:
            await gate.wait()
            done.append("done")

        await attempts.wait_for(work(), 0)
        assert done == []
        gate.set()
        await attempts.end(LONG)

    asyncio.run(shut_down())
    assert done == ["done"]


def test_what_does_not_end_within_the_grace_is_broken_off() -> None:
    ended: list[str] = []

    async def shut_down() -> None:
        attempts, begun = Attempts(), asyncio.Event()

        async def work() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("broken off")

        await attempts.wait_for(work(), 0)
        await begun.wait()
        await attempts.end(0)
        await attempts.end(0)

    asyncio.run(shut_down())
    assert ended == ["broken off"]


def test_a_failure_does_not_reach_who_waits() -> None:
    async def work() -> None:
        raise RuntimeError("a bug")

    asyncio.run(Attempts().wait_for(work(), LONG))


def test_beyond_so_many_at_once_the_rest_is_left_to_dagster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AT_MOST", 1)
    begun: list[int] = []

    async def crowd() -> None:
        attempts = Attempts()

        async def work(number: int) -> None:
            begun.append(number)
            await asyncio.Event().wait()

        for number in range(3):
            await attempts.wait_for(work(number), 0)
        await asyncio.sleep(0)
        await attempts.end(0)

    asyncio.run(crowd())
    assert begun == [0]
