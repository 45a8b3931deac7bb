"""The definitions as Dagster loads them: the public names, tags and strict configs of CONTRACT 3."""

import logging
import subprocess
import sys

import dagster as dg
import pytest
import yaml

from automation_pipeline.core.settings import Settings
from automation_pipeline.definitions import defs
from automation_pipeline.orchestration.executor import executor_of, processes_of
from automation_pipeline.orchestration.job_registry import JOBS, function_at
from automation_pipeline_tests.cases import every_case

OF_ASSETS = {"__ASSET_JOB", "sales_list_revalidation", "sales_list_staleness"}


@pytest.fixture(scope="module")
def loaded() -> dg.Definitions:
    return defs()


@pytest.mark.parametrize(
    "job", ["automation_run", "rule_run", "rule_reconciliation", "org_job", "company_enrichment"]
)
def test_dagster_does_not_retry_runs_by_itself(loaded: dg.Definitions, job: str) -> None:
    tags = loaded.resolve_job_def(job).tags
    assert tags["dagster/retry_strategy"] == "ALL_STEPS"
    assert tags["dagster/max_retries"] == "0"
    assert int(tags["dagster/max_runtime"]) > 0


def run_config(**config: object) -> dict:
    return {"ops": {"open_run": {"config": config}}}


def test_the_launchpad_takes_the_documented_config(loaded: dg.Definitions) -> None:
    job = loaded.resolve_job_def("automation_run")
    override = yaml.safe_load('{mode: manual, ficheIds: ["1"], useRlm: true, maxFiches: 5}')
    assert dg.validate_run_config(job, run_config(schedule_id=1))
    assert dg.validate_run_config(job, run_config(schedule_id=1, override_fiche_selection=None))
    full = run_config(
        schedule_id=1, override_fiche_selection=override, due_at="2026-05-04T10:00:00Z", run_id=2
    )
    assert dg.validate_run_config(job, full)


@every_case(
    "config",
    [
        {},
        {"schedule_id": "three"},
        {"schedule_id": 1, "shedule": 2},
        {"schedule_id": 1, "override_fiche_selection": {"ficheIds": ["1"]}},
        {"schedule_id": 1, "override_fiche_selection": {"mode": "all"}},
        {"schedule_id": 1, "override_fiche_selection": {"mode": "manual", "fiche_ids": ["1"]}},
        {"schedule_id": 1, "override_fiche_selection": {"mode": "manual", "ficheIds": [1]}},
    ],
)
def test_a_misspelt_config_is_refused_at_launch(
    loaded: dg.Definitions, config: dict[str, object]
) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError):
        dg.validate_run_config(loaded.resolve_job_def("automation_run"), run_config(**config))


def test_no_field_of_a_run_config_reads_an_environment_variable(loaded: dg.Definitions) -> None:
    """Dagster describes a field that does as a choice between a value and an object with the field
    `env`."""
    readers = [
        job.name
        for job in loaded.resolve_all_job_defs()
        for kind in job.run_config_schema.run_config_schema_type.type_iterator()
        if set(getattr(kind, "fields", None) or ()) == {"env"}
    ]
    assert readers == []
    secret = {"env": "ELEVENLABS_API_KEY"}
    for wrong in (
        {"ficheIds": [secret]},
        {"dateRange": secret},
        {"maxFiches": secret},
        {"useRlm": secret},
    ):
        config = run_config(schedule_id=1, override_fiche_selection={"mode": "manual", **wrong})
        with pytest.raises(
            dg.DagsterInvalidConfigError,
            match="Invalid scalar at path root:ops:open_run:config:over",
        ):
            dg.validate_run_config(loaded.resolve_job_def("automation_run"), config)


def test_the_executor_is_configuration() -> None:
    inside, several = (
        Settings(),
        Settings(automation_executor="multiprocess", automation_max_processes=3),
    )
    assert (executor_of(inside).name, processes_of(inside)) == ("in_process", 1)
    assert (executor_of(several).name, processes_of(several)) == ("multiprocess", 3)


def loaded_by(what: str) -> set[str]:
    """The modules that a new process has imported after these statements."""
    return printed_after(f"{what}; print(*sys.modules)")


def printed_after(statements: str) -> set[str]:
    code = f"import sys, logging; from automation_pipeline.definitions import defs; {statements}"
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    return set(process.stdout.split())


def test_loading_the_definitions_configures_the_log_of_the_package() -> None:
    level = "print(logging.getLogger('automation_pipeline').level)"
    assert printed_after(f"defs(); {level}") == {str(logging.INFO)}


def test_plotting_and_web_libraries_are_not_loaded_with_the_definitions() -> None:
    heavy = {
        "pandas",
        "pyarrow",
        "matplotlib",
        "fastapi",
        "uvicorn",
        "typer",
        "celery",
        "redis",
        "httpx",
    }
    found = loaded_by("defs()")
    assert heavy & found == set()
    assert {name for name in found if name.startswith("automation_pipeline.simulator")} == set()


def test_the_registry_and_the_loaded_definitions_agree(loaded: dg.Definitions) -> None:
    jobs = {job.name: job for job in loaded.resolve_all_job_defs()}
    assert set(jobs) - OF_ASSETS == set(JOBS)
    for name, registered in JOBS.items():
        assert registered.definition().name == name
        assert registered.first_op in {node.name for node in jobs[name].nodes}, name
        for reference in filter(None, (registered.on_failure, registered.on_termination)):
            assert callable(function_at(reference)), reference


def test_sensors_watch_every_registered_job(loaded: dg.Definitions) -> None:
    sensors = {one.name: one for one in loaded.sensors or ()}
    assert {job.name for job in sensors["launch_requests"].jobs} == set(JOBS)
