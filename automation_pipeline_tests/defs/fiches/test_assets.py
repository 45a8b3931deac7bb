"""The CRM mirror in Dagster: materialising a day, checking it, and the nightly schedule."""

from collections.abc import Iterator
from datetime import UTC, date, datetime

import dagster as dg
import pytest

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.fiches.assets import fiche_details, sales_list
from automation_pipeline.defs.fiches.checks import fiche_details_checks, no_stale_day, sales_list_checks
from automation_pipeline.defs.fiches.schedule import yesterdays_sales_list
from automation_pipeline.fiches.domain.coverage import COVERAGE_CHECKS
from automation_pipeline.fiches.domain.days import DAY_CHECKS
from automation_pipeline.fiches.store.sales import sales_day
from automation_pipeline.orchestration.resource import ServicesResource
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.outside import calls, fault

DAY = "2026-02-03"


@pytest.fixture
def services(database_url: str, simulated: str) -> Iterator[Services]:
    settings = Settings(database_url=database_url, fiche_api_base_url=simulated, fiche_api_auth_token="sim-token")
    our = Services(settings, StandingClock(datetime(2026, 2, 4, 3, 0, tzinfo=UTC)))
    yield our
    our.database.dispose()


def materialize(
    services: Services, *definitions: object, day: str | None = DAY, selection: dg.AssetSelection | None = None
) -> dg.ExecuteInProcessResult:
    class Given(ServicesResource):
        def get(self) -> Services:
            return services

    instance = dg.DagsterInstance.ephemeral()
    return dg.materialize(
        list(definitions),  # type: ignore[arg-type]  checks are taken too
        partition_key=day,
        selection=selection,
        resources={"services": Given()},
        instance=instance,
        raise_on_error=False,
    )


def metadata(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, object]:
    [event] = result.asset_materializations_for_node(asset)
    return {name: value.value for name, value in event.metadata.items()}


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {check.check_name: check.passed for check in result.get_asset_check_evaluations()}


def test_a_day_is_mirrored_with_counts_that_people_can_read(services: Services) -> None:
    result = materialize(services, sales_list, sales_list_checks)
    assert result.success
    told = metadata(result, "sales_list")
    assert (told["fiches"], told["new"], told["changed"]) == (24, 24, 0)
    assert "| fiches | 24 |" in str(told["summary"])
    assert verdicts(result) == {**dict.fromkeys(DAY_CHECKS, True), "every_fiche_has_a_cle": told["missing_cle"] == 0}


def test_a_second_time_finds_nothing_new_and_costs_one_call(services: Services, simulated: str) -> None:
    materialize(services, sales_list)
    told = metadata(materialize(services, sales_list), "sales_list")
    assert (told["fiches"], told["new"], told["changed"]) == (24, 0, 0)
    assert calls(simulated, DAY, "crm.sales_list") == 2


def test_the_details_of_the_day_are_covered(services: Services) -> None:
    result = materialize(services, sales_list, fiche_details, fiche_details_checks)
    assert result.success
    told = metadata(result, "fiche_details")
    assert (told["fiches"], told["with_details"], told["not_found"], told["coverage"]) == (24, 23, 1, 1.0)
    assert verdicts(result) == dict.fromkeys(COVERAGE_CHECKS, True)


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_list_that_cannot_be_understood_fails_the_asset_and_changes_nothing(
    services: Services, simulated: str
) -> None:
    materialize(services, sales_list)
    with services.database.reading() as session:
        before = sales_day(session, date.fromisoformat(DAY))
    fault(simulated, {"route": "crm.sales_list", "body": "wrong_types"})
    assert not materialize(services, sales_list).success
    with services.database.reading() as session:
        assert sales_day(session, date.fromisoformat(DAY)) == before


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_stale_days_are_named_without_asking_anybody(services: Services, simulated: str) -> None:
    materialize(services, sales_list)
    result = materialize(services, sales_list, no_stale_day, day=None, selection=dg.AssetSelection.checks(no_stale_day))
    [check] = result.get_asset_check_evaluations()
    assert not check.passed
    assert "2026-02-02" in str(check.description)
    assert DAY not in str(check.description)
    assert calls(simulated, DAY, "crm.sales_list") == 1


@pytest.mark.parametrize(
    ("tick", "partition"),
    [
        (datetime(2026, 3, 29, 2, 15, tzinfo=UTC), "2026-03-28"),
        (datetime(2026, 10, 25, 3, 15, tzinfo=UTC), "2026-10-24"),
        (datetime(2027, 1, 1, 3, 15, tzinfo=UTC), "2026-12-31"),
    ],
)
def test_the_night_asks_for_yesterday_in_paris(tick: datetime, partition: str) -> None:
    context = dg.build_schedule_context(scheduled_execution_time=tick)
    request = yesterdays_sales_list(context)
    assert isinstance(request, dg.RunRequest)
    assert (request.partition_key, request.run_key) == (partition, partition)
