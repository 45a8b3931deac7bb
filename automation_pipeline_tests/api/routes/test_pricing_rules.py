"""Pricing rule and guardrail routes."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.pricing.models.shop import FailureSignal
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.shop import PAGES
from automation_pipeline_tests.pricing.harness import PricingHarness

PATH = "/api/pricing/rules"
TENTH_OFF: dict[str, Any] = {
    "name": "A tenth off",
    "selector": {"all": True},
    "transform": {"op": "percent", "value": -10},
    "currency": "EUR",
}
KEY = {"Idempotency-Key": "once"}
AUTHOR = {"pricing.read": "ALL", "pricing.write": "ALL", "pricing.runs.read": "ALL"}
AUTHOR_WITH_RUNS = {**AUTHOR, "pricing.runs.write": "ALL"}


def created(client: TestClient, project: str | None = None, **fields: Any) -> dict[str, Any]:
    query = {} if project is None else {"project": project}
    answered = client.post(PATH, json={**TENTH_OFF, **fields}, params=query)
    assert answered.status_code == 201, answered.text
    return answered.json()["data"]


def test_a_rule_is_created_in_its_project_and_shown(pricing: TestClient) -> None:
    stored = created(pricing)
    assert (stored["id"], stored["projectId"], stored["version"]) == ("1", "default", 1)
    assert (stored["createdBy"], stored["selector"]) == ("machine:environment", {"all": True})
    assert created(pricing, "shoes")["projectId"] == "shoes"
    shown = pricing.get(f"{PATH}/1")
    assert shown.json()["data"] == stored


def test_an_invalid_rule_names_each_field(pricing: TestClient) -> None:
    wrong = {**TENTH_OFF, "selector": {}, "cooldownMinutes": -1, "nonsense": 1}
    refused = pricing.post(PATH, json=wrong)
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")
    assert {fault["field"] for fault in refused.json()["details"]} == {
        "selector",
        "cooldownMinutes",
        "nonsense",
    }


@every_case("project", ["", "a b", "é", "a/b", "x" * 101, "a\n"])
@every_case(("method", "path"), [("POST", PATH), ("GET", PATH), ("GET", "/api/pricing/runs")])
def test_an_invalid_project_name_is_refused(
    pricing: TestClient, method: str, path: str, project: str
) -> None:
    refused = pricing.request(method, path, params={"project": project}, json=TENTH_OFF)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "project")


def test_the_list_can_be_filtered_and_paged(pricing: TestClient) -> None:
    created(pricing, name="One")
    created(pricing, "shoes", name="Two")
    created(pricing, name="Three", enabled=False)
    for query, ids in (
        ({}, ["3", "2", "1"]),
        ({"project": "shoes"}, ["2"]),
        ({"project": "nowhere"}, []),
        ({"enabled": "false"}, ["3"]),
        ({"q": "tw"}, ["2"]),
        ({"limit": 1, "offset": 1}, ["2"]),
    ):
        document = pricing.get(PATH, params=query).json()
        assert ([one["id"] for one in document["data"]], document["count"]) == (ids, len(ids)), (
            query
        )


@pytest.mark.parametrize(
    "query", [{"enabled": "perhaps"}, {"limit": 0}, {"limit": 1001}, {"offset": -1}]
)
def test_an_invalid_filter_is_named(pricing: TestClient, query: dict[str, Any]) -> None:
    refused = pricing.get(PATH, params=query)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, next(iter(query)))


def test_an_idempotency_key_creates_one_rule(pricing: TestClient) -> None:
    first, second = (pricing.post(PATH, json=TENTH_OFF, headers=KEY) for _ in range(2))
    assert (first.json(), second.headers["idempotent-replay"]) == (second.json(), "true")
    other = pricing.post(PATH, json=TENTH_OFF, params={"project": "shoes"}, headers=KEY)
    assert (other.status_code, pricing.get(PATH).json()["count"]) == (409, 1)


def test_a_change_keeps_omitted_fields_and_price_changes_create_a_version(
    pricing: TestClient,
) -> None:
    created(pricing, description="Old")
    renamed = pricing.patch(f"{PATH}/1", json={"name": "Other", "description": None}).json()["data"]
    assert (renamed["name"], renamed["description"], renamed["version"]) == ("Other", None, 1)
    dearer = pricing.patch(f"{PATH}/1", json={"transform": {"op": "percent", "value": 5}}).json()[
        "data"
    ]
    assert (dearer["name"], dearer["version"]) == ("Other", 2)
    document = pricing.get(f"{PATH}/1/versions").json()
    assert [(one["version"], one["rule"]["transform"]["value"]) for one in document["data"]] == [
        (2, 5),
        (1, -10),
    ]
    assert [
        one["version"] for one in pricing.get(f"{PATH}/1/versions?limit=1&offset=1").json()["data"]
    ] == [1]


def test_a_deleted_rule_is_gone_and_keeps_its_versions(pricing: TestClient) -> None:
    created(pricing)
    assert pricing.delete(f"{PATH}/1").json() == {
        "success": True,
        "message": "Pricing rule deleted",
    }
    answers = [
        pricing.delete(f"{PATH}/1"),
        pricing.get(f"{PATH}/1"),
        pricing.patch(f"{PATH}/1", json={"name": "x"}),
    ]
    assert [answered.status_code for answered in answers] == [404, 404, 404]
    assert pricing.get(f"{PATH}/1/versions").json()["count"] == 1


@pytest.mark.parametrize("named", ["x", "0", "-1", "01", "99999999999999999999"])
def test_a_malformed_id_is_a_bad_request(pricing: TestClient, named: str) -> None:
    refused = pricing.get(f"{PATH}/{named}")
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "rule_id")


class TestPreview:
    def test_a_preview_reads_the_shop_and_writes_nothing(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        created(pricing, enabled=False)
        answered = pricing.post(f"{PATH}/1/preview")
        run = answered.json()["data"]
        assert (answered.status_code, answered.json()["shopPaused"]) == (201, False)
        assert (run["status"], run["trigger"], run["totalTargets"]) == ("PREVIEW", "api", 2)
        assert (run["createdBy"], run["ruleName"]) == ("machine:environment", "A tenth off")
        assert harness.shop.written == []

    def test_a_reader_can_preview_a_rule(self, pricing: TestClient, login: Login) -> None:
        created(pricing)
        assert login({"pricing.read": "SELF"}).post(f"{PATH}/1/preview").status_code == 201

    def test_previewing_an_unknown_rule_is_404(self, pricing: TestClient) -> None:
        assert pricing.post(f"{PATH}/1/preview").status_code == 404

    def test_a_shop_error_during_preview_is_502(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        created(pricing)
        harness.shop.fail_always(PAGES, FailureSignal(status=401))
        refused = pricing.post(f"{PATH}/1/preview")
        assert (refused.status_code, refused.json()["code"]) == (502, "EXTERNAL_API_ERROR")
        assert pricing.get("/api/pricing/runs").json()["count"] == 0


class TestApply:
    def test_apply_requests_a_run_that_a_worker_plans(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        created(pricing)
        answered = pricing.post(f"{PATH}/1/apply")
        run = answered.json()["data"]
        assert (answered.status_code, run["status"], run["wish"], run["previewedAt"]) == (
            202,
            "PREVIEW",
            "apply",
            None,
        )
        assert harness.requests()[0][1] == {"run_id": int(run["id"])}
        assert harness.work_id(int(run["id"])).status == "APPLIED"
        assert harness.shop.amounts() == {"101": 900, "201": 900}

    def test_an_idempotency_key_requests_one_run_and_a_second_run_is_refused(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        created(pricing)
        first, second = (pricing.post(f"{PATH}/1/apply", headers=KEY) for _ in range(2))
        assert first.json() == second.json()
        assert len(harness.requests()) == 1
        assert pricing.post(f"{PATH}/1/apply").status_code == 409

    def test_a_rule_in_cooldown_is_refused_unless_forced(
        self, pricing: TestClient, harness: PricingHarness
    ) -> None:
        created(pricing, cooldownMinutes=60)
        harness.work_id(int(pricing.post(f"{PATH}/1/apply").json()["data"]["id"]))
        assert pricing.post(f"{PATH}/1/apply").json()["code"] == "CONFLICT"
        assert pricing.post(f"{PATH}/1/apply", json={"force": True}).status_code == 202

    def test_applying_a_disabled_rule_is_refused(self, pricing: TestClient) -> None:
        created(pricing, enabled=False)
        assert pricing.post(f"{PATH}/1/apply").status_code == 409

    @pytest.mark.parametrize(
        ("body", "field"), [({"force": "yes"}, "force"), ({"targetIds": ["1"]}, "targetIds")]
    )
    def test_an_invalid_body_names_the_field(
        self, pricing: TestClient, body: dict[str, Any], field: str
    ) -> None:
        refused = pricing.post(f"{PATH}/1/apply", json=body)
        assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, field)

    def test_apply_during_a_shop_pause_is_accepted(self, pricing: TestClient) -> None:
        created(pricing)
        pricing.post("/api/pricing/shop/pause")
        answered = pricing.post(f"{PATH}/1/apply")
        assert (answered.status_code, answered.json()["shopPaused"]) == (202, True)


class TestTimes:
    """A rule with a start or end time changes prices automatically."""

    @pytest.mark.parametrize("time", ["scheduleAt", "endsAt"])
    def test_scheduling_a_rule_needs_the_runs_permission(
        self, harness: PricingHarness, login: Login, time: str
    ) -> None:
        timed, author, author_with_runs = (
            {time: "2027-01-01T00:00:00Z"},
            login(AUTHOR),
            login(AUTHOR_WITH_RUNS),
        )
        assert author.post(PATH, json={**TENTH_OFF, **timed}).status_code == 403
        created(author)
        refused = author.patch(f"{PATH}/1", json=timed)
        assert (refused.status_code, "pricing.runs.write" in refused.json()["error"]) == (403, True)
        assert author_with_runs.patch(f"{PATH}/1", json=timed).status_code == 200
        for patch in (
            {"transform": {"op": "percent", "value": -90}},
            {time: None},
            {"enabled": True},
        ):
            assert author.patch(f"{PATH}/1", json=patch).status_code == 403
        assert author_with_runs.patch(f"{PATH}/1", json={time: None}).status_code == 200
        assert author.patch(f"{PATH}/1", json={"name": "Mine again", time: None}).status_code == 200
        assert author.patch(f"{PATH}/9", json={"name": "x"}).status_code == 404


@pytest.mark.parametrize("what", ["preview", "apply"])
def test_a_missing_shop_setting_is_named(client: TestClient, what: str) -> None:
    created(client)
    refused = client.post(f"{PATH}/1/{what}")
    assert (refused.status_code, refused.json()["code"]) == (503, "CONFIGURATION_ERROR")
    assert "SHOP_API_BASE_URL" in refused.json()["error"]


POLICY = "/api/pricing/policies"
GUARDRAILS: dict[str, Any] = {"maxPctDelta": 0.15, "floor": 500, "currency": "EUR"}


def test_guardrails_can_be_set_shown_replaced_and_removed(pricing: TestClient) -> None:
    assert pricing.get(f"{POLICY}/shoes").status_code == 404
    put = pricing.put(f"{POLICY}/shoes", json=GUARDRAILS).json()["data"]
    assert {name: put[name] for name in GUARDRAILS} == GUARDRAILS
    assert (put["autoApply"], pricing.get(f"{POLICY}/shoes").json()["data"]) == (
        False,
        put,
    )
    replaced = pricing.put(f"{POLICY}/shoes", json={"autoApply": True}).json()["data"]
    assert (replaced["autoApply"], replaced["floor"]) == (True, None)
    assert pricing.get(f"{POLICY}/hats").status_code == 404
    assert pricing.delete(f"{POLICY}/shoes").json() == {
        "success": True,
        "message": "Pricing policy removed",
    }
    assert pricing.delete(f"{POLICY}/shoes").status_code == 404


def test_invalid_guardrails_name_each_field(pricing: TestClient) -> None:
    refused = pricing.put(
        f"{POLICY}/shoes",
        json={"maxPctDelta": 15, "floor": 5, "ceiling": 4, "nonsense": 1},
    )
    faults = {fault["field"] for fault in refused.json()["details"]}
    assert (refused.status_code, faults >= {"maxPctDelta", "ceiling", "nonsense"}) == (400, True)
    assert pricing.get(f"{POLICY}/shoes").status_code == 404


@every_case("method", ["GET", "PUT", "DELETE"])
@every_case("project", ["a b", "%C3%A9", "x" * 101])
def test_a_policy_with_an_invalid_project_name_is_refused(
    pricing: TestClient, method: str, project: str
) -> None:
    refused = pricing.request(method, f"{POLICY}/{project}", json={})
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "project")


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_the_permission_for_runs_does_not_change_guardrails(
    pricing: TestClient, login: Login, harness: PricingHarness, method: str
) -> None:
    harness.set_policy("shoes", maxPctDelta=0.1)
    whole = dict.fromkeys(
        ("pricing.read", "pricing.write", "pricing.runs.write", "pricing.policies.read"), "ALL"
    )
    refused = login(whole).request(method, f"{POLICY}/shoes", json={"autoApply": True})
    assert (refused.status_code, refused.json()["code"]) == (403, "AUTHORIZATION_ERROR")
    kept = pricing.get(f"{POLICY}/shoes").json()["data"]
    assert (kept["maxPctDelta"], kept["autoApply"]) == (0.1, False)


def test_the_permission_for_guardrails_is_enough(login: Login, harness: PricingHarness) -> None:
    guardrail_admin = login({"pricing.policies.write": "ALL"})
    assert guardrail_admin.put(f"{POLICY}/shoes", json=GUARDRAILS).status_code == 200
    assert guardrail_admin.delete(f"{POLICY}/shoes").status_code == 200
    assert [event.name for event in harness.events()] == ["policy.changed", "policy.removed"]
