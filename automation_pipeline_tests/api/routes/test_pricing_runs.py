"""Price run routes: read, apply, retry, roll back, cancel, reconcile."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.rules.runs import PREVIEW_LIFETIME
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.shop import PRICES, variant
from automation_pipeline_tests.pricing.harness import PricingHarness

PATH = "/api/pricing/runs"
PARTS = ("targets", "skipped", "result", "log", "checks")


def ids(text: dict[str, Any], name: str = "id") -> list[str]:
    return [one[name] for one in text["data"]]


def test_the_list_can_be_filtered_and_paged(pricing: TestClient, harness: PricingHarness) -> None:
    harness.work(harness.queued_run())
    harness.previewed_run(harness.rule(project_id="shoes"))
    harness.request_run(harness.rule())
    for query, expected in (
        ({}, ["3", "2", "1"]),
        ({"project": "shoes"}, ["2"]),
        ({"rule_id": 1}, ["1"]),
        ({"status": "APPLIED"}, ["1"]),
        ({"trigger": "launchpad"}, ["3"]),
        ({"project": "shoes", "status": "APPLIED"}, []),
        ({"limit": 1, "offset": 1}, ["2"]),
    ):
        document = pricing.get(PATH, params=query).json()
        assert (ids(document), document["count"]) == (expected, len(expected)), query


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
def test_an_invalid_filter_is_named(pricing: TestClient, query: dict[str, Any]) -> None:
    refused = pricing.get(PATH, params=query)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, next(iter(query)))


def test_a_run_is_shown_with_its_counts_and_the_shop_pause(
    pricing: TestClient, harness: PricingHarness
) -> None:
    run = harness.work(harness.queued_run())
    document = pricing.get(f"{PATH}/{run.id}").json()
    assert (document["data"]["id"], document["data"]["status"], document["shopPaused"]) == (
        str(run.id),
        "APPLIED",
        False,
    )
    assert (document["data"]["targets"]["applied"], document["data"]["successRate"]) == (2, 1.0)
    pricing.post("/api/pricing/shop/pause")
    assert pricing.get(f"{PATH}/{run.id}").json()["shopPaused"] is True


def test_targets_are_paged_by_id(pricing: TestClient, harness: PricingHarness) -> None:
    harness.shop.fail_always("2", FailureSignal(status=404))
    run = harness.work(harness.queued_run())
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


def test_skipped_variants_have_their_reason(pricing: TestClient, harness: PricingHarness) -> None:
    harness.shop.add(variant("301", "3", None), variant("401", "4", 5000))
    harness.set_policy(ceiling=2000, currency="EUR")
    run = harness.previewed_run()
    document = pricing.get(f"{PATH}/{run.id}/skipped").json()
    assert sorted(ids(document, "variantId")) == ["301", "401"]
    (blocked,) = pricing.get(f"{PATH}/{run.id}/skipped", params={"reason": "blocked"}).json()[
        "data"
    ]
    assert (blocked["variantId"], blocked["checks"][0]["name"]) == ("401", "ceiling")
    assert (
        pricing.get(f"{PATH}/{run.id}/skipped", params={"limit": 1, "offset": 2}).json()["data"]
        == []
    )


def test_the_result_and_the_log_of_a_run(pricing: TestClient, harness: PricingHarness) -> None:
    run = harness.work(harness.queued_run())
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
def test_an_unknown_run_is_404_and_a_malformed_id_400(pricing: TestClient, part: str) -> None:
    refused = pricing.get(f"{PATH}/9{part}")
    assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND")
    malformed = pricing.get(f"{PATH}/x{part}")
    assert (malformed.status_code, malformed.json()["details"][0]["field"]) == (400, "rule_run_id")


def test_any_scope_reads_pricing_runs(login: Login, harness: PricingHarness) -> None:
    harness.previewed_run()
    self_scoped = login({"pricing.read": "SELF"})
    assert self_scoped.get(f"{PATH}/1").json()["data"]["id"] == "1"


KEY = {"Idempotency-Key": "once"}
WORK = ("apply", "retry", "rollback", "repair")


def post(client: TestClient, run_id: int, what: str, **about: Any) -> Any:
    return client.post(f"{PATH}/{run_id}/{what}", **about)


def partially_failed_run(harness: PricingHarness) -> int:
    """A run with one applied target and one failed target that can succeed on retry."""
    harness.shop.fail_always("2", FailureSignal(status=404))
    run = harness.work(harness.queued_run())
    assert run.status == "PARTIAL"
    harness.shop.stop_failing("2")
    return run.id


class TestApply:
    def test_applying_a_preview_queues_it_for_a_worker(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        run = harness.previewed_run()
        answered = post(pricing, run.id, "apply")
        assert (answered.status_code, answered.json()["data"]["status"]) == (202, "QUEUED")
        assert harness.work(run).status == "APPLIED"
        again = post(pricing, run.id, "apply")
        assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")

    def test_a_stale_preview_is_refused(self, pricing: TestClient, harness: PricingHarness) -> None:
        old, changed = harness.previewed_run(), harness.previewed_run(harness.rule())
        pricing.patch(
            f"/api/pricing/rules/{changed.rule_id}",
            json={"transform": {"op": "percent", "value": -20}},
        )
        assert "preview it again" in post(pricing, changed.id, "apply").json()["error"]
        harness.clock.advance(PREVIEW_LIFETIME * 2)
        refused = post(pricing, old.id, "apply")
        assert (refused.status_code, "older than 15 minutes" in refused.json()["error"]) == (
            409,
            True,
        )

    def test_guardrails_require_approval_by_another_person(
        self, pricing: TestClient, login: Login, harness: PricingHarness
    ) -> None:
        harness.set_policy(maxPctDelta=0.5)
        run = harness.previewed_run(actor="user:12")
        assert "approved first" in post(pricing, run.id, "apply").json()["error"]
        creator = login({"pricing.read": "ALL", "pricing.write": "ALL"})
        assert creator.post(f"{PATH}/{run.id}/approve").status_code == 409
        approved = post(pricing, run.id, "approve")
        assert (approved.status_code, approved.json()["data"]["approvedBy"]) == (
            200,
            "machine:environment",
        )
        assert post(pricing, run.id, "apply").status_code == 202

    def test_applying_a_run_without_targets_is_400(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        run = harness.previewed_run(harness.rule(selector={"sku": "none"}))
        refused = post(pricing, run.id, "apply")
        assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")

    def test_an_idempotency_key_queues_a_run_once(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        run = harness.previewed_run()
        first, second = (post(pricing, run.id, "apply", headers=KEY) for _ in range(2))
        assert (first.json(), second.headers["idempotent-replay"]) == (second.json(), "true")
        assert len(harness.requests()) == 1

    def test_applying_a_second_run_of_a_rule_is_a_conflict(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        rule = harness.rule()
        first, second = harness.previewed_run(rule), harness.previewed_run(rule)
        assert post(pricing, first.id, "apply").status_code == 202
        assert post(pricing, second.id, "apply").json()["code"] == "CONFLICT"


class TestRetry:
    def test_permanent_failures_are_retried_only_with_force(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        run_id = partially_failed_run(harness)
        assert post(pricing, run_id, "retry").status_code == 409
        answered = post(pricing, run_id, "retry", json={"force": True})
        assert (answered.status_code, answered.json()["data"]["wish"]) == (202, "retry")
        assert harness.work_id(run_id).status == "APPLIED"

    def test_a_retry_accepts_only_failed_targets(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        run_id = partially_failed_run(harness)
        applied, failed = harness.targets(run_id)
        refused = post(pricing, run_id, "retry", json={"targetIds": [str(applied.id)]})
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "targetIds")
        request = {"targetIds": [str(failed.id)], "force": True}
        assert post(pricing, run_id, "retry", json=request).status_code == 202

    @pytest.mark.parametrize("named", [[], ["x"], "1", [0], [True]])
    @pytest.mark.parametrize("what", ["retry", "rollback"])
    def test_invalid_target_ids_are_refused(
        self, pricing: TestClient, harness: PricingHarness, what: str, named: object
    ) -> None:
        refused = post(pricing, harness.previewed_run().id, what, json={"targetIds": named})
        assert refused.status_code == 400
        assert refused.json()["details"][0]["field"].startswith("targetIds")

    def test_retrying_a_successful_run_is_a_conflict(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        assert (
            post(pricing, harness.work(harness.queued_run()).id, "retry").json()["code"]
            == "CONFLICT"
        )


class TestRollback:
    def test_applied_prices_are_rolled_back_by_a_worker(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        run = harness.work(harness.queued_run())
        answered = post(pricing, run.id, "rollback", headers=KEY)
        assert (answered.status_code, answered.json()["data"]["wish"]) == (202, "rollback")
        assert post(pricing, run.id, "rollback", headers=KEY).json() == answered.json()
        assert harness.work(run).status == "ROLLED_BACK"
        assert harness.shop.amounts() == {"101": 1000, "201": 1000}
        assert post(pricing, run.id, "rollback").status_code == 409

    def test_selected_targets_can_be_rolled_back_once(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        run = harness.work(harness.queued_run())
        first = harness.targets(run.id)[0]
        assert post(pricing, run.id, "rollback", json={"targetIds": [first.id]}).status_code == 202
        harness.work(run)
        assert harness.shop.amounts() == {"101": 1000, "201": 900}
        refused = post(pricing, run.id, "rollback", json={"targetIds": [first.id]})
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "targetIds")

    def test_rolling_back_a_run_not_applied_is_a_conflict(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        assert post(pricing, harness.previewed_run().id, "rollback").json()["code"] == "CONFLICT"


class TestCancel:
    def test_a_queued_run_can_be_cancelled_and_a_preview_cannot(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        run = harness.queued_run()
        document = post(pricing, run.id, "cancel").json()["data"]
        assert (document["status"], document["targets"]["cancelled"]) == ("FAILED", 2)
        assert harness.shop.written == []
        assert post(pricing, harness.previewed_run().id, "cancel").json()["code"] == "CONFLICT"


@every_case("what", [*WORK, "approve", "cancel", "reconcile"])
def test_actions_on_an_unknown_run_are_404(pricing: TestClient, what: str) -> None:
    assert post(pricing, 9, what).status_code == 404


@pytest.mark.parametrize("what", [*WORK, "cancel"])
def test_the_rules_permission_does_not_allow_price_changes(
    login: Login, harness: PricingHarness, what: str
) -> None:
    author = login({"pricing.read": "ALL", "pricing.write": "ALL", "pricing.runs.read": "ALL"})
    refused = post(author, harness.previewed_run().id, what)
    assert (refused.status_code, refused.json()["code"]) == (403, "AUTHORIZATION_ERROR")


def test_a_reconciliation_reports_mismatches_and_is_stored(
    pricing: TestClient, login: Login, harness: PricingHarness
) -> None:
    run = harness.work(harness.queued_run())
    harness.shop.edit("201", amount=950)
    report = login({"pricing.read": "SELF"}).post(f"{PATH}/{run.id}/reconcile").json()["data"]
    assert (report["runId"], report["totalChecked"], report["mismatches"]) == (str(run.id), 2, 1)
    (found,) = report["details"]
    assert (found["expectedPrice"], found["actualPrice"], found["severity"]) == (
        900,
        950,
        "critical",
    )
    assert harness.shop.amounts() == {"101": 900, "201": 950}
    assert pricing.post(f"{PATH}/{run.id}/reconcile").status_code == 200
    document = {
        check["name"]: check for check in pricing.get(f"{PATH}/{run.id}/checks").json()["data"]
    }
    assert set(document) == {"5m", "1h", "manual-1", "manual-2"}
    assert (document["manual-1"]["report"]["mismatches"], document["5m"]["report"]) == (1, None)


def test_reconciling_a_run_not_applied_is_a_conflict(
    pricing: TestClient, harness: PricingHarness
) -> None:
    assert (
        pricing.post(f"{PATH}/{harness.previewed_run().id}/reconcile").json()["code"] == "CONFLICT"
    )


def test_unreadable_prices_are_reported_as_unverified(
    pricing: TestClient, harness: PricingHarness
) -> None:
    run = harness.work(harness.queued_run())
    harness.shop.fail_always(PRICES, FailureSignal(status=403))
    report = pricing.post(f"{PATH}/{run.id}/reconcile").json()["data"]
    assert (report["totalChecked"], report["mismatches"], len(report["unverified"])) == (0, 0, 2)


def test_a_repair_previews_only_mismatched_prices(
    pricing: TestClient, harness: PricingHarness
) -> None:
    run = harness.work(harness.queued_run())
    assert pricing.post(f"{PATH}/{run.id}/repair").json()["code"] == "CONFLICT"
    harness.shop.edit("201", amount=950)
    pricing.post(f"{PATH}/{run.id}/reconcile")
    answered = pricing.post(f"{PATH}/{run.id}/repair", headers=KEY)
    repair = answered.json()["data"]
    assert (answered.status_code, repair["trigger"], repair["parentRunId"]) == (
        201,
        "repair",
        str(run.id),
    )
    assert pricing.post(f"{PATH}/{run.id}/repair", headers=KEY).json() == answered.json()
    assert pricing.post(f"{PATH}/{repair['id']}/apply").status_code == 202
    harness.work_id(int(repair["id"]))
    assert harness.shop.amounts() == {"101": 900, "201": 900}
