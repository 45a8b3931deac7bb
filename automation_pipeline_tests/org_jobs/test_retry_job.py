"""Doing a job again: another run of it, and only of one that failed or was cancelled."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.org_jobs.jobs import retry_job
from automation_pipeline.org_jobs.models.jobs import OrgJob, RetryPolicy
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.tables import BatchRow
from automation_pipeline.storage.clock import database_now
from automation_pipeline_tests.org_jobs import processes as crew
from automation_pipeline_tests.org_jobs.bench import ORG, OTHER_ORG, Bench
from automation_pipeline_tests.processes import at_once

FAILED = {"status": "failed", "finished_at": database_now(), "error_code": "FAILED"}


def retry(bench: Bench, job_id: int, org_id: str = ORG) -> OrgJob:
    return retry_job(
        job_id, within=OrgScope(org_id), database=bench.database, clock=bench.clock, actor="user:2"
    )


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_what_did_not_succeed_has_another_run(org_bench: Bench, status: str) -> None:
    host_id = org_bench.host()
    job_id = org_bench.job(
        run=FAILED | {"status": status}, retry=RetryPolicy(max_retries=4), line="a", host_id=host_id
    )
    org_bench.set_job(job_id, finished_at=org_bench.now)
    org_bench.clock.pass_time(timedelta(days=3))
    job = retry(org_bench, job_id)
    first, second = org_bench.runs(job_id)
    assert (job.status, job.finished_at, job.expires_at) == (
        "pending",
        None,
        org_bench.now + timedelta(hours=24),
    )
    assert [run.status for run in job.runs] == [status, "pending"]
    assert (second.attempt_no, second.max_attempts, second.created_by) == (1, 5, "user:2")
    for same in ("line", "host_id", "performer", "is_mutation", "priority", "org_id"):
        assert getattr(second, same) == getattr(first, same)
    [entry] = org_bench.audit(str(job_id))
    assert (entry.action, entry.actor, entry.before) == ("retry", "user:2", {"status": status})


@pytest.mark.parametrize("status", ["pending", "running", "success"])
def test_anything_else_is_refused(org_bench: Bench, status: str) -> None:
    columns = (
        {"finished_at": database_now()} if status == "success" else {"started_at": database_now()}
    )
    job_id = org_bench.job(run={"status": status, **columns})
    with pytest.raises(
        ConflictError, match=f"Job {job_id} is {status}: only one that failed or was cancelled"
    ):
        retry(org_bench, job_id)


def test_it_is_its_newest_run_that_counts(org_bench: Bench) -> None:
    job_id = org_bench.job(run=FAILED)
    retry(org_bench, job_id)
    with pytest.raises(ConflictError):
        retry(org_bench, job_id)
    org_bench.set_run(org_bench.run_row(job_id).id, **FAILED)
    assert len(retry(org_bench, job_id).runs) == 3


def test_a_job_of_a_deleted_schedule_is_done_again(org_bench: Bench) -> None:
    schedule = org_bench.schedule(deleted_at=org_bench.now, state="PAUSED")
    assert retry(org_bench, org_bench.job(schedule_id=schedule, run=FAILED)).status == "pending"


def test_its_batch_is_at_work_again(org_bench: Bench) -> None:
    schedule = org_bench.schedule()
    with org_bench.database.transaction() as session:
        batch = BatchRow(
            org_id=ORG,
            schedule_id=schedule,
            type="backfill",
            status="completed_with_failures",
            behaviour="none",
            from_at=org_bench.now,
            until_at=org_bench.now,
            total=1,
            created_by="user:1",
            created_at=org_bench.now,
            finished_at=org_bench.now,
        )
        session.add(batch)
    retry(org_bench, org_bench.job(schedule_id=schedule, batch_id=batch.id, run=FAILED))
    row = org_bench.batch_row(batch.id)
    assert (row.status, row.finished_at) == ("running", None)


def test_several_at_once_make_one_run(org_bench: Bench) -> None:
    job_id = org_bench.job(run=FAILED)
    url = org_bench.database.url.render_as_string(hide_password=False)
    retried: Sequence[bool] = at_once(crew.retry, *[(url, org_bench.now, job_id)] * 4)
    assert (sum(retried), len(org_bench.runs(job_id))) == (1, 2)


def test_a_job_of_another_organisation_does_not_exist(org_bench: Bench) -> None:
    job_id = org_bench.job(OTHER_ORG, run=FAILED)
    for missing in (job_id, 4711):
        with pytest.raises(NotFoundError, match=f"Job {missing} not found"):
            retry(org_bench, missing)
