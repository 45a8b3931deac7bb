"""Dagster's side of enrichment over a fake register: the services of the process are those of a
test."""

from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg
import pytest

from automation_pipeline import bootstrap
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.models import EnrichmentAnswer, Requester, SourceApi
from automation_pipeline.enrichment.requests import request_enrichment
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.registries import (
    NEVER_WAITS,
    SIREN,
    FakeRegistry,
    record,
    registries,
)

OURS = {"services": ServicesResource()}
ASKING = Requester(tenant_id="main", correlation_id="c-1", actor="user:12")


@dataclass(frozen=True)
class Office:
    """Its clock shows the present, as Dagster's and the database's do."""

    database: Database
    clock: StandingClock
    search: FakeRegistry

    def ask(self, siren: str = SIREN, *, force: bool = False) -> EnrichmentAnswer:
        options, database = NEVER_WAITS, self.database
        return request_enrichment(
            {"siren": siren},
            ASKING,
            options=options,
            database=database,
            clock=self.clock,
            force=force,
        )


def an_office(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, configured: bool = True
) -> Office:
    office = Office(database, StandingClock(datetime.now(UTC)), FakeRegistry(record()))
    services = bootstrap.Services(Settings(), office.clock)
    its = {SourceApi.SEARCH: office.search} if configured else {}
    services.__dict__.update(database=database, registries=registries(database, its))
    monkeypatch.setattr(bootstrap, "services", lambda: services)
    return office


def execute(
    job: dg.JobDefinition, tags: dict[str, str] | None = None, **config: object
) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        return job.execute_in_process(
            run_config={"ops": {"work_company_enrichment": {"config": config}}},
            tags=tags,
            resources=OURS,
            instance=instance,
            raise_on_error=False,
        )


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    """The metadata of the one step."""
    [output] = [
        event.step_output_data.metadata for event in result.all_events if event.is_successful_output
    ]
    return {name: value.value for name, value in output.items()}


def refusal(result: dg.ExecuteInProcessResult) -> str:
    """What the failed step says."""
    [failed] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert failed.user_failure_data
    return failed.user_failure_data.description or ""
