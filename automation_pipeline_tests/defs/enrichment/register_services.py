"""Enrichment jobs in Dagster with a fake register, on services that the test controls."""

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
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.registries import (
    NO_BACKOFF,
    SIREN,
    FakeRegistry,
    record,
    registries,
)

RESOURCES = {"services": ServicesResource()}
REQUESTER = Requester(tenant_id="main", correlation_id="c-1", actor="user:12")


@dataclass(frozen=True)
class EnrichmentSetup:
    """The clock starts at the current time, like the clocks of Dagster and the database."""

    database: Database
    clock: FakeClock
    search: FakeRegistry

    def request(self, siren: str = SIREN, *, force: bool = False) -> EnrichmentAnswer:
        options, database = NO_BACKOFF, self.database
        return request_enrichment(
            {"siren": siren},
            REQUESTER,
            options=options,
            database=database,
            clock=self.clock,
            force=force,
        )


def set_up_enrichment(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, configured: bool = True
) -> EnrichmentSetup:
    setup = EnrichmentSetup(database, FakeClock(datetime.now(UTC)), FakeRegistry(record()))
    services = bootstrap.Services(Settings(), setup.clock)
    sources = {SourceApi.SEARCH: setup.search} if configured else {}
    services.__dict__.update(database=database, registries=registries(database, sources))
    monkeypatch.setattr(bootstrap, "services", lambda: services)
    return setup


def execute(
    job: dg.JobDefinition, tags: dict[str, str] | None = None, **config: object
) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        return job.execute_in_process(
            run_config={"ops": {"work_company_enrichment": {"config": config}}},
            tags=tags,
            resources=RESOURCES,
            instance=instance,
            raise_on_error=False,
        )


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
