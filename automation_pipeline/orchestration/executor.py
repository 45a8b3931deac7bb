"""Which engine runs the steps is configuration; the jobs are the same on each."""

from importlib import import_module

import dagster as dg

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.settings import Settings

# What the definitions and the steps of a run load only when they begin.
PRELOADED = [
    "automation_pipeline.definitions",
    "automation_pipeline.defs.automation.job",
    "automation_pipeline.automation.stages.select_fiches",
    "automation_pipeline.automation.stages.settle_fetch",
    "automation_pipeline.automation.stages.work_batch",
    "automation_pipeline.orchestration.workshops",
    "automation_pipeline.orchestration.materialisations",
    "automation_pipeline.clients.crm",
]


def executor_of(settings: Settings) -> dg.ExecutorDefinition:
    """What is not used is not imported: Celery alone is as heavy as half of Dagster."""
    match settings.automation_executor:
        case "in_process":
            return dg.in_process_executor
        case "multiprocess":
            return _multiprocess(settings)
        case "celery":
            from automation_pipeline.orchestration.celery_executor import celery_executor  # noqa: PLC0415  only here

            return celery_executor(settings)
        case "k8s":
            return _kubernetes(settings)


def _multiprocess(settings: Settings) -> dg.ExecutorDefinition:
    return dg.multiprocess_executor.configured(
        {
            "max_concurrent": settings.automation_max_processes,
            # Steps start from a process that has everything imported: half the price of a fresh one.
            "start_method": {"forkserver": {"preload_modules": PRELOADED}},
        }
    )


def _kubernetes(settings: Settings) -> dg.ExecutorDefinition:
    """Image, secrets and volumes of the steps are those of the run, from Dagster's chart."""
    try:
        executor: dg.ExecutorDefinition = import_module("dagster_k8s").k8s_job_executor
    except ModuleNotFoundError:
        raise PermanentError(
            "AUTOMATION_EXECUTOR=k8s needs the package dagster-k8s: install this one with its extra `kubernetes`."
        ) from None
    return executor.configured({"max_concurrent": settings.automation_max_processes}, name="k8s")


def processes_of(settings: Settings) -> int:
    """How many steps can work side by side."""
    return 1 if settings.automation_executor == "in_process" else settings.automation_max_processes
