"""`dagster job execute`, as CI uses it: on both databases, on each executor."""

from datetime import date
from pathlib import Path

import httpx
import pytest

from automation_pipeline.simulator import Kind, World
from automation_pipeline_tests.e2e.system import System

DAY = World(seed=7, vary=False).day(date(2026, 2, 3))
IDS = [fiche.id for fiche in DAY]


@pytest.mark.parametrize(
    ("executor", "database_kind"), [("in_process", "sqlite"), ("multiprocess", "postgres")], indirect=["database_kind"]
)
def test_every_fiche_ends_with_exactly_one_outcome(
    executor: str, tmp_path: Path, database_url: str, simulated: str
) -> None:
    system = System(tmp_path, database_url, simulated, AUTOMATION_EXECUTOR=executor)
    ended = system.execute_job(system.create_schedule(IDS))
    assert ended.returncode == 0, ended.stderr[-2000:]

    run = system.show_run("1")
    assert run["status"] == "completed"
    assert [fiche["ficheId"] for fiche in run["fiches"]] == IDS
    missing = {fiche.id for fiche in DAY if fiche.kind is Kind.MISSING}
    assert {f["ficheId"] for f in run["fiches"] if f["status"] == "ignored"} == missing
    assert run["selectedFiches"] == run["successfulFiches"] + run["failedFiches"] + run["ignoredFiches"] == len(IDS)
    assert system.calls_per_fiche() == dict.fromkeys(IDS, 1)


def test_a_fiche_that_the_crm_fails_on_is_a_row_and_not_a_crash(
    tmp_path: Path, database_url: str, simulated: str
) -> None:
    system = System(tmp_path, database_url, simulated)
    fault = {"route": "crm.details", "item": IDS[0], "status": 403}
    assert httpx.post(f"{simulated}/_sim/faults", json=fault).is_success
    ended = system.execute_job(system.create_schedule(IDS[:2]))
    assert ended.returncode == 0

    run = system.show_run("1")
    assert run["status"] == "partial"
    assert {f["ficheId"]: f["status"] for f in run["fiches"]} == {IDS[0]: "failed", IDS[1]: "successful"}
    refused = f"The CRM refused our token for fiche {IDS[0]} (status 403)."
    assert run["fiches"][0]["error"] == f"Fiche not found in cache: {refused}"
    assert run["fiches"][0]["reason"] == "fetch_failed"


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_an_empty_selection_is_a_completed_run(tmp_path: Path, database_url: str, simulated: str) -> None:
    system = System(tmp_path, database_url, simulated)
    assert system.execute_job(system.create_schedule([])).returncode == 0
    assert system.show_run("1")["status"] == "completed"
    assert "No fiches in manual selection" in system.run("automation", "runs", "logs", "1").stdout


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_an_unknown_schedule_fails_the_job_and_leaves_no_run(tmp_path: Path, database_url: str, simulated: str) -> None:
    system = System(tmp_path, database_url, simulated)
    ended = system.execute_job("77")
    assert ended.returncode == 1
    assert "Schedule 77 not found" in ended.stderr
    assert system.automation("runs", "list") == {"runs": []}


def test_a_run_config_cannot_read_a_secret_of_the_process(tmp_path: Path, simulated: str) -> None:
    """Whoever may launch a run would read it in the database and in Dagster's pages."""
    system = System(tmp_path, f"sqlite:///{tmp_path}/never-migrated.db", simulated, A_SECRET="73219")
    secret = {"env": "A_SECRET"}
    runs: dict[str, dict[str, dict[str, object]]] = {
        "automation_run": {"open_run": {"schedule_id": 1, "due_at": secret}},
        "org_job": {"work_org_job": {"job_run_id": secret}},
        "audit_fiche": {"audit": {"fiche_id": "1", "audit_config_id": 1, "trigger_source": secret}},
    }
    for job, ops in runs.items():
        (field,) = [name for op in ops.values() for name, value in op.items() if value is secret]
        ended = system.execute(job, **ops)
        assert ended.returncode == 1
        assert f":config:{field}. Value \"{{'env': 'A_SECRET'}}\"" in ended.stderr
        assert "73219" not in ended.stdout + ended.stderr
