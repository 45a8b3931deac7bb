"""Transcribing a batch: fiches are ready as they become whole; what is left when time or tries are
over says why."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.automation.transcribing import (
    BatchContext,
    TranscriptionCallbacks,
    TranscriptionFailure,
    transcribe_targets,
)
from automation_pipeline.core.errors import AutomationError, PermanentError
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
from automation_pipeline_tests.audits.bench import call
from automation_pipeline_tests.automation.bench import Bench
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.crm import fiche
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.bench import heard
from automation_pipeline_tests.waiting import come_true, leap, run

MUTE = PermanentError("No speech in this audio")


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


class Left:
    """Which fiches were given up, with the cause of each, and which became ready, in order."""

    def __init__(self) -> None:
        self.lost: dict[str, str | None] = {}
        self.timed_out: set[str] = set()
        self.came: list[str] = []

    async def _add(self, fiche_ids: Sequence[str]) -> None:
        self.came.extend(fiche_ids)

    async def _lose(self, lost: Mapping[str, TranscriptionFailure]) -> None:
        self.lost |= {fiche_id: why.cause for fiche_id, why in lost.items()}
        self.timed_out |= {fiche_id for fiche_id, why in lost.items() if why.timed_out}

    @property
    def callbacks(self) -> TranscriptionCallbacks:
        return TranscriptionCallbacks(self._add, self._lose)


async def passed(
    bench: Bench,
    ticket: RunAttempt,
    *fiche_ids: str,
    context: BatchContext | None = None,
    left: Left | None = None,
) -> Left:
    left = left or Left()
    until = asyncio.get_running_loop().time() + bench.work.transcription_seconds
    await transcribe_targets(
        ticket,
        fiche_ids,
        plan=bench.plan(ticket),
        context=context or bench.context,
        until=until,
        callbacks=left.callbacks,
    )
    return left


def gate(
    bench: Bench, ticket: RunAttempt, *fiche_ids: str, context: BatchContext | None = None
) -> tuple[dict[str, str | None], list[str]]:
    """Which fiches are given up with the cause of each, and which became ready."""
    left = run(passed(bench, ticket, *fiche_ids, context=context))
    return left.lost, left.came


class Deaf:
    """Notes its requests and transcribes nothing."""

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
        return None

    def instead(self, context: BatchContext) -> BatchContext:
        return replace(context, begin_transcriptions=self.begin, transcribe=self.transcribe)

    @property
    def keys(self) -> list[list[str]]:
        return [[request.run_id for request in each] for each in self.requests]


def test_a_fiche_is_ready_before_the_others_are_whole(bench: Bench) -> None:
    bench.offer("1", "2")
    ticket = bench.until_work("1", "2")
    order: list[str] = []
    first_is_ready = asyncio.Event()

    async def meanwhile(url: str) -> None:
        if url == bench.url("2"):
            await first_is_ready.wait()

    class Order(Left):
        @property
        def callbacks(self) -> TranscriptionCallbacks:
            return TranscriptionCallbacks(self._came, self._lose)

        async def _came(self, fiche_ids: Sequence[str]) -> None:
            order.extend(fiche_ids)
            first_is_ready.set()

    bench.speech = FakeSpeechToText(otherwise=heard, meanwhile=meanwhile)
    left = asyncio.run(passed(bench, ticket, "1", "2", left=Order()))
    assert (left.lost, order) == ({}, ["1", "2"])


def test_transcribed_fiches_are_ready_without_a_request(bench: Bench) -> None:
    bench.sell("1")
    bench.offer("2")
    ticket, deaf = bench.until_work("1", "2"), Deaf()
    left, came = gate(bench, ticket, "1", "2", context=deaf.instead(bench.context))
    assert (left, came) == ({"2": None}, ["1"])
    assert deaf.keys == [["automation-1-transcribe-2"]]


def test_requests_have_the_schedules_priority_and_use_the_runs_details(
    bench: Bench,
) -> None:
    bench.offer("1")
    ticket, deaf = bench.until_work("1", transcriptionPriority="high"), Deaf()
    gate(bench, ticket, "1", context=deaf.instead(bench.context))
    [[request]] = deaf.requests
    assert (request.priority, request.fresh_since) == (
        TranscriptionPriority.HIGH,
        bench.read(ticket).started_at,
    )


@pytest.mark.parametrize(
    ("retry_failed", "max_retries", "suffixes"),
    [(False, 2, [""]), (True, 0, [""]), (True, 2, ["", "-retry-1", "-retry-2"])],
)
def test_incomplete_fiches_are_requested_again_under_new_keys_only_if_failures_are_retried(
    retry_failed: bool, max_retries: int, suffixes: list[str], bench: Bench
) -> None:
    bench.offer("1", "2")
    ticket, deaf = (
        bench.until_work("1", "2", retryFailed=retry_failed, maxRetries=max_retries),
        Deaf(),
    )
    left, came = gate(bench, ticket, "1", "2", context=deaf.instead(bench.context))
    assert (left, came) == ({"1": None, "2": None}, [])
    assert deaf.keys == [
        [f"automation-1-transcribe-{one}{suffix}" for one in ("1", "2")] for suffix in suffixes
    ]
    lines = [line for line in bench.logs(ticket) if line.startswith("Retrying transcriptions")]
    assert lines == [
        f"Retrying transcriptions ({n}/{max_retries})" for n in range(1, len(suffixes))
    ]
    assert not [line for line in bench.logs(ticket) if "timeout/stall" in line], (
        "the time is not over"
    )


@pytest.mark.parametrize(("retry_failed", "left"), [(False, {"2": str(MUTE)}), (True, {})])
def test_a_retry_asks_only_for_the_recordings_that_failed(
    retry_failed: bool, left: dict[str, str], bench: Bench
) -> None:
    bench.offer("1", "2")
    bench.speech.fail_once(bench.url("2"), MUTE)
    ticket = bench.until_work("1", "2", retryFailed=retry_failed, maxRetries=1)
    assert gate(bench, ticket, "1", "2")[0] == left
    assert (bench.speech.times(bench.url("1")), bench.speech.times(bench.url("2"))) == (
        1,
        1 + retry_failed,
    )


def test_a_database_in_trouble_is_no_reason_why_a_fiche_lacks_transcripts(bench: Bench) -> None:
    bench.offer("1", "2")
    ticket = bench.until_work("1", "2")
    left = Left()

    async def full(_run_ids: Sequence[str], _own: Sequence[str]) -> object:
        raise DatabaseFullError("It cannot grow.")

    with pytest.raises(DatabaseFullError):
        run(
            passed(
                bench, ticket, "1", "2", context=replace(bench.context, transcribe=full), left=left
            )
        )
    assert left.lost == {}
    assert gate(bench, ticket, "1", "2") == ({}, ["1", "2"]), (
        "the next attempt of the step goes on with what is there"
    )
    assert bench.speech.times(bench.url("1")) == 1


def test_the_time_ends_the_wait_and_leaves_the_rest(bench: Bench) -> None:
    bench.offer("1", "2")
    ticket = bench.until_work("1", "2", retryFailed=True, maxRetries=5)

    async def meanwhile(url: str) -> None:
        if url == bench.url("2"):
            await come_true(lambda: bench.rows(ticket)[0].transcribed)
            leap(bench.work.transcription_seconds)
            await asyncio.Event().wait()

    bench.speech = FakeSpeechToText(otherwise=heard, meanwhile=meanwhile)
    left = run(passed(bench, ticket, "1", "2"))
    assert (left.lost, left.timed_out, left.came) == ({"2": None}, {"2"}, ["1"])
    assert bench.logs(ticket)[-1] == "Transcription timeout/stall - completed 1/2"


def test_a_fiche_that_hangs_affects_neither_retries_nor_causes_of_others(
    bench: Bench,
) -> None:
    """Finding 2.3: retries came in rounds, so that nothing was tried again or recorded while one
    fiche hung."""
    bench.offer("hangs", "recovers", "fails")
    ticket = bench.until_work("hangs", "recovers", "fails", retryFailed=True, maxRetries=1)
    bench.speech.fail_once(bench.url("recovers"), MUTE)
    bench.speech.fail_always(bench.url("fails"), MUTE)
    left = Left()

    class Hanging(FakeSpeechToText):
        async def transcribe(self, url: str, *, turn: Callable[[], Awaitable[None]]) -> Transcript:
            if url == bench.url("hangs"):
                await come_true(
                    lambda: (left.came, left.lost) == (["recovers"], {"fails": str(MUTE)})
                )
                leap(bench.work.transcription_seconds)
                await asyncio.Event().wait()
            return await result.transcribe(url, turn=turn)

    result, bench.speech = bench.speech, Hanging()
    run(passed(bench, ticket, "hangs", "recovers", "fails", left=left))
    assert (left.lost, left.timed_out) == ({"fails": str(MUTE), "hangs": None}, {"hangs"})
    assert [result.times(bench.url(each)) for each in ("recovers", "fails")] == [2, 2]
    assert "Retrying transcriptions (1/1)" in bench.logs(ticket)


class LateToMark(Database):
    """The time of the work is over while it notes who has become whole."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        super().__init__(url)
        self._loop, self._seconds, self._is_over = loop, seconds, threading.Event()

    def _time_is_over(self) -> None:
        leap(self._seconds)
        self._loop.call_later(
            0, self._is_over.set
        )  # behind the deadlines that the leap has made due

    @contextmanager
    def transaction(self) -> Generator[Session]:
        if not self._is_over.is_set():
            self._loop.call_soon_threadsafe(self._time_is_over)
            self._is_over.wait(20)
        with super().transaction() as session:
            yield session


def test_who_became_whole_in_the_last_moment_is_ready(bench: Bench, database_url: str) -> None:
    bench.sell("1")
    ticket = bench.until_work("1")

    async def gate_that_is_late() -> Left:
        late = LateToMark(
            database_url, asyncio.get_running_loop(), bench.work.transcription_seconds
        )
        try:
            return await passed(bench, ticket, "1", context=replace(bench.context, database=late))
        finally:
            late.dispose()

    left = run(gate_that_is_late())
    assert (left.lost, left.came) == ({}, ["1"])


def test_active_runs_of_others_are_joined(bench: Bench) -> None:
    bench.offer("1", calls=2)
    ticket = bench.until_work("1")
    by_hand = TranscriptionRunRequest(
        "by-hand", "1", TranscriptionPriority.LOW, fresh_since=bench.read(ticket).started_at
    )
    asyncio.run(
        begin_transcription(by_hand, database=bench.database, source=bench.crm, clock=bench.clock)
    )
    assert gate(bench, ticket, "1") == ({}, ["1"])
    assert sorted(bench.speech.called) == [bench.url("1", 1), bench.url("1", 2)]
    with bench.database.reading() as session:
        [status] = list_summaries(session, ["by-hand"])
        assert status.status is TranscriptionStatus.COMPLETED
        assert list_summaries(session, ["automation-1-transcribe-1"]) == []


def test_calls_for_recordings_of_others_finish_after_the_batch_is_done(
    bench: Bench,
) -> None:
    """It is paid for. One worker takes what is most urgent, whoever asked for it."""
    bench.offer("1", "2")
    ticket = bench.until_work("1", "2")
    urgent = TranscriptionRunRequest(
        "by-hand", "2", TranscriptionPriority.HIGH, fresh_since=bench.read(ticket).started_at
    )
    asyncio.run(
        begin_transcription(urgent, database=bench.database, source=bench.crm, clock=bench.clock)
    )

    async def second_takes_longer(url: str) -> None:
        if url == bench.url("2"):
            await come_true(lambda: left.came == ["1"])

    left = Left()
    bench.speech = FakeSpeechToText(otherwise=heard, meanwhile=second_takes_longer)
    run(passed(bench, ticket, "1", left=left))
    with bench.database.reading() as session:
        [theirs] = list_summaries(session, ["by-hand"])
    assert (theirs.status, bench.speech.times(bench.url("2"))) == ("completed", 1)


def test_a_recording_without_an_address_is_named_as_the_cause(bench: Bench) -> None:
    bench.crm.add(fiche("1", call("101"), call("102", url=" ")))
    ticket = bench.until_work("1")
    assert gate(bench, ticket, "1") == ({"1": "No recording URL available"}, [])


def test_every_fiche_has_the_error_of_a_missing_provider_key(bench: Bench) -> None:
    async def keyless(
        _requests: Sequence[TranscriptionRunRequest],
    ) -> Sequence[TranscriptionSummary | AutomationError]:
        raise PermanentError("ELEVENLABS_API_KEY is not set.")

    bench.offer("1", "2")
    ticket = bench.until_work("1", "2")
    left, came = gate(
        bench, ticket, "1", "2", context=replace(bench.context, begin_transcriptions=keyless)
    )
    assert (left, came) == (dict.fromkeys(["1", "2"], "ELEVENLABS_API_KEY is not set."), [])


def test_a_bug_in_the_work_is_no_outcome(bench: Bench) -> None:
    async def broken(_run_ids: Sequence[str], _own: Sequence[str]) -> object:
        raise ZeroDivisionError

    bench.offer("1")
    ticket = bench.until_work("1")
    with pytest.raises(ZeroDivisionError):
        gate(bench, ticket, "1", context=replace(bench.context, transcribe=broken))


class Slow(Database):
    """From its second reading on, lets the others work between what it saw and its answer."""

    def __init__(self, url: str, work_goes_on: Callable[[], None]) -> None:
        super().__init__(url)
        self._readings, self._work_goes_on = 0, work_goes_on

    @contextmanager
    def reading(self) -> Generator[Session]:
        with super().reading() as session:
            yield session
        self._readings += 1
        if self._readings == 2:
            self._work_goes_on()


def test_work_that_ends_while_a_look_is_taken_is_seen_all_the_same(
    bench: Bench, database_url: str
) -> None:
    bench.offer("1")
    ticket = bench.until_work("1")
    go_on, has_ended = threading.Event(), threading.Event()
    transcribe = bench.context.transcribe

    async def just_then(run_ids: Sequence[str], own: Sequence[str]) -> object:
        await asyncio.to_thread(go_on.wait, 20)
        await transcribe(run_ids, own)
        asyncio.get_running_loop().call_soon(has_ended.set)
        return None

    def work_goes_on() -> None:
        go_on.set()
        has_ended.wait(20)

    slow = Slow(database_url, work_goes_on)
    try:
        context = replace(bench.context, database=slow, transcribe=just_then)
        assert gate(bench, ticket, "1", context=context) == ({}, ["1"])
    finally:
        slow.dispose()
