"""The commands for other processes, called in this process."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    ScheduleInstigatorData,
)
from dagster._daemon.types import DaemonHeartbeat

from automation_pipeline import bootstrap
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration import processes
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import NewRunRequest, file_requests
from automation_pipeline_tests.services import free_port

executed: list[tuple[int, str | None]] = []


@dg.op(config_schema={"audit_id": int})
def rerun(context: dg.OpExecutionContext) -> None:
    executed.append((context.op_config["audit_id"], context.run.tags.get("origin")))
    if context.op_config["audit_id"] == 0:
        raise dg.Failure("no such audit", allow_retries=False)


@dg.job
def audit_rerun() -> None:
    rerun()


def defs() -> dg.Definitions:
    return dg.Definitions(jobs=[audit_rerun], executor=dg.in_process_executor)


@pytest.fixture(autouse=True)
def location(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands load the definitions of this module, and Dagster has no instance."""
    monkeypatch.setattr(processes, "LOCATION", __name__)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    executed.clear()


@pytest.fixture
def requests(database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    services = Services(Settings(database_url=database_url))
    vars(services)["database"] = database
    monkeypatch.setattr(bootstrap, "services", lambda: services)
    with database.transaction() as session:
        for key, audit_id in (("bad", 0), ("good", 7)):
            request = NewRunRequest(key, "audit_rerun", {"audit_id": audit_id}, {"origin": key})
            file_requests(session, [request], datetime.now(UTC))


def use_instance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(folder))


@pytest.mark.usefixtures("requests")
def test_requested_jobs_are_executed_in_order_even_if_one_fails() -> None:
    assert processes.main("execute", "good") == 0
    assert executed == [(7, "good")]
    executed.clear()
    assert processes.main("execute", "bad", "good", "unknown") == 1
    assert executed == [(0, "bad"), (7, "good")]


@pytest.mark.usefixtures("requests")
def test_dagster_stores_executed_jobs_if_it_has_an_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_instance(tmp_path, monkeypatch)
    assert processes.execute(["good"])
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs()
    assert (run.job_name, run.status, run.tags["automation/request_key"]) == (
        "audit_rerun",
        dg.DagsterRunStatus.SUCCESS,
        "good",
    )


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_probe_reports_a_missing_instance_and_definitions_that_do_not_load(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert processes.main("probe") is None
    assert printed(capsys) == [
        {"has_instance": False},
        {"has_instance": False, "location_error": None},
    ]
    monkeypatch.setattr(processes, "LOCATION", "missing" * 100)
    processes.main("probe")
    error = printed(capsys)[1]["location_error"]
    assert error.startswith("ModuleNotFoundError: No module named 'missingmissing")
    assert len(error) == 500


def test_the_probe_reports_the_daemon_and_stopped_sensors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_instance(tmp_path, monkeypatch)
    assert processes.instance_facts() == {
        "has_instance": True,
        "heartbeat_seconds": None,
        "stopped_sensors": [],
    }
    repository = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
    states = (
        ("stopped", InstigatorType.SENSOR, InstigatorStatus.STOPPED, None),
        ("running", InstigatorType.SENSOR, InstigatorStatus.RUNNING, None),
        (
            "a_schedule",
            InstigatorType.SCHEDULE,
            InstigatorStatus.STOPPED,
            ScheduleInstigatorData("0 5 * * *"),
        ),
    )
    with dg.DagsterInstance.get() as instance:
        for daemon, seconds in (("SENSOR", 30), ("SCHEDULER", 300)):
            instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - seconds, daemon, "d-1"))
        for name, kind, status, data in states:
            origin = RemoteInstigatorOrigin(repository, name)
            instance.add_instigator_state(InstigatorState(origin, kind, status, data))
    processes.print_probe()
    first, second = printed(capsys)
    assert 30 <= first.pop("heartbeat_seconds") < 300
    assert first == {"has_instance": True, "stopped_sensors": ["stopped"]}
    assert second["location_error"] is None


def test_other_commands_return_a_sentence() -> None:
    port = str(free_port())
    assert processes.main("code-server", port) == f"No code server answers on port {port}."
    assert processes.main("dance") == "No such command: dance"
