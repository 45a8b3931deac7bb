"""Pricing's dead letters over HTTP: reported, tried again, acknowledged."""

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline_tests.pricing.bench import Bench

PATH = "/api/pricing/dead-letters"
KEY = {"Idempotency-Key": "once"}


@pytest.fixture
def run_id(bench: Bench) -> int:
    """A run of the project shoes, one target of which failed for good."""
    bench.shop.fail_always("2", FailureSignal(status=404))
    run = bench.work(bench.queued(bench.rule(project_id="shoes")))
    bench.shop.fail_no_more("2")
    return run.id


def test_the_report_is_of_one_project(pricing: TestClient, run_id: int) -> None:
    report = pricing.get(PATH, params={"project": "shoes"}).json()["data"]
    assert (report["projectId"], report["totalFailed"], report["byErrorType"]) == (
        "shoes",
        1,
        {"not_found": 1},
    )
    assert [entry["runId"] for entry in report["entries"]] == [str(run_id)]
    assert pricing.get(PATH).json()["data"]["totalFailed"] == 0
    refused = pricing.get(PATH, params={"project": "a b"})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "project")


def test_the_hopeless_are_tried_again_with_force_only(
    pricing: TestClient, bench: Bench, run_id: int
) -> None:
    where = {"project": "shoes"}
    none = pricing.post(f"{PATH}/retry", params=where)
    assert (none.status_code, none.json()["data"]) == (202, {"runIds": [], "skipped": []})
    answered = pricing.post(f"{PATH}/retry", params=where, json={"force": True}, headers=KEY)
    assert answered.json()["data"] == {"runIds": [str(run_id)], "skipped": []}
    again = pricing.post(f"{PATH}/retry", params=where, json={"force": True}, headers=KEY)
    assert (again.json(), again.headers["idempotent-replay"]) == (answered.json(), "true")
    assert bench.work_id(run_id).status == "APPLIED"


def test_a_run_that_waits_already_is_left_out_and_why_is_said(
    pricing: TestClient, run_id: int
) -> None:
    wish = {"params": {"project": "shoes"}, "json": {"force": True}}
    pricing.post(f"{PATH}/retry", **wish)
    told = pricing.post(f"{PATH}/retry", **wish).json()["data"]
    assert (told["runIds"], [one["runId"] for one in told["skipped"]]) == ([], [str(run_id)])
    assert "waits" in told["skipped"][0]["why"]


def test_what_is_acknowledged_counts_no_more(
    pricing: TestClient, bench: Bench, run_id: int
) -> None:
    applied, failed = (str(target.id) for target in bench.targets(run_id))
    where = {"project": "shoes"}
    refused = pricing.post(f"{PATH}/acknowledge", params=where, json={"targetIds": [applied]})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "targetIds")
    told = pricing.post(f"{PATH}/acknowledge", params=where, json={"targetIds": [failed]}).json()[
        "data"
    ]
    assert told == {"acknowledged": 1}
    assert pricing.get(PATH, params=where).json()["data"]["totalFailed"] == 0


def test_all_of_a_project_are_acknowledged_at_once(pricing: TestClient, run_id: int) -> None:
    assert run_id
    assert pricing.post(f"{PATH}/acknowledge").json()["data"] == {"acknowledged": 0}
    assert pricing.post(f"{PATH}/acknowledge", params={"project": "shoes"}).json()["data"] == {
        "acknowledged": 1
    }
