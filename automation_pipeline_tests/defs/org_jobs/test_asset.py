"""The asset of a day's outcomes: counts in the zone of the partitions, and its checks."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from automation_pipeline.defs.org_jobs import org_job_outcomes, org_job_outcomes_checks
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.defs.org_jobs.org_services import RESOURCES, data_with_services
from automation_pipeline_tests.org_jobs.data import ORG, OTHER_ORG, SERVICE, OrgJobsData

DAY = "2026-05-04"
MIDNIGHT = datetime(2026, 5, 3, 22, 0, tzinfo=UTC)  # in Paris
SECOND = timedelta(seconds=1)


@pytest.fixture
def data(database: Database, monkeypatch: pytest.MonkeyPatch) -> OrgJobsData:
    return data_with_services(database, monkeypatch)


def materialize() -> tuple[Mapping[str, object], dict[str, bool]]:
    """The metadata, and whether each check passed."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [org_job_outcomes, org_job_outcomes_checks],  # type: ignore[list-item]  checks are taken too
            partition_key=DAY,
            resources=RESOURCES,
            instance=instance,
        )
    [event] = result.asset_materializations_for_node("org_job_outcomes")
    page = {name: value.value for name, value in event.metadata.items()}
    return page, {one.check_name: one.passed for one in result.get_asset_check_evaluations()}


def ended(data: OrgJobsData, at: datetime, status: str, org_id: str = ORG) -> None:
    job_id = data.job(org_id, SERVICE)
    code = "FAILED" if status == "failed" else None
    data.set_run(data.run_row(job_id).id, status=status, finished_at=at, error_code=code)
    data.set_job(job_id, finished_at=at)


def test_a_day_without_jobs_passes_all_checks(data: OrgJobsData) -> None:
    page, checks = materialize()
    assert page == {"dispatched": 0, "skipped": 0, "failed": 0, "jobs": 0}
    assert set(checks.values()) == {True}


def test_the_due_times_and_jobs_of_the_day_are_reported(data: OrgJobsData) -> None:
    own, other = data.schedule(), data.schedule(OTHER_ORG)
    for seconds, latency in ((-1, 0), (0, 2), (3600, 4), (24 * 3600, 0)):
        at = MIDNIGHT + seconds * SECOND
        data.fire(own, at, effective_for=at - latency * SECOND)
    skipped = {"outcome": "SKIPPED", "skip_reason": "overlap"}
    data.fire(other, MIDNIGHT + 7 * SECOND, **skipped)
    for status in ("success", "success", "failed"):
        ended(data, MIDNIGHT + SECOND, status)
    ended(data, MIDNIGHT - SECOND, "success")
    page, checks = materialize()
    assert (page["dispatched"], page["skipped"], page["failed"], page["jobs"]) == (2, 1, 0, 3)
    assert page["mean_latency_seconds"] == pytest.approx(3, abs=0.01)
    assert "| overlap | 1 |" in str(page["skipped_because"])
    assert "| success | 2 |" in str(page["jobs_by_state"])
    assert "| HTTPS_CALL | failed | 1 |" in str(page["jobs_by_type"])
    assert f"| {ORG} | 2 | 0 | 0 | 2 | 1 | 0 |" in str(page["organisations"])
    assert f"| {OTHER_ORG} | 0 | 1 | 0 | 0 | 0 | 0 |" in str(page["organisations"])
    assert set(checks.values()) == {True}


def test_a_day_with_failures_fails_its_checks(data: OrgJobsData) -> None:
    late = data.now - timedelta(seconds=301)
    schedule = data.schedule(next_run_at=late, next_scheduled_for=late)
    data.schedule(state="INVALID_CRON")
    data.fire(schedule, MIDNIGHT, outcome="FAILED", error="No job could be made.")
    _, checks = materialize()
    assert checks == {"no_fire_failed": False, "nothing_left_due": False, "no_invalid_cron": False}
