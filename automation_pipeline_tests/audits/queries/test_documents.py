"""Audits as JSON documents: one with its steps, its log entries, and the summaries of fiches."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from automation_pipeline.audits.models.audits import AuditStatus, Niveau, StepLocation
from automation_pipeline.audits.models.requests import AuditFilter
from automation_pipeline.audits.queries.audits import set_deleted
from automation_pipeline.audits.queries.documents import (
    audit_document,
    audit_logs,
    audit_step_document,
    fiche_status,
    fiche_statuses,
    fiches_with_audits,
    list_audits,
)
from automation_pipeline.audits.requests import request_rerun
from automation_pipeline.audits.reviews import record_review, set_audit_deleted
from automation_pipeline.core.access import EVERYTHING, Reach, Scope
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.queries.fiches import FichePage
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.archive import Archive
from automation_pipeline_tests.audits.configurations import NOW, add, add_audit
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.audits.reviewers import set_state
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fiches.queries.mirror import DAY, statements


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    return AuditHarness(database, clock)


@pytest.fixture
def audit_id(harness: AuditHarness) -> int:
    harness.sell("1900417")
    return harness.audit("1900417", harness.configure(steps=2), trigger_source="api").audit_id


def document(harness: AuditHarness, audit_id: int, **how: bool) -> dict[str, Any]:
    with harness.database.reading() as session:
        return audit_document(session, audit_id, **how)


def found(database: Database, **wanted: object) -> list[str]:
    """The ids of the listed audits."""
    with database.reading() as session:
        rows, total = list_audits(session, AuditFilter(**wanted))  # type: ignore[arg-type]
    assert total == len(rows)
    return [str(row["id"]) for row in rows]


def test_an_audit_document_includes_the_fiche_and_steps(
    harness: AuditHarness, audit_id: int
) -> None:
    read = document(harness, audit_id)
    values = {
        "id": "1", "trackingId": "audit-1", "ficheId": "1900417", "prospectName": "Odile MARTEL", "groupe": "TEAM R1",
        "auditConfigId": "1", "auditConfigName": "Sales", "status": "completed", "niveau": "EXCELLENT",
        "scorePercentage": 100.0, "isCompliant": True, "isLatest": True, "version": 1, "triggerSource": "api",
        "automationRunId": None, "transcriptMode": "prompt", "useRlm": False, "deletedAt": None,
    }  # fmt: skip
    assert values.items() <= read.items()
    assert read["createdAt"].endswith("Z")
    assert not {"fence", "ficheCacheId", "touchedAt", "configFingerprint"} & set(read)
    results = read["resultData"]["audit"]["results"]
    assert set(results) == {"compliance", "approach", "steps"}
    assert [step["step_metadata"]["position"] for step in results["steps"]] == [1, 2]
    assert (
        "steps" not in document(harness, audit_id, details=False)["resultData"]["audit"]["results"]
    )


def test_a_step_equals_that_of_the_result_document(harness: AuditHarness, audit_id: int) -> None:
    with harness.database.reading() as session:
        step = audit_step_document(session, StepLocation(audit_id, 1))
    assert set(step) == {
        "traite", "conforme", "score", "niveau_conformite", "commentaire_global", "minutages", "mots_cles_trouves",
        "erreurs_transcription_tolerees", "points_controle", "step_metadata", "usage", "human_review",
        "rerun_history", "error",
    }  # fmt: skip
    [point, _] = step["points_controle"]  # type: ignore[misc]  # JSON
    [citation] = point.pop("citations")
    assert point == {
        "point": "Name given",
        "statut": "PRESENT",
        "commentaire": "Jugé PRESENT.",
        "minutages": ["00:00"],
        "erreur_transcription_notee": False,
        "variation_phonetique_utilisee": None,
    }
    assert (citation["recording_index"], citation["recording_date"]) == (0, "03/02/2026")
    assert citation["recording_url"] == "https://records.example.test/190041701"
    assert step["step_metadata"] == {
        "position": 1, "name": "Step 1", "severity": "HIGH", "is_critical": False, "weight": 5,
    }  # fmt: skip
    assert (step["human_review"], step["rerun_history"]) == ([], [])


def test_a_running_audit_has_a_document(harness: AuditHarness) -> None:
    config_id = add(harness.database)
    with harness.database.transaction() as session:
        add_audit(session, config_id, "a", total_steps=3)
    assert document(harness, 1)["resultData"] == {"audit": {"results": {"steps": []}}}
    assert document(harness, 1, details=False)["resultData"] is None


def test_an_unknown_audit_is_not_found(harness: AuditHarness, audit_id: int) -> None:
    with pytest.raises(NotFoundError, match="Audit not found"):
        document(harness, 2**63 - 1)


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({}, ["4", "3", "1"]),
        ({"latest_only": False}, ["4", "3", "2", "1"]),
        ({"latest_only": False, "include_deleted": True}, ["5", "4", "3", "2", "1"]),
        ({"include_deleted": True}, ["4", "3", "1"]),
        ({"fiche_ids": ["a", "c", "never"]}, ["3", "1"]),
        ({"fiche_ids": [f"f{n}" for n in range(3000)]}, []),
        ({"audit_config_ids": [2]}, ["4"]),
        ({"status": [AuditStatus.FAILED]}, ["3"]),
        ({"niveau": [Niveau.BON, Niveau.REJET]}, ["4", "1"]),
        (
            {
                "status": [AuditStatus.COMPLETED],
                "niveau": [Niveau.REJET],
                "audit_config_ids": [1, 2],
            },
            ["4"],
        ),
    ],
)
def test_audits_are_listed_newest_first_and_filtered(
    database: Database, wanted: dict[str, object], ids: list[str]
) -> None:
    add(database, "One")
    add(database, "Two")
    with database.transaction() as session:
        for number, (fiche_id, config_id, fields) in enumerate(
            [
                ("a", 1, {"status": "completed", "niveau": "BON"}),
                ("b", 1, {"is_latest": False, "status": "completed"}),
                ("c", 1, {"status": "failed"}),
                ("d", 2, {"status": "completed", "niveau": "REJET"}),
                ("e", 1, {"is_latest": False, "deleted_at": NOW}),
            ]
        ):
            add_audit(
                session,
                config_id,
                fiche_id,
                created_at=NOW + timedelta(hours=number),
                **{"total_steps": 3} | fields,
            )
    assert found(database, **wanted) == ids


def test_a_list_shows_the_stored_result(harness: AuditHarness, audit_id: int) -> None:
    with harness.database.reading() as session:
        [row], _ = list_audits(session, AuditFilter())
    assert row == document(harness, audit_id, details=False)


def test_the_previous_audit_is_listed_after_a_deletion(
    harness: AuditHarness, audit_id: int
) -> None:
    again = harness.audit("1900417", 1, "audit-2").audit_id
    assert found(harness.database) == [str(again)]
    set_state(harness.database, again, "deleted")
    assert found(harness.database) == [str(audit_id)]
    with harness.database.transaction() as session:
        set_deleted(session, again, None)
    assert found(harness.database) == [str(again)]


def test_an_audit_has_only_its_own_log_lines(harness: AuditHarness) -> None:
    config = harness.configure(steps=1)
    ids = []
    for fiche_id in ("1900417", "1900418"):
        harness.sell(fiche_id)
        ids.append(harness.audit(fiche_id, config, f"audit-{fiche_id}").audit_id)
    record_review(StepLocation(ids[0], 1), {"conforme": "PARTIEL"}, database=harness.database)
    request_rerun(StepLocation(ids[0], 1), database=harness.database, clock=harness.clock)
    with harness.database.reading() as session:
        lines, total = audit_logs(session, ids[0])
        page, same = audit_logs(session, ids[0], limit=1, offset=1)
        errors, none = audit_logs(session, ids[0], level="error")
    messages = [str(line["message"]) for line in lines]
    assert [message.split(":")[0] for message in messages][:1] == ["START"]
    assert any(message.startswith("END: ") for message in messages)
    assert messages[-1].startswith("REVIEW: step 1")
    assert {line["entity_id"] for line in lines} == {"1900417"}
    assert (total, same, page) == (len(lines), len(lines), lines[1:2])
    assert (errors, none) == ([], 0)


def test_an_unknown_audit_has_no_logs(harness: AuditHarness) -> None:
    with (
        harness.database.reading() as session,
        pytest.raises(NotFoundError, match="Audit not found"),
    ):
        audit_logs(session, 77)


SUD = Reach(Scope.GROUP, groupes=frozenset({"SUD"}))
EMPTY = {
    "total": 0, "completed": 0, "pending": 0, "running": 0, "compliant": 0, "nonCompliant": 0, "averageScore": None,
    "latestAudit": None, "audits": [],
}  # fmt: skip


def test_the_summary_counts_the_latest_audit_of_each_configuration(harness: AuditHarness) -> None:
    one, other = harness.configure(steps=1), harness.configure(steps=1, name="Other")
    harness.sell("7")
    for config_id, tracking_id in ((one, "a"), (one, "b"), (other, "c")):
        harness.audit("7", config_id, tracking_id)
        harness.clock.advance_one_second()
    with harness.database.reading() as session:
        result = fiche_status(session, "7", EVERYTHING)["audit"]
    assert (result["total"], result["completed"], result["compliant"] + result["nonCompliant"]) == (
        2,
        2,
        2,
    )
    assert [audit["auditConfigName"] for audit in result["audits"]] == ["Other", "Sales"]
    assert result["latestAudit"] == result["audits"][0]
    scores = [float(harness.row(name).score_percentage) for name in "bc"]
    assert result["averageScore"] == pytest.approx(sum(scores) / 2, abs=0.01)
    assert [audit["id"] for audit in result["audits"]] == [
        str(harness.row(name).id) for name in "cb"
    ]


def test_the_summary_counts_audits_by_status_and_grades_only_completed_ones(
    database: Database,
) -> None:
    archive = Archive(database, configs=5)
    graded = {"score_percentage": Decimal(70), "niveau": "BON", "is_compliant": True}
    statuses = ("completed", "completed", "incomplete", "running", "pending")
    fields: list[dict[str, Any]] = [
        graded,
        {"score_percentage": Decimal("60.01"), "niveau": "REJET", "is_compliant": False},
        {"error_message": "Away.", "completed_at": NOW, "niveau": "BON", "is_compliant": True},
        graded,
        {},
    ]
    for config_id, status, values in zip(archive.configs, statuses, fields, strict=True):
        archive.put("7", status=status, audit_config_id=config_id, **values)
    with database.reading() as session:
        found = fiche_status(session, "7", EVERYTHING)["audit"]
    nothing = {
        "scorePercentage": None, "niveau": None, "isCompliant": None, "errorMessage": None, "completedAt": None,
    }  # fmt: skip
    shown: list[dict[str, Any]] = [
        {"scorePercentage": 70.0, "niveau": "BON", "isCompliant": True},
        {"scorePercentage": 60.01, "niveau": "REJET", "isCompliant": False},
        {"errorMessage": "Away.", "completedAt": iso(NOW)},
        {},
        {},
    ]
    audits = [
        {
            "id": str(number),
            "auditConfigId": str(number),
            "auditConfigName": f"Config {number}",
            "status": status,
            "createdAt": iso(NOW + timedelta(hours=number)),
            **nothing,
            **values,
        }
        for number, (status, values) in enumerate(zip(statuses, shown, strict=True), start=1)
    ]
    assert found == {
        "total": 5, "completed": 2, "pending": 1, "running": 1, "compliant": 1, "nonCompliant": 1,
        "averageScore": round((70 + 60.01) / 2, 2), "latestAudit": audits[-1], "audits": audits[::-1],
    }  # fmt: skip


def test_deleted_audits_are_not_counted(harness: AuditHarness) -> None:
    harness.sell("7")
    harness.audit("7", harness.configure(steps=1))
    set_audit_deleted(harness.row().id, deleted=True, database=harness.database)
    with harness.database.reading() as session:
        assert fiche_status(session, "7", EVERYTHING)["audit"] == EMPTY


def test_hidden_and_unknown_fiches_are_indistinguishable(harness: AuditHarness) -> None:
    harness.sell("7")
    harness.audit("7", harness.configure(steps=1))
    with harness.database.reading() as session:
        result = fiche_statuses(session, ["7", "8"], SUD)
        for fiche_id in ("7", "8"):
            with pytest.raises(NotFoundError, match="Fiche not found in database"):
                fiche_status(session, fiche_id, SUD)
        rows, total = fiches_with_audits(session, [DAY], SUD, FichePage(9))
    assert {**result["7"], "ficheId": "8"} == result["8"]
    assert (result["8"]["audit"], rows, total) == (EMPTY, [], 0)


def test_the_number_of_queries_is_independent_of_the_number_of_fiches(
    harness: AuditHarness,
) -> None:
    config_id = harness.configure(steps=1)

    def cost() -> int:
        with harness.database.reading() as session, statements(harness.database) as sent:
            fiche_statuses(session, [str(n) for n in range(1, 9)], EVERYTHING)
            rows, _ = fiches_with_audits(session, [DAY], EVERYTHING, FichePage(100))
            assert all(row["audit"]["total"] == 1 for row in rows)
        assert not any("result_data" in one for one in sent)
        return len(sent)

    costs: list[int] = []
    for n in range(1, 5):
        harness.sell(str(n))
        harness.audit(str(n), config_id, f"audit-{n}")
        costs.append(cost())
    assert len(set(costs)) == 1
    assert costs[0] <= 8
