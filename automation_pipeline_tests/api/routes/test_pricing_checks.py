"""Reconciliation over HTTP: a look at the shop now, the looks that are due, and a run that repairs
what differs."""

from fastapi.testclient import TestClient

from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.fakes.shop import PRICES
from automation_pipeline_tests.pricing.bench import Bench

PATH = "/api/pricing/runs"
KEY = {"Idempotency-Key": "once"}


def test_a_look_at_the_shop_tells_what_differs_and_is_kept(
    pricing: TestClient, login: Login, bench: Bench
) -> None:
    run = bench.work(bench.queued())
    bench.shop.edit("201", amount=950)
    report = login({"pricing.read": "SELF"}).post(f"{PATH}/{run.id}/reconcile").json()["data"]
    assert (report["runId"], report["totalChecked"], report["mismatches"]) == (str(run.id), 2, 1)
    (found,) = report["details"]
    assert (found["expectedPrice"], found["actualPrice"], found["severity"]) == (
        900,
        950,
        "critical",
    )
    assert bench.shop.amounts() == {"101": 900, "201": 950}
    assert pricing.post(f"{PATH}/{run.id}/reconcile").status_code == 200
    told = {check["name"]: check for check in pricing.get(f"{PATH}/{run.id}/checks").json()["data"]}
    assert set(told) == {"5m", "1h", "manual-1", "manual-2"}
    assert (told["manual-1"]["report"]["mismatches"], told["5m"]["report"]) == (1, None)


def test_what_was_not_applied_is_not_looked_up(pricing: TestClient, bench: Bench) -> None:
    assert pricing.post(f"{PATH}/{bench.previewed().id}/reconcile").json()["code"] == "CONFLICT"


def test_a_price_that_cannot_be_read_proves_nothing(pricing: TestClient, bench: Bench) -> None:
    run = bench.work(bench.queued())
    bench.shop.fail_always(PRICES, FailureSignal(status=403))
    report = pricing.post(f"{PATH}/{run.id}/reconcile").json()["data"]
    assert (report["totalChecked"], report["mismatches"], len(report["unverified"])) == (0, 0, 2)


def test_a_repair_is_a_new_preview_of_what_differs(pricing: TestClient, bench: Bench) -> None:
    run = bench.work(bench.queued())
    assert pricing.post(f"{PATH}/{run.id}/repair").json()["code"] == "CONFLICT"
    bench.shop.edit("201", amount=950)
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
    bench.work_id(int(repair["id"]))
    assert bench.shop.amounts() == {"101": 900, "201": 900}
