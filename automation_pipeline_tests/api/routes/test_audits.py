"""Audit routes: lists, groups, details, logs, notes and access."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from automation_pipeline.api.responses import WorkflowLines
from automation_pipeline.audits.routes.audits import (
    AuditDetail,
    AuditedFiches,
    AuditGroups,
    AuditList,
    AuditsOfFiche,
    PointShown,
)
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import PermanentError
from automation_pipeline_tests.api.conftest import Login
from automation_pipeline_tests.audits.archive import COMPLETED, Archive
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.clock import FakeClock

PATH = "/api/audits"
READ, WRITE = {"audits.read": "GROUP"}, {"audits.read": "GROUP", "audits.write": "GROUP"}


@pytest.fixture
def archive(services: Services) -> Archive:
    """Three audits of fiches of NORD, SUD and SUD."""
    archive = Archive(services.database)
    for fiche_id, groupe in (("900", "NORD"), ("901", "SUD"), ("902", "SUD")):
        archive.put(fiche_id, **COMPLETED, of_fiche_groupe=groupe)
    return archive


@pytest.fixture
def harness(services: Services, clock: FakeClock) -> AuditHarness:
    harness = AuditHarness(services.database, clock)
    harness.sell("1900417")
    return harness


@pytest.fixture
def audit_id(harness: AuditHarness) -> int:
    return harness.audit("1900417", harness.configure(steps=2), trigger_source="api").audit_id


def get(client: TestClient, path: str, expected: int = 200, **query: Any) -> Any:
    answered = client.get(f"{PATH}{path}", params=query)
    assert answered.status_code == expected, answered.text
    return answered.json()


def test_a_list_has_pagination(client: TestClient, archive: Archive) -> None:
    result = get(client, "", limit=2)
    AuditList.model_validate(result)
    assert [audit["ficheId"] for audit in result["data"]] == ["902", "901"]
    assert result["pagination"] == {
        "total": 3, "limit": 2, "offset": 0, "current_page": 1, "total_pages": 2, "has_next_page": True,
        "has_prev_page": False,
    }  # fmt: skip
    result = get(client, "", limit=2, offset=2)
    assert [audit["ficheId"] for audit in result["data"]] == ["900"]
    assert (result["pagination"]["current_page"], result["pagination"]["has_next_page"]) == (
        2,
        False,
    )


def test_list_filters_accept_commas_and_repeated_parameters(
    client: TestClient, archive: Archive
) -> None:
    for query in (
        "fiche_ids=900,902",
        "fiche_ids=900&fiche_ids=902",
        "fiche_ids=900,902&q=&status=",
    ):
        document = client.get(f"{PATH}?{query}").json()
        assert [audit["ficheId"] for audit in document["data"]] == ["902", "900"]


def test_an_invalid_audit_query_names_each_parameter(client: TestClient, archive: Archive) -> None:
    result = get(client, "", 400, status="completed,done", limit=501, statut="x")
    assert result["code"] == "VALIDATION_ERROR"
    assert {fault["field"] for fault in result["details"]} == {"status.1", "limit", "statut"}
    assert get(client, "/grouped", 400)["details"] == [
        {"field": "group_by", "message": "is required"}
    ]
    assert get(client, "/grouped", 400, group_by="colour")["code"] == "VALIDATION_ERROR"


def test_audits_are_grouped_and_counted(client: TestClient, archive: Archive) -> None:
    result = get(client, "/grouped", group_by="groupe")
    AuditGroups.model_validate(result)
    assert [(group["key"], group["count"]) for group in result["data"]] == [("SUD", 2), ("NORD", 1)]
    assert (result["group_by"], result["count"], result["pagination"]["total"]) == ("groupe", 2, 2)
    [bucket] = get(client, "/grouped", group_by="score_bucket", bucket_size=25)["data"]
    assert (bucket["key"], bucket["avgScore"], bucket["statusCounts"]["completed"]) == (
        "75-100",
        80.0,
        3,
    )


def test_fiches_are_listed_with_their_audits(client: TestClient, archive: Archive) -> None:
    result = get(client, "/grouped-by-fiches", groupes="SUD", limit=1)
    AuditedFiches.model_validate(result)
    [one] = result["data"]
    assert (one["fiche"]["ficheId"], len(one["audits"]), one["summary"]["averageScore"]) == (
        "902",
        1,
        80.0,
    )
    assert result["pagination"]["total"] == 2


def test_only_audits_of_fiches_in_scope_are_shown(login: Login, archive: Archive) -> None:
    client = login(READ, groupes=["SUD"])
    assert [audit["ficheId"] for audit in get(client, "")["data"]] == ["902", "901"]
    assert get(client, "", fiche_ids="900")["pagination"]["total"] == 0
    assert [group["key"] for group in get(client, "/grouped", group_by="groupe")["data"]] == ["SUD"]
    assert get(client, "/grouped-by-fiches")["pagination"]["total"] == 2
    assert get(client, "/by-fiche/901")["count"] == 1
    hidden, missing = get(client, "/1", 404), get(client, "/77", 404)
    assert {**hidden, "requestId": ""} == {**missing, "requestId": ""}
    assert hidden["error"] == "Audit not found"
    for path in ("/1/logs", "/by-fiche/900", "/1/steps/1/control-points/1"):
        get(client, path, 404)
    get(login({"fiches.read": "ALL"}), "", 403)


def test_an_audit_is_shown_with_all_results(client: TestClient, audit_id: int) -> None:
    result = get(client, f"/{audit_id}")["data"]
    assert set(result) == {field.alias for field in AuditDetail.model_fields.values()}
    AuditDetail.model_validate(result)
    assert [step["stepPosition"] for step in result["stepResults"]] == [1, 2]
    assert len(result["resultData"]["audit"]["results"]["steps"]) == 2
    assert get(client, "/77", 404)["error"] == "Audit not found"
    for wrong in ("0", "x", str(2**63)):
        assert get(client, f"/{wrong}", 400)["code"] == "VALIDATION_ERROR"


def test_audits_of_a_fiche_include_steps_unless_details_are_excluded(
    client: TestClient, harness: AuditHarness, audit_id: int
) -> None:
    later = harness.audit("1900417", harness.configure(name="Other", steps=1), "audit-2").audit_id
    result = get(client, "/by-fiche/1900417")
    AuditsOfFiche.model_validate(result)
    assert [audit["id"] for audit in result["data"]] == [str(later), str(audit_id)]
    assert [len(audit["resultData"]["audit"]["results"]["steps"]) for audit in result["data"]] == [
        1,
        2,
    ]
    [brief, _] = get(client, "/by-fiche/1900417", include_details="false")["data"]
    assert "steps" not in brief["resultData"]["audit"]["results"]
    assert get(client, "/by-fiche/77") == {"success": True, "data": [], "count": 0}


def test_an_incomplete_audit_has_no_grade_and_can_be_filtered_by_status(
    client: TestClient, harness: AuditHarness
) -> None:
    harness.model.fail_once(PermanentError("The model is away."))
    harness.set_options(steps_at_once=1)
    audit_id = harness.audit("1900417", harness.configure(steps=2)).audit_id
    shown = get(client, f"/{audit_id}")["data"]
    AuditDetail.model_validate(shown)
    grade = [shown[name] for name in ("overallScore", "scorePercentage", "isCompliant", "niveau")]
    assert (shown["status"], grade) == ("incomplete", [None, None, None, "PENDING"])
    assert shown["errorMessage"] == "Audit incomplete: 1 of 2 steps judged: The model is away."
    assert (shown["coverage"]["required"], shown["coverage"]["transcribed"]) == (1, 1)
    steps = [(step["stepPosition"], step["score"], step["error"]) for step in shown["stepResults"]]
    assert steps == [(1, None, "The model is away."), (2, 5, None)]
    assert [one["id"] for one in get(client, "", status="incomplete")["data"]] == [str(audit_id)]
    assert get(client, "", status="completed,failed")["data"] == []
    [group] = get(client, "/grouped", group_by="status")["data"]
    assert (group["key"], group["avgScore"], group["nonCompliantCount"]) == ("incomplete", None, 0)


def test_the_log_of_an_audit_can_be_read_and_filtered(client: TestClient, audit_id: int) -> None:
    result = get(client, f"/{audit_id}/logs")
    WorkflowLines.model_validate(result)
    assert result["count"] == result["total"] > 1
    assert (result["limit"], result["offset"]) == (200, 0)
    assert result["data"][0]["message"].startswith("START")
    assert get(client, f"/{audit_id}/logs", level="error")["data"] == []
    assert get(client, f"/{audit_id}/logs", limit=1, offset=1)["data"] == result["data"][1:2]
    get(client, f"/{audit_id}/logs", 400, level="loud")


def test_a_control_point_is_shown_with_its_citations(client: TestClient, audit_id: int) -> None:
    result = get(client, f"/{audit_id}/steps/1/control-points/1")["data"]
    PointShown.model_validate(result)
    assert (result["audit_id"], result["step_position"], result["control_point_index"]) == (
        str(audit_id),
        1,
        1,
    )
    assert (result["statut"], len(result["citations"])) == ("PRESENT", 1)
    missing = get(client, f"/{audit_id}/steps/1/control-points/9", 404)
    assert missing["error"] == f"Audit control point with ID '{audit_id}:1:9' not found"
    assert get(client, f"/{audit_id}/steps/9/control-points/1", 404)["code"] == "NOT_FOUND"
    assert get(client, "/control-points/statuses")["data"] == [
        "PRESENT",
        "ABSENT",
        "PARTIEL",
        "NON_APPLICABLE",
    ]


def test_an_audit_can_be_annotated_deleted_and_restored(client: TestClient, audit_id: int) -> None:
    changed = client.patch(
        f"{PATH}/{audit_id}", json={"notes": "Called back", "trigger_source": None}
    )
    AuditDetail.model_validate(changed.json()["data"])
    assert (changed.json()["data"]["notes"], changed.json()["data"]["triggerSource"]) == (
        "Called back",
        None,
    )
    deleted = client.delete(f"{PATH}/{audit_id}")
    assert deleted.json() == {"success": True, "message": "Audit deleted"}
    assert get(client, "")["data"] == []
    assert get(client, f"/{audit_id}")["data"]["deletedAt"]
    restored = client.patch(f"{PATH}/{audit_id}", json={"deleted": False})
    assert (restored.json()["data"]["deletedAt"], len(get(client, "")["data"])) == (None, 1)
    refused = client.patch(f"{PATH}/{audit_id}", json={"notes": 3, "automation_run_id": "x"})
    assert refused.status_code == 400
    assert {fault["field"] for fault in refused.json()["details"]} == {"notes", "automation_run_id"}
    assert (
        client.delete(f"{PATH}/77").status_code
        == client.patch(f"{PATH}/77", json={}).status_code
        == 404
    )


def test_changing_an_audit_needs_write_permission_and_scope(login: Login, archive: Archive) -> None:
    readers, others = login(READ, groupes=["NORD"]), login(WRITE, groupes=["SUD"])
    for client, status in ((readers, 403), (others, 404)):
        assert client.patch(f"{PATH}/1", json={"notes": "x"}).status_code == status
        assert client.delete(f"{PATH}/1").status_code == status
    assert login(WRITE, groupes=["NORD"]).patch(f"{PATH}/1", json={"notes": "x"}).status_code == 200


@every_case("path", [PATH, f"{PATH}/grouped?group_by=status", f"{PATH}/grouped-by-fiches"])
@every_case("field", ["recordings_count_min", "recordings_count_max", "offset"])
def test_a_filter_beyond_the_column_range_is_refused(
    client: TestClient, path: str, field: str
) -> None:
    refused = client.get(f"{path}{'&' if '?' in path else '?'}{field}={2**63 - 1}")
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, field)
    assert client.get(f"{path}{'&' if '?' in path else '?'}{field}={2**31 - 1}").status_code == 200


@pytest.mark.parametrize(
    "field", ["tokens_min", "tokens_max", "duration_min_ms", "duration_max_ms"]
)
def test_bigint_filters_accept_the_full_range(client: TestClient, field: str) -> None:
    assert client.get(f"{PATH}?{field}={2**63 - 1}").status_code == 200
    assert client.get(f"{PATH}?{field}={2**63}").status_code == 400
