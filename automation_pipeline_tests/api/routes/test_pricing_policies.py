"""The guardrails of a project over HTTP."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.pricing.bench import Bench
from automation_pipeline_tests.tables import every_case

PATH = "/api/pricing/policies"
CAREFUL: dict[str, Any] = {"maxPctDelta": 0.15, "floor": 500, "currency": "EUR"}


def test_guardrails_are_put_shown_replaced_and_removed(pricing: TestClient) -> None:
    assert pricing.get(f"{PATH}/shoes").status_code == 404
    put = pricing.put(f"{PATH}/shoes", json=CAREFUL).json()["data"]
    assert {name: put[name] for name in CAREFUL} == CAREFUL
    assert (put["autoApply"], pricing.get(f"{PATH}/shoes").json()["data"]) == (False, put)
    replaced = pricing.put(f"{PATH}/shoes", json={"autoApply": True}).json()["data"]
    assert (replaced["autoApply"], replaced["floor"]) == (True, None)
    assert pricing.get(f"{PATH}/hats").status_code == 404
    assert pricing.delete(f"{PATH}/shoes").json() == {
        "success": True,
        "message": "Pricing policy removed",
    }
    assert pricing.delete(f"{PATH}/shoes").status_code == 404


def test_wrong_guardrails_name_each_field(pricing: TestClient) -> None:
    refused = pricing.put(
        f"{PATH}/shoes", json={"maxPctDelta": 15, "floor": 5, "ceiling": 4, "nonsense": 1}
    )
    faults = {fault["field"] for fault in refused.json()["details"]}
    assert (refused.status_code, faults >= {"maxPctDelta", "ceiling", "nonsense"}) == (400, True)
    assert pricing.get(f"{PATH}/shoes").status_code == 404


@every_case("method", ["GET", "PUT", "DELETE"])
@every_case("project", ["a b", "%C3%A9", "x" * 101])
def test_a_project_with_a_strange_name_is_refused(
    pricing: TestClient, method: str, project: str
) -> None:
    refused = pricing.request(method, f"{PATH}/{project}", json={})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "project")


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_whoever_is_held_by_guardrails_cannot_move_them(
    pricing: TestClient, login: Login, bench: Bench, method: str
) -> None:
    bench.guard("shoes", maxPctDelta=0.1)
    whole = dict.fromkeys(
        ("pricing.read", "pricing.write", "pricing.runs.write", "pricing.policies.read"), "ALL"
    )
    refused = login(whole).request(method, f"{PATH}/shoes", json={"autoApply": True})
    assert (refused.status_code, refused.json()["code"]) == (403, "AUTHORIZATION_ERROR")
    kept = pricing.get(f"{PATH}/shoes").json()["data"]
    assert (kept["maxPctDelta"], kept["autoApply"]) == (0.1, False)


def test_whoever_keeps_the_guardrails_needs_nothing_else(login: Login, bench: Bench) -> None:
    keeper = login({"pricing.policies.write": "ALL"})
    assert keeper.put(f"{PATH}/shoes", json=CAREFUL).status_code == 200
    assert keeper.delete(f"{PATH}/shoes").status_code == 200
    assert [event.name for event in bench.events()] == ["policy.changed", "policy.removed"]
