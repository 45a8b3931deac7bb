"""Several worker processes, some of them killed at critical points, store what one healthy worker stores."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.core.coordination import Claim
from automation_pipeline.core.errors import TransientError
from automation_pipeline.enrichment.events import COMPLETED, REQUESTED, SOURCE_FETCHED, STARTED
from automation_pipeline.enrichment.models import SourceApi
from automation_pipeline.storage.claims import DatabaseClaims, LeaseRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness
from automation_pipeline_tests.enrichment.processes import (
    AFTER_COMMIT,
    BEFORE_COMMIT,
    request,
    work,
)
from automation_pipeline_tests.enrichment.scripted import INPI, RCS, SEARCH, SIREN, source_record
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes
from automation_pipeline_tests.waiting import wait_until_async

KILL_WORKERS = """
import json, sys
from automation_pipeline_tests.enrichment.processes import kill_one_process_per_job
print(json.dumps(kill_one_process_per_job(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))))
"""
# The number of sources that have answered at each kill point.
ANSWERED = {SEARCH: 0, INPI: 1, RCS: 2, BEFORE_COMMIT: 3, AFTER_COMMIT: 3}
EVENTS = (REQUESTED, STARTED, SOURCE_FETCHED, COMPLETED)


def expire_leases(database: Database) -> None:
    with database.transaction() as session:
        session.execute(update(LeaseRow).values(expires_at=database_now(-1.0)))


@pytest.fixture
def shared(database: Database, clock: FakeClock) -> EnrichmentHarness:
    """A harness whose claims other processes share."""
    return EnrichmentHarness(database, clock, claims=DatabaseClaims(database))


def test_concurrent_requests_for_a_new_company_create_one_job(
    shared: EnrichmentHarness, database_url: str
) -> None:
    now = shared.clock.now().isoformat()
    result = run_in_processes(
        request, *[(database_url, now, SIREN, f"t{number}") for number in range(PROCESS_COUNT)]
    )
    [job] = shared.jobs()
    assert sorted(outcome for _, outcome in result) == ["ATTACHED"] * (PROCESS_COUNT - 1) + [
        "ENQUEUED"
    ]
    assert {job_id for job_id, _ in result} == {job.id}
    assert len(shared.run_requests()) == 1
    assert len(shared.attached_requests(job.id)) == len(shared.events("Requested")) == PROCESS_COUNT


def test_one_of_several_processes_with_the_same_job_works_on_it(
    shared: EnrichmentHarness, database_url: str
) -> None:
    answer = shared.request()
    calls = run_in_processes(
        work, *[(database_url, shared.clock.now().isoformat(), answer.job_id)] * PROCESS_COUNT
    )
    assert sorted(calls) == [0] * (PROCESS_COUNT - 1) + [3]
    assert (shared.job(answer.job_id).attempt, shared.enrichment().status) == (1, "SUCCESS")
    assert shared.event_names() == [
        "Requested",
        "Started",
        "SourceFetched",
        "SourceFetched",
        "SourceFetched",
        "Completed",
    ]


def test_the_next_worker_finishes_the_job_of_a_killed_process(
    shared: EnrichmentHarness, database_url: str
) -> None:
    sirens = {kill_point: f"10000000{number}" for number, kill_point in enumerate(ANSWERED)}
    jobs = {kill_point: shared.request(siren).job_id for kill_point, siren in sirens.items()}
    shared.take_requests()
    given = [database_url, shared.clock.now().isoformat(), json.dumps(jobs)]
    killed = subprocess.run(
        [sys.executable, "-c", KILL_WORKERS, *given], check=True, capture_output=True, text=True
    )
    assert json.loads(killed.stdout) == [-signal.SIGKILL] * len(ANSWERED)
    assert {
        kill_point: len(shared.source_rows(job_id)) for kill_point, job_id in jobs.items()
    } == ANSWERED
    statuses = {kill_point: shared.enrichment(siren).status for kill_point, siren in sirens.items()}
    assert statuses == dict.fromkeys(ANSWERED, "RUNNING") | {AFTER_COMMIT: "SUCCESS"}
    assert {shared.work(job_id).attempt for job_id in jobs.values()} == {1}
    assert sum(shared.calls().values()) == 0
    expire_leases(shared.database)
    shared.advance(seconds=120)
    assert shared.sweep().replaced_workers == len(ANSWERED) - 1
    for kill_point, job_id in jobs.items():
        assert_next_worker_finishes(
            shared,
            job_id,
            sirens[kill_point],
            ANSWERED[kill_point],
            attempts=1 if kill_point == AFTER_COMMIT else 2,
        )


def assert_next_worker_finishes(
    harness: EnrichmentHarness, job_id: int, siren: str, answered: int, *, attempts: int
) -> None:
    job = harness.work(job_id)
    assert (job.state, job.status, job.attempt) == ("DONE", "SUCCESS", attempts)
    assert sum(harness.calls(of=siren).values()) == 3 - answered
    events = [event.name for event in harness.events() if event.payload["company_siren"] == siren]
    assert [events.count(name) for name in EVENTS] == [1, attempts, 3, 1]
    assert harness.moves(siren) == [("PENDING", "RUNNING"), ("RUNNING", "SUCCESS")]


def take_over_the_lease(harness: EnrichmentHarness, job_id: int) -> None:
    """Let the claim of the worker expire, and let another worker do the job with other answers."""
    harness.advance(seconds=121)
    other = EnrichmentHarness(harness.database, harness.clock, claims=harness.claims)
    other.script(search=source_record(SEARCH, legal_name="BY ANOTHER"))
    other.work(job_id, "another")


@pytest.mark.parametrize("kill_point", [SEARCH, INPI, RCS])
def test_a_worker_whose_lease_was_taken_over_writes_nothing(
    harness: EnrichmentHarness, kill_point: SourceApi
) -> None:
    answer = harness.request()
    harness.sources[kill_point].script = [lambda: take_over_the_lease(harness, answer.job_id)]
    job, company = harness.work(answer.job_id, "late"), harness.company()
    assert (job.attempt, job.status) == (2, "SUCCESS")
    assert harness.job(answer.job_id).lock_owner == "another"
    assert company is not None
    assert company.legal_name == ("BY ANOTHER" if kill_point is SEARCH else "DANONE")
    assert len(harness.events("SourceFetched")) == 3
    assert len(harness.events("Completed")) == 1
    assert harness.moves() == [("PENDING", "RUNNING"), ("RUNNING", "SUCCESS")]


def test_a_worker_writes_nothing_while_another_holds_its_lease(
    harness: EnrichmentHarness,
) -> None:
    answer = harness.request()

    def take_over_and_die() -> None:
        harness.advance(seconds=121)
        EnrichmentHarness(harness.database, harness.clock, claims=harness.claims).work_and_die(
            answer.job_id, INPI
        )

    harness.sources[INPI].script = [take_over_and_die]
    harness.work(answer.job_id, "late")
    assert harness.enrichment().status == "RUNNING"
    assert list(harness.source_rows(answer.job_id)) == [SEARCH]
    assert harness.events("Completed") == []


def test_a_worker_that_cannot_extend_its_lease_stops(harness: EnrichmentHarness) -> None:
    """The job stays RUNNING without a worker until the sweep finds it."""
    harness.options = replace(harness.options, heartbeat_seconds=0.0, call_seconds=600.0)
    answer = harness.request()
    harness.take_requests()
    harness.claims.extend = lambda *_given: False
    harness.sources[SEARCH].fetch = _never
    assert harness.work(answer.job_id).state == "RUNNING"
    harness.advance(seconds=120)
    assert harness.sweep().replaced_workers == 1


def test_a_bug_in_a_source_fails_the_worker_and_releases_its_lease(
    harness: EnrichmentHarness,
) -> None:
    async def fail(*_given: object) -> None:
        raise LookupError

    answer = harness.request()
    harness.sources[INPI].fetch = fail
    with pytest.raises(LookupError):
        harness.work(answer.job_id)
    assert (harness.claim_owner(), harness.job(answer.job_id).state) == (None, "RUNNING")


def test_a_failed_heartbeat_or_release_does_not_fail_the_job(
    harness: EnrichmentHarness,
) -> None:
    harness.options = replace(harness.options, heartbeat_seconds=0.0)
    answer, missed = harness.request(), []

    def fail(lease: Claim, *_given: object) -> bool:
        missed.append(lease)
        raise TransientError("The database is too busy.")

    harness.claims.extend = harness.claims.release = fail
    assert harness.work(answer.job_id).status == "SUCCESS"
    assert missed


def test_a_worker_sends_heartbeats_while_it_works(harness: EnrichmentHarness) -> None:
    harness.options = replace(harness.options, heartbeat_seconds=0.0, call_seconds=600.0)
    answer = harness.request()
    harness.sources[SEARCH].fetch = _after_heartbeat(harness, answer.job_id)
    job = harness.work(answer.job_id)
    assert job.heartbeat_at is not None
    assert job.started_at is not None
    assert job.heartbeat_at - job.started_at == timedelta(seconds=30)
    assert job.status == "SUCCESS"


async def _never(*_given: object) -> None:
    await asyncio.Event().wait()


def _after_heartbeat(harness: EnrichmentHarness, job_id: int) -> Callable[..., Awaitable[object]]:
    async def fetch(*_given: object) -> object:
        now = harness.advance(seconds=30)
        await wait_until_async(lambda: harness.job(job_id).heartbeat_at == now)
        return source_record(SEARCH)

    return fetch
