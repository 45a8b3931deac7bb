"""Reruns of steps and control points by the model."""

import asyncio
from typing import Any

import pytest

from automation_pipeline.audits.models.audits import GatingStats, Rerun, StepLocation
from automation_pipeline.audits.models.chat import Question, Reply, Usage
from automation_pipeline.audits.reviews import record_review, run_rerun
from automation_pipeline.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.harness import CALL_TEXT, AuditHarness
from automation_pipeline_tests.audits.reviewers import set_state
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import USAGE, FakeLanguageModel, StepInPrompt, step_answer

AGAIN = Usage(prompt_tokens=700, completion_tokens=7)


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    model = FakeLanguageModel(
        lambda question: step_answer(question, statuts=["PRESENT", "ABSENT"], score=3)
    )
    return AuditHarness(database, clock, model=model)


@pytest.fixture
def audit_id(harness: AuditHarness) -> int:
    """Two steps, 3 of 5 points each."""
    harness.sell("1900417")
    audit_id = harness.audit("1900417", harness.configure(steps=2)).audit_id
    harness.model = FakeLanguageModel(lambda question: step_answer(question, usage=AGAIN))
    return audit_id


def rerun(
    harness: AuditHarness, position: int = 1, audit_id: int = 1, event: str = "e", **fields: Any
) -> dict[str, Any]:
    request = Rerun(
        rerun_id=f"rerun-{audit_id}-{position}-{event}",
        location=StepLocation(audit_id, position),
        **fields,
    )
    return asyncio.run(run_rerun(request, database=harness.database, judge=harness.judge))


def rerun_events(harness: AuditHarness, name: str) -> list[dict[str, Any]]:
    return [event for event in harness.events(name) if "rerun_id" in event]


def test_a_rerun_replaces_the_step_and_rescores_the_audit(
    harness: AuditHarness, audit_id: int
) -> None:
    other = harness.steps()[1]
    step = rerun(harness, instructions="Listen to the end.")
    assert (step["score"], step["conforme"]) == (5, "CONFORME")
    assert [point["statut"] for point in step["points_controle"]] == ["PRESENT", "PRESENT"]
    assert all(
        citation["recording_url"] == "https://records.example.test/190041701"
        for point in step["points_controle"]
        for citation in point["citations"]
    )
    assert harness.steps()[1] == other
    row = harness.row()
    assert (float(row.score_percentage), row.niveau) == (80.0, "BON")
    assert row.result_data["audit"]["results"]["compliance"]["score"] == 80.0  # type: ignore[index]  # JSON
    [question] = harness.model.questions
    assert "Instructions complémentaires : Listen to the end." in question.messages[1].content
    assert "Résultat précédent" not in question.messages[1].content


def test_tokens_add_up_over_all_analyses(harness: AuditHarness, audit_id: int) -> None:
    step = rerun(harness)
    both = USAGE + AGAIN
    assert step["usage"] == {"prompt_tokens": both.prompt_tokens, "completion_tokens": both.completion_tokens,
                             "total_tokens": both.total_tokens}  # fmt: skip
    row = harness.row()
    assert row.total_tokens == both.total_tokens + USAGE.total_tokens
    assert row.result_data["statistics"]["total_tokens"] == row.total_tokens  # type: ignore[index]  # JSON


def test_a_rerun_is_recorded_in_the_history_and_emits_events(
    harness: AuditHarness, audit_id: int
) -> None:
    [entry] = rerun(harness, instructions=" Listen. ")["rerun_history"]
    old = {"score": 3, "conforme": "PARTIEL", "total_citations": 1}
    new = {"score": 5, "conforme": "CONFORME", "total_citations": 2}
    assert entry.pop("at").endswith("Z")
    assert entry == {
        "kind": "step_rerun", "rerun_id": "rerun-1-1-e", "event_id": "e", "step_position": 1,
        "custom_prompt": "Listen.", "previous": old, "next": new,
    }  # fmt: skip
    [started], [completed] = (
        rerun_events(harness, "audit.step_started"),
        rerun_events(harness, "audit.step_completed"),
    )
    about = {"rerun_id": "rerun-1-1-e", "audit_id": "1", "step_position": 1}
    assert {**about, "status": "rerunning"}.items() <= started.items()
    assert {
        **about,
        "status": "rerun_completed",
        "original": old,
        "rerun": new,
    }.items() <= completed.items()
    assert completed["comparison"] == {"changed": ["score", "conforme", "total_citations"]}
    assert "fiche_id" not in {**started, **completed}
    assert harness.notes()[-1] == "RERUN of step 1: PARTIEL, 3 points -> CONFORME, 5 points"


def test_a_repeated_rerun_changes_nothing(harness: AuditHarness, audit_id: int) -> None:
    first = rerun(harness)
    stored, events = harness.row(), harness.events()
    assert rerun(harness) == first
    assert harness.model.calls == 1
    assert (harness.row().total_tokens, harness.events()) == (stored.total_tokens, events)
    assert len(rerun(harness, event="another")["rerun_history"]) == 2
    assert harness.model.calls == 2


def test_two_concurrent_workers_on_one_rerun_call_the_model_once(
    harness: AuditHarness, audit_id: int
) -> None:
    request, judge = Rerun(rerun_id="one", location=StepLocation(audit_id, 1)), harness.judge

    async def both() -> list[dict[str, object]]:
        tries = (run_rerun(request, database=harness.database, judge=judge) for _ in range(2))
        return await asyncio.gather(*tries)

    one, two = asyncio.run(both())
    assert one == two
    assert harness.model.calls == 1


def test_a_failed_rerun_keeps_the_result_and_counts_its_tokens(
    harness: AuditHarness, audit_id: int
) -> None:
    before = harness.steps()[0]
    harness.model = FakeLanguageModel(lambda _question: Reply("no JSON", AGAIN))
    with pytest.raises(PermanentError, match="no usable answer"):
        rerun(harness)
    after = harness.steps()[0]
    assert after.finding == before.finding
    spent = harness.model.calls * AGAIN.total_tokens
    assert (after.usage.total_tokens, harness.row().total_tokens) == (
        USAGE.total_tokens + spent,
        2 * USAGE.total_tokens + spent,
    )
    [failed] = rerun_events(harness, "audit.step_failed")
    assert failed["status"] == "failed"
    assert harness.notes()[-1].startswith("RERUN of step 1 failed: The model gave no usable answer")
    harness.model = FakeLanguageModel(lambda question: step_answer(question, usage=AGAIN))
    assert len(rerun(harness)["rerun_history"]) == 1


def test_a_rerun_gates_invented_quotations(harness: AuditHarness, audit_id: int) -> None:
    harness.model = FakeLanguageModel(
        lambda question: step_answer(question, quotation="je jure que cela a été dit")
    )
    step = rerun(harness)
    assert (step["score"], step["conforme"]) == (0, "NON_CONFORME")


def test_a_score_above_the_weight_is_capped(harness: AuditHarness, audit_id: int) -> None:
    harness.model = FakeLanguageModel(lambda question: step_answer(question, score=50))
    assert rerun(harness)["score"] == 5


def test_a_rerun_with_longer_calls_uses_tools(harness: AuditHarness, audit_id: int) -> None:
    harness.transcribe("1900417", f"{CALL_TEXT}\n" * 30, times=10)
    harness.set_options(max_prompt_characters=20_000)
    rerun(harness)
    assert harness.model.questions[0].tools


def test_the_history_of_a_rerun_starts_from_a_concurrent_review(
    harness: AuditHarness, audit_id: int
) -> None:
    async def review(_question: Question) -> None:
        given = {"conforme": "NON_CONFORME", "score": 1}
        await asyncio.to_thread(
            record_review, StepLocation(audit_id, 1), given, database=harness.database
        )

    harness.model = FakeLanguageModel(
        lambda question: step_answer(question, usage=AGAIN), during_call=review
    )
    step = rerun(harness)
    assert step["rerun_history"][0]["previous"]["score"] == 1
    assert (step["score"], len(step["human_review"])) == (5, 1)


@pytest.mark.parametrize("state", ["running", "failed", "deleted"])
def test_only_a_completed_audit_can_be_rerun(
    harness: AuditHarness, audit_id: int, state: str
) -> None:
    set_state(harness.database, audit_id, state)
    with pytest.raises(ConflictError, match=f"Audit 1 is {state}"):
        rerun(harness)
    assert harness.model.calls == 0


def test_an_impossible_rerun_does_not_call_the_model(harness: AuditHarness, audit_id: int) -> None:
    with pytest.raises(NotFoundError, match="Audit not found"):
        rerun(harness, audit_id=7)
    with pytest.raises(NotFoundError, match="Audit step with ID '1:3' not found"):
        rerun(harness, position=3)
    with pytest.raises(InvalidInputError):
        rerun(harness, instructions="x" * 5001)
    harness.transcribe("1900417", "")
    with pytest.raises(PermanentError, match="No usable transcribed recordings"):
        rerun(harness)
    assert harness.model.calls == 0


@pytest.fixture
def point_harness(database: Database, clock: FakeClock) -> AuditHarness:
    """One step of two points, the second ABSENT; the model answers differently now."""
    model = FakeLanguageModel(
        lambda question: step_answer(question, statuts=["PRESENT", "ABSENT"], score=3)
    )
    point_harness = AuditHarness(database, clock, model=model)
    point_harness.sell("1900417")
    point_harness.audit("1900417", point_harness.configure(steps=1))
    point_harness.model = FakeLanguageModel()
    return point_harness


def rerun_point(
    point_harness: AuditHarness, index: int, event: str = "e", **fields: Any
) -> dict[str, Any]:
    request = Rerun(
        rerun_id=f"rerun-1-1-cp-{index}-{event}", location=StepLocation(1, 1, index), **fields
    )
    return asyncio.run(
        run_rerun(request, database=point_harness.database, judge=point_harness.judge)
    )


def test_a_rerun_of_a_point_replaces_it_and_may_raise_the_score(
    point_harness: AuditHarness,
) -> None:
    first = point_harness.steps()[0].finding.points[0]
    step = rerun_point(point_harness, 2, instructions="Listen again.")
    [question] = point_harness.model.questions
    assert StepInPrompt.of(question).points == ("Recording announced",)
    assert "Résultat précédent : ABSENT : Jugé ABSENT." in question.messages[1].content
    assert "Instructions complémentaires : Listen again." in question.messages[1].content
    assert (step["score"], step["conforme"], step["niveau_conformite"]) == (
        5,
        "CONFORME",
        "EXCELLENT",
    )
    stored = point_harness.steps()[0].finding
    assert (stored.points[0], stored.points[1].statut) == (first, "PRESENT")
    assert stored.points[1].citations[0].recording_url == "https://records.example.test/190041701"
    assert (point_harness.row().niveau, point_harness.row().total_tokens) == (
        "EXCELLENT",
        2 * USAGE.total_tokens,
    )
    assert point_harness.row().result_data["audit"]["compliance"]["poids_obtenu"] == 5  # type: ignore[index]  # JSON


def test_the_history_of_a_point_rerun_includes_the_point_and_its_step(
    point_harness: AuditHarness,
) -> None:
    [entry] = rerun_point(point_harness, 2)["rerun_history"]
    assert entry["kind"] == "control_point_rerun"
    assert (entry["control_point_index"], entry["point"], entry["event_id"]) == (
        2,
        "Recording announced",
        "e",
    )
    assert entry["previous"] == {
        "statut": "ABSENT", "commentaire": "Jugé ABSENT.", "citations": 0, "step_score": 3, "step_conforme": "PARTIEL",
    }  # fmt: skip
    assert entry["next"] == {
        "statut": "PRESENT", "commentaire": "Jugé PRESENT.", "citations": 1, "step_score": 5,
        "step_conforme": "CONFORME",
    }  # fmt: skip
    [event] = [
        event for event in point_harness.events("audit.step_completed") if "rerun_id" in event
    ]
    assert (event["rerun_scope"], event["control_point_index"]) == ("control_point", 2)


def test_a_rerun_of_a_point_with_an_invented_quotation_lowers_the_score(
    point_harness: AuditHarness,
) -> None:
    point_harness.model = FakeLanguageModel(
        lambda question: step_answer(question, quotation="je jure que cela a été dit")
    )
    step = rerun_point(point_harness, 1)
    assert (step["score"], step["conforme"], point_harness.row().niveau) == (
        0,
        "NON_CONFORME",
        "INSUFFISANT",
    )
    assert "[Auto-check]" in step["points_controle"][0]["commentaire"]


def test_a_rerun_of_a_point_updates_the_totals_of_gating(point_harness: AuditHarness) -> None:
    before = point_harness.steps()[0].stats
    point_harness.model = FakeLanguageModel(
        lambda question: step_answer(question, quotation="je jure que cela a été dit")
    )
    rerun_point(point_harness, 1)
    stats, gating = point_harness.steps()[0].stats, point_harness.row().gating
    assert stats == before + GatingStats(
        1, 1, 1, step_score_reduced=True, step_conforme_adjusted=True
    )
    assert gating == {
        "total_citations": stats.total_citations,
        "removed_citations": stats.removed_citations,
        "downgraded_control_points": stats.downgraded_control_points,
        "steps_score_reduced": 1,
        "steps_conforme_adjusted": 1,
    }
    record_review(StepLocation(1, 1, 1), {"statut": "PRESENT"}, database=point_harness.database)
    assert point_harness.row().gating == gating


def test_a_repeated_rerun_of_a_point_changes_nothing(point_harness: AuditHarness) -> None:
    assert rerun_point(point_harness, 2) == rerun_point(point_harness, 2)
    assert point_harness.model.calls == 1


def test_a_concurrent_review_of_another_point_is_kept(point_harness: AuditHarness) -> None:
    async def review(_question: object) -> None:
        given = {"statut": "PARTIEL", "commentaire": "Mumbled."}
        await asyncio.to_thread(
            record_review, StepLocation(1, 1, 1), given, database=point_harness.database
        )

    point_harness.model = FakeLanguageModel(during_call=review)
    step = rerun_point(point_harness, 2)
    assert [point["statut"] for point in step["points_controle"]] == ["PARTIEL", "PRESENT"]
    assert step["points_controle"][0]["commentaire"] == "Mumbled."
    assert (step["score"], step["conforme"]) == (4, "PARTIEL")


def test_concurrent_reruns_of_two_points_are_both_kept(point_harness: AuditHarness) -> None:
    judge = point_harness.judge

    async def both() -> None:
        reruns = [
            Rerun(rerun_id=f"r{index}", location=StepLocation(1, 1, index)) for index in (1, 2)
        ]
        await asyncio.gather(
            *(run_rerun(one, database=point_harness.database, judge=judge) for one in reruns)
        )

    asyncio.run(both())
    [step] = point_harness.steps()
    assert (step.finding.score, step.usage.total_tokens) == (5, 3 * USAGE.total_tokens)


def test_a_failed_rerun_keeps_the_point(point_harness: AuditHarness) -> None:
    before = point_harness.steps()[0].finding
    point_harness.model.refuse_everything(PermanentError("The key is refused."))
    with pytest.raises(PermanentError, match="The key is refused"):
        rerun_point(point_harness, 2)
    assert point_harness.steps()[0].finding == before


@pytest.mark.parametrize("index", [0, 3])
def test_an_unknown_point_is_not_found(point_harness: AuditHarness, index: int) -> None:
    with pytest.raises(NotFoundError, match=f"Audit control point with ID '1:1:{index}' not found"):
        rerun_point(point_harness, index)
    assert point_harness.model.calls == 0
