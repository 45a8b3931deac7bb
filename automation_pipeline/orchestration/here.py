"""`python -m automation_pipeline.orchestration.here KEY...`: executes the jobs of filed requests
without a daemon, one after the other, as `dagster job execute` does."""

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack

import dagster as dg
from dagster._core.definitions.reconstruct import ReconstructableRepository

from automation_pipeline.bootstrap import services
from automation_pipeline.core.launching import LOCATION
from automation_pipeline.orchestration.job_registry import run_request
from automation_pipeline.storage.run_requests import NewRunRequest, filed_requests


def execute(keys: Sequence[str]) -> bool:
    """Whether every job is green. Without DAGSTER_HOME Dagster keeps nothing of the runs."""
    with services().database.reading() as session:
        filed = filed_requests(session, keys)
    repository = ReconstructableRepository.for_module(LOCATION, "defs")
    with ExitStack() as stack:
        if os.environ.get("DAGSTER_HOME"):
            instance = stack.enter_context(dg.DagsterInstance.get())
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="automation-here-"))
            instance = stack.enter_context(dg.DagsterInstance.local_temp(folder))
        green = True
        for one in filed:
            request = run_request(NewRunRequest(one.key, one.job, one.config, one.tags, one.launch))
            result = dg.execute_job(
                repository.get_reconstructable_job(one.job),
                instance,
                run_config=dict(request.run_config),
                tags=dict(request.tags),
                raise_on_error=False,
            )
            green = green and result.success
    return green


if __name__ == "__main__":
    sys.exit(0 if execute(sys.argv[1:]) else 1)
