"""Which engine runs the steps is configuration; the jobs are the same on each."""

import dagster as dg

from automation_pipeline.core.settings import Settings

PRELOADED = ["automation_pipeline.definitions", "automation_pipeline.clients.crm"]


def executor_of(settings: Settings) -> dg.ExecutorDefinition:
    if settings.automation_executor == "in_process":
        return dg.in_process_executor
    return dg.multiprocess_executor.configured(
        {
            "max_concurrent": settings.automation_max_processes,
            # Steps start from a process that has everything imported: half the price of a fresh one.
            "start_method": {"forkserver": {"preload_modules": PRELOADED}},
        }
    )


def processes_of(settings: Settings) -> int:
    """How many steps can work side by side."""
    return 1 if settings.automation_executor == "in_process" else settings.automation_max_processes
