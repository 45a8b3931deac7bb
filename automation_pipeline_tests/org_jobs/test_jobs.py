"""Request, cancel, retry and postpone jobs."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from automation_pipeline.core.errors import ConflictError, InvalidInputError, NotFoundError
from automation_pipeline.org_jobs.jobs import (
    POSTPONED_FOR,
    cancel_job,
    postpone_job,
    release_jobs,
    request_job,
    retry_job,
)
from automation_pipeline.org_jobs.models.jobs import OrgJob, RetryPolicy, request_key
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.organisations import create_job_type
from automation_pipeline.org_jobs.tables import BatchRow
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.org_jobs import processes
from automation_pipeline_tests.org_jobs.data import ORG, OTHER_ORG, SERVICE, OrgJobsData
from automation_pipeline_tests.processes import run_in_processes

CALL = {"type": "HTTPS_CALL", "payload": {"url": "https://example.com/warm"}}


def request(
    data: OrgJobsData,
    given: dict[str, object],
    *,
    org_id: str = ORG,
    within: OrgScope = ALL_ORGANISATIONS,
) -> OrgJob:
    return request_job(given, org_id=org_id, **data.context(within))


def test_service_job_waits_in_the_queue(data: OrgJobsData) -> None:
    data.organisation()
    job = request(data, {**CALL, "priority": 2})
    assert (job.org_id, job.type, job.performer, job.priority, job.status) == (
        ORG,
        "HTTPS_CALL",
        "service",
        2,
        "pending",
    )
    assert (job.created_by, job.schedule_id, job.payload["url"]) == (
        "user:1",
        None,
        "https://example.com/warm",
    )
    retries = job.retry_policy
    assert (retries.max_retries, retries.backoff_ms, retries.backoff_type) == (
        2,
        2000,
        "exponential",
    )
    [run] = job.runs
    assert (run.status, run.attempt_no, run.max_attempts) == ("pending", 1, 3)
    [entry] = data.audit(str(job.id))
    assert (entry.action, entry.entity, entry.actor) == ("request", "job", "user:1")


def test_agent_job_has_a_server(data: OrgJobsData) -> None:
    host_id = data.host()
    server_id = data.server(host_id=host_id)
    given = {
        "type": "restart",
        "serverInstanceId": str(server_id),
        "retryPolicy": {"maxRetries": 0},
    }
    job = request(data, given, within=OrgScope(ORG))
    assert (job.type, job.server_instance_id, job.performer) == (
        "SERVER_RESTART",
        server_id,
        "agent",
    )
    assert (job.runs[0].host_id, job.runs[0].max_attempts) == (host_id, 1)
    own = {"name": "SERVER_RESTART", "summary": "Restart.", "limitSeconds": 60, "isMutation": False}
    create_job_type(own, org_id=ORG, **data.context())
    job = request(data, given)
    assert (data.job_row(job.id).limit_seconds, data.run_row(job.id).is_mutation) == (60, False)


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({}, {"type"}),
        ({"type": "NO_SUCH"}, {"type"}),
        ({"type": "SERVER_START"}, {"serverInstanceId"}),
        ({"type": "SERVER_START", "serverInstanceId": 4711}, {"serverInstanceId"}),
        ({**CALL, "serverInstanceId": 1}, {"serverInstanceId"}),
        ({"type": "HTTPS_CALL"}, {"payload.url"}),
        ({**CALL, "priority": 10}, {"priority"}),
        ({**CALL, "retryPolicy": {"maxRetries": 11}}, {"retryPolicy.maxRetries"}),
        ({**CALL, "cron": "* * * * *"}, {"cron"}),
    ],
)
def test_the_error_names_every_invalid_field(
    data: OrgJobsData, given: dict[str, object], fields: set[str]
) -> None:
    data.organisation()
    with pytest.raises(InvalidInputError, match="Invalid job data") as refused:
        request(data, given)
    assert {field for field, _ in refused.value.fields} == fields
    assert data.jobs() == []


def test_organisation_out_of_scope_is_not_found(data: OrgJobsData) -> None:
    data.organisation(OTHER_ORG)
    for org_id in (OTHER_ORG, "unknown"):
        with pytest.raises(NotFoundError, match=f"Organisation {org_id} not found"):
            request(data, CALL, org_id=org_id, within=OrgScope(ORG))


def test_server_of_another_organisation_is_refused(data: OrgJobsData) -> None:
    foreign_server = data.server(OTHER_ORG)
    data.organisation()
    with pytest.raises(InvalidInputError) as refused:
        request(data, {"type": "SERVER_START", "serverInstanceId": foreign_server})
    assert refused.value.fields == (
        ("serverInstanceId", f"is not a server of organisation '{ORG}'"),
    )


def cancel(
    data: OrgJobsData,
    job_id: int,
    *,
    reason: str | None = "Not now.",
    at_once: bool = False,
    org_id: str = ORG,
) -> OrgJob:
    return cancel_job(job_id, reason=reason, at_once=at_once, **data.context(OrgScope(org_id)))


@pytest.mark.parametrize(
    "run",
    [
        {},
        {"attempt_no": 2, "next_attempt_at": database_now(60.0)},
        {"lease_until": database_now(60.0)},
    ],
)
def test_unstarted_job_is_cancelled_at_once(data: OrgJobsData, run: dict[str, object]) -> None:
    job_id = data.job(run=run)
    job = cancel(data, job_id)
    assert (job.status, job.runs[-1].status, job.runs[-1].error) == (
        "cancelled",
        "cancelled",
        "Not now.",
    )
    assert (job.runs[-1].cancelled_by, job.finished_at) == ("user:1", data.now)
    assert data.transitions("job run", job.runs[-1].id) == [("pending", "cancelled")]
    assert [event.name for event in data.events()] == ["job_run.cancelled"]


def test_running_job_is_asked_to_stop(data: OrgJobsData) -> None:
    job_id = data.running_job()
    [run] = cancel(data, job_id).runs
    assert (run.status, run.cancel_requested_at, run.cancel_reason) == (
        "running",
        data.now,
        "Not now.",
    )
    data.advance_minutes(1)
    again = cancel(data, job_id, reason="Again.")
    assert again.runs[-1].cancel_reason == "Not now."
    assert len(data.audit(str(job_id))) == 1


def test_running_job_is_ended_at_once_on_request(data: OrgJobsData) -> None:
    job_id = data.running_job()
    cancel(data, job_id)
    [run] = cancel(data, job_id, at_once=True).runs
    assert (run.status, run.lease_until, run.error) == ("cancelled", None, "Not now.")
    assert [attempt.status for attempt in run.attempts] == ["cancelled"]


def test_remote_work_stops_first(data: OrgJobsData) -> None:
    job_id = data.running_job()
    data.set_run(data.run_row(job_id).id, following={"runId": "1"}, lease_until=None)
    assert cancel(data, job_id, at_once=True).status == "running"


def test_cancelling_again_changes_nothing(data: OrgJobsData) -> None:
    job_id = data.job()
    assert cancel(data, job_id) == cancel(data, job_id, reason="Again.", at_once=True)
    assert len(data.audit(str(job_id))) == 1


@pytest.mark.parametrize("status", ["success", "failed"])
def test_cancelling_an_ended_job_is_refused(data: OrgJobsData, status: str) -> None:
    job_id = data.job(run={"status": status, "finished_at": database_now(), "error_code": "FAILED"})
    with pytest.raises(
        ConflictError, match=f"Job {job_id} has ended, it is {status}: there is nothing to cancel."
    ):
        cancel(data, job_id)


def test_cancel_has_audit_entries(data: OrgJobsData) -> None:
    job_id = data.job()
    cancel(data, job_id)
    [entry] = data.audit(str(job_id))
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


def test_a_job_of_another_organisation_is_not_cancelled(data: OrgJobsData) -> None:
    job_id = data.job(OTHER_ORG)
    for missing in (job_id, 4711):
        with pytest.raises(NotFoundError, match=f"Job {missing} not found"):
            cancel(data, missing)
    assert data.run_row(job_id).status == "pending"


def test_cancelled_job_is_no_failure_of_its_schedule(data: OrgJobsData) -> None:
    schedule = data.schedule()
    job_id = data.job(schedule_id=schedule)
    data.set_schedule(schedule, last_run_job_id=job_id)
    cancel(data, job_id)
    row = data.schedule_row(schedule)
    assert (row.last_job_status, row.failure_count, row.consecutive_failures) == ("cancelled", 0, 0)


FAILED = {"status": "failed", "finished_at": database_now(), "error_code": "FAILED"}


def retry(data: OrgJobsData, job_id: int, org_id: str = ORG) -> OrgJob:
    return retry_job(job_id, **data.context(OrgScope(org_id), actor="user:2"))


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_failed_or_cancelled_job_gets_another_run(data: OrgJobsData, status: str) -> None:
    host_id = data.host()
    job_id = data.job(
        run=FAILED | {"status": status}, retry=RetryPolicy(max_retries=4), line="a", host_id=host_id
    )
    data.set_job(job_id, finished_at=data.now)
    data.clock.advance(timedelta(days=3))
    job = retry(data, job_id)
    first, second = data.runs(job_id)
    assert (job.status, job.finished_at, job.expires_at) == (
        "pending",
        None,
        data.now + timedelta(hours=24),
    )
    assert [run.status for run in job.runs] == [status, "pending"]
    assert (second.attempt_no, second.max_attempts, second.created_by) == (1, 5, "user:2")
    for same in ("line", "host_id", "performer", "is_mutation", "priority", "org_id"):
        assert getattr(second, same) == getattr(first, same)
    [entry] = data.audit(str(job_id))
    assert (entry.action, entry.actor, entry.before) == ("retry", "user:2", {"status": status})


@pytest.mark.parametrize("status", ["pending", "running", "success"])
def test_retry_of_other_states_is_refused(data: OrgJobsData, status: str) -> None:
    columns = (
        {"finished_at": database_now()} if status == "success" else {"started_at": database_now()}
    )
    job_id = data.job(run={"status": status, **columns})
    with pytest.raises(
        ConflictError, match=f"Job {job_id} is {status}: only a failed or cancelled job"
    ):
        retry(data, job_id)


def test_newest_run_decides_about_a_retry(data: OrgJobsData) -> None:
    job_id = data.job(run=FAILED)
    retry(data, job_id)
    with pytest.raises(ConflictError):
        retry(data, job_id)
    data.set_run(data.run_row(job_id).id, **FAILED)
    assert len(retry(data, job_id).runs) == 3


def test_job_of_a_deleted_schedule_is_retried(data: OrgJobsData) -> None:
    schedule = data.schedule(deleted_at=data.now, state="PAUSED")
    assert retry(data, data.job(schedule_id=schedule, run=FAILED)).status == "pending"


def test_batch_of_a_retried_job_is_running_again(data: OrgJobsData) -> None:
    schedule = data.schedule()
    with data.database.transaction() as session:
        batch = BatchRow(
            org_id=ORG,
            schedule_id=schedule,
            type="backfill",
            status="completed_with_failures",
            behaviour="none",
            from_at=data.now,
            until_at=data.now,
            total=1,
            created_by="user:1",
            created_at=data.now,
            finished_at=data.now,
        )
        session.add(batch)
    retry(data, data.job(schedule_id=schedule, batch_id=batch.id, run=FAILED))
    row = data.batch_row(batch.id)
    assert (row.status, row.finished_at) == ("running", None)


def test_concurrent_retries_make_one_run(data: OrgJobsData) -> None:
    job_id = data.job(run=FAILED)
    url = data.database.url.render_as_string(hide_password=False)
    retried: Sequence[bool] = run_in_processes(processes.retry, *[(url, data.now, job_id)] * 4)
    assert (sum(retried), len(data.runs(job_id))) == (1, 2)


def test_a_job_of_another_organisation_is_not_retried(data: OrgJobsData) -> None:
    job_id = data.job(OTHER_ORG, run=FAILED)
    for missing in (job_id, 4711):
        with pytest.raises(NotFoundError, match=f"Job {missing} not found"):
            retry(data, missing)


def postpone(data: OrgJobsData, job_id: int, before: int = 0) -> bool:
    """Postpone the run after the death of its newest worker, or of the one `before` requests earlier."""
    run = data.run_row(job_id)
    request = request_key(run.id, run.requests - before)
    return postpone_job(
        run.id, "Its worker died.", request=request, database=data.database, clock=data.clock
    )


def release(data: OrgJobsData) -> int:
    return len(release_jobs(database=data.database, clock=data.clock, limit=5))


def test_postponed_run_gets_another_worker_later(data: OrgJobsData) -> None:
    job_id = data.job(of_type=SERVICE)
    release(data)
    assert postpone(data, job_id)
    run = data.run_row(job_id)
    assert (run.next_attempt_at, run.requested_at, run.error) == (
        data.now + timedelta(minutes=5),
        None,
        "Its worker died.",
    )
    assert (run.status, run.attempt_no, release(data)) == ("pending", 1, 0)
    data.clock.advance(POSTPONED_FOR)
    assert release(data) == 1


@pytest.mark.parametrize(
    "run",
    [
        {"status": "running", "started_at": database_now(), "lease_until": database_now(60.0)},
        {"status": "success", "finished_at": database_now()},
        {"performer": "agent"},
        {"lease_until": database_now(60.0)},
    ],
)
def test_started_runs_and_runs_of_agents_are_not_postponed(
    data: OrgJobsData, run: dict[str, object]
) -> None:
    job_id = data.job(of_type=SERVICE, run={"requested_at": data.now, "requests": 1} | run)
    assert not postpone(data, job_id)
    assert data.run_row(job_id).error is None


def test_longer_wait_is_kept(data: OrgJobsData) -> None:
    later = data.now + timedelta(hours=1)
    requested = {"requested_at": data.now, "requests": 1}
    job_id = data.job(of_type=SERVICE, run={"next_attempt_at": later, **requested})
    assert not postpone(data, job_id)
    assert data.run_row(job_id).next_attempt_at == later


def test_postponed_run_waits_for_the_next_window(data: OrgJobsData) -> None:
    ends = data.now + timedelta(minutes=2)
    window = {"start": f"{data.now:%H:%M}", "end": f"{ends:%H:%M}", "timezone": "UTC"}
    job_id = data.job(of_type=SERVICE, start_window=window)
    release(data)
    assert postpone(data, job_id)
    opens = data.now.replace(second=0, microsecond=0) + timedelta(days=1)
    assert data.run_row(job_id).next_attempt_at == opens


def test_a_superseded_worker_cannot_postpone_the_run(data: OrgJobsData) -> None:
    job_id = data.job(of_type=SERVICE)
    release(data)
    data.clock.advance(POSTPONED_FOR)
    assert release(data) == 1
    assert not postpone(data, job_id, before=1)
    assert postpone(data, job_id)


def test_planned_retry_keeps_its_time_and_error(data: OrgJobsData) -> None:
    soon = data.now + timedelta(seconds=2)
    planned = {
        "requests": 1,
        "attempt_no": 2,
        "next_attempt_at": soon,
        "error": "An internal error ended it.",
    }
    job_id = data.job(of_type=SERVICE, run=planned)
    assert not postpone(data, job_id)
    run = data.run_row(job_id)
    assert (run.next_attempt_at, run.error) == (soon, "An internal error ended it.")
