"""The job `audit_fiche`: it succeeds with any grade and fails without one."""

import dagster as dg
import pytest

from automation_pipeline import bootstrap
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.audits import audit_fiche, sweep_audits
from automation_pipeline.orchestration.ops import ServicesResource, dagster_errors, error_message_of
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel, step_answer
from automation_pipeline_tests.services import free_port
from automation_pipeline_tests.transcription.harness import call


@pytest.fixture
def harness(database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AuditHarness:
    harness = AuditHarness(database, clock)
    harness.sell("1900417")
    monkeypatch.setattr(bootstrap, "services", lambda: services_of(harness))
    return harness


def services_of(harness: AuditHarness) -> bootstrap.Services:
    services = bootstrap.Services(Settings(), harness.clock)
    services.database, services.judge, services.crm = harness.database, harness.judge, harness.crm
    return services


def execute(config_id: int, **links: int) -> dg.ExecuteInProcessResult:
    config = {"fiche_id": "1900417", "audit_config_id": config_id, **links}
    return audit_fiche.execute_in_process(
        run_config={"ops": {"audit": {"config": config}}},
        resources={"services": ServicesResource()},
        raise_on_error=False,
    )


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    [outputs] = [
        event.step_output_data.metadata for event in result.all_events if event.is_successful_output
    ]
    return {name: value.value for name, value in outputs.items()}


@pytest.mark.parametrize(
    ("statut", "score", "niveau"),
    [("PRESENT", 5, "EXCELLENT"), ("ABSENT", 0, "INSUFFISANT")],
    ids=["best", "worst"],
)
def test_an_audit_with_a_grade_succeeds_whatever_the_grade(
    harness: AuditHarness, statut: str, score: int, niveau: str
) -> None:
    harness.model = FakeLanguageModel(lambda asked: step_answer(asked, statuts=statut, score=score))
    result = execute(harness.configure(steps=2))
    assert result.success
    assert metadata_of(result) == {
        "audit": "1",
        "status": "completed",
        "niveau": niveau,
        "score": 20.0 * score,
        "steps": 2,
        "failed_steps": 0,
    }


def test_an_audit_without_a_grade_fails_with_the_reason(harness: AuditHarness) -> None:
    harness.model.refuse_everything(PermanentError("The key is refused (check LLM_API_KEY)."))
    result = execute(harness.configure(steps=2))
    assert not result.success
    [failure] = result.get_step_failure_events()
    assert "The key is refused" in (failure.step_failure_data.user_failure_data.description or "")


def test_an_id_of_nothing_in_the_config_fails_with_its_name(harness: AuditHarness) -> None:
    config_id, huge = harness.configure(steps=1), 2**70
    configs = [
        (huge, {}, "audit_config_id: must be from 1 to "),
        (config_id, {"automation_run_id": huge}, "automation_run_id: must be from 1 to "),
        (config_id, {"automation_schedule_id": 777}, "automation_schedule_id: does not exist"),
        (config_id, {"automation_run_id": 555}, "automation_run_id: does not exist"),
    ]
    for number, links, complaint in configs:
        [failure] = execute(number, **links).get_step_failure_events()
        assert complaint in (failure.step_failure_data.user_failure_data.description or "")


def test_audits_and_their_sweep_work_without_redis(
    harness: AuditHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = bootstrap.Services(
        Settings(redis_url=f"redis://127.0.0.1:{free_port()}/0"), harness.clock
    )
    services.database, services.crm = harness.database, harness.crm
    monkeypatch.setattr(
        "automation_pipeline.clients.factories.open_model", lambda *_given: harness.model
    )
    monkeypatch.setattr(bootstrap, "services", lambda: services)
    result = execute(harness.configure(steps=2))
    assert result.success
    assert metadata_of(result)["status"] == "completed"
    resources = {"services": ServicesResource()}
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance=instance, resources=resources) as context,
    ):
        assert sweep_audits(context) == dg.SkipReason("No audit is abandoned.")


def test_an_audit_without_all_transcripts_fails_with_the_reason(harness: AuditHarness) -> None:
    harness.clock.advance_one_second()
    harness.sell("1900417", call("190041701"), call("190041702"), text=None)
    result = execute(harness.configure(steps=1))
    assert not result.success
    [failure] = result.get_step_failure_events()
    assert "transcripts of 1 of 2 recordings" in str(
        failure.step_failure_data.user_failure_data.description
    )


def test_a_retry_request_has_the_message_of_its_cause() -> None:
    with pytest.raises(dg.RetryRequested) as asked, dagster_errors():
        raise TransientError("The CRM does not answer.")
    assert error_message_of(asked.value) == "The CRM does not answer."


def test_a_bug_during_an_audit_closes_the_audit_at_once(harness: AuditHarness) -> None:
    async def fail(_question: object) -> None:
        raise ZeroDivisionError("a bug")

    harness.model = FakeLanguageModel(during_call=fail)
    result = execute(harness.configure(steps=1))
    assert not result.success
    row = harness.row(f"audit-1900417-1-{result.run_id}")
    assert (row.status, row.error_message) == ("failed", "ZeroDivisionError: a bug")
