"""Runs whose process is lost, and `dagster job execute` without a daemon."""

import json
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from automation_pipeline.simulator import Fiche
from automation_pipeline_tests import outside
from automation_pipeline_tests.e2e.conftest import NewSystem
from automation_pipeline_tests.e2e.system import PATIENCE, System, kill_tree
from automation_pipeline_tests.outside import simulator
from automation_pipeline_tests.waiting import wait_until


class Receiver(BaseHTTPRequestHandler):
    """Keeps the bodies that it receives in the list of its server."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(json.loads(body))  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[dict]]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.received, server.status = [], status  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", server.received  # type: ignore[attr-defined]
        server.shutdown()


def published(simulated: str) -> list[str]:
    answer = httpx.get(f"{simulated}/_sim/pusher", verify=outside.NO_CERTIFICATES).raise_for_status()
    return [event["name"] for event in answer.json()["events"]]


@pytest.mark.parametrize("executor", ["in_process", "multiprocess"])
def test_job_execute_delivers_its_notifications_before_it_ends(executor: str, new_system: NewSystem) -> None:
    with simulator() as provider, receiver() as (hook, received):
        system = new_system(kind="sqlite", at=provider, AUTOMATION_EXECUTOR=executor, WEBHOOK_ALLOWED_ORIGINS=hook)
        notified = {"webhookUrl": hook, "notifyOnComplete": True, "notifyOnError": True}
        ended = system.execute_job(System.create_schedule(system, (), **notified))
        assert ended.returncode == 0, ended.stderr[-3000:]
        assert [body["status"] for body in received] == ["completed"]
        assert {"automation.run.started", "automation.run.completed"} <= set(published(provider))
        failing = System.create_schedule(system, ["1"], **notified)
        system.environment["FICHE_API_BASE_URL"] = ""
        assert system.execute_job(failing).returncode == 1
        assert [body["status"] for body in received] == ["completed", "failed"]
        assert "automation.run.failed" in published(provider)


def test_what_job_execute_could_not_deliver_waits_for_the_relay_and_changes_nothing(new_system: NewSystem) -> None:
    with simulator() as provider, receiver() as (hook, received):
        system = new_system(
            kind="sqlite", at=provider, PUSHER_BASE_URL="http://127.0.0.1:9", WEBHOOK_ALLOWED_ORIGINS=hook
        )
        assert (
            system.execute_job(System.create_schedule(system, (), webhookUrl=hook, notifyOnComplete=True)).returncode
            == 0
        )
        assert [body["status"] for body in received] == ["completed"]
        assert published(provider) == []
        system.environment["PUSHER_BASE_URL"] = provider

        def is_relayed() -> bool:
            system.automation("outbox", "relay", "--once")
            return "automation.run.completed" in published(provider)

        wait_until(is_relayed, PATIENCE)


def dagster_states(system: System) -> list[tuple[str, str]]:
    """Dagster's own rows of runs, oldest first."""
    rows = sqlite3.connect(f"{system.home}/history/runs.db").execute("SELECT run_id, status FROM runs ORDER BY id")
    return list(rows)


STATES = ("NOT_STARTED", "QUEUED", "STARTING", "STARTED")


def kill_when(system: System, daemon: subprocess.Popen[bytes], state: str) -> None:
    """The daemon with all its children, as when a host is lost, the moment a Dagster run has that state or is
    found beyond it."""

    def is_reached() -> bool:
        try:
            return any(status in STATES[STATES.index(state) :] for _, status in dagster_states(system))
        except sqlite3.OperationalError:
            return False

    wait_until(is_reached, PATIENCE, every=0.001)
    kill_tree(daemon.pid)


@pytest.mark.parametrize("state", ["QUEUED", "STARTED"])
def test_a_run_whose_host_is_lost_before_its_first_heartbeat_is_at_work_again(
    state: str, new_system: NewSystem, fiches: tuple[Fiche, ...]
) -> None:
    system = new_system(kind="sqlite")
    schedule_id = System.create_schedule(system, [fiches[0].id])
    with system.daemon() as daemon:
        run_id = System.run_now(system, schedule_id)
        kill_when(system, daemon, state)
    with system.daemon():
        run = system.wait_for_end(run_id, 120)
    assert run["status"] == "completed"
    assert {status for _, status in dagster_states(system)} <= {"FAILURE", "SUCCESS"}


def test_a_killed_job_execute_does_not_block_its_schedule_and_a_daemon_takes_it_up_again(
    new_system: NewSystem, fiches: tuple[Fiche, ...]
) -> None:
    with simulator("--exact", "--fiches-per-day", "24", "--latency", "3") as provider:
        system = new_system(kind="sqlite", at=provider, AUTOMATION_LOST_AFTER_SECONDS="5")
        schedule_id = System.create_schedule(system, [fiche.id for fiche in fiches[:3]])
        words = system.job_words("automation_run", open_run={"schedule_id": int(schedule_id)})

        def execute_and_kill() -> str:
            process = system.start(*words, log="execute.log")
            working = "SELECT id FROM automation_runs WHERE completed_at IS NULL AND phase = 'fetching'"
            [row] = system.wait_for(working)
            kill_tree(process.pid)
            process.wait()
            return str(row["id"])

        lost = execute_and_kill()
        wait_until(lambda: system.execute_job(schedule_id).returncode == 0, PATIENCE)
        assert system.show_run(lost)["status"] == "failed"
        assert "was lost" in system.show_run(lost)["errorMessage"]

        again = execute_and_kill()
        with system.daemon():
            run = system.wait_for_end(again)
    assert (run["attempt"], run["successfulFiches"] + run["ignoredFiches"]) == (2, 3)
