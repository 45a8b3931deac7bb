"""Jobs of organisations in Dagster, with fake runners."""

from collections.abc import Mapping
from datetime import UTC, datetime

import dagster as dg
import pytest

from automation_pipeline import bootstrap
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.job_registry import run_request
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.org_jobs.models.jobs import AttemptEnd, attempt_succeeded
from automation_pipeline.org_jobs.ports import JobContext
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import offer_waiting
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.org_jobs.data import SERVICE, OrgJobsData

RESOURCES = {"services": ServicesResource()}
OP = "work_org_job"


class FakeRunner:
    """Ends every attempt with the configured result."""

    def __init__(self, end: AttemptEnd | None = None) -> None:
        self.end = end or attempt_succeeded({"seen": True})
        self.asked: list[JobContext] = []

    async def work(self, asked: JobContext) -> AttemptEnd:
        self.asked.append(asked)
        return self.end


def data_with_services(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    runner: FakeRunner | None = None,
    **settings: object,
) -> OrgJobsData:
    """The clock starts at the current time, like the clocks of Dagster and the database."""
    data = OrgJobsData(database, FakeClock(datetime.now(UTC)))
    services = bootstrap.Services(Settings(**settings), data.clock)  # type: ignore[arg-type]
    services.__dict__.update(database=database, job_runners={SERVICE.name: runner or FakeRunner()})
    services.meter = data.meter
    monkeypatch.setattr(bootstrap, "services", lambda: services)
    return data


def execute(
    job: dg.JobDefinition, config: Mapping[str, object], tags: dict[str, str] | None = None
) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        return job.execute_in_process(
            run_config={"ops": {OP: {"config": dict(config)}}},
            tags=tags,
            resources=RESOURCES,
            instance=instance,
            raise_on_error=False,
        )


def launch(data: OrgJobsData, job: dg.JobDefinition) -> dg.ExecuteInProcessResult:
    """Execute the job of the only waiting request."""
    with data.database.transaction() as session:
        [request] = offer_waiting(session, limit=9)
    asked = run_request(request)
    assert asked.job_name == job.name
    return execute(job, request.config, dict(asked.tags or {}))


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    """The metadata of the only step."""
    [output] = [
        event.step_output_data.metadata for event in result.all_events if event.is_successful_output
    ]
    return {name: value.value for name, value in output.items()}


def refusal(result: dg.ExecuteInProcessResult) -> str:
    """The error message of the failed step."""
    [failed] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert failed.user_failure_data
    return failed.user_failure_data.description or ""
