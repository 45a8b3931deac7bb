"""Tests of provider calls and outcomes for cached and uncached fiches."""

from datetime import date, timedelta
from typing import Any

import pytest

from automation_pipeline.automation.fetching import FetchOptions
from automation_pipeline.core.errors import TransientError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.harness import AutomationHarness, Outcome
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import summary

TODAY = date(2026, 5, 4)
LAST_DAY = {"mode": "date_range", "dateRange": "last_24h"}


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AutomationHarness:
    created = AutomationHarness(database, clock)
    created.automatic()
    return created


def manual(*fiche_ids: str, **filters: object) -> dict[str, Any]:
    return {"mode": "manual", "ficheIds": list(fiche_ids), **filters}


def mirror_without_details(harness: AutomationHarness, *fiche_ids: str) -> None:
    """Add fiches that the mirror knows only from a sales list."""
    harness.crm.set_sales(TODAY, *(summary(fiche_id) for fiche_id in fiche_ids))
    harness.select(harness.open(harness.schedule(ficheSelection=LAST_DAY).id, "dagster-sales"))
    harness.crm.requests.clear()


def test_1_details_are_fetched_for_fiches_with_and_without_a_sales_list_entry(
    harness: AutomationHarness,
) -> None:
    harness.sell("cached")
    harness.add_to_crm("short", "absent")
    mirror_without_details(harness, "short")
    harness.clock.advance(timedelta(hours=2))
    run = harness.run("cached", "short", "absent")
    assert (run.status, run.successful_fiches) == ("completed", 3)
    assert sorted(harness.crm.requests) == ["absent", "cached", "short"]


def test_1b_details_fetched_during_the_run_are_not_requested_again(
    harness: AutomationHarness,
) -> None:
    run_attempt = harness.open(harness.schedule("7").id)
    harness.sell("7")
    run = harness.run_steps(run_attempt)
    assert (run.status, harness.crm.requests) == ("completed", ["7"])


def test_2_days_are_revalidated_before_selection_and_failed_days_use_the_mirror(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("old", "new")
    mirror_without_details(harness, "old")
    harness.clock.advance(timedelta(minutes=30))
    harness.crm.set_sales(TODAY, summary("old"), summary("new"))
    harness.crm.fail_once(TODAY.isoformat(), TransientError("The CRM answered 500."))
    stale = harness.run_schedule(harness.schedule(ficheSelection=LAST_DAY).id, "dagster-2")
    harness.clock.advance(timedelta(minutes=30))
    fresh = harness.run_schedule(stale.schedule_id, "dagster-3")
    assert [list(harness.outcomes(run)) for run in (stale, fresh)] == [["old"], ["new", "old"]]
    assert [run.status for run in (stale, fresh)] == ["completed", "completed"]


def test_3_a_fiche_without_a_groupe_in_the_sales_list_is_filtered_by_its_details(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("north", groupe="NORD")
    harness.add_to_crm("south", groupe="SUD")
    harness.crm.set_sales(TODAY, summary("north"), summary("south"))
    run = harness.run(ficheSelection={**LAST_DAY, "groupes": ["NORD"]})
    assert (run.selected_fiches, run.total_fiches) == (2, 1)
    assert harness.outcomes(run) == {
        "north": Outcome("successful"),
        "south": Outcome("ignored", "groupe_not_selected", "Groupe not selected (SUD)"),
    }


def test_4_fiches_without_recordings_are_ignored_not_failed(harness: AutomationHarness) -> None:
    harness.add_to_crm("called")
    harness.add_to_crm("silent", calls=0)
    harness.crm.set_sales(TODAY, summary("called"), summary("silent"))
    run = harness.run(ficheSelection={**LAST_DAY, "onlyWithRecordings": True})
    assert (run.status, run.selected_fiches, run.total_fiches, run.ignored_fiches) == (
        "completed",
        2,
        1,
        1,
    )
    assert harness.outcomes(run)["silent"] == Outcome("ignored", "no_recordings", "No recordings")


def test_5_existing_transcripts_count_without_a_provider_call(harness: AutomationHarness) -> None:
    harness.sell("done")
    harness.add_to_crm("waiting")
    run = harness.run("done", "waiting", skipIfTranscribed=True)
    assert harness.speech.calls == [harness.url("waiting")]
    assert (run.transcriptions_run, run.successful_fiches) == (2, 2)
    assert "Transcription progress: 2/2" in harness.logs(run)


@pytest.mark.parametrize(("own", "ceiling", "most"), [(2, 9, 2), (2, 1, 2), (None, 2, 2)])
def test_6_the_schedules_recording_limit_overrides_the_setting(
    own: int | None, ceiling: int, most: int, harness: AutomationHarness
) -> None:
    harness.add_to_crm("few", calls=2)
    harness.add_to_crm("many", calls=3)
    harness.fetching = FetchOptions(30, ceiling)
    run = harness.run(ficheSelection=manual("few", "many", maxRecordingsPerFiche=own))
    assert harness.outcomes(run) == {
        "few": Outcome("successful"),
        "many": Outcome("ignored", "too_many_recordings", f"Too many recordings (3 > {most})"),
    }
    assert len(harness.speech.calls) == 2


def test_7_without_the_transcription_stage_audits_transcribe_missing_recordings(
    harness: AutomationHarness,
) -> None:
    harness.sell("done")
    harness.add_to_crm("waiting")
    run = harness.run("done", "waiting", runTranscription=False)
    assert (run.status, run.audits_run, run.transcriptions_run) == ("completed", 2, 0)
    assert harness.transcribed == ["waiting"]
    assert harness.speech.calls == [harness.url("waiting")]
