"""Runs of pricing rules over HTTP, looked at: listed, shown, and gone through variant by
variant."""

from typing import Any

from fastapi.testclient import TestClient

from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.fakes.shop import variant
from automation_pipeline_tests.pricing.bench import Bench
from automation_pipeline_tests.tables import every_case

PATH = "/api/pricing/runs"
PARTS = ("targets", "skipped", "result", "log", "checks")


def ids(told: dict[str, Any], name: str = "id") -> list[str]:
    return [one[name] for one in told["data"]]


def test_the_list_is_filtered_and_has_pages(pricing: TestClient, bench: Bench) -> None:
    bench.work(bench.queued())
    bench.previewed(bench.rule(project_id="shoes"))
    bench.asked_for(bench.rule())
    for query, expected in (
        ({}, ["3", "2", "1"]),
        ({"project": "shoes"}, ["2"]),
        ({"rule_id": 1}, ["1"]),
        ({"status": "APPLIED"}, ["1"]),
        ({"trigger": "launchpad"}, ["3"]),
        ({"project": "shoes", "status": "APPLIED"}, []),
        ({"limit": 1, "offset": 1}, ["2"]),
    ):
        told = pricing.get(PATH, params=query).json()
        assert (ids(told), told["count"]) == (expected, len(expected)), query


@every_case(
    "query",
    [
        {"status": "applied"},
        {"trigger": "x"},
        {"rule_id": 0},
        {"rule_id": "x"},
        {"limit": 1001},
        {"project": "a b"},
    ],
)
def test_a_filter_that_makes_no_sense_is_named(pricing: TestClient, query: dict[str, Any]) -> None:
    refused = pricing.get(PATH, params=query)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, next(iter(query)))


def test_a_run_is_shown_with_its_counts_and_whether_its_shop_is_paused(
    pricing: TestClient, bench: Bench
) -> None:
    run = bench.work(bench.queued())
    told = pricing.get(f"{PATH}/{run.id}").json()
    assert (told["data"]["id"], told["data"]["status"], told["shopPaused"]) == (
        str(run.id),
        "APPLIED",
        False,
    )
    assert (told["data"]["targets"]["applied"], told["data"]["successRate"]) == (2, 1.0)
    pricing.post("/api/pricing/shop/pause")
    assert pricing.get(f"{PATH}/{run.id}").json()["shopPaused"] is True


def test_targets_are_gone_through_by_their_ids(pricing: TestClient, bench: Bench) -> None:
    bench.shop.fail_always("2", FailureSignal(status=404))
    run = bench.work(bench.queued())
    path = f"{PATH}/{run.id}/targets"
    first = pricing.get(path, params={"limit": 1}).json()
    rest = pricing.get(path, params={"after": ids(first)[0]}).json()
    assert (ids(first, "variantId"), ids(rest, "variantId"), rest["count"]) == (["101"], ["201"], 1)
    assert first["data"][0]["before"] == {"unitAmount": 1000, "currency": "EUR", "compareAt": None}
    (failed,) = pricing.get(path, params={"status": "FAILED"}).json()["data"]
    assert (failed["errorType"], failed["errorRetryable"]) == ("not_found", False)
    for query in ({"status": "failed"}, {"after": -1}, {"limit": 0}):
        refused = pricing.get(path, params=query)
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (
            400,
            next(iter(query)),
        )


def test_what_is_left_alone_says_why(pricing: TestClient, bench: Bench) -> None:
    bench.shop.put(variant("301", "3", None), variant("401", "4", 5000))
    bench.guard(ceiling=2000, currency="EUR")
    run = bench.previewed()
    told = pricing.get(f"{PATH}/{run.id}/skipped").json()
    assert sorted(ids(told, "variantId")) == ["301", "401"]
    (blocked,) = pricing.get(f"{PATH}/{run.id}/skipped", params={"reason": "blocked"}).json()[
        "data"
    ]
    assert (blocked["variantId"], blocked["checks"][0]["name"]) == ("401", "ceiling")
    assert (
        pricing.get(f"{PATH}/{run.id}/skipped", params={"limit": 1, "offset": 2}).json()["data"]
        == []
    )


def test_the_result_and_the_log_tell_how_it_went(pricing: TestClient, bench: Bench) -> None:
    run = bench.work(bench.queued())
    result = pricing.get(f"{PATH}/{run.id}/result").json()["data"]
    assert (result["runId"], result["appliedTargets"], result["failedTargets"]) == (
        str(run.id),
        2,
        0,
    )
    assert [one["appliedPrice"] for one in result["results"]] == [900, 900]
    lines = pricing.get(f"{PATH}/{run.id}/log").json()["data"]
    moves = [
        (line["fromState"], line["toState"]) for line in lines if line["machine"] == "rule run"
    ]
    assert moves == [("PREVIEW", "QUEUED"), ("QUEUED", "APPLYING"), ("APPLYING", "APPLIED")]
    after = pricing.get(f"{PATH}/{run.id}/log", params={"after": lines[1]["id"], "limit": 1}).json()
    assert after["data"] == [lines[2]]


@every_case("part", ["", *(f"/{part}" for part in PARTS)])
def test_what_is_not_there_is_not_found(pricing: TestClient, part: str) -> None:
    refused = pricing.get(f"{PATH}/9{part}")
    assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND")
    malformed = pricing.get(f"{PATH}/x{part}")
    assert (malformed.status_code, malformed.json()["details"][0]["field"]) == (400, "rule_run_id")


def test_no_scope_narrows_what_belongs_to_no_fiche(login: Login, bench: Bench) -> None:
    bench.previewed()
    nobody_of_a_groupe = login({"pricing.read": "SELF"})
    assert nobody_of_a_groupe.get(f"{PATH}/1").json()["data"]["id"] == "1"
