"""Audit review routes: scores, reviewers and access."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.audits.routes.audits import AuditedStep
from automation_pipeline.bootstrap import Services
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.clock import FakeClock


@pytest.fixture
def audit_id(services: Services, clock: FakeClock) -> int:
    harness = AuditHarness(services.database, clock)
    harness.sell("1900417")
    return harness.audit("1900417", harness.configure(steps=2)).audit_id


def review(client: TestClient, audit_id: int, part: str, body: Any, status: int = 200) -> Any:
    answered = client.patch(f"/api/audits/{audit_id}/steps/1/{part}review", json=body)
    assert answered.status_code == status, answered.text
    return answered.json()


def test_a_step_review_updates_the_audit_score(client: TestClient, audit_id: int) -> None:
    given = {
        "conforme": "NON_CONFORME",
        "score": 0,
        "niveauConformite": "REJET",
        "reason": "Not mentioned.",
    }
    result = review(client, audit_id, "", given)["data"]
    AuditedStep.model_validate(result)
    assert (result["conforme"], result["score"], result["human_review"][0]["reason"]) == (
        "NON_CONFORME",
        0,
        "Not mentioned.",
    )
    assert client.get(f"/api/audits/{audit_id}").json()["data"]["scorePercentage"] == 50.0


def test_a_control_point_review_updates_the_audit_score(client: TestClient, audit_id: int) -> None:
    result = review(client, audit_id, "control-points/1/", {"statut": "ABSENT"})["data"]
    AuditedStep.model_validate(result)
    assert result["points_controle"][0]["statut"] == "ABSENT"
    assert client.get(f"/api/audits/{audit_id}").json()["data"]["scorePercentage"] < 100


def test_a_user_signs_reviews_as_itself_and_a_machine_can_name_a_reviewer(
    client: TestClient, login: Login, audit_id: int
) -> None:
    user = login({"audits.write": "ALL"})
    given = {"conforme": "CONFORME", "reviewer": "the boss"}
    assert (
        review(user, audit_id, "", given)["data"]["human_review"][-1]["by"] == "anna@example.test"
    )
    assert review(client, audit_id, "", given)["data"]["human_review"][-1]["by"] == "the boss"
    unnamed = review(client, audit_id, "control-points/1/", {"commentaire": "Confirmed."})["data"]
    assert unnamed["human_review"][-1]["by"] == "API_AUTH_TOKENS"


@every_case(
    ("part", "body", "status"),
    [
        ("", {}, 400),
        ("", {"conforme": "MAYBE"}, 400),
        ("", {"conforme": "CONFORME", "score": 99}, 400),
        ("control-points/1/", {}, 400),
        ("control-points/1/", {"commentaire": "x" * 20_001}, 400),
        ("control-points/9/", {"statut": "ABSENT"}, 404),
    ],
)
def test_an_invalid_review_is_refused(
    client: TestClient, audit_id: int, part: str, body: dict[str, Any], status: int
) -> None:
    review(client, audit_id, part, body, status)
    assert client.get(f"/api/audits/{audit_id}").json()["data"]["scorePercentage"] == 100.0


def test_only_completed_audits_in_scope_can_be_reviewed(
    client: TestClient, login: Login, audit_id: int
) -> None:
    others = login({"audits.write": "GROUP"}, groupes=["OTHER"])
    review(others, audit_id, "", {"conforme": "CONFORME"}, 404)
    review(login({"audits.read": "ALL"}), audit_id, "", {"conforme": "CONFORME"}, 403)
    client.delete(f"/api/audits/{audit_id}")
    assert review(client, audit_id, "", {"conforme": "CONFORME"}, 409)["code"] == "CONFLICT"
