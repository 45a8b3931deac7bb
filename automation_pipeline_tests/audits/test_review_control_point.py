"""A person overrules a control point: step and audit are scored anew, also when several people do
so at once."""

from typing import Any

import pytest

from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.queries.steps import step_histories
from automation_pipeline.audits.reviews import record_review
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.audits.configurations import step_document
from automation_pipeline_tests.audits.reviewers import overrule
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel, step_answer
from automation_pipeline_tests.processes import CREW, at_once

POINTS = ["Name", "Company", "Recording", "Right to object"]


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(
        database, clock, model=FakeLanguageModel(lambda asked: step_answer(asked, statuts="ABSENT"))
    )


@pytest.fixture
def audit_id(bench: Bench) -> int:
    """One critical step of four points, all ABSENT."""
    bench.sell("1900417")
    bench.configure_anew(
        "Sales", [step_document(1, controlPoints=POINTS, weight=8, isCritical=True)]
    )
    return bench.audit("1900417", 1).audit_id


def overruled(bench: Bench, audit_id: int, index: int, **given: object) -> dict[str, Any]:
    return record_review(StepLocation(audit_id, 1, index), given, database=bench.database)


def test_a_person_raises_a_control_point_and_with_it_the_step_and_the_audit(
    bench: Bench, audit_id: int
) -> None:
    assert bench.row().niveau == "REJET"
    step = overruled(
        bench,
        audit_id,
        1,
        statut="PRESENT",
        commentaire="Heard.",
        reviewer="qa",
        reason="At 00:12.",
    )
    assert (step["score"], step["conforme"]) == (2, "NON_CONFORME")
    [review] = step["human_review"]
    assert review.pop("at").endswith("Z")
    assert review == {
        "by": "qa",
        "reason": "At 00:12.",
        "kind": "control_point",
        "control_point_index": 1,
        "point": "Name",
        "previous": {"statut": "ABSENT", "commentaire": "Jugé ABSENT."},
        "override": {"statut": "PRESENT", "commentaire": "Heard."},
    }
    for index in (2, 3, 4):
        step = overruled(bench, audit_id, index, statut="PRESENT")
    assert (step["score"], step["conforme"], bench.row().niveau) == (8, "CONFORME", "EXCELLENT")
    assert bench.row().result_data["audit"]["compliance"]["points_critiques"] == "1/1"  # type: ignore[index]  # JSON
    assert overruled(bench, audit_id, 4, statut="ABSENT")["score"] == 6
    assert bench.row().niveau == "REJET"


def test_a_comment_alone_leaves_the_score_that_a_person_gave(bench: Bench, audit_id: int) -> None:
    record_review(
        StepLocation(audit_id, 1), {"conforme": "CONFORME", "score": 7}, database=bench.database
    )
    step = overruled(bench, audit_id, 2, commentaire="")
    assert (step["score"], step["conforme"], step["points_controle"][1]["commentaire"]) == (
        7,
        "CONFORME",
        "",
    )
    assert [review["kind"] for review in step["human_review"]] == ["step", "control_point"]


@pytest.mark.parametrize("index", [0, 5])
def test_a_control_point_that_is_not_there_is_not_found(
    bench: Bench, audit_id: int, index: int
) -> None:
    with pytest.raises(
        NotFoundError, match=f"Audit control point with ID '{audit_id}:1:{index}' not found"
    ):
        overruled(bench, audit_id, index, statut="PRESENT")


def test_a_review_that_changes_nothing_is_refused(bench: Bench, audit_id: int) -> None:
    with pytest.raises(InvalidInputError):
        overruled(bench, audit_id, 1, reviewer="qa")


def test_nothing_is_lost_when_several_people_review_one_step_at_once(
    bench: Bench, audit_id: int, database_url: str
) -> None:
    assert len(POINTS) == CREW
    at_once(overrule, *((database_url, audit_id, 1, index, 4) for index in range(1, 5)))
    [step] = bench.steps()
    assert [(point.statut, point.commentaire) for point in step.finding.points] == [
        ("PRESENT", "Heard 3.")
    ] * 4
    assert (step.finding.score, bench.row().niveau) == (8, "EXCELLENT")
    with bench.database.reading() as session:
        reviews = step_histories(session, [audit_id])[audit_id, 1].human_review
    assert len(reviews) == 20
    for index in range(1, 5):
        of_point = [review for review in reviews if review["control_point_index"] == index]
        assert [review["override"] for review in of_point[:-1]] == [
            review["previous"] for review in of_point[1:]
        ]
