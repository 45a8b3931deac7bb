"""Transcribing a batch: fiches are ready as they become whole; what is left when time or tries are over says why."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from automation_pipeline.automation.domain.run import RunTicket
from automation_pipeline.automation.ports import Workshop
from automation_pipeline.automation.stages.transcribe_targets import transcribe_targets
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.storage.database import Database, DatabaseFullError, Session
from automation_pipeline.transcription.domain.run import Priority, RunStatus
from automation_pipeline.transcription.stages.begin_transcription import Wish, begin_transcription
from automation_pipeline.transcription.store.runs import standings
from automation_pipeline_tests.audits.bench import call
from automation_pipeline_tests.automation.bench import Bench
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.crm import fiche
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.bench import heard
from automation_pipeline_tests.waiting import leap, run

MUTE = PermanentError("No speech in this audio")
Transcribe = Callable[[Sequence[Wish]], Awaitable[object]]


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


def gate(
    bench: Bench, ticket: RunTicket, *fiche_ids: str, shop: Workshop | None = None
) -> tuple[dict[str, str | None], list[str]]:
    """What is left with its cause, and who became ready."""
    came: list[str] = []
    tries = bench.tries(ticket)
    left = transcribe_targets(ticket, fiche_ids, tries=tries, shop=shop or bench.shop, ready=came.extend)
    return run(left), came


class Deaf:
    """A workshop's transcription that notes its wishes and transcribes nothing."""

    def __init__(self) -> None:
        self.wishes: list[list[Wish]] = []

    async def __call__(self, wishes: Sequence[Wish]) -> object:
        self.wishes.append(list(wishes))
        return None

    @property
    def keys(self) -> list[list[str]]:
        return [[wish.run_id for wish in each] for each in self.wishes]


def test_a_fiche_is_ready_before_the_others_are_whole(bench: Bench) -> None:
    bench.offer("1", "2")
    ticket = bench.until_work("1", "2")
    order: list[str] = []
    first_is_ready = asyncio.Event()

    async def meanwhile(url: str) -> None:
        if url == bench.url("2"):
            await first_is_ready.wait()

    def ready(fiche_ids: Sequence[str]) -> None:
        order.extend(fiche_ids)
        first_is_ready.set()

    bench.speech = FakeSpeechToText(otherwise=heard, meanwhile=meanwhile)
    work = transcribe_targets(ticket, ["1", "2"], tries=bench.tries(ticket), shop=bench.shop, ready=ready)
    assert (asyncio.run(work), order) == ({}, ["1", "2"])


def test_what_is_transcribed_already_is_ready_and_nobody_is_asked(bench: Bench) -> None:
    bench.sell("1")
    bench.offer("2")
    ticket, deaf = bench.until_work("1", "2"), Deaf()
    left, came = gate(bench, ticket, "1", "2", shop=replace(bench.shop, transcribe=deaf))
    assert (left, came) == ({"2": None}, ["1"])
    assert deaf.keys == [["automation-1-transcribe-2"]]


def test_wishes_have_the_priority_of_the_schedule_and_trust_what_the_run_fetched(bench: Bench) -> None:
    bench.offer("1")
    ticket, deaf = bench.until_work("1", transcriptionPriority="high"), Deaf()
    gate(bench, ticket, "1", shop=replace(bench.shop, transcribe=deaf))
    [[wish]] = deaf.wishes
    assert (wish.priority, wish.fresh_since) == (Priority.HIGH, bench.read(ticket).started_at)


@pytest.mark.parametrize(
    ("retry_failed", "max_retries", "suffixes"),
    [(False, 2, [""]), (True, 0, [""]), (True, 2, ["", "-retry-1", "-retry-2"])],
)
def test_what_is_incomplete_is_asked_for_again_under_keys_of_its_own_only_where_failures_are_retried(
    retry_failed: bool, max_retries: int, suffixes: list[str], bench: Bench
) -> None:
    bench.offer("1", "2")
    ticket, deaf = bench.until_work("1", "2", retryFailed=retry_failed, maxRetries=max_retries), Deaf()
    left, came = gate(bench, ticket, "1", "2", shop=replace(bench.shop, transcribe=deaf))
    assert (left, came) == ({"1": None, "2": None}, [])
    assert deaf.keys == [[f"automation-1-transcribe-{one}{suffix}" for one in ("1", "2")] for suffix in suffixes]
    told = [line for line in bench.logs(ticket) if line.startswith("Retrying transcriptions")]
    assert told == [f"Retrying transcriptions ({n}/{max_retries})" for n in range(1, len(suffixes))]
    assert bench.logs(ticket)[-1] == "Transcription timeout/stall - completed 0/2"


@pytest.mark.parametrize(("retry_failed", "left"), [(False, {"2": str(MUTE)}), (True, {})])
def test_a_retry_asks_only_for_the_recordings_that_failed(
    retry_failed: bool, left: dict[str, str], bench: Bench
) -> None:
    bench.offer("1", "2")
    bench.speech.fail_once(bench.url("2"), MUTE)
    ticket = bench.until_work("1", "2", retryFailed=retry_failed, maxRetries=1)
    assert gate(bench, ticket, "1", "2")[0] == left
    assert (bench.speech.times(bench.url("1")), bench.speech.times(bench.url("2"))) == (1, 1 + retry_failed)


def test_a_database_in_trouble_is_no_reason_why_a_fiche_lacks_transcripts(bench: Bench) -> None:
    bench.offer("1", "2")
    ticket = bench.until_work("1", "2")
    transcribe, tries = bench.shop.transcribe, bench.tries(ticket)

    async def full(wishes: Sequence[Wish]) -> object:
        await transcribe([wish for wish in wishes if wish.fiche_id == "1"])
        raise DatabaseFullError("It cannot grow.")

    came: list[str] = []
    with pytest.raises(DatabaseFullError):
        run(
            transcribe_targets(
                ticket, ["1", "2"], tries=tries, shop=replace(bench.shop, transcribe=full), ready=came.extend
            )
        )
    assert gate(bench, ticket, "1", "2") == ({}, ["1", "2"]), "the next attempt of the step goes on with what is there"
    assert (came, bench.speech.times(bench.url("1"))) == (["1"], 1)


def test_the_time_ends_the_wait_and_leaves_the_rest(bench: Bench) -> None:
    bench.offer("1", "2")
    ticket, deaf = bench.until_work("1", "2", retryFailed=True, maxRetries=5), Deaf()
    transcribe = bench.shop.transcribe

    async def never_done(wishes: Sequence[Wish]) -> object:
        await deaf(wishes)
        await transcribe([wish for wish in wishes if wish.fiche_id == "1"])
        leap(bench.work.transcription_seconds)
        return await asyncio.Event().wait()

    assert gate(bench, ticket, "1", "2", shop=replace(bench.shop, transcribe=never_done)) == ({"2": None}, ["1"])
    assert len(deaf.wishes) == 1
    assert bench.logs(ticket)[-1] == "Transcription timeout/stall - completed 1/2"


class LateToMark(Database):
    """The time of the work is over while it notes who has become whole."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        super().__init__(url)
        self._loop, self._seconds, self._is_over = loop, seconds, threading.Event()

    def _time_is_over(self) -> None:
        leap(self._seconds)
        self._loop.call_later(0, self._is_over.set)  # behind the deadlines that the leap has made due

    @contextmanager
    def transaction(self) -> Generator[Session]:
        if not self._is_over.is_set():
            self._loop.call_soon_threadsafe(self._time_is_over)
            self._is_over.wait(20)
        with super().transaction() as session:
            yield session


def test_who_became_whole_in_the_last_moment_is_ready(bench: Bench, database_url: str) -> None:
    bench.sell("1")
    ticket, came = bench.until_work("1"), []
    tries = bench.tries(ticket)

    async def gate_that_is_late() -> dict[str, str | None]:
        late = LateToMark(database_url, asyncio.get_running_loop(), bench.work.transcription_seconds)
        try:
            shop = replace(bench.shop, database=late)
            return await transcribe_targets(ticket, ["1"], tries=tries, shop=shop, ready=came.extend)
        finally:
            late.dispose()

    assert (run(gate_that_is_late()), came) == ({}, ["1"])


def test_what_is_in_flight_elsewhere_is_joined(bench: Bench) -> None:
    bench.offer("1", calls=2)
    ticket = bench.until_work("1")
    by_hand = Wish("by-hand", "1", Priority.LOW, fresh_since=bench.read(ticket).started_at)
    asyncio.run(begin_transcription(by_hand, database=bench.database, source=bench.crm, clock=bench.clock))
    assert gate(bench, ticket, "1") == ({}, ["1"])
    assert sorted(bench.speech.called) == [bench.url("1", 1), bench.url("1", 2)]
    with bench.database.reading() as session:
        [standing] = standings(session, ["by-hand"])
        assert standing.status is RunStatus.COMPLETED
        assert standings(session, ["automation-1-transcribe-1"]) == []


def test_a_recording_without_an_address_is_named_as_the_cause(bench: Bench) -> None:
    bench.crm.add(fiche("1", call("101"), call("102", url=" ")))
    ticket = bench.until_work("1")
    assert gate(bench, ticket, "1") == ({"1": "No recording URL available"}, [])


def test_without_a_key_for_the_provider_every_fiche_says_so(bench: Bench) -> None:
    async def keyless(_wishes: Sequence[Wish]) -> object:
        raise PermanentError("ELEVENLABS_API_KEY is not set.")

    bench.offer("1", "2")
    ticket = bench.until_work("1", "2")
    left, came = gate(bench, ticket, "1", "2", shop=replace(bench.shop, transcribe=keyless))
    assert (left, came) == (dict.fromkeys(["1", "2"], "ELEVENLABS_API_KEY is not set."), [])


def test_a_bug_in_the_work_is_no_outcome(bench: Bench) -> None:
    async def broken(_wishes: Sequence[Wish]) -> object:
        raise ZeroDivisionError

    bench.offer("1")
    ticket = bench.until_work("1")
    with pytest.raises(ZeroDivisionError):
        gate(bench, ticket, "1", shop=replace(bench.shop, transcribe=broken))


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


def test_work_that_ends_while_a_look_is_taken_is_seen_all_the_same(bench: Bench, database_url: str) -> None:
    bench.offer("1")
    ticket = bench.until_work("1")
    go_on, has_ended = threading.Event(), threading.Event()
    transcribe = bench.shop.transcribe

    async def just_then(wishes: Sequence[Wish]) -> object:
        await asyncio.to_thread(go_on.wait, 20)
        await transcribe(wishes)
        asyncio.get_running_loop().call_soon(has_ended.set)
        return None

    def work_goes_on() -> None:
        go_on.set()
        has_ended.wait(20)

    slow = Slow(database_url, work_goes_on)
    try:
        shop = replace(bench.shop, database=slow, transcribe=just_then)
        assert gate(bench, ticket, "1", shop=shop) == ({}, ["1"])
    finally:
        slow.dispose()
