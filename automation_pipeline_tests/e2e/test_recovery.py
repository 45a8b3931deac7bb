"""Runs whose process is lost, and `dagster job execute` without a daemon."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from automation_pipeline_tests import outside
from automation_pipeline_tests.e2e.system import PATIENCE, System
from automation_pipeline_tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


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


def with_realtime(folder: Path, database_url: str, simulated: str, hook: str) -> System:
    pusher = {
        "PUSHER_BASE_URL": simulated,
        "PUSHER_CLUSTER": "eu",
        "PUSHER_APP_ID": outside.PUSHER_APP_ID,
        "PUSHER_KEY": outside.PUSHER_KEY,
        "PUSHER_SECRET": outside.PUSHER_SECRET,
    }
    return System(folder, database_url, simulated, WEBHOOK_ALLOWED_ORIGINS=hook, **pusher)


def published(simulated: str) -> list[str]:
    answer = httpx.get(f"{simulated}/_sim/pusher", verify=outside.NO_CERTIFICATES).raise_for_status()
    return [event["name"] for event in answer.json()["events"]]


@pytest.mark.parametrize("executor", ["in_process", "multiprocess"])
def test_job_execute_delivers_its_notifications_before_it_ends(
    executor: str, tmp_path: Path, database_url: str, simulated: str
) -> None:
    with receiver() as (hook, received):
        system = with_realtime(tmp_path, database_url, simulated, hook)
        system.environment["AUTOMATION_EXECUTOR"] = executor
        schedule_id = system.create_schedule((), webhookUrl=f"{hook}/ended", notifyOnComplete=True, notifyOnError=True)
        ended = system.execute_job(schedule_id)
        assert ended.returncode == 0, ended.stderr[-3000:]
        assert [body["status"] for body in received] == ["completed"]
        assert {"automation.run.started", "automation.run.completed"} <= set(published(simulated))
        del system.environment["FICHE_API_BASE_URL"]
        failing = system.create_schedule(["1"], webhookUrl=f"{hook}/failed", notifyOnComplete=True, notifyOnError=True)
        assert system.execute_job(failing).returncode == 1
        assert [body["status"] for body in received] == ["completed", "failed"]
        assert "automation.run.failed" in published(simulated)


def test_what_job_execute_could_not_deliver_waits_for_the_relay_and_changes_nothing(
    tmp_path: Path, database_url: str, simulated: str
) -> None:
    with receiver() as (hook, received):
        system = with_realtime(tmp_path, database_url, simulated, hook)
        system.environment["PUSHER_BASE_URL"] = "http://127.0.0.1:9"
        schedule_id = system.create_schedule((), webhookUrl=f"{hook}/ended", notifyOnComplete=True)
        assert system.execute_job(schedule_id).returncode == 0
        assert [body["status"] for body in received] == ["completed"]
        assert published(simulated) == []
        system.environment["PUSHER_BASE_URL"] = simulated

        def is_relayed() -> bool:
            system.automation("outbox", "relay", "--once")
            return "automation.run.completed" in published(simulated)

        wait_until(is_relayed, PATIENCE)
