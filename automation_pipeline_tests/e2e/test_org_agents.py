"""Agents as processes that use the HTTP API, die and restart. A job ends exactly once."""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from automation_pipeline_tests.e2e.system import REPOSITORY, TIMEOUT_SECONDS, Installation, kill
from automation_pipeline_tests.waiting import wait_until

SCRIPT = Path(__file__).with_name("agent.py")
MANUAL = REPOSITORY / "docs" / "agents.md"
EXPIRE = "UPDATE org_job_runs SET lease_until = '2026-01-01 00:00:00' WHERE job_id = :id"


class Host:
    """A host with one server in its own organisation, and its agent."""

    def __init__(self, installation: Installation, org: str, folder: Path) -> None:
        self.installation, self.org, self.folder = installation, org, folder
        installation.post("/api/organisations", id=org, name=org)
        self.id = self.create("hosts", name="box")
        self.server = self.create("servers", name="main", hostId=self.id)
        wanted = {
            "name": org,
            "permissions": ["org-jobs.agents.write"],
            "scope": "ALL",
            "orgId": org,
        }
        self.token = installation.post("/api/admin/tokens", **wanted)["token"]

    def create(self, what: str, **fields: object) -> str:
        return self.ask("POST", f"/api/org-{what}", **fields)["id"]

    def ask(self, method: str, path: str, **body: object) -> dict:
        answer = self.installation.client.request(
            method, path, params={"org": self.org}, json=body or None
        )
        assert answer.is_success, answer.text
        return answer.json()["data"]

    def job(self, type_name: str, **fields: object) -> str:
        return self.create("jobs", type=type_name, serverInstanceId=self.server, **fields)

    def status(self, job_id: str) -> str:
        return self.ask("GET", f"/api/org-jobs/{job_id}")["status"]

    @contextmanager
    def agent(self, script: Path, **more: str) -> Generator["subprocess.Popen[str]"]:
        variables = {
            "AGENT_API": str(self.installation.client.base_url),
            "AGENT_TOKEN": self.token,
            "AGENT_HOST": self.id,
            "AGENT_DONE": str(self.folder / "done"),
        }
        command, environment = [sys.executable, str(script)], {**os.environ, **variables, **more}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def test_an_agent_that_returns_too_late_does_not_end_its_job_twice(
    installation: Installation, tmp_path: Path
) -> None:
    host = Host(installation, "acme", tmp_path)
    job_id = host.job("SERVER_RESTART", retryPolicy={"maxRetries": 2, "backoffMs": 0})
    with host.agent(SCRIPT) as process:
        assert process.stdout
        assert process.stdout.readline() == "heartbeat of attempt 1\n"
        kill(process.pid)
    installation.sql(EXPIRE, id=job_id)
    [run] = installation.wait_for(
        "SELECT id FROM org_job_runs WHERE job_id = :id AND status = 'pending'", id=job_id
    )
    (tmp_path / "done").touch()
    with host.agent(SCRIPT) as process:
        printed, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert printed.splitlines() == ["heartbeat of attempt 2", "ended as success"]
    late = installation.client.post(
        f"/api/agents/runs/{run['id']}/result",
        json={"attemptNo": 1, "leaseToken": 1, "status": "failed"},
    )
    assert (late.status_code, "was ended by the system (STALE)" in late.json()["error"]) == (
        409,
        True,
    )
    assert host.status(job_id) == "success"


def test_the_documented_agent_behaves_as_documented(
    installation: Installation, tmp_path: Path
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), flags=re.DOTALL)
    script, work = tmp_path / "agent.py", tmp_path / "work"
    script.write_text(example)
    work.write_text('#!/bin/sh\ntest "$1" = SERVER_RESTART || exit 3\n')
    work.chmod(0o755)
    host = Host(installation, "globex", tmp_path)
    good = host.job("SERVER_RESTART")
    bad = host.job("SAVE_BACKUP", retryPolicy={"maxRetries": 1, "backoffMs": 0})
    with host.agent(script, AGENT_WORK=str(work)):
        wait_until(
            lambda: {host.status(good), host.status(bad)} <= {"success", "failed"},
            TIMEOUT_SECONDS,
            every=0.5,
        )
    assert host.status(good) == "success"
    [run] = installation.sql(
        "SELECT status, attempt_no, error_code FROM org_job_runs WHERE job_id = :id", id=bad
    )
    assert run == {"status": "failed", "attempt_no": 2, "error_code": "EXIT"}
