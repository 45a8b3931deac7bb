"""Audits of fiches: stored results, events, retries and resumption."""

import asyncio
import re
from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from automation_pipeline.audits.models.audits import AuditStatus
from automation_pipeline.audits.models.chat import Question, Reply, Role
from automation_pipeline.audits.tables import AuditRow, StepResultRow
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError, PermanentError, TransientError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import step_document
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import USAGE, FakeLanguageModel, StepInPrompt, step_answer
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.transcription.harness import call


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    return AuditHarness(database, clock)


def positions(model: FakeLanguageModel) -> Counter[int]:
    return Counter(StepInPrompt.of(question).position for question in model.questions)


def test_an_audit_judges_every_step_once_and_is_scored(harness: AuditHarness) -> None:
    harness.sell("1900417")
    audit = harness.audit("1900417", harness.configure(steps=3))
    assert (audit.status, audit.niveau, audit.score_percentage) == (
        "completed",
        "EXCELLENT",
        100.0,
    )
    assert positions(harness.model) == {1: 1, 2: 1, 3: 1}
    row = harness.row()
    assert (row.is_latest, row.version, row.recordings_count, row.timeline_chunks) == (
        True,
        1,
        1,
        1,
    )
    assert row.total_tokens == 3 * USAGE.total_tokens
    assert row.duration_ms is not None
    assert row.completed_at is not None
    duration = row.completed_at - row.started_at
    assert row.duration_ms == round(1000 * duration.total_seconds())
    verdict = {
        "score": 100.0, "niveau": "EXCELLENT", "points_critiques": "0/0", "poids_obtenu": 15, "poids_total": 15,
    }  # fmt: skip
    approach = {"use_rlm": False, "transcript_mode": "prompt"}
    assert row.result_data == {
        "audit_db_id": "1",
        "audit_tracking_id": "audit-1",
        "audit": {
            "config": {"id": "1", "name": "Sales", "description": None},
            "fiche": {"fiche_id": "1900417", "prospect_name": "Odile MARTEL", "groupe": "TEAM R1"},
            "results": {"compliance": verdict, "approach": approach},
            "compliance": verdict,
            "approach": approach,
        },
        "statistics": {
            "recordings_count": 1, "coverage": row.coverage, "transcriptions_count": 1, "timeline_chunks": 1,
            "successful_steps": 3, "failed_steps": 0, "total_time_seconds": round(row.duration_ms / 1000, 3),
            "total_tokens": 3 * USAGE.total_tokens,
        },
        "metadata": {
            "started_at": iso(row.started_at), "completed_at": iso(row.completed_at), "duration_ms": row.duration_ms,
            "approach": approach,
        },
    }  # fmt: skip


def test_quotations_are_stored_with_their_recording(harness: AuditHarness) -> None:
    harness.sell("1900417")
    harness.audit("1900417", harness.configure(steps=1))
    [step] = harness.steps()
    cited = [citation for point in step.finding.points for citation in point.citations]
    assert {citation.call_id for citation in cited} == {"190041701"}
    assert all(
        citation.recording_url == "https://records.example.test/190041701" for citation in cited
    )


def test_events_are_emitted_in_order(harness: AuditHarness) -> None:
    harness.sell("1900417")
    harness.set_options(steps_at_once=1)
    harness.model.fail_once(PermanentError("Away."))
    config = harness.configure(steps=2)
    for _ in range(2):
        harness.audit("1900417", config)
    about = {"audit_id": "audit-1", "audit_db_id": "1", "fiche_id": "1900417"}
    times = {"started_at", "ended_at", "completed_at", "duration_seconds"}
    emitted, ids = [], []
    for event in harness.events():
        assert about.items() <= event.items()
        assert event["name"].startswith("audit.")
        ids.append(event.pop("event_id").removeprefix("audit-1:"))
        emitted.append({name: event[name] for name in event if name not in {*about, *times}})
    progress = {"total_steps": 2, "status": "in_progress"}
    verdict = {
        "overall_score": "10/10", "score_percentage": "100.00%", "niveau": "EXCELLENT", "is_compliant": True,
        "critical_issues": "0/0",
    }  # fmt: skip
    judged = {
        "score": 5,
        "max_score": 5,
        "conforme": True,
        "total_citations": 2,
        "tokens_used": USAGE.total_tokens,
    }
    assert emitted == [
        {"name": "audit.started", "audit_config_id": "1", "audit_config_name": "Sales", "total_steps": 2,
         "status": "started"},
        {"name": "audit.config_loaded", "config_id": "1", "config_name": "Sales", "steps_count": 2, "status": "loaded"},
        {"name": "audit.transcription_check", "total_recordings": 1, "transcribed": 1, "needs_transcription": False,
         "status": "checked"},
        {"name": "audit.timeline_generated", "recordings_count": 1, "total_chunks": 1, "status": "generated"},
        {"name": "audit.analysis_started", "total_steps": 2, "model": "fake-model", "status": "analyzing"},
        {"name": "audit.progress", "current_phase": "timeline", "completed_steps": 0, "failed_steps": 0,
         "progress_percentage": 0, **progress},
        *({"name": "audit.step_started", "step_position": position, "step_name": f"Step {position}", "total_steps": 2,
           "step_weight": 5, "is_critical": False, "status": "processing"} for position in (1, 2)),
        {"name": "audit.step_failed", "step_position": 1, "step_name": "Step 1", "error": "Away.", "status": "failed"},
        {"name": "audit.step_completed", "step_position": 2, "step_name": "Step 2", **judged, "status": "completed"},
        {"name": "audit.progress", "current_phase": "analysis", "completed_steps": 1, "failed_steps": 1,
         "progress_percentage": 50, **progress},
        {"name": "audit.incomplete", "error": "Audit incomplete: 1 of 2 steps judged: Away.",
         "recordings": {"recordings": 1, "required": 1, "transcribed": 1, "missing": [], "without_audio": []},
         "completed_steps": 1, "failed_steps": 1, "total_steps": 2, "status": "incomplete"},
        {"name": "audit.progress", "current_phase": "timeline", "completed_steps": 1, "failed_steps": 1,
         "progress_percentage": 50, **progress},
        {"name": "audit.step_completed", "step_position": 1, "step_name": "Step 1", **judged, "status": "completed"},
        {"name": "audit.progress", "current_phase": "analysis", "completed_steps": 2, "failed_steps": 0,
         "progress_percentage": 100, **progress},
        {"name": "audit.compliance_calculated", **verdict, "status": "calculated"},
        {"name": "audit.completed", **verdict, "successful_steps": 2, "failed_steps": 0,
         "total_tokens": 2 * USAGE.total_tokens, "status": "completed"},
    ]  # fmt: skip
    assert [re.sub(r":\d{13}$", "", key) for key in ids] == [
        "started", "config_loaded", "transcription_check", "timeline_generated", "analysis_started",
        "progress:timeline:0", "step_started:1", "step_started:2", "step_failed:1", "step_completed:2",
        "progress:analysis:1", "incomplete", "progress:timeline:1", "step_completed:1", "progress:analysis:2",
        "compliance_calculated", "completed",
    ]  # fmt: skip
    [completed] = harness.events("audit.completed")
    row = harness.row()
    assert completed["duration_seconds"] == round((row.duration_ms or 0) / 1000, 3)
    assert completed["completed_at"] == iso(row.completed_at)
    assert harness.notes() == [
        "START: Sales, 2 steps, asked for by an unknown requester",
        "ANALYSE: transcripts of 1 of 1 recordings, 1 chunks, transcript by prompt, 0 of 2 steps judged before",
        "Step 1 could not be judged: Away.",
        "END: Audit incomplete: 1 of 2 steps judged: Away.",
        "ANALYSE: transcripts of 1 of 1 recordings, 1 chunks, transcript by prompt, 1 of 2 steps judged before",
        "END: EXCELLENT, 100.00 %, 0 step(s) not dealt with",
    ]


def test_an_invented_quotation_is_downgraded(harness: AuditHarness) -> None:
    harness.model = FakeLanguageModel(
        lambda asked: step_answer(asked, quotation="je jure que cela a été dit")
    )
    harness.sell("1900417")
    audit = harness.audit("1900417", harness.configure(steps=2), trigger_source="automation")
    assert (audit.niveau, audit.score_percentage) == ("INSUFFISANT", 0.0)
    assert {point.statut for step in harness.steps() for point in step.finding.points} == {"ABSENT"}
    assert harness.row().gating == {
        "total_citations": 4,
        "removed_citations": 4,
        "downgraded_control_points": 4,
        "steps_score_reduced": 2,
        "steps_conforme_adjusted": 2,
    }
    assert not harness.row().is_compliant


def test_a_step_returned_without_control_points_scores_nothing(harness: AuditHarness) -> None:
    harness.model = FakeLanguageModel(lambda asked: step_answer(asked, points_controle=[]))
    harness.sell("1900417")
    assert harness.audit("1900417", harness.configure(steps=1)).score_percentage == 0.0
    [step] = harness.steps()
    assert [point.commentaire for point in step.finding.points] == ["Non traité par le modèle."] * 2
    with harness.database.reading() as session:
        row = session.scalars(select(StepResultRow)).one()
    assert (row.total_citations, row.total_tokens) == (0, USAGE.total_tokens)
    assert row.raw_result == {
        "step_metadata": {
            "position": 1, "name": "Step 1", "severity": "HIGH", "is_critical": False, "weight": 5,
        },
        "usage": {**vars(USAGE), "total_tokens": USAGE.total_tokens},
        "gating": {
            "total_citations": 0, "removed_citations": 0, "downgraded_control_points": 0, "step_score_reduced": True,
            "step_conforme_adjusted": True,
        },
        "transcript_mode": "prompt", "control_points_missing": 2, "control_points_unknown": 0,
    }  # fmt: skip


def test_an_invalid_answer_is_sent_back_with_its_problem(harness: AuditHarness) -> None:
    replies: list[Reply] = [Reply("Voilà !", USAGE), Reply('{"traite": "oui"}', USAGE)]

    def answer(question: Question) -> Reply:
        return replies.pop(0) if replies else step_answer(question)

    harness.model = FakeLanguageModel(answer)
    harness.sell("1900417")
    assert harness.audit("1900417", harness.configure(steps=1)).score_percentage == 100.0
    last = harness.model.questions[-1]
    assert [message.role for message in last.messages[2:]] == [Role.ASSISTANT, Role.USER] * 2
    assert "traite" in last.messages[-1].content
    assert harness.row().total_tokens == 3 * USAGE.total_tokens


def test_a_transient_error_is_retried(harness: AuditHarness) -> None:
    harness.model.fail_once(TransientError("503"), TransientError("429", retry_after_seconds=0))
    harness.sell("1900417")
    assert harness.audit("1900417", harness.configure(steps=1)).score_percentage == 100.0
    assert harness.model.calls == 3


def test_an_interrupted_audit_continues_with_the_missing_steps(harness: AuditHarness) -> None:
    harness.sell("1900417")
    config = harness.configure(steps=4)
    harness.set_options(steps_at_once=1)
    asked = 0

    async def crash(_: Question) -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise RuntimeError("killed")

    harness.model = FakeLanguageModel(during_call=crash)
    with pytest.raises(RuntimeError, match="killed"):
        harness.audit("1900417", config)
    assert [step.position for step in harness.steps()] == [1, 2]
    assert harness.row().status == AuditStatus.RUNNING
    harness.model = FakeLanguageModel()
    assert harness.audit("1900417", config).score_percentage == 100.0
    assert positions(harness.model) == {3: 1, 4: 1}
    assert harness.audits() == 1


def test_a_repeated_request_returns_the_ended_audit(harness: AuditHarness) -> None:
    harness.sell("1900417")
    config = harness.configure(steps=2)
    first = harness.audit("1900417", config)
    assert harness.audit("1900417", config) == first
    assert harness.model.calls == 2


def test_two_workers_on_one_audit_judge_each_step_once(harness: AuditHarness) -> None:
    harness.sell("1900417")
    config = harness.configure(steps=3)

    async def both() -> None:
        summaries = await asyncio.gather(*(harness.auditing("1900417", config) for _ in range(2)))
        assert {audit.status for audit in summaries} == {"completed"}

    asyncio.run(both())
    assert positions(harness.model) == {1: 1, 2: 1, 3: 1}


def test_a_fenced_off_worker_writes_nothing(harness: AuditHarness) -> None:
    harness.sell("1900417")

    async def raise_fence(_: Question) -> None:
        with harness.database.transaction() as session:
            session.execute(update(AuditRow).values(fence=2**62))

    harness.model = FakeLanguageModel(during_call=raise_fence)
    with pytest.raises(TransientError, match="passed on"):
        harness.audit("1900417", harness.configure(steps=1))
    assert harness.steps() == []


def test_an_audit_keeps_the_configuration_of_its_start(harness: AuditHarness) -> None:
    harness.sell("1900417")
    config = harness.configure(steps=1)
    harness.model.fail_once(*(TransientError("away"),) * 3)
    harness.audit("1900417", config, "first")
    changed = [step_document(1, name="Renamed", weight=9)]
    harness.replace_config("Sales", changed)
    harness.audit("1900417", config, "second")
    assert (harness.steps("second")[0].name, harness.steps("second")[0].weight) == ("Renamed", 9)
    assert harness.row("first").config_fingerprint != harness.row("second").config_fingerprint


def test_missing_transcripts_are_created_first(harness: AuditHarness) -> None:
    harness.sell("1900417", text=None)

    async def transcribe(fiche_id: str) -> None:
        harness.transcribe(fiche_id)

    harness.ensure_transcribed = transcribe
    assert harness.audit("1900417", harness.configure(steps=1)).score_percentage == 100.0


@pytest.mark.parametrize(
    ("calls", "text", "reason"),
    [
        ((call("190041701", url=""),), None, "No transcriptions available for fiche 1900417 (0/1)"),
        (
            (call("190041701"),),
            "",
            "No usable transcribed recordings available for fiche 1900417 (timeline empty)",
        ),
    ],
)
def test_an_audit_with_nothing_to_judge_fails(
    harness: AuditHarness, calls: tuple, text: str | None, reason: str
) -> None:
    harness.sell("1900417", *calls, text=text)
    audit = harness.audit("1900417", harness.configure(steps=1))
    assert (audit.status, audit.error) == ("failed", reason)
    assert harness.model.calls == 0


def test_an_audit_of_a_fiche_unknown_to_the_crm_fails(harness: AuditHarness) -> None:
    harness.sell("1900417")
    harness.crm.remove("1900417")
    harness.clock.advance(timedelta(days=1))
    audit = harness.audit("1900417", harness.configure(steps=1))
    assert (audit.status, audit.error) == ("failed", "Fiche 1900417 not found (404)")
    assert [event["failed_phase"] for event in harness.events("audit.failed")] == [
        "fiche_not_found"
    ]


def test_details_older_than_thirty_minutes_are_fetched_again(harness: AuditHarness) -> None:
    harness.sell("1900417")
    config = harness.configure(steps=1)
    harness.crm.requests.clear()
    harness.clock.advance(timedelta(minutes=30))
    harness.audit("1900417", config, "first")
    assert harness.crm.requests == []
    harness.clock.advance(timedelta(seconds=1))
    harness.audit("1900417", config, "second")
    assert harness.crm.requests == ["1900417"]


def test_an_unknown_configuration_starts_no_audit(harness: AuditHarness) -> None:
    harness.sell("1900417")
    with pytest.raises(NotFoundError, match="77"):
        harness.audit("1900417", 77)


@pytest.mark.parametrize("fails", [False, True])
def test_the_results_of_many_steps_are_stored_by_a_constant_number_of_statements(
    harness: AuditHarness, fails: bool
) -> None:
    """The steps end at the same moment, so that one unit of work stores them."""

    def writes(steps: int, fiche_id: str) -> list[str]:
        config_id = harness.configure(steps, f"With {steps} steps")
        harness.set_options(steps_at_once=steps)
        harness.sell(fiche_id)
        asked, all_asked = 0, asyncio.Event()

        async def wait_for_all(_: Question) -> None:
            nonlocal asked
            asked += 1
            if asked == steps:
                all_asked.set()
            await all_asked.wait()
            if fails:
                raise PermanentError("The key is refused.")

        harness.model = FakeLanguageModel(during_call=wait_for_all)
        with statements(harness.database) as executed:
            harness.audit(fiche_id, config_id, f"audit-{steps}")
        return [
            one for one in executed if not one.startswith("SELECT") and "audit_step_result" in one
        ]

    few, many = writes(2, "1900417"), writes(12, "1900418")
    assert len(few) == len(many) == (2 if fails else 4)
