"""Automation runs, requested over the HTTP API and with `dagster job execute`."""

import json
import sys
from collections.abc import Iterator
from typing import Any

from automation_pipeline.simulator import Fiche, Kind
from automation_pipeline_tests.e2e.conftest import NewSystem
from automation_pipeline_tests.e2e.system import Installation, System
from automation_pipeline_tests.simulator_control import add_faults

TERMINATE = """
import sys
from dagster import DagsterInstance
with DagsterInstance.get() as instance:
    run = instance.get_run_by_id(sys.argv[1])
    instance.report_run_canceling(run)
    instance.run_launcher.terminate(run.run_id)
"""


def test_a_day_is_selected_fetched_transcribed_and_audited(
    installation: Installation, fiches: tuple[Fiche, ...]
) -> None:
    """Under the daemon, every fiche ends with one outcome, and no provider gets two calls for the
    same work."""
    ids = [fiche.id for fiche in fiches]
    schedule_id = installation.create_schedule(ids, runTranscription=True, runAudits=True)
    run = installation.wait_for_end(installation.run_now(schedule_id))
    assert (
        run["selectedFiches"]
        == run["successfulFiches"] + run["failedFiches"] + run["ignoredFiches"]
        == len(ids)
    )
    statuses = {fiche["ficheId"]: fiche["status"] for fiche in run["fiches"]}
    assert set(statuses) == set(ids)
    assert {i for i in ids if statuses[i] == "ignored"} == {
        each.id for each in fiches if each.kind is Kind.MISSING
    }
    assert run["status"] == ("partial" if run["failedFiches"] else "completed")
    with_calls = {
        f["ficheId"] for f in run["fiches"] if f["status"] == "successful" and f["recordingsCount"]
    }
    query = "SELECT f.fiche_id FROM audits a JOIN fiche_cache f ON f.id = a.fiche_cache_id WHERE a.status = 'completed'"
    audited = {
        row["fiche_id"]
        for row in installation.sql(f"{query} AND a.automation_run_id = :id", id=run["id"])
    }
    assert with_calls
    assert with_calls <= audited
    for route in ("crm.details", "speech.transcribe", "llm.complete"):
        asked = {
            item: times
            for item, times in installation.calls(route).items()
            if item.startswith(ids[0][:5])
        }
        assert set(asked.values()) == {1}, route


def test_runs_that_do_not_complete_end_with_the_reason(
    installation: Installation, fiches: tuple[Fiche, ...]
) -> None:
    """Concurrently: a fiche that the CRM refuses, an empty selection, an inactive schedule, and a
    run that is terminated in Dagster."""
    refused, fine, *slow = [fiche.id for fiche in fiches if fiche.kind is Kind.ORDINARY]
    add_faults(
        installation.provider,
        {"route": "crm.details", "item": refused, "status": 403},
        *({"route": "crm.details", "item": fiche_id, "latency_seconds": 120} for fiche_id in slow),
    )
    terminated = installation.run_now(installation.create_schedule(slow))
    partial = installation.run_now(installation.create_schedule([refused, fine]))
    empty = installation.run_now(installation.create_schedule([]))
    schedule_id = installation.create_schedule([fine])
    inactive = installation.run_now(schedule_id)
    installation.sql(
        "UPDATE automation_schedules SET is_active = false WHERE id = :id", id=schedule_id
    )

    installation.wait_for(
        "SELECT 1 FROM automation_runs WHERE id = :id AND phase = 'fetching'", id=terminated
    )
    dagster_run = installation.show_run(terminated)["dagsterRunId"]
    ended = installation.run(sys.executable, "-c", TERMINATE, dagster_run)
    assert ended.returncode == 0, ended.stderr
    run = installation.wait_for_end(terminated)
    assert run["status"] in {"failed", "cancelled"}
    assert "terminated in Dagster" in run["errorMessage"]
    assert run["selectedFiches"] == run["failedFiches"] + run["ignoredFiches"] == len(slow)

    run = installation.wait_for_end(partial)
    assert (run["status"], {f["ficheId"]: f["status"] for f in run["fiches"]}) == (
        "partial",
        {refused: "failed", fine: "successful"},
    )
    assert (run["fiches"][0]["reason"], "refused the token" in run["fiches"][0]["error"]) == (
        "fetch_failed",
        True,
    )
    assert installation.wait_for_end(empty)["status"] == "completed"
    run = installation.wait_for_end(inactive)
    assert (run["status"], run["errorMessage"]) == (
        "failed",
        f"Schedule {schedule_id} is not active",
    )


def test_steps_in_processes_on_postgresql_work_under_one_correlation_id(
    new_system: NewSystem, fiches: tuple[Fiche, ...]
) -> None:
    ids = [fiche.id for fiche in fiches][:8]
    system = new_system(
        kind="postgres", AUTOMATION_EXECUTOR="multiprocess", LOG_LEVEL="debug", LOG_FORMAT="json"
    )
    schedule_id = system.create_schedule(ids, runTranscription=True)
    tags = ("--tags", '{"automation/correlation_id": "request-7"}')
    ended = system.execute("automation_run", *tags, open_run={"schedule_id": int(schedule_id)})
    assert ended.returncode == 0, ended.stderr[-3000:]
    run = system.show_run("1")
    assert (
        run["selectedFiches"]
        == run["successfulFiches"] + run["failedFiches"] + run["ignoredFiches"]
        == len(ids)
    )
    assert run["transcriptionsRun"] > 0
    calls = [
        line for line in json_lines(system, ended.stderr) if line["event"] == "Called a provider"
    ]
    assert {call["provider"] for call in calls} >= {"crm", "audio", "speech-to-text"}
    assert {call["correlation_id"] for call in calls} == {"request-7"}


def json_lines(system: System, printed: str) -> Iterator[dict[str, Any]]:
    """The lines on the terminal, and in Dagster's files with the output of steps."""
    kept = [path.read_text() for path in system.home.rglob("*.err")]
    for line in "\n".join([printed, *kept]).splitlines():
        if line.startswith("{"):
            yield json.loads(line)
