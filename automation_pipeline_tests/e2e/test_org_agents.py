"""Agents as they are: processes that speak HTTP, die, come back, and are many at once. The job ends once."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from automation_pipeline.core.clock import SystemClock
from automation_pipeline.org_jobs.domain.retry_policy import RetryPolicy
from automation_pipeline.org_jobs.stages.reap_jobs import reap_jobs
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.e2e.claimers import say, take_all
from automation_pipeline_tests.e2e.system import PATIENCE, REPOSITORY, System
from automation_pipeline_tests.e2e.web import TOKEN, api_server
from automation_pipeline_tests.org_jobs.agent import AT_ONCE, Agent, an_agent, of
from automation_pipeline_tests.org_jobs.bench import CHANGING, ORG, OTHER_ORG, READING, Bench
from automation_pipeline_tests.processes import at_once
from automation_pipeline_tests.waiting import wait_until

SCRIPT = Path(__file__).with_name("agent.py")
MANUAL = REPOSITORY / "docs" / "agents.md"


@dataclass
class World:
    """The API in a process of its own, over a database with organisations in it."""

    bench: Bench
    url: str
    room: Path

    def ask(self, method: str, path: str, token: str = TOKEN, **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.request(method, f"{self.url}{path}", json=body or None, headers=headers, timeout=PATIENCE)

    def token(self, org_id: str) -> str:
        wish = {"name": org_id, "permissions": ["org-jobs.agents.write"], "scope": "ALL", "orgId": org_id}
        return self.ask("POST", "/api/admin/tokens", **wish).raise_for_status().json()["data"]["token"]

    @contextmanager
    def running(self, agent: Agent, script: Path = SCRIPT, **more: str) -> Generator["subprocess.Popen[str]"]:
        variables = {
            "AGENT_API": self.url,
            "AGENT_TOKEN": self.token(agent.org_id),
            "AGENT_HOST": str(agent.host_id),
            "AGENT_DONE": str(self.room / "done"),
        }
        process = subprocess.Popen(
            [sys.executable, str(script)], env={**os.environ, **variables, **more}, stdout=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def killed_at_work(self, agent: Agent) -> None:
        """After its first heartbeat."""
        with self.running(agent) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "heartbeat of attempt 1\n"
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL

    def until_nothing_is_left(self, agent: Agent) -> list[str]:
        """What it said."""
        (self.room / "done").touch()
        with self.running(agent) as process:
            said, _ = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0
        return said.splitlines()


@pytest.fixture
def world(tmp_path: Path, database: Database, database_url: str) -> Iterator[World]:
    system = System(tmp_path, database_url, "http://127.0.0.1:9")
    with api_server(system) as url:
        yield World(Bench(database, SystemClock()), url, tmp_path)  # as the API has it


def test_an_agent_dies_and_comes_back_too_late_and_its_job_ends_once(world: World) -> None:
    assert len(SCRIPT.read_text().splitlines()) <= 60
    bench, agent = world.bench, an_agent(world.bench)
    job_id = agent.wanted()
    world.killed_at_work(agent)
    run_id = bench.run_row(job_id).id
    bench.expire_hold(run_id)
    reap_jobs(database=bench.database, clock=bench.clock, meter=bench.meter)
    assert world.until_nothing_is_left(agent) == ["heartbeat of attempt 2", "ended as success"]
    late = world.ask(
        "POST", f"/api/agents/runs/{run_id}/result", attemptNo=1, leaseToken=1, status="success", result={"late": True}
    )
    assert (late.status_code, "was given up (STALE)" in late.json()["error"]) == (409, True)
    run, attempts = bench.run_row(job_id), bench.attempts(run_id)
    assert (run.status, run.attempt_no, run.result) == ("success", 2, {"attempt": 2})
    assert bench.job_row(job_id).status == "success"
    assert [(one.attempt_no, one.status, one.error_code) for one in attempts] == [
        (1, "failed", "STALE"),
        (2, "success", None),
    ]
    assert attempts[0].late_report is not None
    assert attempts[0].late_report["result"] == {"late": True}
    assert [entry.action for entry in bench.audit(str(job_id))] == ["late_report"]
    assert len(bench.events("job_run.succeeded")) == 1


def test_an_agent_dies_and_comes_back_in_time_and_goes_on_with_what_it_had(world: World) -> None:
    agent = an_agent(world.bench)
    job_id = agent.wanted()
    world.killed_at_work(agent)
    assert world.until_nothing_is_left(agent) == ["heartbeat of attempt 1", "ended as success"]
    run = world.bench.run_row(job_id)
    assert (run.status, run.attempt_no, len(world.bench.attempts(run.id))) == ("success", 1, 1)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_an_agent_is_told_to_stop(world: World) -> None:
    agent = an_agent(world.bench)
    job_id = agent.wanted()
    with world.running(agent) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "heartbeat of attempt 1\n"
        world.bench.set_run(world.bench.run_row(job_id).id, cancel_requested_at=world.bench.now)
        assert "ended as cancelled\n" in process.stdout
    assert world.bench.job_row(job_id).status == "cancelled"


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_agent_of_the_manual_does_what_the_manual_says(world: World) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), flags=re.DOTALL)
    assert len(example.split("\n")) <= 50
    script, work = world.room / "agent.py", world.room / "work"
    script.write_text(example)
    work.write_text('#!/bin/sh\ntest "$1" = SERVER_RESTART || exit 3\n')
    work.chmod(0o755)
    agent = an_agent(world.bench)
    well, ill = agent.wanted(), agent.wanted(READING, retry=AT_ONCE.model_copy(update={"max_retries": 1}))
    with world.running(agent, script, AGENT_WORK=str(work)):
        wait_until(lambda: {world.bench.job_row(one).status for one in (well, ill)} <= {"success", "failed"}, PATIENCE)
    assert world.bench.job_row(well).status == "success"
    failed = world.bench.run_row(ill)
    assert (failed.status, failed.attempt_no, failed.error_code, failed.error) == (
        "failed",
        2,
        "EXIT",
        "It ended with 3.",
    )


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_agent_of_the_manual_begins_nothing_that_is_not_its_own_any_more(world: World) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", MANUAL.read_text(), flags=re.DOTALL)
    script, work, began = world.room / "agent.py", world.room / "work", world.room / "began"
    loop = 'jobs, wait = ask("GET"'
    assert loop in example
    lost = an_agent(world.bench).claimed()
    world.bench.expire_hold(lost.run_id)
    job = {"type": lost.type, "payload": {}, "runId": str(lost.run_id), **of(lost)}
    script.write_text(f"{example.split(loop)[0]}\ndo({job!r})\n")
    work.write_text(f"#!/bin/sh\ntouch {began}\n")
    work.chmod(0o755)
    agent = an_agent(world.bench)
    with world.running(agent, script, AGENT_WORK=str(work)) as process:
        assert process.wait(PATIENCE) == 0
    assert not began.exists()
    assert world.bench.run_by_id(lost.run_id).status == "pending"


def test_many_agents_at_once_are_given_nothing_twice_and_no_more_than_the_limits(world: World) -> None:
    bench = world.bench
    bench.organisation(ORG, max_running=12)
    ours, theirs = [an_agent(bench), an_agent(bench)], an_agent(bench, OTHER_ORG)
    for agent in (*ours, theirs):
        for of_type in [CHANGING] * 3 + [READING] * 10:
            agent.wanted(of_type)
    token, hosts = world.token(ORG), [one.host_id for one in ours]
    crews = [(token, hosts), (token, hosts[::-1]), (token, hosts[:1]), (world.token(OTHER_ORG), [theirs.host_id])]
    taken = [one for crew in at_once(take_all, *((world.url, *crew) for crew in crews)) for one in crew]
    assert len({run_id for _, run_id, _ in taken}) == len(taken)
    for host_id, run_id, _ in taken:
        run = bench.run_by_id(int(run_id))
        server = bench.server_row(bench.job_row(run.job_id).server_instance_id or 0)
        assert (run.host_id, server.host_id, run.lease_token) == (host_id, host_id, 1)
        assert run.org_id == server.org_id == bench.host_row(host_id).org_id
    counted = Counter((host_id, type_name) for host_id, _, type_name in taken)
    for host_id in (*hosts, theirs.host_id):
        assert counted[host_id, CHANGING.name] <= 1
        assert counted[host_id, READING.name] <= 8
    assert sum(host_id in hosts for host_id, _, _ in taken) == 12
    assert sum(host_id == theirs.host_id for host_id, _, _ in taken) == 9
    refused = world.ask("POST", f"/api/agents/hosts/{theirs.host_id}/claim", token)
    assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND")


def test_of_many_that_say_how_it_ended_the_first_is_believed(world: World) -> None:
    bench, agent = world.bench, an_agent(world.bench)
    job = agent.begun(retry=RetryPolicy(max_retries=0))
    token = world.token(ORG)
    said = at_once(say, *((world.url, token, job.run_id, status) for status in ("success", "failed") * 2))
    run = bench.run_by_id(job.run_id)
    assert sorted(said) == sorted((status, 200 if status == run.status else 409) for status, _ in said)
    (attempt,) = bench.attempts(job.run_id)
    assert (attempt.status, attempt.late_report, bench.job_row(job.job_id).status) == (run.status, None, run.status)
    assert len(bench.events("job_run.succeeded") + bench.events("job_run.failed")) == 1
