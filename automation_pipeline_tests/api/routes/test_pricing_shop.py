"""The shop over HTTP: how it stands, paused and resumed."""

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import delete

from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.pricing.bench import PLENTY, Bench

PATH = "/api/pricing/shop"


def test_a_shop_that_was_never_called_has_no_bucket(pricing: TestClient, bench: Bench) -> None:
    with bench.database.transaction() as session:
        session.execute(delete(ShopRow))
    shown = pricing.get(PATH).json()["data"]
    assert (shown["shop"], shown["circuit"]["state"], shown["bucket"]) == (
        "shop.test",
        "closed",
        None,
    )


def test_it_is_shown_paused_and_resumed(pricing: TestClient, login: Login, bench: Bench) -> None:
    assert pricing.get(PATH).json()["data"]["bucket"]["maximum"] == PLENTY
    user = login({"pricing.runs.write": "ALL"})
    paused = user.post(f"{PATH}/pause", json={"reason": "Stocktaking"}).json()["data"]
    assert (paused["pausedBy"], paused["pauseReason"]) == ("user:12", "Stocktaking")
    assert pricing.get(PATH).json()["data"]["pausedAt"] == paused["pausedAt"]
    run = bench.queued()
    bench.work(run)
    assert bench.shop.written == []
    resumed = pricing.post(f"{PATH}/resume").json()["data"]
    assert (resumed["pausedAt"], resumed["pausedBy"], resumed["pauseReason"]) == (None, None, None)
    assert bench.work(run).status == "APPLIED"


@pytest.mark.parametrize("body", [{"reason": "x" * 1001}, {"reason": 1}, {"nonsense": 1}])
def test_a_wrong_body_is_named(pricing: TestClient, body: dict[str, object]) -> None:
    refused = pricing.post(f"{PATH}/pause", json=body)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, next(iter(body)))


@pytest.mark.parametrize(
    ("method", "path"), [("GET", PATH), ("POST", f"{PATH}/pause"), ("POST", f"{PATH}/resume")]
)
def test_without_a_shop_the_setting_that_is_missing_is_named(
    client: TestClient, method: str, path: str
) -> None:
    refused = client.request(method, path)
    assert (refused.status_code, refused.json()["code"]) == (503, "CONFIGURATION_ERROR")
    assert "SHOP_API_BASE_URL" in refused.json()["error"]
