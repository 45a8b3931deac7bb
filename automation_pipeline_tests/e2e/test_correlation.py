"""One id from a wish to the calls of providers, through each executor; and Dagster's own lines stay Dagster's."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automation_pipeline.storage.database import Database
from automation_pipeline.storage.measures import all_measures
from automation_pipeline_tests.e2e.system import System


def our_lines(system: System, said: str) -> Iterator[dict[str, Any]]:
    """From the terminal, and from the files that Dagster keeps what steps print in."""
    kept = [path.read_text() for path in (system.room / "dagster").rglob("*.err")]
    for line in "\n".join([said, *kept]).splitlines():
        if line.startswith("{"):
            yield json.loads(line)


@pytest.mark.parametrize("executor", ["in_process", "multiprocess"])
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_every_call_of_a_provider_is_told_and_counted_under_the_id_of_its_run(
    executor: str, tmp_path: Path, database: Database, database_url: str, simulated: str
) -> None:
    system = System(
        tmp_path, database_url, simulated, AUTOMATION_EXECUTOR=executor, LOG_LEVEL="debug", LOG_FORMAT="json"
    )
    config = tmp_path / "run.yaml"
    schedule = system.create_schedule(["952900000", "952900001"])
    config.write_text(f"ops:\n  open_run:\n    config:\n      schedule_id: {schedule}\n")
    job = ("dagster", "job", "execute", "-m", "automation_pipeline.definitions", "-j", "automation_run")
    ended = system.run(*job, "-c", str(config), "--tags", '{"automation/correlation_id": "wish-7"}')
    assert ended.returncode == 0, ended.stderr[-2000:]

    calls = [line for line in our_lines(system, ended.stderr) if line["event"] == "Called a provider"]
    assert {(call["provider"], call["status"], call["correlation_id"]) for call in calls} == {("crm", "200", "wish-7")}
    assert "automation_run" in ended.stderr
    assert " - dagster - DEBUG - " in ended.stderr + ended.stdout

    with database.reading() as session:
        measures = {(each.name, each.labels): each.value for each in all_measures(session)}
    assert measures["provider_calls_total", 'provider="crm",status="200"'] == 2
    assert measures["provider_call_seconds_total", 'provider="crm"'] > 0
    assert measures["phases_total", 'phase="fetching"'] == 1
