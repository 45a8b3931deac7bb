"""The assets of the CRM mirror: materialisation of a day, its checks, and the nightly schedule."""

from collections.abc import Iterator
from datetime import UTC, date, datetime

import dagster as dg
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.fiches import (
    fiche_details,
    fiche_details_checks,
    no_stale_day,
    sales_list,
    sales_list_checks,
    sales_list_revalidation,
    sales_list_staleness,
    yesterdays_sales_list,
)
from automation_pipeline.fiches.queries.mirror import sales_day
from automation_pipeline.fiches.rules import COVERAGE_CHECKS, DAY_CHECKS, STALE_CHECK
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.simulator_control import add_faults, call_count

DAY = "2026-02-03"


@pytest.fixture
def services(database_url: str, simulator_url: str) -> Iterator[Services]:
    settings = Settings(
        database_url=database_url,
        fiche_api_base_url=simulator_url,
        fiche_api_auth_token="sim-token",
    )
    built = Services(settings, FakeClock(datetime(2026, 2, 4, 3, 0, tzinfo=UTC)))
    yield built
    built.database.dispose()


def resource_with(services: Services) -> ServicesResource:
    class FixedServices(ServicesResource):
        def get(self) -> Services:
            return services

    return FixedServices()


def materialize(
    services: Services,
    *definitions: object,
    day: str | None = DAY,
    selection: dg.AssetSelection | None = None,
) -> dg.ExecuteInProcessResult:
    instance = dg.DagsterInstance.ephemeral()
    return dg.materialize(
        list(definitions),  # type: ignore[arg-type]  checks are taken too
        partition_key=day,
        selection=selection,
        resources={"services": resource_with(services)},
        instance=instance,
        raise_on_error=False,
    )


def metadata(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, object]:
    [event] = result.asset_materializations_for_node(asset)
    return {name: value.value for name, value in event.metadata.items()}


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {check.check_name: check.passed for check in result.get_asset_check_evaluations()}


def test_materialising_a_day_reports_its_counts(services: Services) -> None:
    result = materialize(services, sales_list, sales_list_checks)
    assert result.success
    results = metadata(result, "sales_list")
    assert (results["fiches"], results["new"], results["changed"]) == (24, 24, 0)
    assert "| fiches | 24 |" in str(results["summary"])
    assert verdicts(result) == {
        **dict.fromkeys(DAY_CHECKS, True),
        "every_fiche_has_a_cle": results["missing_cle"] == 0,
    }


def test_a_second_materialisation_finds_nothing_new_with_one_call(
    services: Services, simulator_url: str
) -> None:
    materialize(services, sales_list)
    result = metadata(materialize(services, sales_list), "sales_list")
    assert (result["fiches"], result["new"], result["changed"]) == (24, 0, 0)
    assert call_count(simulator_url, DAY, "crm.sales_list") == 2


def test_the_details_of_a_fetched_day_pass_the_coverage_checks(services: Services) -> None:
    result = materialize(services, sales_list, fiche_details, fiche_details_checks)
    assert result.success
    results = metadata(result, "fiche_details")
    assert (
        results["fiches"],
        results["with_details"],
        results["not_found"],
        results["coverage"],
    ) == (
        24,
        23,
        1,
        1.0,
    )
    assert verdicts(result) == dict.fromkeys(COVERAGE_CHECKS, True)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_coverage_checks_of_a_day_that_was_never_fetched_fail(services: Services) -> None:
    days = [fiche_details, fiche_details_checks]
    result = materialize(
        services, sales_list, *days, selection=dg.AssetSelection.assets(fiche_details)
    )
    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert set(checks) == set(COVERAGE_CHECKS)
    for check in checks.values():
        assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
        assert check.description == "The day was never fetched."


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_an_invalid_sales_list_fails_the_asset_and_changes_nothing(
    services: Services, simulator_url: str
) -> None:
    materialize(services, sales_list)
    with services.database.reading() as session:
        before = sales_day(session, date.fromisoformat(DAY))
    add_faults(simulator_url, {"route": "crm.sales_list", "body": "wrong_types"})
    assert not materialize(services, sales_list).success
    with services.database.reading() as session:
        assert sales_day(session, date.fromisoformat(DAY)) == before


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_staleness_check_names_stale_days_without_calling_the_crm(
    services: Services, simulator_url: str
) -> None:
    materialize(services, sales_list)
    result = materialize(
        services,
        sales_list,
        no_stale_day,
        day=None,
        selection=dg.AssetSelection.checks(no_stale_day),
    )
    [check] = result.get_asset_check_evaluations()
    assert not check.passed
    assert "2026-02-02" in str(check.description)
    assert DAY not in str(check.description)
    assert call_count(simulator_url, DAY, "crm.sales_list") == 1


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_no_check_stays_planned_after_the_nightly_jobs_have_run(services: Services) -> None:
    instance = dg.DagsterInstance.ephemeral()
    night = dg.Definitions(
        assets=[sales_list],
        asset_checks=[sales_list_checks, no_stale_day],
        jobs=[sales_list_revalidation, sales_list_staleness],
        resources={"services": resource_with(services)},
    )
    day = night.resolve_job_def("sales_list_revalidation").execute_in_process(
        instance=instance, partition_key=DAY
    )
    assert set(verdicts(day)) == set(DAY_CHECKS)
    staleness = night.resolve_job_def("sales_list_staleness").execute_in_process(instance=instance)
    assert set(verdicts(staleness)) == {STALE_CHECK}
    for name in (*DAY_CHECKS, STALE_CHECK):
        key = dg.AssetCheckKey(sales_list.key, name)
        [evaluation] = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
        assert evaluation.status is not AssetCheckExecutionRecordStatus.PLANNED


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_run_without_a_day_fails_with_an_instruction(services: Services) -> None:
    """Regression: `dagster job execute -j sales_list_revalidation` needed an undocumented tag."""
    system = dg.Definitions(
        assets=[sales_list],
        asset_checks=[sales_list_checks, no_stale_day],
        jobs=[sales_list_revalidation],
        resources={"services": resource_with(services)},
    )
    job = system.resolve_job_def("sales_list_revalidation")
    result = job.execute_in_process(raise_on_error=False)
    [failure] = [one for one in result.all_events if one.is_step_failure]
    assert failure.step_failure_data.error is not None
    assert failure.step_failure_data.error.message.strip() == (
        "dagster._core.definitions.events.Failure: Choose a day as YYYY-MM-DD, with --partition for an "
        'asset or --tags \'{"dagster/partition": "2026-02-03"}\' for a job.'
    )


@every_case(
    ("tick", "partition"),
    [
        (datetime(2026, 3, 29, 2, 15, tzinfo=UTC), "2026-03-28"),
        (datetime(2026, 10, 25, 3, 15, tzinfo=UTC), "2026-10-24"),
        (datetime(2027, 1, 1, 3, 15, tzinfo=UTC), "2026-12-31"),
    ],
)
def test_the_nightly_schedule_requests_yesterday_in_paris(tick: datetime, partition: str) -> None:
    context = dg.build_schedule_context(scheduled_execution_time=tick)
    request = yesterdays_sales_list(context)
    assert isinstance(request, dg.RunRequest)
    assert (request.partition_key, request.run_key) == (partition, partition)
