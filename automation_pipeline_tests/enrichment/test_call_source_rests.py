"""When a source's short rest is over, whoever has waited for it calls in turn, by the test's
clock."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from sqlalchemy import literal

from automation_pipeline.enrichment import sources as module
from automation_pipeline.enrichment.models import SourceApi
from automation_pipeline.enrichment.sources import call_source, source_statuses
from automation_pipeline.storage import rate_limits
from automation_pipeline.storage.rate_limits import DatabaseRateLimiter
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.enrichment.bench import RATE, Bench
from automation_pipeline_tests.enrichment.scripted import (
    BUSY,
    DOWN,
    RCS,
    SILENT,
    SIREN,
    fails,
    says,
)
from automation_pipeline_tests.waiting import run

CALLERS = 16


class Sleepers:
    """Where all sleep, the clock goes on to the first who wakes."""

    def __init__(self, clock: StandingClock) -> None:
        self._clock, self._number = clock, 0
        self._asleep: list[tuple[datetime, int, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        wakes: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number += 1
        self._asleep.append((self._clock.now() + timedelta(seconds=seconds), self._number, wakes))
        await wakes

    async def see_through(self, tasks: list[asyncio.Task[object]]) -> None:
        while at_work := sum(not task.done() for task in tasks):
            if len(self._asleep) < at_work:
                await asyncio.sleep(0)
                continue
            first = min(self._asleep)
            self._asleep.remove(first)
            self._clock.pass_time(max(first[0] - self._clock.now(), timedelta(0)))
            first[2].set_result(None)


@pytest.fixture
def sleepers(clock: StandingClock, waits: list[float], monkeypatch: pytest.MonkeyPatch) -> Sleepers:
    """Instead of `waits`; and the database's turns are those of the test's clock."""

    async def at_once(work: Callable[..., object], *given: object, **more: object) -> object:
        return work(*given, **more)

    them = Sleepers(clock)
    theirs = SimpleNamespace(sleep=them.sleep, to_thread=at_once, timeout=asyncio.timeout)
    monkeypatch.setattr(module, "asyncio", theirs)
    monkeypatch.setattr(
        rate_limits,
        "database_epoch",
        lambda: literal(clock.now().timestamp(), rate_limits.Float(53)),
    )
    return them


@pytest.mark.parametrize("said", [[BUSY], [says(RCS)] * 3 + [BUSY] * 2])
def test_after_a_rest_nobody_calls_but_in_a_new_turn(
    bench: Bench, sleepers: Sleepers, said: list[object]
) -> None:
    bench.limiter, starts = DatabaseRateLimiter(bench.database), []
    script = list(said)

    async def fetch(*_given: object) -> object:
        starts.append(bench.clock.now())
        return script.pop(0) if script else says(RCS)

    async def all_at_once() -> list[object]:
        registries, world = bench.registries, {"database": bench.database, "clock": bench.clock}
        calls = [
            call_source(registries.sources[RCS], SIREN, None, registries=registries, **world)
            for _ in range(CALLERS)
        ]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await sleepers.see_through(tasks)
        return [task.result().status for task in tasks]

    bench.sources[RCS].fetch = fetch
    assert run(all_at_once()) == ["SUCCESS"] * CALLERS
    apart = [
        (later - first).total_seconds()
        for first, later in zip(starts, starts[RATE.limit :], strict=False)
    ]
    assert min(apart) >= RATE.period_seconds - 0.001
    assert len(starts) == CALLERS + sum(one is BUSY for one in said) == calls_of_the_day(bench, RCS)


def calls_of_the_day(bench: Bench, source: SourceApi) -> int:
    with bench.database.reading() as session:
        return source_statuses(session)[source].quota_used


BUSY_WITH_IT = fails("SOURCE_UNAVAILABLE", 409)
OURS = replace(fails("RATE_LIMIT"), is_ours=True)


@pytest.mark.parametrize(
    ("said", "hours"),
    [
        ([BUSY_WITH_IT] * 12, None),
        ([DOWN] * 9 + [SILENT] * 3, None),
        ([SILENT] * 9 + [BUSY_WITH_IT] + [SILENT] * 2, None),
        ([SILENT] * 9 + [DOWN] * 3, None),
        ([DOWN] * 3 + [SILENT] * 10, 12),
        ([SILENT] * 9 + [OURS] + [SILENT], 12),
    ],
)
def test_only_what_does_not_answer_ten_times_in_a_row_is_left_alone_for_half_a_day(
    bench: Bench, said: list[object], hours: int | None
) -> None:
    source = bench.registries.sources[RCS]
    world = {"registries": bench.registries, "database": bench.database, "clock": bench.clock}
    bench.sources[RCS].script = list(said)
    for _ in said:
        run(call_source(source, SIREN, None, **world))
    with bench.database.reading() as session:
        until = source_statuses(session)[RCS].open_until
    left = None if until is None else round((until - bench.clock.now()) / timedelta(hours=1))
    assert left == hours
