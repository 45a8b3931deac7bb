"""What a run tells of its days: the four assets, for the days that have a partition, as each would have told it."""

from collections.abc import Iterator
from datetime import UTC, date, datetime

import dagster as dg
import pytest

from automation_pipeline.automation.domain.run import Trigger
from automation_pipeline.automation.store.runs import add_run, as_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.materialisations import ASSETS, ran_over, run_materialisations
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.audits.days import DAY, audit_the_day, sold
from automation_pipeline_tests.automation.reports import open_a_run
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule

OTHER, BEFORE_ALL = date(2026, 2, 4), date(2019, 2, 4)


@pytest.fixture
def services(database_url: str) -> Iterator[Services]:
    our = Services(Settings(database_url=database_url), StandingClock(datetime(2026, 2, 5, 3, 0, tzinfo=UTC)))
    yield our
    our.database.dispose()


@pytest.fixture
def bench(services: Services) -> Bench:
    assert isinstance(services.clock, StandingClock)
    return Bench(services.database, services.clock)


def days(told: list[dg.AssetMaterialization]) -> set[tuple[str, str | None]]:
    return {(one.asset_key.to_user_string(), one.partition) for one in told}


def test_a_run_tells_the_four_assets_of_each_day_that_it_touched(services: Services, bench: Bench) -> None:
    bench.configure(runAutomatically=True)
    sold(bench, "1", "2")
    sold(bench, "3", day=OTHER)
    audit_the_day(bench)
    run_id = open_a_run(bench, ("1", "2", "3"))
    told = run_materialisations(services, run_id)
    assert days(told) == {(asset, day.isoformat()) for asset in ASSETS for day in (DAY, OTHER)}
    of_day = {one.asset_key.to_user_string(): one.metadata for one in told if one.partition == DAY.isoformat()}
    assert of_day["sales_list"]["fiches"].value == 2
    assert of_day["fiche_details"]["with_details"].value == 2
    assert of_day["transcripts"]["transcribed"].value == 2
    assert of_day["audit_outcomes"]["audited"].value == 2


def test_only_the_assets_that_the_run_worked_on_are_told(services: Services, bench: Bench) -> None:
    sold(bench, "1")
    told = run_materialisations(services, open_a_run(bench, ("1",)), ["fiche_details"])
    assert days(told) == {("fiche_details", DAY.isoformat())}


def test_days_without_a_partition_and_fiches_without_a_day_are_left_out(services: Services, bench: Bench) -> None:
    sold(bench, "1", day=BEFORE_ALL)
    assert run_materialisations(services, open_a_run(bench, ("1", "unknown"))) == []


@pytest.mark.parametrize(
    ("wanted", "assets"),
    [
        ({}, ASSETS),
        ({"runAudits": False}, ("sales_list", "fiche_details", "transcripts")),
        ({"runTranscription": False, "runAudits": False}, ("sales_list", "fiche_details")),
    ],
)
def test_a_run_has_worked_on_what_its_schedule_wants(
    services: Services, wanted: dict[str, bool], assets: tuple[str, ...]
) -> None:
    schedule = a_schedule(services.database, services.clock, **wanted)
    with services.database.transaction() as session:
        run = as_run(add_run(session, schedule, Trigger.MANUAL, services.clock.now()))
    assert tuple(ran_over(services, run)) == assets


def test_dagster_keeps_what_is_told(services: Services, bench: Bench) -> None:
    sold(bench, "1")
    run_id = open_a_run(bench, ("1",))
    with dg.DagsterInstance.ephemeral() as instance:
        for one in run_materialisations(services, run_id):
            instance.report_runless_asset_event(one)
        assert instance.get_materialized_partitions(dg.AssetKey("transcripts")) == {DAY.isoformat()}
