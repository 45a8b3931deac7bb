"""What is done with runs of pricing rules over HTTP: approved, applied, retried, rolled back,
cancelled."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline.pricing.rules.runs import PREVIEW_LIFETIME
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.pricing.bench import Bench
from automation_pipeline_tests.tables import every_case

PATH = "/api/pricing/runs"
KEY = {"Idempotency-Key": "once"}
WORK = ("apply", "retry", "rollback", "repair")


def post(client: TestClient, run_id: int, what: str, **about: Any) -> Any:
    return client.post(f"{PATH}/{run_id}/{what}", **about)


def failed_one(bench: Bench) -> int:
    """A run with one applied target and one that is worth another try."""
    bench.shop.fail_always("2", FailureSignal(status=404))
    run = bench.work(bench.queued())
    assert run.status == "PARTIAL"
    bench.shop.fail_no_more("2")
    return run.id


class TestApply:
    def test_what_was_previewed_is_queued_and_applied_by_a_worker(
        self, pricing: TestClient, bench: Bench
    ) -> None:
        run = bench.previewed()
        answered = post(pricing, run.id, "apply")
        assert (answered.status_code, answered.json()["data"]["status"]) == (202, "QUEUED")
        assert bench.work(run).status == "APPLIED"
        again = post(pricing, run.id, "apply")
        assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")

    def test_a_stale_preview_is_refused(self, pricing: TestClient, bench: Bench) -> None:
        old, changed = bench.previewed(), bench.previewed(bench.rule())
        pricing.patch(
            f"/api/pricing/rules/{changed.rule_id}",
            json={"transform": {"op": "percent", "value": -20}},
        )
        assert "preview it again" in post(pricing, changed.id, "apply").json()["error"]
        bench.clock.pass_time(PREVIEW_LIFETIME * 2)
        refused = post(pricing, old.id, "apply")
        assert (refused.status_code, "older than 15 minutes" in refused.json()["error"]) == (
            409,
            True,
        )

    def test_guardrails_want_somebody_else_to_approve_first(
        self, pricing: TestClient, login: Login, bench: Bench
    ) -> None:
        bench.guard(maxPctDelta=0.5)
        run = bench.previewed(actor="user:12")
        assert "approved first" in post(pricing, run.id, "apply").json()["error"]
        creator = login({"pricing.read": "ALL", "pricing.write": "ALL"})
        assert creator.post(f"{PATH}/{run.id}/approve").status_code == 409
        approved = post(pricing, run.id, "approve")
        assert (approved.status_code, approved.json()["data"]["approvedBy"]) == (
            200,
            "machine:environment",
        )
        assert post(pricing, run.id, "apply").status_code == 202

    def test_nothing_to_apply_is_a_bad_request(self, pricing: TestClient, bench: Bench) -> None:
        run = bench.previewed(bench.rule(selector={"sku": "none"}))
        refused = post(pricing, run.id, "apply")
        assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")

    def test_one_key_queues_once(self, pricing: TestClient, bench: Bench) -> None:
        run = bench.previewed()
        first, second = (post(pricing, run.id, "apply", headers=KEY) for _ in range(2))
        assert (first.json(), second.headers["idempotent-replay"]) == (second.json(), "true")
        assert len(bench.requests()) == 1

    def test_a_second_run_of_the_rule_waits_its_turn(
        self, pricing: TestClient, bench: Bench
    ) -> None:
        rule = bench.rule()
        first, second = bench.previewed(rule), bench.previewed(rule)
        assert post(pricing, first.id, "apply").status_code == 202
        assert post(pricing, second.id, "apply").json()["code"] == "CONFLICT"


class TestRetry:
    def test_hopeless_ones_are_tried_again_with_force_only(
        self, pricing: TestClient, bench: Bench
    ) -> None:
        run_id = failed_one(bench)
        assert post(pricing, run_id, "retry").status_code == 409
        answered = post(pricing, run_id, "retry", json={"force": True})
        assert (answered.status_code, answered.json()["data"]["wish"]) == (202, "retry")
        assert bench.work_id(run_id).status == "APPLIED"

    def test_targets_are_named_by_their_ids(self, pricing: TestClient, bench: Bench) -> None:
        run_id = failed_one(bench)
        applied, failed = bench.targets(run_id)
        refused = post(pricing, run_id, "retry", json={"targetIds": [str(applied.id)]})
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "targetIds")
        wish = {"targetIds": [str(failed.id)], "force": True}
        assert post(pricing, run_id, "retry", json=wish).status_code == 202

    @pytest.mark.parametrize("named", [[], ["x"], "1", [0], [True]])
    @pytest.mark.parametrize("what", ["retry", "rollback"])
    def test_what_is_no_id_of_a_target_is_named(
        self, pricing: TestClient, bench: Bench, what: str, named: object
    ) -> None:
        refused = post(pricing, bench.previewed().id, what, json={"targetIds": named})
        assert refused.status_code == 400
        assert refused.json()["details"][0]["field"].startswith("targetIds")

    def test_a_run_that_cannot_be_retried_is_a_conflict(
        self, pricing: TestClient, bench: Bench
    ) -> None:
        assert post(pricing, bench.work(bench.queued()).id, "retry").json()["code"] == "CONFLICT"


class TestRollback:
    def test_applied_prices_are_taken_back_by_a_worker(
        self, pricing: TestClient, bench: Bench
    ) -> None:
        run = bench.work(bench.queued())
        answered = post(pricing, run.id, "rollback", headers=KEY)
        assert (answered.status_code, answered.json()["data"]["wish"]) == (202, "rollback")
        assert post(pricing, run.id, "rollback", headers=KEY).json() == answered.json()
        assert bench.work(run).status == "ROLLED_BACK"
        assert bench.shop.amounts() == {"101": 1000, "201": 1000}
        assert post(pricing, run.id, "rollback").status_code == 409

    def test_some_of_them(self, pricing: TestClient, bench: Bench) -> None:
        run = bench.work(bench.queued())
        first = bench.targets(run.id)[0]
        assert post(pricing, run.id, "rollback", json={"targetIds": [first.id]}).status_code == 202
        bench.work(run)
        assert bench.shop.amounts() == {"101": 1000, "201": 900}
        refused = post(pricing, run.id, "rollback", json={"targetIds": [first.id]})
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "targetIds")

    def test_what_was_not_applied_cannot_be(self, pricing: TestClient, bench: Bench) -> None:
        assert post(pricing, bench.previewed().id, "rollback").json()["code"] == "CONFLICT"


class TestCancel:
    def test_a_queued_run_ends_and_a_preview_has_nothing_to_cancel(
        self, pricing: TestClient, bench: Bench
    ) -> None:
        run = bench.queued()
        told = post(pricing, run.id, "cancel").json()["data"]
        assert (told["status"], told["targets"]["cancelled"]) == ("FAILED", 2)
        assert bench.shop.written == []
        assert post(pricing, bench.previewed().id, "cancel").json()["code"] == "CONFLICT"


@every_case("what", [*WORK, "approve", "cancel", "reconcile"])
def test_of_a_run_that_is_not_there(pricing: TestClient, what: str) -> None:
    assert post(pricing, 9, what).status_code == 404


@pytest.mark.parametrize("what", [*WORK, "cancel"])
def test_whoever_may_write_rules_may_not_for_that_write_prices(
    login: Login, bench: Bench, what: str
) -> None:
    author = login({"pricing.read": "ALL", "pricing.write": "ALL", "pricing.runs.read": "ALL"})
    refused = post(author, bench.previewed().id, what)
    assert (refused.status_code, refused.json()["code"]) == (403, "AUTHORIZATION_ERROR")
