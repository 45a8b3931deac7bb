"""The job `audit_rerun`: from its config to the stored step, and a retry that reuses it."""

import dagster as dg
import pytest

from automation_pipeline import bootstrap
from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.requests import RERUN_JOB, request_rerun
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.audits import audit_rerun
from automation_pipeline.defs.housekeeping import launch_requests, run_failures
from automation_pipeline.orchestration.job_registry import JOBS, run_request
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import offer_waiting, taken
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel, step_answer


@pytest.fixture
def harness(database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AuditHarness:
    """An audit with one step of two points, the second ABSENT. The job uses the services of the bench."""
    model = FakeLanguageModel(
        lambda asked: step_answer(asked, statuts=["PRESENT", "ABSENT"], score=3)
    )
    harness = AuditHarness(database, clock, model=model)
    harness.sell("1900417")
    harness.audit("1900417", harness.configure(steps=1))
    harness.model = FakeLanguageModel()
    services = bootstrap.Services(Settings(), clock)
    services.database, services.judge = database, harness.judge
    monkeypatch.setattr(bootstrap, "services", lambda: services)
    return harness


def execute(config: object, tags: dict[str, str] | None = None) -> dg.ExecuteInProcessResult:
    return audit_rerun.execute_in_process(
        run_config={"ops": {JOBS[RERUN_JOB].first_op: {"config": config}}},
        resources={"services": ServicesResource()},
        tags=tags,
        raise_on_error=False,
    )


def test_a_requested_rerun_is_executed_and_marked_taken(harness: AuditHarness) -> None:
    asked = request_rerun(
        StepLocation(1, 1, 2),
        instructions="Listen.",
        database=harness.database,
        clock=harness.clock,
    )
    with harness.database.transaction() as session:
        [request] = offer_waiting(session, limit=9)
    launch = run_request(request)
    result = execute(launch.run_config["ops"]["rerun"]["config"], dict(launch.tags))
    assert result.success
    assert harness.row().niveau == "EXCELLENT"
    with harness.database.reading() as session:
        assert taken(session, [asked.rerun_id]) == {asked.rerun_id}
    [output] = [event for event in result.all_events if event.is_successful_output]
    metadata = {name: one.value for name, one in output.step_output_data.metadata.items()}
    assert (metadata["conforme"], metadata["reruns"]) == ("CONFORME", 1)
    assert set(metadata) == {"step", "conforme", "score", "weight", "reruns"}
    again = execute(launch.run_config["ops"]["rerun"]["config"])
    assert again.success
    assert harness.model.calls == 1


def test_the_launchpad_requires_only_audit_and_step(harness: AuditHarness) -> None:
    assert execute({"audit_id": 1, "step_position": 1}).success
    assert execute({"audit_id": 1, "step_position": 1}).success
    assert harness.model.calls == 2


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"audit_id": 7, "step_position": 1}, "Audit not found"),
        (
            {"audit_id": 1, "step_position": 1, "control_point_index": 9},
            "Audit control point with ID '1:1:9'",
        ),
        (
            {"audit_id": 1, "step_position": 1, "custom_prompt": "x" * 5001},
            "at most 5000 characters",
        ),
    ],
)
def test_an_impossible_rerun_fails_permanently_with_one_sentence(
    harness: AuditHarness, config: dict[str, object], words: str
) -> None:
    result = execute(config)
    assert not result.success
    [failure] = result.get_step_failure_events()
    assert words in (failure.step_failure_data.user_failure_data.description or "")
    assert harness.model.calls == 0


def test_the_rerun_job_is_registered_and_launched_by_the_sensor() -> None:
    assert audit_rerun.name == RERUN_JOB
    assert JOBS[RERUN_JOB].first_op in {node.name for node in audit_rerun.nodes}
    assert RERUN_JOB in {job.name for job in launch_requests.jobs}
    assert run_failures.name == "run_failures"
