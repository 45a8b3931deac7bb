"""The sensor `terminated_runs`: terminating a Dagster run ends its work."""

from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg
import pytest

from automation_pipeline import bootstrap
from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.requests import (
    AuditRequestOptions,
    request_audits,
    request_rerun,
)
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.audits import sweep_audits
from automation_pipeline.defs.housekeeping import terminated_runs
from automation_pipeline.orchestration.job_registry import TERMINATED, run_request
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import mark_taken, offer_waiting, refusals
from automation_pipeline_tests.audits.harness import AuditHarness, stored_batch
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel


@pytest.fixture
def harness(database: Database, monkeypatch: pytest.MonkeyPatch) -> AuditHarness:
    """The sensor uses the services of the bench."""
    harness = AuditHarness(database, FakeClock(datetime.now(UTC)))
    services = bootstrap.Services(Settings(), harness.clock)
    services.database, services.judge = database, harness.judge
    monkeypatch.setattr(bootstrap, "services", lambda: services)
    return harness


def terminate(
    harness: AuditHarness,
    instance: dg.DagsterInstance,
    *,
    before: Callable[[str], None] = lambda _: None,
) -> None:
    """Start the run of the only waiting request, terminate it, and call the sensor."""
    with harness.database.transaction() as session:
        [request] = offer_waiting(session, limit=9)
    launch = run_request(request)
    run = dg.DagsterRun(
        request.job, run_id="r-1", run_config=dict(launch.run_config), tags=dict(launch.tags)
    )
    instance.add_run(run)
    before(run.run_id)
    with harness.database.transaction() as session:
        mark_taken(session, request.key, run.run_id)
    instance.report_run_canceled(run)
    ended = instance.get_run_by_id(run.run_id)
    assert ended
    [event] = [one.dagster_event for one in instance.all_logs(run.run_id) if one.dagster_event]
    with dg.build_run_status_sensor_context(
        "terminated_runs", event, instance, ended, resources={"services": ServicesResource()}
    ) as context:
        assert terminated_runs(context) is None  # the run belongs to a request


def test_a_terminated_audit_ends_its_batch_entry_and_request(harness: AuditHarness) -> None:
    options = AuditRequestOptions(audit_config_id=harness.configure(steps=1), batch=True)
    filed = request_audits(["7"], options, database=harness.database, clock=harness.clock)
    with dg.DagsterInstance.ephemeral() as instance:
        terminate(harness, instance)
    assert stored_batch(harness.database, filed.batch_id).failures == [("7", TERMINATED)]
    with harness.database.reading() as session:
        assert refusals(session, [filed.audits[0].tracking_id]) == {
            filed.audits[0].tracking_id: TERMINATED
        }


def test_an_audit_terminated_while_running_fails(harness: AuditHarness) -> None:
    harness.sell("7")
    options = AuditRequestOptions(audit_config_id=harness.configure(steps=1))
    [one] = request_audits(["7"], options, database=harness.database, clock=harness.clock).audits

    async def interrupted(_: object) -> None:
        raise RuntimeError("interrupted")

    def work(run_id: str) -> None:
        harness.model = FakeLanguageModel(during_call=interrupted)
        with pytest.raises(RuntimeError, match="interrupted"):
            harness.audit("7", 1, one.tracking_id, dagster_run_id=run_id)
        assert harness.row(one.tracking_id).status == "running"

    with dg.DagsterInstance.ephemeral() as instance:
        terminate(harness, instance, before=work)
    row = harness.row(one.tracking_id)
    assert (row.status, row.error_message) == ("failed", TERMINATED)


def test_the_request_of_a_terminated_rerun_is_refused(harness: AuditHarness) -> None:
    harness.sell("7")
    harness.audit("7", harness.configure(steps=1))
    requested = request_rerun(StepLocation(1, 1), database=harness.database, clock=harness.clock)
    with dg.DagsterInstance.ephemeral() as instance:
        terminate(harness, instance)
    with harness.database.reading() as session:
        assert refusals(session, [requested.rerun_id]) == {requested.rerun_id: TERMINATED}
    assert harness.row().status == "completed"


def test_the_audit_sweep_runs_without_abandoned_audits(harness: AuditHarness) -> None:
    resources = {"services": ServicesResource()}
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance, resources=resources) as context,
    ):
        result = sweep_audits(context)
    assert isinstance(result, dg.SkipReason)
    assert result.skip_message == "No audit is abandoned."
