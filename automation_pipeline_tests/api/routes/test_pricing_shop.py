"""Routes of the shop, dead letters, price changes and pricing alerts."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import delete

from automation_pipeline.core.alerts import AlertCondition, AlertSeverity
from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.monitoring import PRICING_ALERTS
from automation_pipeline.pricing.rules.monitoring import PricingAlertName
from automation_pipeline.pricing.tables import ShopRow
from automation_pipeline.storage.alerts import add_alerts
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.pricing.harness import UNLIMITED, PricingHarness

PATH = "/api/pricing/shop"


def test_a_shop_without_calls_has_no_bucket(pricing: TestClient, harness: PricingHarness) -> None:
    with harness.database.transaction() as session:
        session.execute(delete(ShopRow))
    shown = pricing.get(PATH).json()["data"]
    assert (shown["shop"], shown["circuit"]["state"], shown["bucket"]) == (
        "shop.test",
        "closed",
        None,
    )


def test_the_shop_can_be_paused_and_resumed(
    pricing: TestClient, login: Login, harness: PricingHarness
) -> None:
    assert pricing.get(PATH).json()["data"]["bucket"]["maximum"] == UNLIMITED
    user = login({"pricing.runs.write": "ALL"})
    paused = user.post(f"{PATH}/pause", json={"reason": "Stocktaking"}).json()["data"]
    assert (paused["pausedBy"], paused["pauseReason"]) == ("user:12", "Stocktaking")
    assert pricing.get(PATH).json()["data"]["pausedAt"] == paused["pausedAt"]
    run = harness.queued_run()
    harness.work(run)
    assert harness.shop.written == []
    resumed = pricing.post(f"{PATH}/resume").json()["data"]
    assert (resumed["pausedAt"], resumed["pausedBy"], resumed["pauseReason"]) == (None, None, None)
    assert harness.work(run).status == "APPLIED"


@pytest.mark.parametrize("body", [{"reason": "x" * 1001}, {"reason": 1}, {"nonsense": 1}])
def test_an_invalid_body_names_the_field(pricing: TestClient, body: dict[str, object]) -> None:
    refused = pricing.post(f"{PATH}/pause", json=body)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, next(iter(body)))


@pytest.mark.parametrize(
    ("method", "path"), [("GET", PATH), ("POST", f"{PATH}/pause"), ("POST", f"{PATH}/resume")]
)
def test_a_missing_shop_setting_is_named(client: TestClient, method: str, path: str) -> None:
    refused = client.request(method, path)
    assert (refused.status_code, refused.json()["code"]) == (503, "CONFIGURATION_ERROR")
    assert "SHOP_API_BASE_URL" in refused.json()["error"]


LETTERS = "/api/pricing/dead-letters"
KEY = {"Idempotency-Key": "once"}


@pytest.fixture
def run_id(harness: PricingHarness) -> int:
    """A run of the project shoes with one permanently failed target."""
    harness.shop.fail_always("2", FailureSignal(status=404))
    run = harness.work(harness.queued_run(harness.rule(project_id="shoes")))
    harness.shop.stop_failing("2")
    return run.id


def test_the_dead_letter_report_covers_one_project(pricing: TestClient, run_id: int) -> None:
    report = pricing.get(LETTERS, params={"project": "shoes"}).json()["data"]
    assert (report["projectId"], report["totalFailed"], report["byErrorType"]) == (
        "shoes",
        1,
        {"not_found": 1},
    )
    assert [entry["runId"] for entry in report["entries"]] == [str(run_id)]
    assert pricing.get(LETTERS).json()["data"]["totalFailed"] == 0
    refused = pricing.get(LETTERS, params={"project": "a b"})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "project")


def test_dead_letters_are_retried_only_with_force(
    pricing: TestClient, harness: PricingHarness, run_id: int
) -> None:
    where = {"project": "shoes"}
    none = pricing.post(f"{LETTERS}/retry", params=where)
    assert (none.status_code, none.json()["data"]) == (202, {"runIds": [], "skipped": []})
    answered = pricing.post(f"{LETTERS}/retry", params=where, json={"force": True}, headers=KEY)
    assert answered.json()["data"] == {"runIds": [str(run_id)], "skipped": []}
    again = pricing.post(f"{LETTERS}/retry", params=where, json={"force": True}, headers=KEY)
    assert (again.json(), again.headers["idempotent-replay"]) == (answered.json(), "true")
    assert harness.work_id(run_id).status == "APPLIED"


def test_retrying_a_queued_run_skips_it_with_a_reason(pricing: TestClient, run_id: int) -> None:
    request = {"params": {"project": "shoes"}, "json": {"force": True}}
    pricing.post(f"{LETTERS}/retry", **request)
    document = pricing.post(f"{LETTERS}/retry", **request).json()["data"]
    assert (document["runIds"], [one["runId"] for one in document["skipped"]]) == (
        [],
        [str(run_id)],
    )
    assert "waits" in document["skipped"][0]["why"]


def test_acknowledged_dead_letters_are_not_counted(
    pricing: TestClient, harness: PricingHarness, run_id: int
) -> None:
    applied, failed = (str(target.id) for target in harness.targets(run_id))
    where = {"project": "shoes"}
    refused = pricing.post(f"{LETTERS}/acknowledge", params=where, json={"targetIds": [applied]})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "targetIds")
    document = pricing.post(
        f"{LETTERS}/acknowledge", params=where, json={"targetIds": [failed]}
    ).json()["data"]
    assert document == {"acknowledged": 1}
    assert pricing.get(LETTERS, params=where).json()["data"]["totalFailed"] == 0


def test_all_dead_letters_of_a_project_can_be_acknowledged(
    pricing: TestClient, run_id: int
) -> None:
    assert run_id
    assert pricing.post(f"{LETTERS}/acknowledge").json()["data"] == {"acknowledged": 0}
    assert pricing.post(f"{LETTERS}/acknowledge", params={"project": "shoes"}).json()["data"] == {
        "acknowledged": 1
    }


CHANGES, ALERTS = "/api/pricing/price-changes", "/api/pricing/alerts"


def test_price_changes_are_listed_in_order_and_can_be_filtered(
    pricing: TestClient, harness: PricingHarness
) -> None:
    first = harness.work(harness.queued_run())
    second = harness.work(
        harness.queued_run(harness.rule(project_id="shoes", selector={"sku": "SKU-1-1"}))
    )
    # Products are written concurrently, in any order.
    of_both, of_second = (
        [("101", 900), ("201", 900)],
        [("101", 810)],
    )
    everything = listed(pricing, {})
    assert (sorted(everything[:2]), everything[2:]) == (of_both, of_second)
    for query, expected in (
        ({"variant": "101"}, [("101", 900), ("101", 810)]),
        ({"run_id": second.id}, of_second),
        ({"run_id": first.id, "variant": "201"}, [("201", 900)]),
        ({"project": "shoes"}, of_second),
        ({"variant": "nothing"}, []),
        ({"limit": 1}, everything[:1]),
        ({"after": 1, "limit": 1}, everything[1:2]),
    ):
        assert listed(pricing, query) == expected, query


def listed(pricing: TestClient, query: dict[str, Any]) -> list[tuple[str, int]]:
    document = pricing.get(CHANGES, params=query).json()
    assert document["count"] == len(document["data"])
    return [(one["variantId"], one["toAmount"]) for one in document["data"]]


def test_alerts_are_listed_newest_first(pricing: TestClient, harness: PricingHarness) -> None:
    raised = [
        AlertCondition(
            name=PricingAlertName.DEAD_LETTERS,
            severity=AlertSeverity.WARNING,
            subject=project,
            message="51 failed price changes wait for an operator.",
        )
        for project in ("default", "shoes")
    ]
    with harness.database.transaction() as session:
        add_alerts(session, PRICING_ALERTS, raised, harness.clock.now(), {})
    document = pricing.get(ALERTS).json()
    assert [(one["projectId"], one["name"], one["status"]) for one in document["data"]] == [
        ("shoes", "dlq_size", "unsent"),
        ("default", "dlq_size", "unsent"),
    ]
    assert [
        one["id"] for one in pricing.get(ALERTS, params={"project": "default"}).json()["data"]
    ] == ["1"]
    assert [
        one["id"] for one in pricing.get(ALERTS, params={"limit": 1, "offset": 1}).json()["data"]
    ] == ["1"]


@every_case(
    ("path", "query"),
    [
        (CHANGES, {"run_id": 0}),
        (CHANGES, {"after": -1}),
        (CHANGES, {"project": "a b"}),
        (CHANGES, {"variant": "x" * 256}),
        (ALERTS, {"project": ""}),
        (ALERTS, {"limit": 0}),
    ],
)
def test_an_invalid_filter_is_named(pricing: TestClient, path: str, query: dict[str, Any]) -> None:
    refused = pricing.get(path, params=query)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, next(iter(query)))
