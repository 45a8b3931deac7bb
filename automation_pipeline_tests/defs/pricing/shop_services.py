"""Pricing jobs in Dagster with a fake shop, on the services of a harness."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from automation_pipeline import bootstrap
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.job_registry import run_request
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import offer_waiting
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.shop import FakeShop, product_variants
from automation_pipeline_tests.pricing.harness import PricingHarness

RESOURCES = {"services": ServicesResource()}
SHOP_URL = "https://shop.test"


def harness_with_services(
    database: Database, monkeypatch: pytest.MonkeyPatch, **settings: object
) -> PricingHarness:
    """The clock starts at the current time, like the clocks of Dagster and the database; the worker
    does not wait."""
    harness = PricingHarness(
        database,
        FakeClock(datetime.now(UTC)),
        FakeShop(*product_variants(3)),
        {"longest_pause_seconds": 0.0},
    )
    given = {"shop_api_base_url": SHOP_URL, "shop_api_token": "shop-token", **settings}
    services = bootstrap.Services(Settings(**given), harness.clock)  # type: ignore[arg-type]
    services.__dict__.update(database=database, storefront=harness.storefront)
    services.meter = harness.meter
    monkeypatch.setattr(bootstrap, "services", lambda: services)
    return harness


def execute(
    job: dg.JobDefinition, op: str, tags: dict[str, str] | None = None, **config: object
) -> dg.ExecuteInProcessResult:
    with dg.DagsterInstance.ephemeral() as instance:
        return job.execute_in_process(
            run_config={"ops": {op: {"config": config}}},
            tags=tags,
            resources=RESOURCES,
            instance=instance,
            raise_on_error=False,
        )


def launch(harness: PricingHarness, job: dg.JobDefinition) -> dg.ExecuteInProcessResult:
    """Execute the job of the one waiting request."""
    with harness.database.transaction() as session:
        [request] = offer_waiting(session, limit=9)
    asked = run_request(request)
    assert asked.job_name == job.name
    [(op, given)] = dict(asked.run_config or {})["ops"].items()
    return execute(job, op, dict(asked.tags or {}), **given["config"])


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
