"""Queries of fetch jobs: visibility, paging, silent jobs and concurrent requests."""

import threading
from datetime import timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.core.access import EVERYTHING, Reach, Scope
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.queries.fetch_jobs import (
    is_job_visible,
    job_document,
    list_jobs,
    poll_document,
    silent_jobs,
)
from automation_pipeline.fiches.queries.fiches import FichePage
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow, mark_refused, mark_taken
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fiches.queries.mirror import statements
from automation_pipeline_tests.fiches.ranges import DAYS, HOOK, FetchJobHarness

ORG_SCOPE, OTHERS = Reach(Scope.GROUP, caller="user:1"), Reach(Scope.SELF, caller="user:2")


@pytest.fixture
def ranges(database: Database, clock: FakeClock) -> FetchJobHarness:
    return FetchJobHarness(database, clock)


def test_a_job_is_visible_to_its_creator_and_to_unrestricted_callers(
    ranges: FetchJobHarness,
) -> None:
    job = ranges.job()
    with ranges.database.reading() as session:
        assert [
            is_job_visible(session, reach, job.id) for reach in (ORG_SCOPE, OTHERS, EVERYTHING)
        ] == [
            True,
            False,
            True,
        ]
        assert not is_job_visible(session, EVERYTHING, "nope")
        for read in (job_document, poll_document):
            with pytest.raises(NotFoundError, match=f"Job {job.id} not found"):
                read(session, job.id, OTHERS)
        assert list_jobs(session, OTHERS, FichePage(9)) == []


def test_jobs_are_paged_newest_first_with_one_query_per_page(ranges: FetchJobHarness) -> None:
    jobs = []
    for day in DAYS:
        jobs.append(ranges.job(day).id)
        ranges.clock.advance_one_second()
    with ranges.database.reading() as session, statements(ranges.database) as sent:
        pages = [list_jobs(session, ORG_SCOPE, FichePage(4, offset)) for offset in (0, 4)]
    assert [one["jobId"] for page in pages for one in page] == jobs[::-1]
    assert len([one for one in sent if "SELECT" in one]) == 2 * 2


def test_only_jobs_without_a_worker_are_returned_as_silent(ranges: FetchJobHarness) -> None:
    waiting, taken, refused, over = (ranges.job(day) for day in DAYS[:4])
    with ranges.database.transaction() as session:
        for job in (taken, over):
            mark_taken(session, job.id, "run")
        mark_refused(session, refused.id, "no")
    ranges.work(over)
    with ranges.database.reading() as session:
        assert silent_jobs(session, ranges.clock.now() + timedelta(seconds=1), limit=9) == sorted(
            [taken.id, refused.id]
        )
        assert silent_jobs(session, ranges.clock.now(), limit=9) == []
    with ranges.database.transaction() as session:
        session.execute(update(RunRequestRow).values(state="taken"))
    with ranges.database.reading() as session:
        later = ranges.clock.now() + timedelta(hours=1)
        assert waiting.id in silent_jobs(session, later, limit=9)


def test_concurrent_identical_requests_create_one_job(ranges: FetchJobHarness) -> None:
    job_ids: list[str] = []
    barrier = threading.Barrier(4)

    def request_job() -> None:
        barrier.wait()
        job_ids.append(ranges.job(webhook=HOOK).id)

    threads = [threading.Thread(target=request_job) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(job_ids) == 4
    assert len(set(job_ids)) == len(ranges.jobs) == len(ranges.requests) == 1
