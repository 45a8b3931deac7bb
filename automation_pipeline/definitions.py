"""What Dagster loads: everything below `defs/`, the services, and the configured executor."""

from functools import cache
from pathlib import Path

import dagster as dg

from automation_pipeline.core.background import gc_paused
from automation_pipeline.core.logs import configure_logs
from automation_pipeline.core.settings import load_settings
from automation_pipeline.orchestration.automation_runs import Tickets
from automation_pipeline.orchestration.executor import executor_of
from automation_pipeline.orchestration.ops import ServicesResource


@dg.definitions
@cache  # Dagster asks five times per run
def defs() -> dg.Definitions:
    settings = load_settings()
    configure_logs(settings.log_level, settings.log_format, of="package")
    with gc_paused():
        found = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    resources = {"services": ServicesResource(), "io_manager": Tickets()}
    services = dg.Definitions(resources=resources, executor=executor_of(settings))
    return dg.Definitions.merge(found, services)
