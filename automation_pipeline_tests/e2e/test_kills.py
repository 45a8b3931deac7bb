"""SIGKILL in every phase of a run whose steps are processes: the run ends, and finished work is not
repeated. test_survival.py and test_recovery.py kill runs with steps in one process."""

from collections.abc import Mapping
from datetime import date

import psutil

from automation_pipeline.simulator import Kind, World
from automation_pipeline_tests.e2e.conftest import FIVE_STEPS, NewSystem
from automation_pipeline_tests.e2e.system import TIMEOUT_SECONDS, System, kill, kill_tree
from automation_pipeline_tests.simulator_control import running_simulator
from automation_pipeline_tests.waiting import wait_until

IDS = [
    fiche.id
    for fiche in World(7, 60, vary=False).day(date(2026, 2, 4))
    if fiche.kind is Kind.ORDINARY
][:30]
FETCHED = "SELECT fiche_id AS item FROM automation_run_fiche_results WHERE stage = 'fetched' OR status <> 'pending'"
TRANSCRIBED = "SELECT call_id AS item FROM recordings WHERE has_transcription"
JUDGED = """
SELECT f.fiche_id || '/' || s.step_position AS item FROM audit_step_results s
JOIN audits a ON a.id = s.audit_id JOIN fiche_cache f ON f.id = a.fiche_cache_id WHERE s.error IS NULL
"""
ROUTES = {"crm.details": FETCHED, "speech.transcribe": TRANSCRIBED, "llm.complete": JUDGED}


def finished(system: System) -> Mapping[str, set[str]]:
    """The stored work by provider."""
    return {route: {row["item"] for row in system.sql(query)} for route, query in ROUTES.items()}


def run_process(system: System) -> psutil.Process:
    """The process of the Dagster run: below the code server, the oldest ancestor of the process
    that sends the heartbeat. The process of a step may end during the search; then the next
    heartbeat is used."""
    found: list[psutil.Process] = []

    def is_found() -> bool:
        try:
            found.append(_run_process(system))
        except psutil.Error:
            return False
        return True

    wait_until(is_found, TIMEOUT_SECONDS, every=0.1)
    return found[-1]


def _run_process(system: System) -> psutil.Process:
    [row] = system.wait_for("SELECT worker FROM automation_run_heartbeats")
    process = psutil.Process(int(row["worker"].rpartition(":")[2]))
    for parent in process.parents():
        if "grpc" in parent.cmdline() or not is_of(system, parent):
            break
        process = parent
    return process


def is_of(system: System, process: psutil.Process) -> bool:
    try:
        return process.environ().get("DAGSTER_HOME") == str(system.home)
    except psutil.Error:
        return False


def finished_calls(system: System) -> dict[str, dict[str, int]]:
    """The number of calls for stored work so far, by provider."""
    stored = finished(system)
    calls = {route: system.calls(route) for route in ROUTES}
    return {route: {item: calls[route][item] for item in stored[route]} for route in ROUTES}


def test_a_run_that_loses_its_process_and_then_its_host_finishes_what_is_missing(
    new_system: NewSystem,
) -> None:
    with running_simulator("--exact", "--fiches-per-day", "60", "--latency", "0.15") as url:
        slow = {"FICHE_FETCH_CONCURRENCY": "3", "TRANSCRIPTION_RECORDING_WORKER_CONCURRENCY": "3"}
        system = new_system(
            at=url, AUTOMATION_EXECUTOR="multiprocess", AUDIT_RUN_CONCURRENCY="3", **slow
        )
        system.automation("audit-configs", "import", str(FIVE_STEPS))
        schedule_id = system.create_schedule(IDS, runTranscription=True, runAudits=True)
        done: list[Mapping[str, Mapping[str, int]]] = []
        with system.daemon() as daemon:
            run_id = system.run_now(schedule_id)
            for route in ("crm.details", "speech.transcribe"):
                wait_until(
                    lambda route=route: len(finished(system)[route]) >= 8,
                    TIMEOUT_SECONDS,
                    every=0.1,
                )
                kill(run_process(system).pid)
                done.append(finished_calls(system))
            wait_until(
                lambda: len(finished(system)["llm.complete"]) >= 8, TIMEOUT_SECONDS, every=0.1
            )
            process = run_process(system)
            kill_tree(daemon.pid)
            kill_tree(process.pid)
            done.append(finished_calls(system))
        with system.daemon():
            run = system.wait_for_end(run_id)
        assert run["status"] == "completed"
        assert [fiche["ficheId"] for fiche in run["fiches"]] == IDS
        assert run["selectedFiches"] == run["successfulFiches"] == len(IDS)
        for before in done:
            for route, times in before.items():
                calls = system.calls(route)
                assert {item for item in times if calls[item] != times[item]} == set(), route
        assert all(done[-1].values())
