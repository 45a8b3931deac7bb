"""A person overrules a step: the step, the summary, the document and the trail follow together."""

import pytest

from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.queries.documents import audit_document
from automation_pipeline.audits.reviews import record_review
from automation_pipeline.audits.tables import HumanReviewRow
from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.audits.reviewers import put
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel, step_answer


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    """Every step was found half met: 3 of 5 points each, 60 %."""
    model = FakeLanguageModel(
        lambda asked: step_answer(asked, statuts=["PRESENT", "ABSENT"], score=3)
    )
    return Bench(database, clock, model=model)


def audited(bench: Bench, steps: int = 2) -> int:
    bench.sell("1900417")
    return bench.audit("1900417", bench.configure(steps=steps)).audit_id


def test_a_person_raises_a_step_and_everything_follows(bench: Bench) -> None:
    audit_id = audited(bench)
    given = {
        "conforme": "CONFORME",
        "score": 5,
        "niveauConformite": "EXCELLENT",
        "reviewer": "qa",
        "reason": "Heard.",
    }
    step = record_review(StepLocation(audit_id, 1), given, database=bench.database)
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
        "reason": "Heard.",
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
    row = bench.row()
    assert (float(row.score_percentage), row.niveau) == (80.0, "BON")
    with bench.database.reading() as session:
        result = audit_document(session, audit_id)["resultData"]
    assert result["audit"]["compliance"]["score"] == 80.0  # type: ignore[index]  # JSON
    assert result["audit"]["results"]["compliance"]["niveau"] == "BON"  # type: ignore[index]  # JSON
    assert result["audit"]["results"]["steps"][0] == step  # type: ignore[index]  # JSON
    assert (
        bench.notes()[-1] == "REVIEW: step 1 by qa: CONFORME, 5 points; the audit is BON, 80.00 %"
    )


def test_tokens_and_times_stay_and_the_trail_only_grows(bench: Bench) -> None:
    audit_id = audited(bench)
    before = bench.row()
    record_review(StepLocation(audit_id, 1), {"conforme": "CONFORME"}, database=bench.database)
    with bench.database.reading() as session:
        first = session.get_one(HumanReviewRow, 1)
    step = record_review(
        StepLocation(audit_id, 1), {"conforme": "NON_CONFORME", "score": 0}, database=bench.database
    )
    after = bench.row()
    assert (after.total_tokens, after.completed_at, after.duration_ms) == (
        before.total_tokens,
        before.completed_at,
        before.duration_ms,
    )
    overrides = [review["override"]["conforme"] for review in step["human_review"]]  # type: ignore[attr-defined]  # JSON
    assert overrides == ["CONFORME", "NON_CONFORME"]
    with bench.database.reading() as session:
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
def test_what_cannot_be_accepted_changes_nothing(
    bench: Bench, position: int, given: dict[str, object], error: type[Exception], words: str
) -> None:
    audit_id = audited(bench)
    before = bench.steps()
    with pytest.raises(error, match=words):
        record_review(StepLocation(audit_id, position), given, database=bench.database)
    assert bench.steps() == before
    with bench.database.reading() as session:
        assert session.get(HumanReviewRow, 1) is None


def test_an_unknown_audit_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFoundError, match="Audit not found"):
        record_review(StepLocation(7, 1), {"conforme": "CONFORME"}, database=bench.database)


@pytest.mark.parametrize("state", ["running", "failed", "deleted"])
def test_only_a_completed_audit_is_reviewed(bench: Bench, state: str) -> None:
    audit_id = audited(bench)
    put(bench.database, audit_id, state)
    with pytest.raises(ConflictError, match=f"Audit 1 is {state}"):
        record_review(StepLocation(audit_id, 1), {"conforme": "CONFORME"}, database=bench.database)
