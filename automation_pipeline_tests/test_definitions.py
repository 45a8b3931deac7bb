"""What Dagster sees: the public names, tags and strictness of CONTRACT 3."""

import subprocess
import sys

import dagster as dg
import pytest
import yaml

from automation_pipeline.core.settings import Settings
from automation_pipeline.definitions import ALONE, OF_ASSETS, defs, whole
from automation_pipeline.orchestration.executor import executor_of, processes_of
from automation_pipeline_tests.tables import every_case


@pytest.fixture(scope="module")
def loaded() -> dg.Definitions:
    return whole()


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
    """Dagster describes one that does as a choice between a value and an object with the one field
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
    """The modules that a process has which does only this."""
    look = f"import sys; from automation_pipeline.definitions import defs, whole; {what}; print(*sys.modules)"
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", look], capture_output=True, text=True, check=True
    )
    return set(said.stdout.split())


def test_what_draws_and_what_serves_is_not_loaded_with_the_definitions() -> None:
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
    found = loaded_by("whole()")
    assert heavy & found == set()
    assert {name for name in found if name.startswith("automation_pipeline.simulator")} == set()


def test_a_run_loads_its_own_job_and_nothing_of_the_rest() -> None:
    found = {
        name
        for name in loaded_by("defs().get_job('automation_run')")
        if name.startswith("automation_pipeline.")
    }
    rooms = {name.split(".")[1] for name in found}
    assert rooms & {"clients", "enrichment", "org_jobs", "pricing"} == set()
    assert {name for name in found if name.startswith("automation_pipeline.defs.")} == {
        "automation_pipeline.defs.automation",
        "automation_pipeline.defs.automation.hook",
        "automation_pipeline.defs.automation.job",
    }


def test_a_job_that_is_loaded_alone_is_the_one_of_the_whole(loaded: dg.Definitions) -> None:
    repository, everything = loaded_defs(), loaded.get_repository_def()
    assert set(repository.job_names) == set(everything.job_names) == {*ALONE, *OF_ASSETS}
    for name in ALONE:
        alone, same = repository.get_job(name), everything.get_job(name)
        assert alone.get_job_snapshot_id() == same.get_job_snapshot_id()
        assert set(alone.resource_defs) == set(same.resource_defs)
        assert alone.executor_def.name == same.executor_def.name


def loaded_defs() -> dg.RepositoryDefinition:
    found = defs()
    assert isinstance(found, dg.RepositoryDefinition)
    return found
