"""The job `automation_run`: its result and what it stores."""

import asyncio
from collections.abc import Callable

import dagster as dg
import pytest

from automation_pipeline import bootstrap
from automation_pipeline.audits.models.chat import Question
from automation_pipeline.automation import fetching, selection, transcribing
from automation_pipeline.automation.models.runs import Run, RunAttempt
from automation_pipeline.automation.queries.runs import get_run
from automation_pipeline.automation.runs import cancel_run
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs.automation import automation_run
from automation_pipeline.fiches.models.fiches import CrmFiche
from automation_pipeline.orchestration.automation_runs import STATUS_TAG, Tickets
from automation_pipeline.orchestration.ops import ServicesResource
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.harness import AutomationHarness
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.harness import transcript_of
from automation_pipeline_tests.waiting import wait_until_async

RUN_ID = 1


@pytest.fixture
def harness(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> AutomationHarness:
    """The job uses the services of the harness."""
    harness = AutomationHarness(database, clock)
    monkeypatch.setattr(transcribing, "FENCE_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(bootstrap, "services", lambda: services_of(harness))
    return harness


def services_of(harness: AutomationHarness) -> bootstrap.Services:
    services = bootstrap.Services(Settings(), harness.clock)
    vars(services).update(
        database=harness.database, crm=harness.crm, speech=harness.provider, judge=harness.judge
    )
    return services


def execute(
    harness: AutomationHarness, *fiche_ids: str, **fields: object
) -> tuple[dg.ExecuteInProcessResult, dict[str, str]]:
    """The result and the tags of the Dagster run."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = automation_run.execute_in_process(
            run_config={
                "ops": {
                    "open_run": {
                        "config": {"schedule_id": harness.schedule(*fiche_ids, **fields).id}
                    }
                }
            },
            resources={"services": ServicesResource(), "io_manager": Tickets()},
            raise_on_error=False,
            instance=instance,
        )
        run = instance.get_run_by_id(result.run_id)
    assert run
    return result, dict(run.tags)


def read(harness: AutomationHarness) -> Run:
    with harness.database.reading() as session:
        return get_run(session, RUN_ID)


def cancel(harness: AutomationHarness) -> None:
    if read(harness).completed_at is None:
        cancel_run(RUN_ID, database=harness.database, clock=harness.clock, reason="Wrong day")


def take_over(harness: AutomationHarness) -> None:
    ticket = RunAttempt(RUN_ID, 1)
    if read(harness).attempt == 1:
        harness.take_over(ticket)


def while_fetching(
    harness: AutomationHarness, stop: Callable[[AutomationHarness], None], _: pytest.MonkeyPatch
) -> None:
    class Crm(FakeFicheSource):
        async def details(self, fiche_id: str) -> CrmFiche:
            await asyncio.to_thread(stop, harness)
            return await super().details(fiche_id)

    harness.crm = Crm(map(fiche, ("1", "2")))


def while_transcribing(
    harness: AutomationHarness, stop: Callable[[AutomationHarness], None], _: pytest.MonkeyPatch
) -> None:
    async def during_call(_url: str) -> None:
        await asyncio.to_thread(stop, harness)
        await asyncio.Event().wait()

    harness.speech = FakeSpeechToText(otherwise=transcript_of, during_call=during_call)


def while_auditing(
    harness: AutomationHarness, stop: Callable[[AutomationHarness], None], _: pytest.MonkeyPatch
) -> None:
    async def during_call(_question: Question) -> None:
        await asyncio.to_thread(stop, harness)
        await asyncio.Event().wait()

    harness.model = FakeLanguageModel(during_call=during_call)


def between_steps(
    harness: AutomationHarness,
    stop: Callable[[AutomationHarness], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stop the run after `settle_fetch`, so that the next steps find it stopped."""
    settle = fetching.settle_fetch

    def settle_and_stop(ticket: RunAttempt, **services: object) -> list[int]:
        batches = settle(ticket, **services)  # type: ignore[arg-type]
        stop(harness)
        return batches

    monkeypatch.setattr(fetching, "settle_fetch", settle_and_stop)


@pytest.mark.parametrize(
    "moment", [while_fetching, while_transcribing, while_auditing, between_steps]
)
def test_a_run_cancelled_during_a_step_succeeds_with_status_cancelled(
    moment: Callable[..., None], harness: AutomationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add_to_crm("1", "2")
    harness.automatic()
    moment(harness, cancel, monkeypatch)
    result, tags = execute(harness, "1", "2")
    run = read(harness)
    failed = [event.step_key for event in result.all_events if event.is_step_failure]
    assert (result.success, failed) == (True, [])
    assert (run.status, run.error_message) == ("cancelled", "Cancelled by an operator: Wrong day")
    assert (tags[STATUS_TAG], run.phase) == ("cancelled", "finalizing")
    [shown] = [e for e in result.events_for_node("finalise_run") if e.is_successful_output]
    assert shown.step_output_data.metadata["status"].value == "cancelled"


def test_a_batch_is_audited_before_the_next_one_is_transcribed(
    harness: AutomationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process executes one step at a time. The phase of the run is the earliest unfinished one:
    the first batch is audited while the phase is still transcribing."""
    monkeypatch.setattr(selection, "batch_size", lambda *_: 1)
    phases: list[str | None] = []

    async def during_call(_question: Question) -> None:
        phases.append((await asyncio.to_thread(read, harness)).phase)

    harness.model = FakeLanguageModel(during_call=during_call)
    harness.add_to_crm("1", "2")
    harness.automatic()
    result, tags = execute(harness, "1", "2")
    assert [e.step_key for e in result.all_events if e.is_step_start][-5:] == [
        "transcribe_batch[batch_0]",
        "audit_batch[batch_0]",
        "transcribe_batch[batch_1]",
        "audit_batch[batch_1]",
        "finalise_run",
    ]
    assert (phases[0], phases[-1]) == ("transcribing", "auditing")
    assert (tags[STATUS_TAG], read(harness).successful_fiches) == ("completed", 2)


def test_the_next_batch_is_transcribed_while_a_batch_is_audited(
    harness: AutomationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process executes one step at a time; the providers do not wait for each other."""
    monkeypatch.setattr(selection, "batch_size", lambda *_: 1)

    async def during_call(_question: Question) -> None:
        if len(harness.model.questions) == 1:
            await wait_until_async(lambda: harness.url("2") in harness.speech.calls)

    harness.model = FakeLanguageModel(during_call=during_call)
    harness.add_to_crm("1", "2", "3")
    harness.automatic()
    result, tags = execute(harness, "1", "2", "3")
    assert (result.success, tags[STATUS_TAG]) == (True, "completed")
    assert sorted(harness.speech.calls) == [harness.url(each) for each in ("1", "2", "3")]


def test_a_transcription_error_of_the_next_batch_fails_no_audit(
    harness: AutomationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "batch_size", lambda *_: 1)
    harness.speech.fail_always(harness.url("2"), PermanentError("No speech in this audio"))
    harness.add_to_crm("1", "2")
    harness.automatic()
    result, tags = execute(harness, "1", "2")
    assert (result.success, tags[STATUS_TAG]) == (True, "partial")
    assert {
        each: outcome.detail for each, outcome in harness.outcomes(RunAttempt(RUN_ID, 1)).items()
    } == {
        "1": None,
        "2": "Transcription incomplete: No speech in this audio",
    }


def test_a_fiche_that_cannot_be_transcribed_does_not_fail_the_step(
    harness: AutomationHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.add_to_crm("1", "2")
    harness.automatic()
    harness.speech.fail_always(harness.url("1"), PermanentError("No speech in this audio"))
    result, tags = execute(harness, "1", "2")
    assert result.success
    assert (tags[STATUS_TAG], read(harness).failed_fiches) == ("partial", 1)
    counts = {
        event.node_name: {
            name: value.value for name, value in event.step_output_data.metadata.items()
        }
        for event in result.all_events
        if event.is_successful_output and event.node_name.endswith("_batch")
    }
    assert counts == {
        "fetch_batch": {"fetched": 2},
        "transcribe_batch": {"failed": 1},
        "audit_batch": {"successful": 1},
    }
    summary = "Run 1 ended partial: 2 selected = 1 successful + 1 failed + 0 ignored."
    assert summary in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["runTranscription", "runAudits"])
def test_a_step_disabled_by_the_schedule_does_nothing(
    missing: str, harness: AutomationHarness
) -> None:
    harness.add_to_crm("1")
    harness.automatic()
    result, tags = execute(harness, "1", **{missing: False})
    assert (result.success, tags[STATUS_TAG]) == (True, "completed")
    done = (bool(harness.speech.calls), read(harness).audits_run)
    # An audit needs transcripts, so it has the calls transcribed itself.
    assert done == ((True, 1) if missing == "runTranscription" else (True, 0))
    gates = {note for note in harness.notes(RunAttempt(RUN_ID, 1)) if note.startswith("DONE")}
    disabled = "DONE: transcription-gate" if missing == "runTranscription" else "DONE: audit-gate"
    assert disabled not in gates


def test_a_superseded_attempt_fails(
    harness: AutomationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add_to_crm("1")
    harness.automatic()
    while_auditing(harness, take_over, monkeypatch)
    result, tags = execute(harness, "1")
    assert not result.success
    assert STATUS_TAG not in tags
    assert read(harness).status == "running"


def test_a_bug_in_a_step_closes_the_run_at_once(
    harness: AutomationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object, **_more: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("automation_pipeline.automation.fetching.settle_fetch", fail)
    harness.add_to_crm("1")
    result, _ = execute(harness, "1")
    assert not result.success
    run = read(harness)
    assert (run.status, run.error_message) == ("failed", "ZeroDivisionError: a bug")
