"""Work beside its heartbeats: what ends it, and what does not."""

import asyncio
from collections.abc import Callable

import pytest

from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.org_jobs import runs as stage
from automation_pipeline.org_jobs.models.jobs import (
    AttemptEnd,
    attempt_cancelled,
    attempt_succeeded,
)
from automation_pipeline.org_jobs.runs import run_with_heartbeats
from automation_pipeline_tests import waiting

LEASE = 400.0
STOPPED = attempt_cancelled("Enough.")


class Beats:
    """What each heartbeat comes to; time leaps to the next one when the last is through. Then the
    work ends."""

    def __init__(self, *said: AttemptEnd | Exception | None) -> None:
        self._said, self.count, self.was_stopped = said, 0, False

    def keep(self) -> AttemptEnd | None:
        said = self._said[self.count]
        self.count += 1
        if isinstance(said, Exception):
            raise said
        return said

    def tend(self, work: Callable[[], object] = lambda: None) -> AttemptEnd:
        return waiting.run(self._tended(work), threads=1)

    async def _tended(self, work: Callable[[], object]) -> AttemptEnd:
        over = asyncio.Event()
        tending = asyncio.ensure_future(
            run_with_heartbeats(self.work(over, work), keep=self.keep, lease_seconds=LEASE)
        )
        while self.count < len(self._said) and not tending.done():
            wanted = self.count + 1
            await asyncio.to_thread(lambda: None)
            waiting.leap(LEASE / 4 + 1)
            await waiting.come_true(lambda wanted=wanted: self.count >= wanted or tending.done())
        await asyncio.to_thread(lambda: None)
        over.set()
        return await tending

    async def work(self, over: asyncio.Event, work: Callable[[], object]) -> AttemptEnd:
        try:
            await over.wait()
        except asyncio.CancelledError:
            self.was_stopped = True
            raise
        work()
        return attempt_succeeded()


def test_the_work_ends_it_after_as_many_heartbeats_as_it_takes() -> None:
    beats = Beats(None, None)
    assert beats.tend() == attempt_succeeded()
    assert (beats.count, beats.was_stopped) == (2, False)


def test_what_the_work_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        Beats().tend(fail)


def test_a_heartbeat_may_stop_it() -> None:
    beats = Beats(None, STOPPED)
    assert beats.tend() == STOPPED
    assert beats.was_stopped


def test_a_heartbeat_that_is_refused_stops_it() -> None:
    beats = Beats(PermanentError("Not yours."))
    with pytest.raises(PermanentError, match="Not yours"):
        beats.tend()
    assert beats.was_stopped


def test_a_database_that_is_away_for_a_moment_stops_nothing() -> None:
    beats = Beats(TransientError("Away."), TransientError("Away."), None)
    assert beats.tend() == attempt_succeeded()


def test_a_heartbeat_that_failed_is_made_up_for_long_before_the_next_one() -> None:
    beats = Beats(TransientError("Away."), STOPPED)

    async def tended() -> AttemptEnd:
        working = beats.work(asyncio.Event(), lambda: None)
        tending = asyncio.ensure_future(
            run_with_heartbeats(working, keep=beats.keep, lease_seconds=LEASE)
        )
        for count, seconds in ((1, LEASE / 4 + 1), (2, LEASE / 40)):
            await asyncio.to_thread(lambda: None)
            waiting.leap(seconds)
            await waiting.come_true(lambda count=count: beats.count >= count)
        return await tending

    assert waiting.run(tended(), threads=1) == STOPPED


def test_one_that_is_away_for_longer_than_the_lease_does() -> None:
    beats = Beats(*[TransientError("Away.") for _ in range(6)])
    with pytest.raises(TransientError, match="Away"):
        beats.tend()
    assert beats.was_stopped
    assert 1 < beats.count < 5


def test_work_that_does_not_stop_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "STOPS_WITHIN_SECONDS", 0.01)
    over = asyncio.Event()

    async def stubborn() -> AttemptEnd:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue
        return attempt_succeeded()

    async def tended() -> AttemptEnd:
        end = await run_with_heartbeats(stubborn(), keep=lambda: STOPPED, lease_seconds=0.01)
        over.set()
        return end

    assert waiting.run(tended()) == STOPPED
