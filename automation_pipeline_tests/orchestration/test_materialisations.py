"""The asset events of a run: four assets for each day that has a partition."""

from collections.abc import Iterator
from datetime import UTC, date, datetime

import dagster as dg
import pytest

from automation_pipeline.automation.models.runs import Run, RunStatus, Trigger
from automation_pipeline.automation.queries.runs import add_run, as_run
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.run_summary import ASSETS, asset_events, assets_of_run
from automation_pipeline_tests.audits.days import DAY, audit_day_of_sales, record_sales
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.automation.reports import end, open_a_run
from automation_pipeline_tests.factories import make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock

OTHER, BEFORE_ALL = date(2026, 2, 4), date(2019, 2, 4)


@pytest.fixture
def services(database_url: str) -> Iterator[Services]:
    built = Services(
        Settings(database_url=database_url), FakeClock(datetime(2026, 2, 5, 3, 0, tzinfo=UTC))
    )
    yield built
    built.database.dispose()


@pytest.fixture
def harness(services: Services) -> AuditHarness:
    assert isinstance(services.clock, FakeClock)
    return AuditHarness(services.database, services.clock)


def make_run(
    harness: AuditHarness, *fiche_ids: str, status: RunStatus = RunStatus.COMPLETED
) -> Run:
    run_id = open_a_run(harness, fiche_ids)
    with harness.database.transaction() as session:
        row = session.get_one(RunRow, run_id)
        row.status, row.completed_at = status, harness.clock.now()
    with harness.database.reading() as session:
        return as_run(session.get_one(RunRow, run_id))


def metadata_of(
    services: Services, run: Run, assets: tuple[str, ...] = ASSETS
) -> dict[str, set[tuple[str, str | None]]]:
    """The assets and days by type of event."""
    found: dict[str, set[tuple[str, str | None]]] = {}
    for event in asset_events(services, run, assets):
        found.setdefault(type(event).__name__, set()).add(
            (event.asset_key.to_user_string(), event.partition)
        )
    return found


def of_all(day: date, assets: tuple[str, ...] = ASSETS) -> set[tuple[str, str | None]]:
    return {(asset, day.isoformat()) for asset in assets}


def test_complete_days_are_materialised_and_partial_days_observed(
    services: Services, harness: AuditHarness
) -> None:
    harness.configure(runAutomatically=True)
    record_sales(harness, "1", "2")
    record_sales(harness, "3", day=OTHER)
    audit_day_of_sales(harness)
    run = make_run(harness, "1", "3")
    events = metadata_of(services, run)
    assert events["AssetMaterialization"] == of_all(OTHER)
    assert events["AssetObservation"] == of_all(DAY)
    assert events["AssetCheckEvaluation"] == of_all(DAY) | of_all(OTHER)
    [observed] = [
        event for event in asset_events(services, run) if isinstance(event, dg.AssetObservation)
        and event.asset_key.to_user_string() == "audit_outcomes"
    ]  # fmt: skip
    assert (observed.metadata["audited"].value, observed.metadata["automation_run"].value) == (
        2,
        run.id,
    )


@pytest.mark.parametrize(
    ("reason", "is_filtered"),
    [
        ("groupe_not_selected", True),
        ("missing_groupe", True),
        ("too_many_recordings", True),
        ("no_recordings", False),
        ("not_found", False),
    ],
)
def test_a_day_filtered_after_its_details_has_no_whole_transcripts_and_audits(
    services: Services, harness: AuditHarness, reason: str, is_filtered: bool
) -> None:
    """Finding 8.1: a run over one of five groupes materialised the audits of the whole day."""
    record_sales(harness, "1", "2")
    record_sales(harness, "3", day=OTHER)
    run = make_run(harness, "1", "2", "3")
    with harness.database.transaction() as session:
        end(session, run.id, "2", "ignored", reason=reason)
    events = metadata_of(services, run)
    filtered = of_all(DAY, ("transcripts", "audit_outcomes")) if is_filtered else set()
    assert events.get("AssetObservation", set()) == filtered
    assert events["AssetMaterialization"] == (of_all(DAY) | of_all(OTHER)) - filtered


def test_a_run_that_stops_after_the_fetch_materialises_no_transcripts(
    services: Services, harness: AuditHarness
) -> None:
    record_sales(harness, "1")
    run = make_run(harness, "1", status=RunStatus.PARTIAL)
    with harness.database.transaction() as session:
        session.get_one(RunRow, run.id).stopped_after_fetch = True
    events = metadata_of(services, run)
    assert events["AssetObservation"] == of_all(DAY, ("transcripts", "audit_outcomes"))
    assert events["AssetMaterialization"] == of_all(DAY, ("sales_list", "fiche_details"))


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.CANCELLED])
def test_a_failed_or_cancelled_run_materialises_nothing(
    services: Services, harness: AuditHarness, status: RunStatus
) -> None:
    record_sales(harness, "1")
    events = metadata_of(services, make_run(harness, "1", status=status))
    assert "AssetMaterialization" not in events
    assert events["AssetObservation"] == of_all(DAY)


def test_only_the_assets_of_the_run_have_events(services: Services, harness: AuditHarness) -> None:
    record_sales(harness, "1")
    events = metadata_of(services, make_run(harness, "1"), ("fiche_details",))
    assert {asset for group in events.values() for asset, _ in group} == {"fiche_details"}


def test_days_without_a_partition_and_fiches_without_a_day_are_ignored(
    services: Services, harness: AuditHarness
) -> None:
    record_sales(harness, "1", day=BEFORE_ALL)
    assert metadata_of(services, make_run(harness, "1", "unknown")) == {}


@pytest.mark.parametrize(
    ("wanted", "assets"),
    [
        ({}, ASSETS),
        ({"runAudits": False}, ("sales_list", "fiche_details", "transcripts")),
        ({"runTranscription": False, "runAudits": False}, ("sales_list", "fiche_details")),
    ],
)
def test_the_assets_of_a_run_follow_its_schedule(
    services: Services, wanted: dict[str, bool], assets: tuple[str, ...]
) -> None:
    schedule = make_schedule(services.database, services.clock, **wanted)
    with services.database.transaction() as session:
        run = as_run(add_run(session, schedule, Trigger.MANUAL, services.clock.now()))
    assert tuple(assets_of_run(services, run)) == assets


def test_dagster_stores_every_event_and_the_materialised_days(
    services: Services, harness: AuditHarness
) -> None:
    record_sales(harness, "1", "2")
    for fiche_ids, materialised in ((("1",), set()), (("1", "2"), {DAY.isoformat()})):
        with dg.DagsterInstance.ephemeral() as instance:
            for event in asset_events(services, make_run(harness, *fiche_ids)):
                instance.report_runless_asset_event(event)
            assert instance.get_materialized_partitions(dg.AssetKey("transcripts")) == materialised
