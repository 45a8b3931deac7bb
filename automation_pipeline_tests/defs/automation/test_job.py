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
from automation_pipeline_tests.automation.bench import Bench
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.harness import transcript_of
from automation_pipeline_tests.waiting import wait_until_async

RUN_ID = 1


@pytest.fixture
def bench(database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The job uses the services of the bench."""
    bench = Bench(database, clock)
    monkeypatch.setattr(transcribing, "FENCE_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(bootstrap, "services", lambda: services_of(bench))
    return bench


def services_of(bench: Bench) -> bootstrap.Services:
    services = bootstrap.Services(Settings(), bench.clock)
    vars(services).update(
        database=bench.database, crm=bench.crm, speech=bench.provider, judge=bench.judge
    )
    return services


def execute(
    bench: Bench, *fiche_ids: str, **fields: object
) -> tuple[dg.ExecuteInProcessResult, dict[str, str]]:
    """The result and the tags of the Dagster run."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = automation_run.execute_in_process(
            run_config={
                "ops": {
                    "open_run": {"config": {"schedule_id": bench.schedule(*fiche_ids, **fields).id}}
                }
            },
            resources={"services": ServicesResource(), "io_manager": Tickets()},
            raise_on_error=False,
            instance=instance,
        )
        run = instance.get_run_by_id(result.run_id)
    assert run
    return result, dict(run.tags)


def read(bench: Bench) -> Run:
    with bench.database.reading() as session:
        return get_run(session, RUN_ID)


def cancel(bench: Bench) -> None:
    if read(bench).completed_at is None:
        cancel_run(RUN_ID, database=bench.database, clock=bench.clock, reason="Wrong day")


def take_over(bench: Bench) -> None:
    ticket = RunAttempt(RUN_ID, 1)
    if read(bench).attempt == 1:
        bench.take_over(ticket)


def while_fetching(bench: Bench, stop: Callable[[Bench], None], _: pytest.MonkeyPatch) -> None:
    class Crm(FakeFicheSource):
        async def details(self, fiche_id: str) -> CrmFiche:
            await asyncio.to_thread(stop, bench)
            return await super().details(fiche_id)

    bench.crm = Crm(map(fiche, ("1", "2")))


def while_transcribing(bench: Bench, stop: Callable[[Bench], None], _: pytest.MonkeyPatch) -> None:
    async def during_call(_url: str) -> None:
        await asyncio.to_thread(stop, bench)
        await asyncio.Event().wait()

    bench.speech = FakeSpeechToText(otherwise=transcript_of, during_call=during_call)


def while_auditing(bench: Bench, stop: Callable[[Bench], None], _: pytest.MonkeyPatch) -> None:
    async def during_call(_question: Question) -> None:
        await asyncio.to_thread(stop, bench)
        await asyncio.Event().wait()

    bench.model = FakeLanguageModel(during_call=during_call)


def between_steps(
    bench: Bench, stop: Callable[[Bench], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop the run after `settle_fetch`, so that the next steps find it stopped."""
    settle = fetching.settle_fetch

    def settle_and_stop(ticket: RunAttempt, **services: object) -> list[int]:
        batches = settle(ticket, **services)  # type: ignore[arg-type]
        stop(bench)
        return batches

    monkeypatch.setattr(fetching, "settle_fetch", settle_and_stop)


@pytest.mark.parametrize(
    "moment", [while_fetching, while_transcribing, while_auditing, between_steps]
)
def test_a_run_cancelled_during_a_step_succeeds_with_status_cancelled(
    moment: Callable[..., None], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add_to_crm("1", "2")
    bench.automatic()
    moment(bench, cancel, monkeypatch)
    result, tags = execute(bench, "1", "2")
    run = read(bench)
    failed = [event.step_key for event in result.all_events if event.is_step_failure]
    assert (result.success, failed) == (True, [])
    assert (run.status, run.error_message) == ("cancelled", "Cancelled by an operator: Wrong day")
    assert (tags[STATUS_TAG], run.phase) == ("cancelled", "finalizing")
    [shown] = [e for e in result.events_for_node("finalise_run") if e.is_successful_output]
    assert shown.step_output_data.metadata["status"].value == "cancelled"


def test_a_batch_is_audited_before_the_next_one_is_transcribed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process executes one step at a time. The phase of the run is the earliest unfinished one:
    the first batch is audited while the phase is still transcribing."""
    monkeypatch.setattr(selection, "batch_size", lambda *_: 1)
    phases: list[str | None] = []

    async def during_call(_question: Question) -> None:
        phases.append((await asyncio.to_thread(read, bench)).phase)

    bench.model = FakeLanguageModel(during_call=during_call)
    bench.add_to_crm("1", "2")
    bench.automatic()
    result, tags = execute(bench, "1", "2")
    assert [e.step_key for e in result.all_events if e.is_step_start][-5:] == [
        "transcribe_batch[batch_0]",
        "audit_batch[batch_0]",
        "transcribe_batch[batch_1]",
        "audit_batch[batch_1]",
        "finalise_run",
    ]
    assert (phases[0], phases[-1]) == ("transcribing", "auditing")
    assert (tags[STATUS_TAG], read(bench).successful_fiches) == ("completed", 2)


def test_the_next_batch_is_transcribed_while_a_batch_is_audited(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process executes one step at a time; the providers do not wait for each other."""
    monkeypatch.setattr(selection, "batch_size", lambda *_: 1)

    async def during_call(_question: Question) -> None:
        if len(bench.model.questions) == 1:
            await wait_until_async(lambda: bench.url("2") in bench.speech.calls)

    bench.model = FakeLanguageModel(during_call=during_call)
    bench.add_to_crm("1", "2", "3")
    bench.automatic()
    result, tags = execute(bench, "1", "2", "3")
    assert (result.success, tags[STATUS_TAG]) == (True, "completed")
    assert sorted(bench.speech.calls) == [bench.url(each) for each in ("1", "2", "3")]


def test_a_transcription_error_of_the_next_batch_fails_no_audit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "batch_size", lambda *_: 1)
    bench.speech.fail_always(bench.url("2"), PermanentError("No speech in this audio"))
    bench.add_to_crm("1", "2")
    bench.automatic()
    result, tags = execute(bench, "1", "2")
    assert (result.success, tags[STATUS_TAG]) == (True, "partial")
    assert {
        each: outcome.detail for each, outcome in bench.outcomes(RunAttempt(RUN_ID, 1)).items()
    } == {
        "1": None,
        "2": "Transcription incomplete: No speech in this audio",
    }


def test_a_fiche_that_cannot_be_transcribed_does_not_fail_the_step(bench: Bench) -> None:
    bench.add_to_crm("1", "2")
    bench.automatic()
    bench.speech.fail_always(bench.url("1"), PermanentError("No speech in this audio"))
    result, tags = execute(bench, "1", "2")
    assert result.success
    assert (tags[STATUS_TAG], read(bench).failed_fiches) == ("partial", 1)
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


@pytest.mark.parametrize("missing", ["runTranscription", "runAudits"])
def test_a_step_disabled_by_the_schedule_does_nothing(missing: str, bench: Bench) -> None:
    bench.add_to_crm("1")
    bench.automatic()
    result, tags = execute(bench, "1", **{missing: False})
    assert (result.success, tags[STATUS_TAG]) == (True, "completed")
    done = (bool(bench.speech.calls), read(bench).audits_run)
    # An audit needs transcripts, so it has the calls transcribed itself.
    assert done == ((True, 1) if missing == "runTranscription" else (True, 0))
    gates = {note for note in bench.notes(RunAttempt(RUN_ID, 1)) if note.startswith("DONE")}
    disabled = "DONE: transcription-gate" if missing == "runTranscription" else "DONE: audit-gate"
    assert disabled not in gates


def test_a_superseded_attempt_fails(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add_to_crm("1")
    bench.automatic()
    while_auditing(bench, take_over, monkeypatch)
    result, tags = execute(bench, "1")
    assert not result.success
    assert STATUS_TAG not in tags
    assert read(bench).status == "running"
