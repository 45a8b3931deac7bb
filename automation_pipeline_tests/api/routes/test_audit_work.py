"""Audit request routes: idempotency, access, and validation of configurations and automations."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from automation_pipeline.audits.configs import update_config
from automation_pipeline.audits.routes.requests import (
    AuditQueued,
    BatchQueued,
    LatestAuditQueued,
    PointRerunQueued,
    StepRerunQueued,
)
from automation_pipeline.bootstrap import Services
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.audits.archive import Archive
from automation_pipeline_tests.audits.configurations import add
from automation_pipeline_tests.audits.harness import AuditHarness, stored_batch
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.factories import make_open_run
from automation_pipeline_tests.fakes.clock import FakeClock

PATH = "/api/audits"
AUDIT_REQUEST = {"fiche_id": "1900417", "audit_config_id": "1"}
WRITE_IN_GROUP = {"audits.write": "GROUP"}


@pytest.fixture
def filed(services: Services) -> "Filed":
    add(services.database)
    return Filed(services)


class Filed:
    """The stored run requests for Dagster."""

    def __init__(self, services: Services) -> None:
        self.database = services.database

    def configs(self) -> list[dict[str, Any]]:
        with self.database.reading() as session:
            rows = session.scalars(select(RunRequestRow).order_by(RunRequestRow.id)).all()
        return [{"key": row.request_key, "job": row.job, **row.config} for row in rows]

    def count(self) -> int:
        with self.database.reading() as session:
            return session.scalar(select(func.count()).select_from(RunRequestRow)) or 0


def post(client: TestClient, path: str, body: Any, status: int = 200, **headers: str) -> Any:
    answered = client.post(f"{PATH}{path}", json=body, headers=headers)
    assert answered.status_code == status, answered.text
    return answered.json()


def test_an_audit_request_keeps_its_automation_run(
    client: TestClient, filed: Filed, clock: FakeClock
) -> None:
    run_id = make_open_run(filed.database, clock).run_id
    linked = {
        "automation_schedule_id": "1",
        "automation_run_id": str(run_id),
        "trigger_source": "crm",
    }
    result = post(client, "", {**AUDIT_REQUEST, **linked, "useRlm": True, "user_id": "anna"})
    AuditQueued.model_validate(result)
    key = f"audit-1900417-1-{round(clock.now().timestamp() * 1000)}"
    assert result == {
        "success": True, "message": "Audit queued for processing", "event_id": key, "audit_id": key,
        "fiche_id": "1900417", "audit_config_id": "1",
        "metadata": {"timestamp": "2026-05-04T10:00:00.000Z", "status": "queued"},
    }  # fmt: skip
    assert filed.configs() == [{
        "key": key, "job": "audit_fiche", "tracking_id": key, "fiche_id": "1900417", "audit_config_id": 1,
        "use_rlm": True, "trigger_source": "crm", "user_id": "anna", "automation_schedule_id": 1,
        "automation_run_id": run_id,
    }]  # fmt: skip


def test_a_run_request_always_has_the_api_trigger(client: TestClient, filed: Filed) -> None:
    AuditQueued.model_validate(post(client, "/run", AUDIT_REQUEST))
    assert [config["trigger_source"] for config in filed.configs()] == ["api"]
    result = post(client, "/run", {**AUDIT_REQUEST, "trigger_source": "crm"}, 400)
    assert result["details"] == [{"field": "trigger_source", "message": "is not a known field"}]


def test_run_latest_uses_the_newest_active_configuration(
    client: TestClient, filed: Filed, clock: FakeClock
) -> None:
    result = post(client, "/run-latest", {"fiche_id": "1900417"})
    LatestAuditQueued.model_validate(result)
    assert (result["audit_config_id"], result["audit_config_name"]) == ("1", "Sales")
    update_config(1, {"isActive": False}, database=filed.database, clock=clock)
    assert (
        post(client, "/run-latest", {"fiche_id": "1"}, 404)["error"]
        == "No active audit configuration found"
    )
    assert (
        post(client, "/batch", {"fiche_ids": ["1"]}, 404)["error"]
        == "No active audit configuration found"
    )
    assert post(client, "/run-latest", {}, 400)["error"] == "Missing required parameter"


def test_a_batch_is_stored_and_tracked_as_one(client: TestClient, filed: Filed) -> None:
    result = post(client, "/batch", {"fiche_ids": ["2", "1", "2"]})
    BatchQueued.model_validate(result)
    assert (result["fiche_ids"], result["audit_config_id"]) == (["2", "1"], "1")
    assert sorted(result["event_ids"]) == sorted(config["key"] for config in filed.configs())
    assert stored_batch(filed.database, result["batch_id"]).total == 2


@every_case(
    ("path", "body", "status", "error"),
    [
        ("", {}, 400, "Missing required parameters"),
        ("/run", {"fiche_id": "1"}, 400, "Missing required parameters"),
        ("/run", {**AUDIT_REQUEST, "fiche_id": "x"}, 400, "The audit request is not valid"),
        (
            "/run",
            {**AUDIT_REQUEST, "audit_config_id": "77"},
            404,
            "Audit config with ID '77' not found",
        ),
        ("", {**AUDIT_REQUEST, "automation_run_id": 77}, 400, "The audit request is not valid"),
        ("/batch", {"fiche_ids": [1]}, 400, "The audit request is not valid"),
        (
            "/batch",
            {"fiche_ids": ["1"], "audit_config_id": 77},
            404,
            "Audit config with ID '77' not found",
        ),
    ],
)
def test_an_invalid_audit_request_files_nothing(
    client: TestClient, filed: Filed, path: str, body: dict[str, Any], status: int, error: str
) -> None:
    assert post(client, path, body, status)["error"] == error
    assert filed.count() == 0


def test_an_idempotency_key_requests_the_work_once(
    client: TestClient, filed: Filed, clock: FakeClock
) -> None:
    key = {"Idempotency-Key": "a-key"}
    result = post(client, "/batch", {"fiche_ids": ["1", "2"]}, **key)
    clock.advance_one_second()
    assert post(client, "/batch", {"fiche_ids": ["1", "2"]}, **key) == result
    assert filed.count() == 2
    assert post(client, "/run", AUDIT_REQUEST, 409, **key)["code"] == "CONFLICT"
    post(client, "/run", AUDIT_REQUEST)
    clock.advance_one_second()
    post(client, "/run", AUDIT_REQUEST)
    assert filed.count() == 4


def test_only_fiches_in_scope_can_be_audited(login: Login, filed: Filed) -> None:
    archive = Archive(filed.database, configs=1)
    archive.put("900", of_fiche_groupe="NORD")
    archive.put("901", of_fiche_groupe="SUD")
    client = login(WRITE_IN_GROUP, groupes=["SUD"])
    for path, request in (("/run", AUDIT_REQUEST), ("", AUDIT_REQUEST), ("/run-latest", {})):
        assert (
            post(client, path, {**request, "fiche_id": "900"}, 404)["error"]
            == "Fiche 900 not found"
        )
        assert (
            post(client, path, {**request, "fiche_id": "77"}, 404)["error"] == "Fiche 77 not found"
        )
    post(client, "/batch", {"fiche_ids": ["901", "900"]}, 404)
    assert filed.count() == 0
    post(client, "/run", {**AUDIT_REQUEST, "fiche_id": "901", "user_id": "another user"})
    [config] = filed.configs()
    assert (config["fiche_id"], config["user_id"]) == ("901", "user:12")
    post(login({"audits.read": "ALL"}), "/run", AUDIT_REQUEST, 403)


def test_an_automation_out_of_scope_looks_missing(
    client: TestClient, login: Login, filed: Filed, clock: FakeClock
) -> None:
    archive = Archive(filed.database, configs=1)
    archive.put("901", of_fiche_groupe="SUD")
    run_id = make_open_run(filed.database, clock).run_id
    unlinked = login(WRITE_IN_GROUP, groupes=["SUD"])
    limited = login({**WRITE_IN_GROUP, "automation.read": "GROUP"}, groupes=["SUD"])
    whole = login({**WRITE_IN_GROUP, "automation.read": "ALL"}, groupes=["SUD"])
    for user, linked in ((unlinked, run_id), (limited, run_id), (limited, 77), (whole, 77)):
        result = post(
            user, "", {**AUDIT_REQUEST, "fiche_id": "901", "automation_run_id": linked}, 400
        )
        assert result["details"] == [{"field": "automation_run_id", "message": "does not exist"}]
        changed = user.patch(f"{PATH}/1", json={"automation_run_id": linked})
        assert changed.json().get("details") == result["details"]
    post(whole, "", {**AUDIT_REQUEST, "fiche_id": "901", "automation_run_id": run_id})


def test_a_step_or_control_point_can_be_rerun(
    client: TestClient, services: Services, clock: FakeClock
) -> None:
    harness = AuditHarness(services.database, clock)
    harness.sell("1900417")
    audit_id = harness.audit("1900417", harness.configure(steps=1)).audit_id
    result = post(client, f"/{audit_id}/steps/1/rerun", {"customPrompt": "Listen."})
    StepRerunQueued.model_validate(result)
    of_point = post(
        client, f"/{audit_id}/steps/1/control-points/2/rerun", {"customInstructions": "Again."}
    )
    PointRerunQueued.model_validate(of_point)
    assert (of_point["audit_id"], of_point["step_position"], of_point["control_point_index"]) == (
        str(audit_id),
        1,
        2,
    )
    step, point = Filed(services).configs()
    assert (step["key"], step["custom_prompt"]) == (result["rerun_id"], "Listen.")
    assert (point["key"], point["control_point_index"], point["custom_prompt"]) == (
        of_point["rerun_id"],
        2,
        "Again.",
    )
    assert client.post(f"{PATH}/{audit_id}/steps/1/rerun").status_code == 200
    post(client, f"/{audit_id}/steps/9/rerun", {}, 404)
    post(client, f"/{audit_id}/steps/1/control-points/9/rerun", {}, 404)
    post(client, f"/{audit_id}/steps/1/rerun", {"customPrompt": "x" * 5001}, 400)
    client.delete(f"{PATH}/{audit_id}")
    assert post(client, f"/{audit_id}/steps/1/rerun", {}, 409)["code"] == "CONFLICT"
