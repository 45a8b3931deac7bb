"""Runs whose process is lost, and `dagster job execute` without a daemon."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import environ
from random import Random

import httpx
import pytest

from automation_pipeline.simulator import Fiche, Kind
from automation_pipeline_tests import simulator_control
from automation_pipeline_tests.e2e.conftest import NewSystem
from automation_pipeline_tests.e2e.system import TIMEOUT_SECONDS, System, kill_tree
from automation_pipeline_tests.simulator_control import running_simulator
from automation_pipeline_tests.waiting import wait_until


class Receiver(BaseHTTPRequestHandler):
    """Stores the received bodies in a list of its server."""

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


def published(simulator_url: str) -> list[str]:
    answer = httpx.get(
        f"{simulator_url}/_sim/pusher", verify=simulator_control.NO_CERTIFICATES
    ).raise_for_status()
    return [event["name"] for event in answer.json()["events"]]


@pytest.mark.parametrize("executor", ["in_process", "multiprocess"])
def test_job_execute_delivers_its_notifications_before_it_ends(
    executor: str, new_system: NewSystem
) -> None:
    with running_simulator() as provider, receiver() as (hook, received):
        system = new_system(
            kind="sqlite", at=provider, AUTOMATION_EXECUTOR=executor, WEBHOOK_ALLOWED_ORIGINS=hook
        )
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


def test_undelivered_notifications_of_job_execute_wait_for_the_relay(
    new_system: NewSystem,
) -> None:
    with running_simulator() as provider, receiver() as (hook, received):
        system = new_system(
            kind="sqlite",
            at=provider,
            PUSHER_BASE_URL="http://127.0.0.1:9",
            WEBHOOK_ALLOWED_ORIGINS=hook,
        )
        assert (
            system.execute_job(
                System.create_schedule(system, (), webhookUrl=hook, notifyOnComplete=True)
            ).returncode
            == 0
        )
        assert [body["status"] for body in received] == ["completed"]
        assert published(provider) == []
        system.environment["PUSHER_BASE_URL"] = provider

        def is_relayed() -> bool:
            system.automation("outbox", "relay", "--once")
            return "automation.run.completed" in published(provider)

        wait_until(is_relayed, TIMEOUT_SECONDS)


def dagster_states(system: System) -> list[tuple[str, str]]:
    """The statuses of Dagster's runs, oldest first."""
    rows = sqlite3.connect(f"{system.home}/history/runs.db").execute(
        "SELECT run_id, status FROM runs ORDER BY id"
    )
    return list(rows)


STATES = ("NOT_STARTED", "QUEUED", "STARTING", "STARTED")
OPS = ("open_run", "select_fiches", "fetch_batch", "settle_fetch")


def has_reached(system: System, run_id: str, status: str, moment: str) -> bool:
    """Whether a Dagster run has this status, or an op with this name has started in it."""
    if moment in STATES:
        return status in STATES[STATES.index(moment) :]
    events = sqlite3.connect(f"file:{system.home}/history/runs/{run_id}.db?mode=ro", uri=True)
    query = "SELECT 1 FROM event_logs WHERE dagster_event_type = 'STEP_START' AND step_key LIKE ?"
    return bool(events.execute(query, (f"{moment}%",)).fetchone())


def kill_host_at(system: System, moment: str) -> None:
    """Run a daemon, and kill it with all its children when a new Dagster run reaches this point, or
    has passed it."""
    known = len(dagster_states(system)) if (system.home / "history" / "runs.db").exists() else 0

    def is_reached() -> bool:
        try:
            return any(has_reached(system, *run, moment) for run in dagster_states(system)[known:])
        except sqlite3.OperationalError:  # a file that is not there yet
            return False

    with system.daemon() as daemon:
        wait_until(is_reached, TIMEOUT_SECONDS, every=0.001)
        kill_tree(daemon.pid)


SEED = int(environ.get("SEED", "0"))


@pytest.mark.parametrize(
    "moments", [("QUEUED",), ("STARTED", Random(SEED).choice(OPS), "finalise_run")]
)
def test_a_run_whose_host_is_lost_repeatedly_ends_with_an_outcome_per_fiche(
    moments: tuple[str, ...], new_system: NewSystem, fiches: tuple[Fiche, ...]
) -> None:
    system = new_system(kind="sqlite")
    ids = [fiche.id for fiche in fiches if fiche.kind is Kind.ORDINARY][:3]
    run_id = System.run_now(system, System.create_schedule(system, ids))
    for moment in moments:
        kill_host_at(system, moment)
    with system.daemon():
        run = system.wait_for_end(run_id)
        ended = {"FAILURE", "SUCCESS"}
        wait_until(
            lambda: {status for _, status in dagster_states(system)} <= ended, TIMEOUT_SECONDS
        )
    assert run["status"] == "completed"
    assert [fiche["ficheId"] for fiche in run["fiches"]] == ids
    assert run["selectedFiches"] == run["successfulFiches"] == len(ids)


def test_a_killed_job_execute_does_not_block_its_schedule_and_a_daemon_resumes_it(
    new_system: NewSystem, fiches: tuple[Fiche, ...]
) -> None:
    with running_simulator("--exact", "--fiches-per-day", "24", "--latency", "3") as provider:
        system = new_system(kind="sqlite", at=provider, AUTOMATION_LOST_AFTER_SECONDS="5")
        schedule_id = System.create_schedule(system, [fiche.id for fiche in fiches[:3]])
        words = system.job_command("automation_run", open_run={"schedule_id": int(schedule_id)})

        def execute_and_kill() -> str:
            process = system.start(*words, log="execute.log")
            working = (
                "SELECT id FROM automation_runs WHERE completed_at IS NULL AND phase = 'fetching'"
            )
            [row] = system.wait_for(working)
            kill_tree(process.pid)
            process.wait()
            return str(row["id"])

        lost = execute_and_kill()
        wait_until(lambda: system.execute_job(schedule_id).returncode == 0, TIMEOUT_SECONDS)
        assert system.show_run(lost)["status"] == "failed"
        assert "was lost" in system.show_run(lost)["errorMessage"]

        again = execute_and_kill()
        with system.daemon():
            run = system.wait_for_end(again)
    assert (run["attempt"], run["successfulFiches"] + run["ignoredFiches"]) == (2, 3)
