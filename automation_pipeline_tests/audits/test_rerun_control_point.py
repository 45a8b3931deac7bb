"""One control point judged again: it alone changes, and its step is scored anew from all its
points."""

import asyncio
from typing import Any

import pytest

from automation_pipeline.audits.models.audits import Rerun, StepLocation
from automation_pipeline.audits.models.findings import GatingStats
from automation_pipeline.audits.reviews import record_review, run_rerun
from automation_pipeline.core.errors import NotFoundError, PermanentError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.llm import USAGE, FakeLanguageModel, StepInPrompt, step_answer


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    """One step of two points, the second ABSENT; the model has changed its mind."""
    model = FakeLanguageModel(
        lambda asked: step_answer(asked, statuts=["PRESENT", "ABSENT"], score=3)
    )
    bench = Bench(database, clock, model=model)
    bench.sell("1900417")
    bench.audit("1900417", bench.configure(steps=1))
    bench.model = FakeLanguageModel()
    return bench


def rerun(bench: Bench, index: int, event: str = "e", **wish: Any) -> dict[str, Any]:
    made = Rerun(rerun_id=f"rerun-1-1-cp-{index}-{event}", place=StepLocation(1, 1, index), **wish)
    return asyncio.run(run_rerun(made, database=bench.database, judge=bench.judge))


def test_the_point_alone_is_asked_for_and_replaced_and_the_score_may_rise(bench: Bench) -> None:
    first = bench.steps()[0].finding.points[0]
    step = rerun(bench, 2, instructions="Listen again.")
    [asked] = bench.model.asked
    assert StepInPrompt.of(asked).points == ("Recording announced",)
    assert "Résultat précédent : ABSENT : Jugé ABSENT." in asked.messages[1].content
    assert "Instructions complémentaires : Listen again." in asked.messages[1].content
    assert (step["score"], step["conforme"], step["niveau_conformite"]) == (
        5,
        "CONFORME",
        "EXCELLENT",
    )
    stored = bench.steps()[0].finding
    assert (stored.points[0], stored.points[1].statut) == (first, "PRESENT")
    assert stored.points[1].citations[0].recording_url == "https://records.example.test/190041701"
    assert (bench.row().niveau, bench.row().total_tokens) == ("EXCELLENT", 2 * USAGE.total_tokens)
    assert bench.row().result_data["audit"]["compliance"]["poids_obtenu"] == 5  # type: ignore[index]  # JSON


def test_the_trail_tells_of_the_point_and_of_its_step(bench: Bench) -> None:
    [entry] = rerun(bench, 2)["rerun_history"]
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
    [told] = [event for event in bench.events("audit.step_completed") if "rerun_id" in event]
    assert (told["rerun_scope"], told["control_point_index"]) == ("control_point", 2)


def test_it_may_fall_too_and_an_invented_quotation_is_the_reason(bench: Bench) -> None:
    bench.model = FakeLanguageModel(
        lambda asked: step_answer(asked, quotation="je jure que cela a été dit")
    )
    step = rerun(bench, 1)
    assert (step["score"], step["conforme"], bench.row().niveau) == (
        0,
        "NON_CONFORME",
        "INSUFFISANT",
    )
    assert "[Auto-check]" in step["points_controle"][0]["commentaire"]


def test_the_totals_of_gating_follow(bench: Bench) -> None:
    before = bench.steps()[0].stats
    bench.model = FakeLanguageModel(
        lambda asked: step_answer(asked, quotation="je jure que cela a été dit")
    )
    rerun(bench, 1)
    stats, gating = bench.steps()[0].stats, bench.row().gating
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
    record_review(StepLocation(1, 1, 1), {"statut": "PRESENT"}, database=bench.database)
    assert bench.row().gating == gating


def test_a_rerun_happens_once(bench: Bench) -> None:
    assert rerun(bench, 2) == rerun(bench, 2)
    assert bench.model.calls == 1


def test_what_people_said_of_the_other_point_meanwhile_stays(bench: Bench) -> None:
    async def review(_asked: object) -> None:
        given = {"statut": "PARTIEL", "commentaire": "Mumbled."}
        await asyncio.to_thread(
            record_review, StepLocation(1, 1, 1), given, database=bench.database
        )

    bench.model = FakeLanguageModel(meanwhile=review)
    step = rerun(bench, 2)
    assert [point["statut"] for point in step["points_controle"]] == ["PARTIEL", "PRESENT"]
    assert step["points_controle"][0]["commentaire"] == "Mumbled."
    assert (step["score"], step["conforme"]) == (4, "PARTIEL")


def test_two_points_judged_at_once_both_change(bench: Bench) -> None:
    judge = bench.judge

    async def both() -> None:
        reruns = [Rerun(rerun_id=f"r{index}", place=StepLocation(1, 1, index)) for index in (1, 2)]
        await asyncio.gather(
            *(run_rerun(one, database=bench.database, judge=judge) for one in reruns)
        )

    asyncio.run(both())
    [step] = bench.steps()
    assert (step.finding.score, step.usage.total_tokens) == (5, 3 * USAGE.total_tokens)


def test_a_failure_leaves_the_point_as_it_was(bench: Bench) -> None:
    before = bench.steps()[0].finding
    bench.model.refuse_everything(PermanentError("The key is refused."))
    with pytest.raises(PermanentError, match="The key is refused"):
        rerun(bench, 2)
    assert bench.steps()[0].finding == before


@pytest.mark.parametrize("index", [0, 3])
def test_a_point_that_is_not_there_is_not_found(bench: Bench, index: int) -> None:
    with pytest.raises(NotFoundError, match=f"Audit control point with ID '1:1:{index}' not found"):
        rerun(bench, index)
    assert bench.model.calls == 0
