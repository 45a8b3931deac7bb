"""The job `housekeeping`: one run deletes old rows and old Dagster runs and reports them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import select

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.housekeeping import housekeeping
from automation_pipeline.orchestration.job_registry import run_request
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.retention import request_housekeeping
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import WorkflowLogRow
from automation_pipeline.storage.run_requests import RunRequestRow, offer_waiting
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.orchestration.test_retention import empty
from automation_pipeline_tests.retention.old_rows import OLD, add_row


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("is_dry", "left"), [(False, 1), (True, 3)])
def test_housekeeping_deletes_old_rows_and_old_dagster_runs(
    database: Database, database_url: str, tmp_path: Path, is_dry: bool, left: int
) -> None:
    next_year = FakeClock(datetime.now(UTC) + timedelta(days=366))
    services = Services(Settings(database_url=database_url), next_year)
    key = request_housekeeping(services)
    with database.transaction() as session:
        [request] = offer_waiting(session, limit=1)
        for _ in range(3):
            add_row(session, WorkflowLogRow, created_at=OLD)

    class FixedServices(ServicesResource):
        def get(self) -> Services:
            return services

    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        old = empty.execute_in_process(instance=instance).run_id
        asked = run_request(request)
        config = {"ops": {"keep_house_tidy": {"config": {"dry_run": is_dry}}}}
        assert list(asked.run_config["ops"]) == list(config["ops"])
        done = housekeeping.execute_in_process(
            instance=instance,
            resources={"services": FixedServices()},
            run_config=config,
            tags=asked.tags,
        )
        [result] = [one for one in done.all_events if one.is_successful_output]
        assert (instance.get_run_by_id(old) is None) is not is_dry
    metadata = result.step_output_data.metadata
    assert "| workflow_logs | 2 |" in str(metadata["kinds"].value)
    assert metadata["rows"].value > 2
    with database.reading() as session:
        assert len(session.scalars(select(WorkflowLogRow.id)).all()) == left
        taken = session.scalars(select(RunRequestRow).where(RunRequestRow.request_key == key)).one()
        assert (taken.state, taken.dagster_run_id) == ("taken", done.run_id)
    services.database.dispose()
