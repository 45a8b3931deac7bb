"""The run summary that `finalise_run` shows in Dagster's UI."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from automation_pipeline.automation.queries.runs import as_run
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.orchestration.run_summary import run_summary
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.automation.reports import make_reported_run
from automation_pipeline_tests.fakes.clock import FakeClock


@pytest.fixture
def services(database_url: str) -> Iterator[Services]:
    built = Services(
        Settings(database_url=database_url), FakeClock(datetime(2026, 2, 5, 3, 0, tzinfo=UTC))
    )
    yield built
    built.database.dispose()


def test_the_run_summary_has_counts_reasons_and_failed_fiches(services: Services) -> None:
    assert isinstance(services.clock, FakeClock)
    run_id = make_reported_run(AuditHarness(services.database, services.clock))
    with services.database.transaction() as session:
        row = session.get_one(RunRow, run_id)
        row.status, row.completed_at = "partial", services.clock.now()
        row.successful_fiches, row.failed_fiches, row.ignored_fiches = 2, 1, 1
        run = as_run(row)
    shown = {name: value.value for name, value in run_summary(services, run).items()}
    assert (shown["status"], shown["successful"], shown["failed"], shown["ignored"]) == (
        "partial",
        2,
        1,
        1,
    )
    assert "| failed | transcription_incomplete | 1 |" in str(shown["reasons"])
    assert "| ignored | not_found | 1 |" in str(shown["reasons"])
    assert "| 3 | transcription_incomplete | The call " in str(shown["failed_fiches"])
    assert "failed_fiches_shown" not in shown
    assert "failed_days" not in shown
    assert shown["report"] == f"automation runs report {run_id}"


def test_the_run_summary_shows_the_days_that_could_not_be_read(services: Services) -> None:
    """Regression: a run that missed days of its selection ended green without a reason."""
    assert isinstance(services.clock, FakeClock)
    run_id = make_reported_run(AuditHarness(services.database, services.clock))
    days = [{"date": "2026-02-03", "error": "The CRM answered 503."}]
    with services.database.transaction() as session:
        row = session.get_one(RunRow, run_id)
        row.status, row.completed_at = "completed", services.clock.now()
        row.selection_summary = {"revalidation_failures": days}
        run = as_run(row)
    shown = run_summary(services, run)["failed_days"].value
    assert str(shown).splitlines()[2:] == ["| 2026-02-03 | The CRM answered 503. |"]


def test_the_run_summary_shows_how_many_failed_fiches_are_omitted(
    services: Services,
) -> None:
    assert isinstance(services.clock, FakeClock)
    run_id = make_reported_run(AuditHarness(services.database, services.clock))
    with services.database.transaction() as session:
        row = session.get_one(RunRow, run_id)
        row.status, row.completed_at, row.failed_fiches = "failed", services.clock.now(), 7
        run = as_run(row)
    shown = {name: value.value for name, value in run_summary(services, run).items()}
    assert shown["failed_fiches_shown"] == "the first 1 of 7"
