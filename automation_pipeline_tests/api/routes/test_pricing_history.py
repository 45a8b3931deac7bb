"""What pricing leaves behind, over HTTP: the prices that were written, and the alerts."""

from typing import Any

from fastapi.testclient import TestClient

from automation_pipeline.core.webhooks import AlertSeverity
from automation_pipeline.pricing.models.history import AlertCandidate, PricingAlertName
from automation_pipeline.pricing.queries.monitoring import add_alerts
from automation_pipeline_tests.pricing.bench import Bench
from automation_pipeline_tests.tables import every_case

CHANGES, ALERTS = "/api/pricing/price-changes", "/api/pricing/alerts"


def test_every_price_that_was_written_is_listed_in_its_order(
    pricing: TestClient, bench: Bench
) -> None:
    first = bench.work(bench.queued())
    second = bench.work(bench.queued(bench.rule(project_id="shoes", selector={"sku": "SKU-1-1"})))
    of_both, of_second = (
        [("101", 900), ("201", 900)],
        [("101", 810)],
    )  # products are written at once: either is first
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
    told = pricing.get(CHANGES, params=query).json()
    assert told["count"] == len(told["data"])
    return [(one["variantId"], one["toAmount"]) for one in told["data"]]


def test_alerts_are_listed_newest_first(pricing: TestClient, bench: Bench) -> None:
    alert = AlertCandidate(
        PricingAlertName.DEAD_LETTERS,
        AlertSeverity.WARNING,
        "51 failed price changes wait for somebody.",
    )
    for project in ("default", "shoes"):
        with bench.database.transaction() as session:
            add_alerts(session, [(project, alert)], bench.clock.now(), webhooks={})
    told = pricing.get(ALERTS).json()
    assert [(one["projectId"], one["name"], one["status"]) for one in told["data"]] == [
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
def test_a_filter_that_makes_no_sense_is_named(
    pricing: TestClient, path: str, query: dict[str, Any]
) -> None:
    refused = pricing.get(path, params=query)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, next(iter(query)))
