"""The doorway that Dagster opens."""

from pathlib import Path

import dagster as dg

from automation_pipeline.core.settings import load_settings
from automation_pipeline.orchestration.executor import executor_of
from automation_pipeline.orchestration.resource import ServicesResource


@dg.definitions
def defs() -> dg.Definitions:
    shared = dg.Definitions(resources={"services": ServicesResource()}, executor=executor_of(load_settings()))
    return dg.Definitions.merge(dg.load_from_defs_folder(path_within_project=Path(__file__).parent), shared)
