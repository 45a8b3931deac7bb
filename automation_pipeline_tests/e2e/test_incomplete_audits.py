"""A technical state is never a verdict: a failing model and calls without a transcript leave audits
without a grade, which the next run completes. Redis is unreachable during the whole test and blocks
nothing."""

from typing import Any

from automation_pipeline.simulator import Fiche, Kind
from automation_pipeline_tests.e2e.conftest import FIVE_STEPS, NewSystem
from automation_pipeline_tests.e2e.system import System
from automation_pipeline_tests.simulator_control import add_faults, clear_faults, running_simulator

DEAD_REDIS = "redis://127.0.0.1:9/0"
RESULTS = (
    "SELECT fiche_id, status, reason, error FROM automation_run_fiche_results WHERE run_id = :run"
)
LATEST = "SELECT id, status, niveau, score_percentage, error_message FROM audits WHERE is_latest ORDER BY id"


def retried(system: System, run_id: int) -> dict[str, Any]:
    """Execute the run that `runs retry` requests."""
    asked = system.automation("runs", "retry", str(run_id))
    again = int(asked["run_id"])
    [run] = system.sql("SELECT schedule_id FROM automation_runs WHERE id = :id", id=again)
    ended = system.execute(
        "automation_run", open_run={"schedule_id": run["schedule_id"], "run_id": again}
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return system.show_run(str(again))


def test_audits_without_a_grade_fail_their_fiches_and_are_finished_by_the_next_run(
    new_system: NewSystem, fiches: tuple[Fiche, ...]
) -> None:
    ordinary = [fiche for fiche in fiches if fiche.kind is Kind.ORDINARY]
    good, unanswered = ordinary[:2]
    untranscribed = next(fiche for fiche in ordinary[2:] if len(fiche.recordings) > 1)
    calls = len(untranscribed.recordings)
    with running_simulator("--exact", "--fiches-per-day", "24") as url:
        system = new_system(at=url, REDIS_URL=DEAD_REDIS, LLM_MAX_ATTEMPTS="2")
        system.automation("audit-configs", "import", str(FIVE_STEPS))
        add_faults(
            url,
            {"route": "llm.complete", "item": f"{good.id}/1", "body": "content_reasoned"},
            {"route": "llm.complete", "item": f"{unanswered.id}/2", "status": 503},
            {"route": "llm.complete", "item": f"{unanswered.id}/4", "body": "content_not_json"},
            *(
                {"route": "audio", "item": call.call_id, "status": 404}
                for call in untranscribed.recordings[1:]
            ),
        )
        whole = {"runTranscription": True, "runAudits": True}
        ended = system.execute_job(
            System.create_schedule(system, [good.id, unanswered.id], **whole)
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
        results = {row["fiche_id"]: row for row in system.sql(RESULTS, run=1)}
        assert results[good.id]["status"] == "successful"
        assert system.calls("llm.complete")[f"{good.id}/1"] == 1, (
            "reasoning and prose around an answer are no fault"
        )
        failed = results[unanswered.id]
        assert (failed["status"], failed["reason"]) == ("failed", "audit_incomplete")
        assert "3 of 5 steps judged" in failed["error"]

        alone = {"fiche_id": untranscribed.id, "audit_config_id": 1}
        assert system.execute("audit_fiche", audit=alone).returncode == 1
        without_grade = [row for row in system.sql(LATEST) if row["status"] == "incomplete"]
        assert {(row["niveau"], row["score_percentage"]) for row in without_grade} == {
            ("PENDING", None)
        }
        assert len(without_grade) == 2
        assert f"transcripts of 1 of {calls} recordings" in without_grade[1]["error_message"]

        clear_faults(url)
        assert retried(system, 1)["status"] == "completed"
        assert system.execute("audit_fiche", audit=alone).returncode == 0
        latest = system.sql(LATEST)
        assert [row["status"] for row in latest] == ["completed"] * 3, latest
        asked = system.calls("llm.complete")
        assert {position: asked[f"{unanswered.id}/{position}"] for position in (1, 3, 5)} == {
            1: 1,
            3: 1,
            5: 1,
        }
        assert {asked[f"{untranscribed.id}/{position}"] for position in range(1, 6)} == {1}
