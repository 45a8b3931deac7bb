"""Reviews of steps and control points by people."""

import re
from typing import Any

import pytest

from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.queries.documents import audit_document
from automation_pipeline.audits.queries.steps import step_histories
from automation_pipeline.audits.reviews import record_review
from automation_pipeline.audits.tables import HumanReviewRow
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import step_document
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.audits.reviewers import record_reviews, set_state
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel, step_answer
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    """Every step was found half met: 3 of 5 points each, 60 %."""
    model = FakeLanguageModel(
        lambda asked: step_answer(asked, statuts=["PRESENT", "ABSENT"], score=3)
    )
    return AuditHarness(database, clock, model=model)


def audit_half_met_steps(harness: AuditHarness, steps: int = 2) -> int:
    harness.sell("1900417")
    return harness.audit("1900417", harness.configure(steps=steps)).audit_id


def test_a_review_of_a_step_rescores_the_audit(harness: AuditHarness) -> None:
    audit_id = audit_half_met_steps(harness)
    given = {
        "conforme": "CONFORME",
        "score": 5,
        "niveauConformite": "EXCELLENT",
        "reviewer": "qa",
        "reason": "At 00:12",
    }
    step = record_review(StepLocation(audit_id, 1), given, database=harness.database)
    assert (step["conforme"], step["score"], step["niveau_conformite"]) == (
        "CONFORME",
        5,
        "EXCELLENT",
    )
    [review] = step["human_review"]  # type: ignore[misc]  # JSON
    assert review["at"].endswith("Z")
    assert review == {
        "at": review["at"],
        "by": "qa",
        "reason": "At 00:12",
        "kind": "step",
        "previous": {
            "traite": True,
            "conforme": "PARTIEL",
            "score": 3,
            "niveau_conformite": "ACCEPTABLE",
        },
        "override": {
            "traite": True,
            "conforme": "CONFORME",
            "score": 5,
            "niveau_conformite": "EXCELLENT",
        },
    }
    row = harness.row()
    assert (float(row.score_percentage), row.niveau) == (80.0, "BON")
    with harness.database.reading() as session:
        result = audit_document(session, audit_id)["resultData"]
    assert result["audit"]["compliance"]["score"] == 80.0  # type: ignore[index]  # JSON
    assert result["audit"]["results"]["compliance"]["niveau"] == "BON"  # type: ignore[index]  # JSON
    assert result["audit"]["results"]["steps"][0] == step  # type: ignore[index]  # JSON
    assert (
        harness.notes()[-1] == "REVIEW: step 1 by qa: CONFORME, 5 points; the audit is BON, 80.00 %"
    )


def test_reviews_keep_tokens_and_times_and_add_to_the_history(harness: AuditHarness) -> None:
    audit_id = audit_half_met_steps(harness)
    before = harness.row()
    record_review(StepLocation(audit_id, 1), {"conforme": "CONFORME"}, database=harness.database)
    with harness.database.reading() as session:
        first = session.get_one(HumanReviewRow, 1)
    step = record_review(
        StepLocation(audit_id, 1),
        {"conforme": "NON_CONFORME", "score": 0},
        database=harness.database,
    )
    after = harness.row()
    assert (after.total_tokens, after.completed_at, after.duration_ms) == (
        before.total_tokens,
        before.completed_at,
        before.duration_ms,
    )
    overrides = [review["override"]["conforme"] for review in step["human_review"]]  # type: ignore[attr-defined]  # JSON
    assert overrides == ["CONFORME", "NON_CONFORME"]
    with harness.database.reading() as session:
        again = session.get_one(HumanReviewRow, 1)
    names = [column.key for column in HumanReviewRow.__table__.columns]
    assert [getattr(again, name) for name in names] == [getattr(first, name) for name in names]


@pytest.mark.parametrize(
    ("position", "given", "error", "words"),
    [
        (1, {}, InvalidInputError, "The review cannot be accepted"),
        (
            1,
            {"conforme": "CONFORME", "score": 6},
            InvalidInputError,
            "The review cannot be accepted",
        ),
        (
            1,
            {"conforme": "CONFORME", "statut": "PRESENT"},
            InvalidInputError,
            "The review cannot be accepted",
        ),
        (3, {"conforme": "CONFORME"}, NotFoundError, "Audit step with ID '1:3' not found"),
        (0, {"conforme": "CONFORME"}, NotFoundError, "Audit step with ID '1:0' not found"),
    ],
)
def test_an_invalid_change_changes_nothing(
    harness: AuditHarness,
    position: int,
    given: dict[str, object],
    error: type[Exception],
    words: str,
) -> None:
    audit_id = audit_half_met_steps(harness)
    before = harness.steps()
    with pytest.raises(error, match=words):
        record_review(StepLocation(audit_id, position), given, database=harness.database)
    assert harness.steps() == before
    with harness.database.reading() as session:
        assert session.get(HumanReviewRow, 1) is None


def test_an_unknown_audit_is_not_found(harness: AuditHarness) -> None:
    with pytest.raises(NotFoundError, match="Audit not found"):
        record_review(StepLocation(7, 1), {"conforme": "CONFORME"}, database=harness.database)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("running", "Audit 1 is running: only a completed audit can be changed."),
        ("failed", "Audit 1 is failed: only a completed audit can be changed."),
        (
            "incomplete",
            "Audit 1 is incomplete: only a completed audit can be changed. Audit the fiche again to finish it.",
        ),
        ("deleted", "Audit 1 is deleted: restore it before it is changed."),
    ],
)
def test_only_a_completed_audit_is_reviewed(
    harness: AuditHarness, state: str, message: str
) -> None:
    audit_id = audit_half_met_steps(harness)
    set_state(harness.database, audit_id, state)
    with pytest.raises(ConflictError, match=f"^{re.escape(message)}$"):
        record_review(
            StepLocation(audit_id, 1), {"conforme": "CONFORME"}, database=harness.database
        )


POINTS = ["Name", "Company", "Recording", "Right to object"]


@pytest.fixture
def point_harness(database: Database, clock: FakeClock) -> AuditHarness:
    return AuditHarness(
        database, clock, model=FakeLanguageModel(lambda asked: step_answer(asked, statuts="ABSENT"))
    )


@pytest.fixture
def audit_id(point_harness: AuditHarness) -> int:
    """One critical step of four points, all ABSENT."""
    point_harness.sell("1900417")
    point_harness.replace_config(
        "Sales", [step_document(1, controlPoints=POINTS, weight=8, isCritical=True)]
    )
    return point_harness.audit("1900417", 1).audit_id


def reviewed(
    point_harness: AuditHarness, audit_id: int, index: int, **given: object
) -> dict[str, Any]:
    return record_review(StepLocation(audit_id, 1, index), given, database=point_harness.database)


def test_a_review_of_a_control_point_rescores_the_step_and_the_audit(
    point_harness: AuditHarness, audit_id: int
) -> None:
    assert point_harness.row().niveau == "REJET"
    step = reviewed(
        point_harness,
        audit_id,
        1,
        statut="PRESENT",
        commentaire="They say it.",
        reviewer="qa",
        reason="At 01:05.",
    )
    assert (step["score"], step["conforme"]) == (2, "NON_CONFORME")
    [review] = step["human_review"]
    assert review.pop("at").endswith("Z")
    assert review == {
        "by": "qa",
        "reason": "At 01:05.",
        "kind": "control_point",
        "control_point_index": 1,
        "point": "Name",
        "previous": {"statut": "ABSENT", "commentaire": "Jugé ABSENT."},
        "override": {"statut": "PRESENT", "commentaire": "They say it."},
    }
    for index in (2, 3, 4):
        step = reviewed(point_harness, audit_id, index, statut="PRESENT")
    assert (step["score"], step["conforme"], point_harness.row().niveau) == (
        8,
        "CONFORME",
        "EXCELLENT",
    )
    assert point_harness.row().result_data["audit"]["compliance"]["points_critiques"] == "1/1"  # type: ignore[index]  # JSON
    assert reviewed(point_harness, audit_id, 4, statut="ABSENT")["score"] == 6
    assert point_harness.row().niveau == "REJET"


def test_a_comment_alone_keeps_a_reviewed_score(point_harness: AuditHarness, audit_id: int) -> None:
    record_review(
        StepLocation(audit_id, 1),
        {"conforme": "CONFORME", "score": 7},
        database=point_harness.database,
    )
    step = reviewed(point_harness, audit_id, 2, commentaire="")
    assert (step["score"], step["conforme"], step["points_controle"][1]["commentaire"]) == (
        7,
        "CONFORME",
        "",
    )
    assert [review["kind"] for review in step["human_review"]] == ["step", "control_point"]


@pytest.mark.parametrize("index", [0, 5])
def test_an_unknown_control_point_is_not_found(
    point_harness: AuditHarness, audit_id: int, index: int
) -> None:
    with pytest.raises(
        NotFoundError, match=f"Audit control point with ID '{audit_id}:1:{index}' not found"
    ):
        reviewed(point_harness, audit_id, index, statut="PRESENT")


def test_a_review_that_changes_nothing_is_refused(
    point_harness: AuditHarness, audit_id: int
) -> None:
    with pytest.raises(InvalidInputError):
        reviewed(point_harness, audit_id, 1, reviewer="qa")


def test_concurrent_reviews_of_one_step_are_all_kept(
    point_harness: AuditHarness, audit_id: int, database_url: str
) -> None:
    assert len(POINTS) == PROCESS_COUNT
    run_in_processes(
        record_reviews, *((database_url, audit_id, 1, index, 4) for index in range(1, 5))
    )
    [step] = point_harness.steps()
    assert [(point.statut, point.commentaire) for point in step.finding.points] == [
        ("PRESENT", "Comment 3.")
    ] * 4
    assert (step.finding.score, point_harness.row().niveau) == (8, "EXCELLENT")
    with point_harness.database.reading() as session:
        reviews = step_histories(session, [audit_id])[audit_id, 1]["human_review"]
    assert len(reviews) == 20
    for index in range(1, 5):
        of_point = [review for review in reviews if review["control_point_index"] == index]
        assert [review["override"] for review in of_point[:-1]] == [
            review["previous"] for review in of_point[1:]
        ]
