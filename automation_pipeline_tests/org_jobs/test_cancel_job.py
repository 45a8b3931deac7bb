"""Stopping jobs, wherever they are in their lives; and those of other organisations are not
there."""

import pytest

from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.org_jobs.jobs import cancel_job
from automation_pipeline.org_jobs.models.jobs import OrgJob
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.storage.clock import database_now
from automation_pipeline_tests.org_jobs.bench import ORG, OTHER_ORG, Bench


def cancel(
    bench: Bench,
    job_id: int,
    *,
    reason: str | None = "Not now.",
    at_once: bool = False,
    org_id: str = ORG,
) -> OrgJob:
    return cancel_job(
        job_id,
        within=OrgScope(org_id),
        database=bench.database,
        clock=bench.clock,
        actor="user:1",
        reason=reason,
        at_once=at_once,
    )


@pytest.mark.parametrize(
    "run",
    [
        {},
        {"attempt_no": 2, "next_attempt_at": database_now(60.0)},
        {"lease_until": database_now(60.0)},
    ],
)
def test_what_nobody_has_begun_is_cancelled_at_once(
    org_bench: Bench, run: dict[str, object]
) -> None:
    job_id = org_bench.job(run=run)
    job = cancel(org_bench, job_id)
    assert (job.status, job.runs[-1].status, job.runs[-1].error) == (
        "cancelled",
        "cancelled",
        "Not now.",
    )
    assert (job.runs[-1].cancelled_by, job.finished_at) == ("user:1", org_bench.now)
    assert org_bench.moves("job run", job.runs[-1].id) == [("pending", "cancelled")]
    assert [event.name for event in org_bench.events()] == ["job_run.cancelled"]


def test_whoever_is_at_work_is_asked_to_stop(org_bench: Bench) -> None:
    job_id = org_bench.running_job()
    [run] = cancel(org_bench, job_id).runs
    assert (run.status, run.cancel_requested_at, run.cancel_reason) == (
        "running",
        org_bench.now,
        "Not now.",
    )
    org_bench.pass_minutes(1)
    again = cancel(org_bench, job_id, reason="Again.")
    assert again.runs[-1].cancel_reason == "Not now."
    assert len(org_bench.audit(str(job_id))) == 1


def test_or_is_not_waited_for(org_bench: Bench) -> None:
    job_id = org_bench.running_job()
    cancel(org_bench, job_id)
    [run] = cancel(org_bench, job_id, at_once=True).runs
    assert (run.status, run.lease_until, run.error) == ("cancelled", None, "Not now.")
    assert [attempt.status for attempt in run.attempts] == ["cancelled"]


def test_what_was_begun_elsewhere_stops_there_first(org_bench: Bench) -> None:
    job_id = org_bench.running_job()
    org_bench.set_run(org_bench.run_row(job_id).id, following={"runId": "1"}, lease_until=None)
    assert cancel(org_bench, job_id, at_once=True).status == "running"


def test_cancelling_again_changes_nothing(org_bench: Bench) -> None:
    job_id = org_bench.job()
    assert cancel(org_bench, job_id) == cancel(org_bench, job_id, reason="Again.", at_once=True)
    assert len(org_bench.audit(str(job_id))) == 1


@pytest.mark.parametrize("status", ["success", "failed"])
def test_what_has_ended_otherwise_is_refused(org_bench: Bench, status: str) -> None:
    job_id = org_bench.job(
        run={"status": status, "finished_at": database_now(), "error_code": "FAILED"}
    )
    with pytest.raises(
        ConflictError, match=f"Job {job_id} has ended, it is {status}: there is nothing to cancel."
    ):
        cancel(org_bench, job_id)


def test_who_cancelled_what_is_written_down(org_bench: Bench) -> None:
    job_id = org_bench.job()
    cancel(org_bench, job_id)
    [entry] = org_bench.audit(str(job_id))
    assert (entry.actor, entry.action, entry.entity, entry.reason) == (
        "user:1",
        "cancel",
        "job",
        "Not now.",
    )
    assert (entry.before, entry.after) == (
        {"status": "pending"},
        {"status": "cancelled", "atOnce": False},
    )


def test_a_job_of_another_organisation_does_not_exist(org_bench: Bench) -> None:
    job_id = org_bench.job(OTHER_ORG)
    for missing in (job_id, 4711):
        with pytest.raises(NotFoundError, match=f"Job {missing} not found"):
            cancel(org_bench, missing)
    assert org_bench.run_row(job_id).status == "pending"


def test_a_schedule_is_not_told_of_a_failure_when_its_job_is_cancelled(org_bench: Bench) -> None:
    schedule = org_bench.schedule()
    job_id = org_bench.job(schedule_id=schedule)
    org_bench.set_schedule(schedule, last_run_job_id=job_id)
    cancel(org_bench, job_id)
    row = org_bench.schedule_row(schedule)
    assert (row.last_job_status, row.failure_count, row.consecutive_failures) == ("cancelled", 0, 0)
