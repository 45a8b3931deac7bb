"""What other processes do in tests of enrichment; importable, so that they can be started with
it."""

import os
import signal
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from automation_pipeline.enrichment import jobs as worker
from automation_pipeline.enrichment.models import SourceApi
from automation_pipeline.enrichment.sources import take_call
from automation_pipeline.storage.claims import DatabaseClaims
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.enrichment.bench import Bench

WRITTEN, KEPT = "written", "kept"


@contextmanager
def bench_at(url: str, now: str) -> Generator[Bench]:
    """With the leases that all processes share."""
    database = Database(url)
    try:
        yield Bench(
            database, StandingClock(datetime.fromisoformat(now)), claims=DatabaseClaims(database)
        )
    finally:
        database.dispose()


def ask(url: str, now: str, siren: str, tenant: str) -> tuple[int | None, str]:
    """The awaited job and the outcome of the request."""
    with bench_at(url, now) as bench:
        asked = bench.request(siren, tenant)
        return asked.job_id, asked.asked


def work(url: str, now: str, job_id: int) -> int:
    """How many calls this process has made."""
    with bench_at(url, now) as bench:
        bench.work(job_id, f"process-{os.getpid()}")
        return sum(bench.calls().values())


def sweep(url: str, now: str) -> int:
    """How many are refreshed by this process."""
    with bench_at(url, now) as bench:
        return bench.sweep().refreshed


def take_calls(url: str, now: str, source: str, wanted: int, a_day: int) -> int:
    """How many of them this process got."""
    with bench_at(url, now) as bench:
        return sum(_take_call(bench, SourceApi(source), a_day) for _ in range(wanted))


def _take_call(bench: Bench, source: SourceApi, a_day: int) -> bool:
    with bench.database.transaction() as session:
        return take_call(session, source, a_day, bench.clock.now())


def be_killed_one_by_one(url: str, now: str, jobs: Mapping[str, int]) -> list[int]:
    """A process for each place and the job in which it is killed there. What each died of."""
    children = [_child(url, now, job_id, place) for place, job_id in jobs.items()]
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _child(url: str, now: str, job_id: int, place: str) -> int:
    child = os.fork()
    if child == 0:
        try:
            _work_and_be_killed(url, now, job_id, place)
        finally:
            os._exit(1)
    return child


def _work_and_be_killed(url: str, now: str, job_id: int, place: str) -> None:
    """While a source is asked; or when the end is written and nothing is kept; or when all of it is
    kept."""
    with bench_at(url, now) as bench:
        if place in list(SourceApi):
            bench.sources[SourceApi(place)].script = [_die]
        elif place == WRITTEN:
            worker.finish_job = _then_die(worker.finish_job)
        else:
            bench.claims.release = _die
        bench.work(job_id, "killed")


def _die(*_given: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _then_die(finish: Any) -> Any:
    def finish_and_die(*given: Any) -> None:
        finish(*given)
        _die()

    return finish_and_die
