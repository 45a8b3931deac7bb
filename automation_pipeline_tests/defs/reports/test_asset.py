"""The asset of a day's report: tables, a chart, and reproducible files."""

import base64
import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.audits import daily_quality_report, daily_quality_report_checks
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.orchestration.report import rows_filed
from automation_pipeline_tests.audits.days import DAY, answer_by_transcript, record_sales
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.automation.reports import make_reported_run
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel

Shown = dict[str, object]


@pytest.fixture
def services(database_url: str, tmp_path: Path) -> Iterator[Services]:
    settings = Settings(database_url=database_url, automation_reports_dir=str(tmp_path / "reports"))
    built = Services(settings, FakeClock(datetime(2026, 2, 4, 3, 0, tzinfo=UTC)))
    yield built
    built.database.dispose()


@pytest.fixture
def harness(services: Services) -> AuditHarness:
    assert isinstance(services.clock, FakeClock)
    return AuditHarness(services.database, services.clock, FakeLanguageModel(answer_by_transcript))


def materialize(services: Services) -> dg.ExecuteInProcessResult:
    class FixedServices(ServicesResource):
        def get(self) -> Services:
            return services

    return dg.materialize(
        [daily_quality_report, daily_quality_report_checks],  # type: ignore[list-item]  checks are taken too
        partition_key=DAY.isoformat(),
        resources={"services": FixedServices()},
        instance=dg.DagsterInstance.ephemeral(),
        raise_on_error=False,
    )


def metadata_of(result: dg.ExecuteInProcessResult) -> Shown:
    [event] = result.asset_materializations_for_node("daily_quality_report")
    return {name: value.value for name, value in event.metadata.items()}


def check(result: dg.ExecuteInProcessResult) -> tuple[bool, str | None]:
    [one] = result.get_asset_check_evaluations()
    return one.passed, one.description


def files(report: Shown) -> tuple[bytes, bytes]:
    return Path(str(report["parquet"])).read_bytes(), Path(str(report["csv"])).read_bytes()


def test_the_report_lists_groupes_failing_points_and_failure_reasons(
    services: Services, harness: AuditHarness
) -> None:
    make_reported_run(harness)
    result = materialize(services)
    report = metadata_of(result)
    lines = str(report["by_groupe"]).splitlines()
    assert (
        lines[0]
        == "| groupe | fiches | transcribed | audited | audits | mean score | compliant | rejected |"
    )
    assert "| NORD | 1 | 1 | 1 | 1 | 100.0 | 100% | 0 |" in lines
    assert next(line for line in lines if "script" in line).endswith(
        "\\| $x^{$ | 1 | 1 | 0 | 0 | – | – | 0 |"
    )
    assert lines[-1].startswith("| all | 3 | 3 | 2 | 2 | ")
    groupes = [line.removeprefix("| ").lstrip("\\") for line in lines[2:-1]]
    assert groupes == sorted(groupes)
    assert "| transcription_incomplete | 1 |" in str(report["failures"])
    assert "| 1 | 2 | 50% |" in str(report["failing_points"])
    assert check(result) == (True, "2 rows in the file, 2 audits of the day.")


def test_the_metadata_contains_a_small_chart(services: Services, harness: AuditHarness) -> None:
    make_reported_run(harness)
    picture = str(metadata_of(materialize(services))["picture"])
    before, after = f"![{DAY}](data:image/png;base64,", ")"
    assert picture.startswith(before)
    drawn = base64.b64decode(picture.removeprefix(before).removesuffix(after), validate=True)
    assert drawn.startswith(b"\x89PNG")
    assert len(drawn) < 60_000


def test_the_files_have_one_row_per_audit_and_the_same_columns(
    services: Services, harness: AuditHarness
) -> None:
    make_reported_run(harness)
    report = metadata_of(materialize(services))
    rows = pq.read_table(str(report["parquet"])).to_pylist()
    assert [(row["fiche_id"], row["groupe"], row["status"]) for row in rows] == [
        ("1", "NORD", "completed"),
        ("2", "SUD", "completed"),
    ]
    assert (rows[0]["sales_date"], rows[0]["score"], rows[0]["is_compliant"]) == (DAY, 100.0, True)
    with Path(str(report["csv"])).open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["fiche_id"] for row in written] == ["1", "2"]
    assert list(written[0]) == list(rows[0])


def test_the_report_files_are_reproducible_and_leave_no_other_files(
    services: Services, harness: AuditHarness
) -> None:
    make_reported_run(harness)
    first = metadata_of(materialize(services))
    bytes_of_first = files(first)
    again = metadata_of(materialize(services))
    assert again == first
    assert files(again) == bytes_of_first
    folder = Path(services.settings.automation_reports_dir)
    assert sorted(path.name for path in folder.iterdir()) == [
        f"quality-{DAY}.csv",
        f"quality-{DAY}.parquet",
    ]


def test_a_day_without_fiches_or_audits_has_a_note(
    services: Services, harness: AuditHarness
) -> None:
    result = materialize(services)
    assert result.success
    assert (
        metadata_of(result)["by_groupe"]
        == metadata_of(result)["note"]
        == "No known fiche was sold on this day."
    )
    assert check(result) == (False, "The day was never fetched.")
    record_sales(harness, "1", "2")
    result = materialize(services)
    assert metadata_of(result)["note"] == "No fiche of the day has been audited."
    assert "| all | 2 | 2 | 0 | 0 | – | – | 0 |" in str(metadata_of(result)["by_groupe"])
    assert pq.read_table(str(metadata_of(result)["parquet"])).num_rows == 0
    assert check(result) == (True, "0 rows in the file, 0 audits of the day.")


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_rows_in_the_report_file_can_be_counted(
    services: Services, harness: AuditHarness
) -> None:
    make_reported_run(harness)
    folder = Path(services.settings.automation_reports_dir)
    assert rows_filed(DAY, folder) is None
    assert materialize(services).success
    assert rows_filed(DAY, folder) == 2


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_a_folder_that_cannot_be_created_fails_the_asset_with_its_name(
    services: Services, tmp_path: Path
) -> None:
    (tmp_path / "reports").write_text("a file")
    result = materialize(services)
    assert not result.success
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert "reports" in str(failure.event_specific_data)
    assert "cannot be written" in str(failure.event_specific_data)
