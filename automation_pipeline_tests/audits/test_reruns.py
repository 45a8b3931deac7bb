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
from automation_pipeline_tests.audits.bench import CALL_TEXT, Bench
from automation_pipeline_tests.audits.reviewers import put
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.llm import USAGE, FakeLanguageModel, StepInPrompt, step_answer

AGAIN = Usage(prompt_tokens=700, completion_tokens=7)


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    model = FakeLanguageModel(
        lambda asked: step_answer(asked, statuts=["PRESENT", "ABSENT"], score=3)
    )
    return Bench(database, clock, model=model)


@pytest.fixture
def audit_id(bench: Bench) -> int:
    """Two steps, 3 of 5 points each."""
    bench.sell("1900417")
    audit_id = bench.audit("1900417", bench.configure(steps=2)).audit_id
    bench.model = FakeLanguageModel(lambda asked: step_answer(asked, usage=AGAIN))
    return audit_id


def rerun(
    bench: Bench, position: int = 1, audit_id: int = 1, event: str = "e", **request: Any
) -> dict[str, Any]:
    made = Rerun(
        rerun_id=f"rerun-{audit_id}-{position}-{event}",
        location=StepLocation(audit_id, position),
        **request,
    )
    return asyncio.run(run_rerun(made, database=bench.database, judge=bench.judge))


def rerun_events(bench: Bench, name: str) -> list[dict[str, Any]]:
    return [event for event in bench.events(name) if "rerun_id" in event]


def test_a_rerun_replaces_the_step_and_rescores_the_audit(bench: Bench, audit_id: int) -> None:
    other = bench.steps()[1]
    step = rerun(bench, instructions="Listen to the end.")
    assert (step["score"], step["conforme"]) == (5, "CONFORME")
    assert [point["statut"] for point in step["points_controle"]] == ["PRESENT", "PRESENT"]
    assert all(
        citation["recording_url"] == "https://records.example.test/190041701"
        for point in step["points_controle"]
        for citation in point["citations"]
    )
    assert bench.steps()[1] == other
    row = bench.row()
    assert (float(row.score_percentage), row.niveau) == (80.0, "BON")
    assert row.result_data["audit"]["results"]["compliance"]["score"] == 80.0  # type: ignore[index]  # JSON
    [asked] = bench.model.asked
    assert "Instructions complémentaires : Listen to the end." in asked.messages[1].content
    assert "Résultat précédent" not in asked.messages[1].content


def test_tokens_add_up_over_all_analyses(bench: Bench, audit_id: int) -> None:
    step = rerun(bench)
    both = USAGE + AGAIN
    assert step["usage"] == {"prompt_tokens": both.prompt_tokens, "completion_tokens": both.completion_tokens,
                             "total_tokens": both.total_tokens}  # fmt: skip
    row = bench.row()
    assert row.total_tokens == both.total_tokens + USAGE.total_tokens
    assert row.result_data["statistics"]["total_tokens"] == row.total_tokens  # type: ignore[index]  # JSON


def test_a_rerun_is_recorded_in_the_history_and_emits_events(bench: Bench, audit_id: int) -> None:
    [entry] = rerun(bench, instructions=" Listen. ")["rerun_history"]
    old = {"score": 3, "conforme": "PARTIEL", "total_citations": 1}
    new = {"score": 5, "conforme": "CONFORME", "total_citations": 2}
    assert entry.pop("at").endswith("Z")
    assert entry == {
        "kind": "step_rerun", "rerun_id": "rerun-1-1-e", "event_id": "e", "step_position": 1,
        "custom_prompt": "Listen.", "previous": old, "next": new,
    }  # fmt: skip
    [started], [completed] = (
        rerun_events(bench, "audit.step_started"),
        rerun_events(bench, "audit.step_completed"),
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
    assert bench.notes()[-1] == "RERUN of step 1: PARTIEL, 3 points -> CONFORME, 5 points"


def test_a_repeated_rerun_changes_nothing(bench: Bench, audit_id: int) -> None:
    first = rerun(bench)
    stored, events = bench.row(), bench.events()
    assert rerun(bench) == first
    assert bench.model.calls == 1
    assert (bench.row().total_tokens, bench.events()) == (stored.total_tokens, events)
    assert len(rerun(bench, event="another")["rerun_history"]) == 2
    assert bench.model.calls == 2


def test_two_concurrent_workers_on_one_rerun_call_the_model_once(
    bench: Bench, audit_id: int
) -> None:
    request, judge = Rerun(rerun_id="one", location=StepLocation(audit_id, 1)), bench.judge

    async def both() -> list[dict[str, object]]:
        tries = (run_rerun(request, database=bench.database, judge=judge) for _ in range(2))
        return await asyncio.gather(*tries)

    one, two = asyncio.run(both())
    assert one == two
    assert bench.model.calls == 1


def test_a_failed_rerun_keeps_the_result_and_counts_its_tokens(bench: Bench, audit_id: int) -> None:
    before = bench.steps()[0]
    bench.model = FakeLanguageModel(lambda _asked: Reply("no JSON", AGAIN))
    with pytest.raises(PermanentError, match="no usable answer"):
        rerun(bench)
    after = bench.steps()[0]
    assert after.finding == before.finding
    spent = bench.model.calls * AGAIN.total_tokens
    assert (after.usage.total_tokens, bench.row().total_tokens) == (
        USAGE.total_tokens + spent,
        2 * USAGE.total_tokens + spent,
    )
    [failed] = rerun_events(bench, "audit.step_failed")
    assert failed["status"] == "failed"
    assert bench.notes()[-1].startswith("RERUN of step 1 failed: The model gave no usable answer")
    bench.model = FakeLanguageModel(lambda asked: step_answer(asked, usage=AGAIN))
    assert len(rerun(bench)["rerun_history"]) == 1


def test_a_rerun_gates_invented_quotations(bench: Bench, audit_id: int) -> None:
    bench.model = FakeLanguageModel(
        lambda asked: step_answer(asked, quotation="je jure que cela a été dit")
    )
    step = rerun(bench)
    assert (step["score"], step["conforme"]) == (0, "NON_CONFORME")


def test_a_score_above_the_weight_is_capped(bench: Bench, audit_id: int) -> None:
    bench.model = FakeLanguageModel(lambda asked: step_answer(asked, score=50))
    assert rerun(bench)["score"] == 5


def test_a_rerun_with_longer_calls_uses_tools(bench: Bench, audit_id: int) -> None:
    bench.transcribe("1900417", f"{CALL_TEXT}\n" * 30, times=10)
    bench.set_options(max_prompt_characters=20_000)
    rerun(bench)
    assert bench.model.asked[0].tools


def test_the_history_of_a_rerun_starts_from_a_concurrent_review(
    bench: Bench, audit_id: int
) -> None:
    async def review(_asked: Question) -> None:
        given = {"conforme": "NON_CONFORME", "score": 1}
        await asyncio.to_thread(
            record_review, StepLocation(audit_id, 1), given, database=bench.database
        )

    bench.model = FakeLanguageModel(
        lambda asked: step_answer(asked, usage=AGAIN), during_call=review
    )
    step = rerun(bench)
    assert step["rerun_history"][0]["previous"]["score"] == 1
    assert (step["score"], len(step["human_review"])) == (5, 1)


@pytest.mark.parametrize("state", ["running", "failed", "deleted"])
def test_only_a_completed_audit_can_be_rerun(bench: Bench, audit_id: int, state: str) -> None:
    put(bench.database, audit_id, state)
    with pytest.raises(ConflictError, match=f"Audit 1 is {state}"):
        rerun(bench)
    assert bench.model.calls == 0


def test_an_impossible_rerun_does_not_call_the_model(bench: Bench, audit_id: int) -> None:
    with pytest.raises(NotFoundError, match="Audit not found"):
        rerun(bench, audit_id=7)
    with pytest.raises(NotFoundError, match="Audit step with ID '1:3' not found"):
        rerun(bench, position=3)
    with pytest.raises(InvalidInputError):
        rerun(bench, instructions="x" * 5001)
    bench.transcribe("1900417", "")
    with pytest.raises(PermanentError, match="No usable transcribed recordings"):
        rerun(bench)
    assert bench.model.calls == 0


@pytest.fixture
def point_bench(database: Database, clock: StandingClock) -> Bench:
    """One step of two points, the second ABSENT; the model answers differently now."""
    model = FakeLanguageModel(
        lambda asked: step_answer(asked, statuts=["PRESENT", "ABSENT"], score=3)
    )
    point_bench = Bench(database, clock, model=model)
    point_bench.sell("1900417")
    point_bench.audit("1900417", point_bench.configure(steps=1))
    point_bench.model = FakeLanguageModel()
    return point_bench


def rerun_point(point_bench: Bench, index: int, event: str = "e", **request: Any) -> dict[str, Any]:
    made = Rerun(
        rerun_id=f"rerun-1-1-cp-{index}-{event}", location=StepLocation(1, 1, index), **request
    )
    return asyncio.run(run_rerun(made, database=point_bench.database, judge=point_bench.judge))


def test_a_rerun_of_a_point_replaces_it_and_may_raise_the_score(
    point_bench: Bench,
) -> None:
    first = point_bench.steps()[0].finding.points[0]
    step = rerun_point(point_bench, 2, instructions="Listen again.")
    [asked] = point_bench.model.asked
    assert StepInPrompt.of(asked).points == ("Recording announced",)
    assert "Résultat précédent : ABSENT : Jugé ABSENT." in asked.messages[1].content
    assert "Instructions complémentaires : Listen again." in asked.messages[1].content
    assert (step["score"], step["conforme"], step["niveau_conformite"]) == (
        5,
        "CONFORME",
        "EXCELLENT",
    )
    stored = point_bench.steps()[0].finding
    assert (stored.points[0], stored.points[1].statut) == (first, "PRESENT")
    assert stored.points[1].citations[0].recording_url == "https://records.example.test/190041701"
    assert (point_bench.row().niveau, point_bench.row().total_tokens) == (
        "EXCELLENT",
        2 * USAGE.total_tokens,
    )
    assert point_bench.row().result_data["audit"]["compliance"]["poids_obtenu"] == 5  # type: ignore[index]  # JSON


def test_the_history_of_a_point_rerun_includes_the_point_and_its_step(point_bench: Bench) -> None:
    [entry] = rerun_point(point_bench, 2)["rerun_history"]
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
    [events] = [
        event for event in point_bench.events("audit.step_completed") if "rerun_id" in event
    ]
    assert (events["rerun_scope"], events["control_point_index"]) == ("control_point", 2)


def test_a_rerun_of_a_point_with_an_invented_quotation_lowers_the_score(point_bench: Bench) -> None:
    point_bench.model = FakeLanguageModel(
        lambda asked: step_answer(asked, quotation="je jure que cela a été dit")
    )
    step = rerun_point(point_bench, 1)
    assert (step["score"], step["conforme"], point_bench.row().niveau) == (
        0,
        "NON_CONFORME",
        "INSUFFISANT",
    )
    assert "[Auto-check]" in step["points_controle"][0]["commentaire"]


def test_a_rerun_of_a_point_updates_the_totals_of_gating(point_bench: Bench) -> None:
    before = point_bench.steps()[0].stats
    point_bench.model = FakeLanguageModel(
        lambda asked: step_answer(asked, quotation="je jure que cela a été dit")
    )
    rerun_point(point_bench, 1)
    stats, gating = point_bench.steps()[0].stats, point_bench.row().gating
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
    record_review(StepLocation(1, 1, 1), {"statut": "PRESENT"}, database=point_bench.database)
    assert point_bench.row().gating == gating


def test_a_repeated_rerun_of_a_point_changes_nothing(point_bench: Bench) -> None:
    assert rerun_point(point_bench, 2) == rerun_point(point_bench, 2)
    assert point_bench.model.calls == 1


def test_a_concurrent_review_of_another_point_is_kept(point_bench: Bench) -> None:
    async def review(_asked: object) -> None:
        given = {"statut": "PARTIEL", "commentaire": "Mumbled."}
        await asyncio.to_thread(
            record_review, StepLocation(1, 1, 1), given, database=point_bench.database
        )

    point_bench.model = FakeLanguageModel(during_call=review)
    step = rerun_point(point_bench, 2)
    assert [point["statut"] for point in step["points_controle"]] == ["PARTIEL", "PRESENT"]
    assert step["points_controle"][0]["commentaire"] == "Mumbled."
    assert (step["score"], step["conforme"]) == (4, "PARTIEL")


def test_concurrent_reruns_of_two_points_are_both_kept(point_bench: Bench) -> None:
    judge = point_bench.judge

    async def both() -> None:
        reruns = [
            Rerun(rerun_id=f"r{index}", location=StepLocation(1, 1, index)) for index in (1, 2)
        ]
        await asyncio.gather(
            *(run_rerun(one, database=point_bench.database, judge=judge) for one in reruns)
        )

    asyncio.run(both())
    [step] = point_bench.steps()
    assert (step.finding.score, step.usage.total_tokens) == (5, 3 * USAGE.total_tokens)


def test_a_failed_rerun_keeps_the_point(point_bench: Bench) -> None:
    before = point_bench.steps()[0].finding
    point_bench.model.refuse_everything(PermanentError("The key is refused."))
    with pytest.raises(PermanentError, match="The key is refused"):
        rerun_point(point_bench, 2)
    assert point_bench.steps()[0].finding == before


@pytest.mark.parametrize("index", [0, 3])
def test_an_unknown_point_is_not_found(point_bench: Bench, index: int) -> None:
    with pytest.raises(NotFoundError, match=f"Audit control point with ID '1:1:{index}' not found"):
        rerun_point(point_bench, index)
    assert point_bench.model.calls == 0
