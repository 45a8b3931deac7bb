"""New objects never inherit anything from deleted ones: each run has its own ids, audits and
events."""

from automation_pipeline.simulator import Fiche, conversation
from automation_pipeline_tests.e2e.conftest import FIVE_STEPS, NewSystem
from automation_pipeline_tests.e2e.system import System


def is_spoken(fiche: Fiche) -> bool:
    return any(call.has_url and conversation(fiche, call).words for call in fiche.recordings)


def event_names(system: System, run_id: str) -> set[str]:
    query = "SELECT event_name FROM events_outbox WHERE correlation_id = :id"
    return {row["event_name"] for row in system.sql(query, id=f"automation-run-{run_id}")}


def test_a_schedule_created_after_a_deletion_adopts_no_runs_audits_or_events(
    new_system: NewSystem, fiches: tuple[Fiche, ...]
) -> None:
    system, spoken = new_system(), [fiche.id for fiche in fiches if is_spoken(fiche)]
    system.automation("audit-configs", "import", str(FIVE_STEPS))
    runs = []
    for _schedule in range(2):
        schedule_id = system.create_schedule(spoken[:1], runTranscription=True, runAudits=True)
        ended = system.execute_job(schedule_id)
        assert ended.returncode == 0, ended.stderr[-2000:]
        run_id = str(system.automation("runs", "list")["runs"][0]["id"])
        runs.append(system.show_run(run_id))
        system.automation("schedules", "delete", schedule_id, "--yes")
    first, second = runs
    assert first["id"] != second["id"]
    assert first["scheduleId"] != second["scheduleId"]
    assert first["auditsRun"] == second["auditsRun"] == 1
    assert event_names(system, first["id"]) == event_names(system, second["id"])
    assert "automation.run.completed" in event_names(system, second["id"])

    assert system.automation("schedules", "list", "--include-inactive")["schedules"] == []
    assert system.show_run(first["id"])["fiches"] == first["fiches"]
    refused = system.run("automation", "schedules", "run-now", first["scheduleId"])
    assert (refused.returncode, f"Schedule {first['scheduleId']} not found" in refused.stderr) == (
        1,
        True,
    )
