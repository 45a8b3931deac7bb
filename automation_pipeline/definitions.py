"""The doorway that Dagster opens."""

from pathlib import Path

import dagster as dg

from automation_pipeline.core.logs import configure_logs
from automation_pipeline.core.settings import load_settings
from automation_pipeline.orchestration.executor import executor_of
from automation_pipeline.orchestration.resource import ServicesResource


@dg.definitions
def defs() -> dg.Definitions:
    settings = load_settings()
    configure_logs(settings.log_level, settings.log_format, of="package")
    shared = dg.Definitions(resources={"services": ServicesResource()}, executor=executor_of(settings))
    return dg.Definitions.merge(dg.load_from_defs_folder(path_within_project=Path(__file__).parent), shared)
