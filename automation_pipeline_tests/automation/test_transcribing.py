"""Tests of transcribing a batch: readiness, retries, time budgets, and errors per fiche."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import delete, update

from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.automation.transcribing import (
    BatchContext,
    transcribe_batch,
)
from automation_pipeline.core.errors import AutomationError, PermanentError
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.database import Database, DatabaseFullError, Session
from automation_pipeline.transcription.models import (
    Transcript,
    TranscriptionPriority,
    TranscriptionRunRequest,
    TranscriptionStatus,
    TranscriptionSummary,
)
from automation_pipeline.transcription.queries.runs import list_summaries
from automation_pipeline.transcription.runs import begin_transcription
from automation_pipeline.transcription.tables import TranscriptionRunRow, TranscriptionTaskRow
from automation_pipeline_tests.automation.harness import AutomationHarness
from automation_pipeline_tests.fakes.crm import fiche
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.harness import call, transcript_of
from automation_pipeline_tests.waiting import advance_time, run_with_fake_time, wait_until_async

NO_SPEECH = PermanentError("No speech in this audio")
INCOMPLETE = "Transcription incomplete"
TIMED_OUT = f"{INCOMPLETE} (timeout/stall)"


def transcribe(
    harness: AutomationHarness, run_attempt: RunAttempt, context: BatchContext | None = None
) -> tuple[dict[str, str | None], list[str]]:
    """Transcribe the batch; return the failed fiches with their errors, and the transcribed ones."""
    run_with_fake_time(transcribe_batch(run_attempt, 0, context=context or harness.context))
    return failed(harness, run_attempt), transcribed(harness, run_attempt)


def failed(harness: AutomationHarness, run_attempt: RunAttempt) -> dict[str, str | None]:
    return {row.fiche_id: row.error for row in harness.rows(run_attempt) if row.status == "failed"}


def transcribed(harness: AutomationHarness, run_attempt: RunAttempt) -> list[str]:
    return [row.fiche_id for row in harness.rows(run_attempt) if row.transcribed]


class Idle:
    """A service that records requests and transcribes nothing."""

    def __init__(self) -> None:
        self.requests: list[list[TranscriptionRunRequest]] = []

    async def begin(
        self, requests: Sequence[TranscriptionRunRequest]
    ) -> Sequence[TranscriptionSummary | AutomationError]:
        self.requests.append(list(requests))
        return [
            TranscriptionSummary(
                request.run_id, request.fiche_id, TranscriptionStatus.COMPLETED, 1, 0, 1
            )
            for request in requests
        ]

    async def transcribe(self, _run_ids: Sequence[str], _own: Sequence[str]) -> object:
        raise AssertionError("All runs have already ended")

    def replaced_in(self, context: BatchContext) -> BatchContext:
        return replace(context, begin_transcriptions=self.begin, transcribe=self.transcribe)

    @property
    def keys(self) -> list[list[str]]:
        return [[request.run_id for request in each] for each in self.requests]


def test_a_fiche_is_ready_before_the_others_are_transcribed(harness: AutomationHarness) -> None:
    harness.add_to_crm("1", "2")
    run_attempt = harness.prepare_work("1", "2")

    async def wait_for_the_first(url: str) -> None:
        if url == harness.url("2"):
            await wait_until_async(lambda: transcribed(harness, run_attempt) == ["1"])

    harness.speech = FakeSpeechToText(otherwise=transcript_of, during_call=wait_for_the_first)
    assert transcribe(harness, run_attempt) == ({}, ["1", "2"])


def test_transcribed_fiches_are_ready_without_a_request(harness: AutomationHarness) -> None:
    harness.sell("1")
    harness.add_to_crm("2")
    run_attempt, idle = harness.prepare_work("1", "2"), Idle()
    lost, ready = transcribe(harness, run_attempt, idle.replaced_in(harness.context))
    assert (lost, ready) == ({"2": TIMED_OUT}, ["1"])
    assert idle.keys == [["automation-1-transcribe-2"]]


def test_requests_have_the_schedules_priority_and_use_the_runs_details(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("1")
    run_attempt, idle = harness.prepare_work("1", transcriptionPriority="high"), Idle()
    transcribe(harness, run_attempt, idle.replaced_in(harness.context))
    [[request]] = idle.requests
    assert (request.priority, request.fresh_since) == (
        TranscriptionPriority.HIGH,
        harness.read(run_attempt).started_at,
    )


@pytest.mark.parametrize(
    ("retry_failed", "max_retries", "suffixes"),
    [(False, 2, [""]), (True, 0, [""]), (True, 2, ["", "-retry-1", "-retry-2"])],
)
def test_incomplete_fiches_get_new_requests_only_if_retry_failed_is_on(
    retry_failed: bool, max_retries: int, suffixes: list[str], harness: AutomationHarness
) -> None:
    harness.add_to_crm("1", "2")
    run_attempt, idle = (
        harness.prepare_work("1", "2", retryFailed=retry_failed, maxRetries=max_retries),
        Idle(),
    )
    lost, ready = transcribe(harness, run_attempt, idle.replaced_in(harness.context))
    assert (lost, ready) == ({"1": TIMED_OUT, "2": TIMED_OUT}, [])
    assert idle.keys == [
        [f"automation-1-transcribe-{one}{suffix}" for one in ("1", "2")] for suffix in suffixes
    ]
    lines = [
        line for line in harness.logs(run_attempt) if line.startswith("Retrying transcriptions")
    ]
    assert lines == [
        f"Retrying transcriptions ({n}/{max_retries})" for n in range(1, len(suffixes))
    ]
    assert not [line for line in harness.logs(run_attempt) if "timeout/stall" in line], (
        "the time budget is not used up"
    )


@pytest.mark.parametrize(
    ("retry_failed", "lost"), [(False, {"2": f"{INCOMPLETE}: {NO_SPEECH}"}), (True, {})]
)
def test_a_retry_transcribes_only_failed_recordings(
    retry_failed: bool, lost: dict[str, str], harness: AutomationHarness
) -> None:
    harness.add_to_crm("1", "2")
    harness.speech.fail_once(harness.url("2"), NO_SPEECH)
    run_attempt = harness.prepare_work("1", "2", retryFailed=retry_failed, maxRetries=1)
    assert transcribe(harness, run_attempt)[0] == lost
    assert (
        harness.speech.call_count(harness.url("1")),
        harness.speech.call_count(harness.url("2")),
    ) == (
        1,
        1 + retry_failed,
    )


def test_a_database_error_fails_the_step_but_no_fiche(harness: AutomationHarness) -> None:
    harness.add_to_crm("1", "2")
    run_attempt = harness.prepare_work("1", "2")

    async def full(_run_ids: Sequence[str], _own: Sequence[str]) -> object:
        raise DatabaseFullError("It cannot grow.")

    with pytest.raises(DatabaseFullError):
        transcribe(harness, run_attempt, replace(harness.context, transcribe=full))
    assert failed(harness, run_attempt) == {}
    assert transcribe(harness, run_attempt) == ({}, ["1", "2"]), (
        "the next attempt of the step uses the stored transcripts"
    )
    assert harness.speech.call_count(harness.url("1")) == 1


def test_the_time_budget_ends_the_wait_and_leaves_other_fiches_pending(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("1", "2")
    run_attempt = harness.prepare_work("1", "2", retryFailed=True, maxRetries=5)

    async def hang_on_one_url(url: str) -> None:
        if url == harness.url("2"):
            await wait_until_async(lambda: transcribed(harness, run_attempt) == ["1"])
            advance_time(harness.work.transcription_seconds)
            await asyncio.Event().wait()

    harness.speech = FakeSpeechToText(otherwise=transcript_of, during_call=hang_on_one_url)
    assert transcribe(harness, run_attempt) == ({"2": TIMED_OUT}, ["1"])
    assert harness.logs(run_attempt)[-1] == "Transcription timeout/stall - completed 1/2"


def test_a_hanging_fiche_affects_neither_retries_nor_errors_of_others(
    harness: AutomationHarness,
) -> None:
    """Regression: one hanging fiche blocked the retries and results of all others."""
    harness.add_to_crm("hangs", "recovers", "fails")
    run_attempt = harness.prepare_work("hangs", "recovers", "fails", retryFailed=True, maxRetries=1)
    harness.speech.fail_once(harness.url("recovers"), NO_SPEECH)
    harness.speech.fail_always(harness.url("fails"), NO_SPEECH)
    without_speech = {"fails": f"{INCOMPLETE}: {NO_SPEECH}"}

    class Hanging(FakeSpeechToText):
        async def transcribe(
            self, url: str, *, before_call: Callable[[], Awaitable[None]]
        ) -> Transcript:
            if url == harness.url("hangs"):
                await wait_until_async(
                    lambda: (
                        (transcribed(harness, run_attempt), failed(harness, run_attempt))
                        == (["recovers"], without_speech)
                    )
                )
                advance_time(harness.work.transcription_seconds)
                await asyncio.Event().wait()
            return await speech.transcribe(url, before_call=before_call)

    speech, harness.speech = harness.speech, Hanging()
    assert transcribe(harness, run_attempt) == (
        {**without_speech, "hangs": TIMED_OUT},
        ["recovers"],
    )
    assert [speech.call_count(harness.url(each)) for each in ("recovers", "fails")] == [2, 2]
    assert "Retrying transcriptions (1/1)" in harness.logs(run_attempt)


class BudgetEndingDatabase(Database):
    """The time budget ends while the first transaction outside the loop's thread waits."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        super().__init__(url)
        self._loop, self._seconds, self._is_over = loop, seconds, threading.Event()
        self._loops_thread = threading.get_ident()

    def _end_time(self) -> None:
        advance_time(self._seconds)
        # Runs after the callbacks of the deadlines that are due now.
        self._loop.call_later(0, self._is_over.set)

    @contextmanager
    def transaction(self) -> Generator[Session]:
        if threading.get_ident() != self._loops_thread and not self._is_over.is_set():
            self._loop.call_soon_threadsafe(self._end_time)
            self._is_over.wait(20)
        with super().transaction() as session:
            yield session


def test_a_fiche_transcribed_just_before_the_deadline_is_ready(
    harness: AutomationHarness, database_url: str
) -> None:
    harness.sell("1")
    run_attempt = harness.prepare_work("1")

    async def transcribe_late() -> None:
        loop = asyncio.get_running_loop()
        late = BudgetEndingDatabase(database_url, loop, harness.work.transcription_seconds)
        try:
            await transcribe_batch(run_attempt, 0, context=replace(harness.context, database=late))
        finally:
            late.dispose()

    run_with_fake_time(transcribe_late())
    assert (failed(harness, run_attempt), transcribed(harness, run_attempt)) == ({}, ["1"])


def test_active_transcription_runs_of_other_requests_are_joined(harness: AutomationHarness) -> None:
    harness.add_to_crm("1", calls=2)
    run_attempt = harness.prepare_work("1")
    manual_request = TranscriptionRunRequest(
        "by-hand", "1", TranscriptionPriority.LOW, fresh_since=harness.read(run_attempt).started_at
    )
    asyncio.run(
        begin_transcription(
            manual_request, database=harness.database, source=harness.crm, clock=harness.clock
        )
    )
    assert transcribe(harness, run_attempt) == ({}, ["1"])
    assert sorted(harness.speech.calls) == [harness.url("1", 1), harness.url("1", 2)]
    with harness.database.reading() as session:
        [status] = list_summaries(session, ["by-hand"])
        assert status.status is TranscriptionStatus.COMPLETED
        assert list_summaries(session, ["automation-1-transcribe-1"]) == []


def test_provider_calls_for_other_requests_finish_after_the_batch(
    harness: AutomationHarness,
) -> None:
    """A worker processes recordings of any request, by priority. A started call is billed, so it
    is not cancelled."""
    harness.add_to_crm("1", "2")
    run_attempt = harness.prepare_work("1")
    urgent = TranscriptionRunRequest(
        "by-hand", "2", TranscriptionPriority.HIGH, fresh_since=harness.read(run_attempt).started_at
    )
    asyncio.run(
        begin_transcription(
            urgent, database=harness.database, source=harness.crm, clock=harness.clock
        )
    )

    async def second_takes_longer(url: str) -> None:
        if url == harness.url("2"):
            await wait_until_async(lambda: transcribed(harness, run_attempt) == ["1"])

    harness.speech = FakeSpeechToText(otherwise=transcript_of, during_call=second_takes_longer)
    transcribe(harness, run_attempt)
    with harness.database.reading() as session:
        [manual_request] = list_summaries(session, ["by-hand"])
    assert (manual_request.status, harness.speech.call_count(harness.url("2"))) == ("completed", 1)


def test_a_recording_without_a_url_is_reported_as_the_cause(harness: AutomationHarness) -> None:
    harness.crm.add(fiche("1", call("101"), call("102", url=" ")))
    run_attempt = harness.prepare_work("1")
    assert transcribe(harness, run_attempt) == (
        {"1": f"{INCOMPLETE}: No recording URL available"},
        [],
    )


def test_every_fiche_gets_the_error_about_a_missing_provider_key(
    harness: AutomationHarness,
) -> None:
    async def without_provider_key(
        _requests: Sequence[TranscriptionRunRequest],
    ) -> Sequence[TranscriptionSummary | AutomationError]:
        raise PermanentError("ELEVENLABS_API_KEY is not set.")

    harness.add_to_crm("1", "2")
    run_attempt = harness.prepare_work("1", "2")
    context = replace(
        harness.context, begin_transcriptions=without_provider_key, transcribe=Idle().transcribe
    )
    lost, ready = transcribe(harness, run_attempt, context)
    assert (lost, ready) == (
        dict.fromkeys(["1", "2"], f"{INCOMPLETE}: ELEVENLABS_API_KEY is not set."),
        [],
    )


def test_a_run_that_fails_as_a_whole_is_the_cause_for_its_fiche(harness: AutomationHarness) -> None:
    harness.add_to_crm("1", "2")
    run_attempt = harness.prepare_work("1", "2")
    process = harness.context.transcribe

    async def fail_the_first(run_ids: Sequence[str], own: Sequence[str]) -> object:
        first = "automation-1-transcribe-1"
        with harness.database.transaction() as session:
            session.execute(
                delete(TranscriptionTaskRow).where(TranscriptionTaskRow.run_id == first)
            )
            failed = update(TranscriptionRunRow).where(TranscriptionRunRow.id == first)
            session.execute(failed.values(status="failed", error="No process worked on it"))
        return await process(run_ids, own)

    lost, ready = transcribe(
        harness, run_attempt, replace(harness.context, transcribe=fail_the_first)
    )
    assert (lost, ready) == ({"1": f"{INCOMPLETE}: No process worked on it"}, ["2"])


def test_an_error_of_the_worker_is_the_cause_for_all_of_its_fiches(
    harness: AutomationHarness,
) -> None:
    async def broken(_run_ids: Sequence[str], _own: Sequence[str]) -> object:
        raise PermanentError("ELEVENLABS_API_KEY is not set.")

    harness.add_to_crm("1", "2")
    run_attempt = harness.prepare_work("1", "2")
    lost, ready = transcribe(harness, run_attempt, replace(harness.context, transcribe=broken))
    cause = f"{INCOMPLETE}: ELEVENLABS_API_KEY is not set."
    assert (lost, ready) == (dict.fromkeys(["1", "2"], cause), [])


def test_a_database_error_of_the_start_fails_the_step_but_no_fiche(
    harness: AutomationHarness,
) -> None:
    async def full(_requests: Sequence[TranscriptionRunRequest]) -> object:
        raise DatabaseFullError("It cannot grow.")

    harness.add_to_crm("1")
    run_attempt = harness.prepare_work("1")
    context = replace(harness.context, begin_transcriptions=full)  # type: ignore[arg-type]
    with pytest.raises(DatabaseFullError):
        transcribe(harness, run_attempt, context)
    assert failed(harness, run_attempt) == {}


def test_a_joined_run_that_renews_nothing_is_followed_by_an_own_run(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("1")
    again = harness.schedule("1", runAudits=False, skipIfTranscribed=False)
    harness.run_schedule(again.id, "first")
    run_attempt = harness.open(again.id, "second")
    for step in harness.steps[:3]:
        step(run_attempt)
    keys: list[list[str]] = []

    async def join_first(
        requests: Sequence[TranscriptionRunRequest],
    ) -> Sequence[TranscriptionSummary | AutomationError]:
        keys.append([request.run_id for request in requests])
        if len(keys) > 1:
            return await harness.begin_transcriptions(requests)
        ended = TranscriptionStatus.COMPLETED
        return [TranscriptionSummary("by-hand", one.fiche_id, ended, 1, 0, 1) for one in requests]

    context = replace(harness.context, begin_transcriptions=join_first)
    assert transcribe(harness, run_attempt, context) == ({}, ["1"])
    assert keys == [["automation-2-transcribe-1"]] * 2, "the own run is not a retry"
    assert harness.speech.call_count(harness.url("1")) == 2


def test_a_bug_fails_the_step(harness: AutomationHarness) -> None:
    async def broken(_run_ids: Sequence[str], _own: Sequence[str]) -> object:
        raise ZeroDivisionError

    harness.add_to_crm("1")
    run_attempt = harness.prepare_work("1")
    with pytest.raises(ZeroDivisionError):
        transcribe(harness, run_attempt, replace(harness.context, transcribe=broken))


class SlowDatabase(Database):
    """Lets other work end between the query of the second read and its result."""

    def __init__(self, url: str, continue_work: Callable[[], None]) -> None:
        super().__init__(url)
        self._readings, self._continue_work = 0, continue_work

    @contextmanager
    def reading(self) -> Generator[Session]:
        with super().reading() as session:
            yield session
        self._readings += 1
        if self._readings == 2:
            self._continue_work()


def test_work_that_ends_during_a_query_is_found_by_the_next_query(
    harness: AutomationHarness, database_url: str
) -> None:
    harness.add_to_crm("1")
    run_attempt = harness.prepare_work("1")
    query_done, work_ended = threading.Event(), threading.Event()
    work = harness.context.transcribe

    async def after_the_query(run_ids: Sequence[str], own: Sequence[str]) -> object:
        await asyncio.to_thread(query_done.wait, 20)
        await work(run_ids, own)
        asyncio.get_running_loop().call_soon(work_ended.set)
        return None

    def continue_work() -> None:
        query_done.set()
        work_ended.wait(20)

    slow = SlowDatabase(database_url, continue_work)
    try:
        context = replace(harness.context, database=slow, transcribe=after_the_query)
        assert transcribe(harness, run_attempt, context) == ({}, ["1"])
    finally:
        slow.dispose()


def transcribed_at(harness: AutomationHarness) -> list[object]:
    with harness.database.reading() as session:
        return [
            row.transcribed_at
            for row in session.query(CallRecordingRow).order_by(CallRecordingRow.id)
        ]


def test_each_run_retranscribes_once_and_repeated_attempts_do_not(
    harness: AutomationHarness,
) -> None:
    """Regression: `skipIfTranscribed: false` had no effect."""
    harness.add_to_crm("1", calls=2)
    again = harness.schedule("1", runAudits=False, skipIfTranscribed=False)
    assert harness.run_schedule(again.id, "first").status == "completed"
    before = transcribed_at(harness)
    assert [harness.speech.call_count(harness.url("1", call)) for call in (1, 2)] == [1, 1]

    run_attempt = harness.open(again.id, "dagster-1")
    for step in harness.steps:
        step(run_attempt)
    assert [harness.speech.call_count(harness.url("1", call)) for call in (1, 2)] == [2, 2]
    _work_again(harness, harness.take_over(run_attempt))
    assert [harness.speech.call_count(harness.url("1", call)) for call in (1, 2)] == [2, 2]
    assert set(transcribed_at(harness)).isdisjoint(before), "a new transcript replaces the old one"

    skipping = harness.schedule("1", runAudits=False)
    harness.run_schedule(skipping.id, "third")
    assert [harness.speech.call_count(harness.url("1", call)) for call in (1, 2)] == [2, 2]


def _work_again(harness: AutomationHarness, run_attempt: RunAttempt) -> None:
    """Reset the fiche to pending, as if the step died before it recorded the outcome."""
    with harness.database.transaction() as session:
        for row in harness.rows(run_attempt):
            stored = session.merge(row)
            stored.status, stored.stage, stored.transcribed = "pending", "fetched", False
    harness.run_work(run_attempt)
    assert harness.statuses(run_attempt) == ["successful"]


def test_an_old_transcript_does_not_hide_a_failed_retranscription(
    harness: AutomationHarness,
) -> None:
    harness.add_to_crm("1")
    again = harness.schedule("1", runAudits=False, skipIfTranscribed=False)
    harness.run_schedule(again.id, "first")
    harness.speech.fail_always(harness.url("1"), PermanentError("No speech in this audio"))
    run = harness.run_schedule(again.id, "second")
    assert (run.status, harness.outcomes(run)["1"].reason) == ("failed", "transcription_incomplete")
