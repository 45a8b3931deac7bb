"""Functions that tests of enrichment run in other processes."""

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
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness
from automation_pipeline_tests.fakes.clock import FakeClock

BEFORE_COMMIT, AFTER_COMMIT = "before commit", "after commit"


@contextmanager
def harness_at(url: str, now: str) -> Generator[EnrichmentHarness]:
    """A harness whose claims are shared by all processes."""
    database = Database(url)
    try:
        yield EnrichmentHarness(
            database, FakeClock(datetime.fromisoformat(now)), claims=DatabaseClaims(database)
        )
    finally:
        database.dispose()


def request(url: str, now: str, siren: str, tenant: str) -> tuple[int | None, str]:
    """Request a company. Returns the job and the outcome of the request."""
    with harness_at(url, now) as harness:
        answer = harness.request(siren, tenant)
        return answer.job_id, answer.outcome


def work(url: str, now: str, job_id: int) -> int:
    """Work on the job. Returns the number of calls that this process made."""
    with harness_at(url, now) as harness:
        harness.work(job_id, f"process-{os.getpid()}")
        return sum(harness.calls().values())


def sweep(url: str, now: str) -> int:
    """Sweep once. Returns the number of companies that this process refreshed."""
    with harness_at(url, now) as harness:
        return harness.sweep().refreshed


def take_calls(url: str, now: str, source: str, wanted: int, max_per_day: int) -> int:
    """Take calls from the daily quota. Returns the number that this process got."""
    with harness_at(url, now) as harness:
        return sum(_take_call(harness, SourceApi(source), max_per_day) for _ in range(wanted))


def _take_call(harness: EnrichmentHarness, source: SourceApi, max_per_day: int) -> bool:
    with harness.database.transaction() as session:
        return take_call(session, source, max_per_day, harness.clock.now())


def kill_one_process_per_job(url: str, now: str, jobs: Mapping[str, int]) -> list[int]:
    """Fork one process per kill point and job. Returns the exit codes."""
    children = [_child(url, now, job_id, kill_point) for kill_point, job_id in jobs.items()]
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _child(url: str, now: str, job_id: int, kill_point: str) -> int:
    child = os.fork()
    if child == 0:
        try:
            _work_and_be_killed(url, now, job_id, kill_point)
        finally:
            os._exit(1)
    return child


def _work_and_be_killed(url: str, now: str, job_id: int, kill_point: str) -> None:
    """Work on the job until the process is killed: during the call of a source, right before the
    final commit, or right after it."""
    with harness_at(url, now) as harness:
        if kill_point in list(SourceApi):
            harness.sources[SourceApi(kill_point)].script = [_die]
        elif kill_point == BEFORE_COMMIT:
            worker.finish_job = _then_die(worker.finish_job)
        else:
            harness.claims.release = _die
        harness.work(job_id, "killed")


def _die(*_given: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _then_die(finish: Any) -> Any:
    def finish_and_die(*given: Any) -> None:
        finish(*given)
        _die()

    return finish_and_die
