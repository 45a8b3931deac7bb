"""Use cases of jobs: request, cancel, retry, release to workers and postpone."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.org_jobs.models.job_types import job_type
from automation_pipeline.org_jobs.models.jobs import (
    DEFAULT_RETRY_POLICY,
    ENDED_RUN_STATES,
    OrgJob,
    OrgJobsRunState,
    attempt_cancelled,
)
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.queries.attempts import end_attempts, newest_run, repeat_run
from automation_pipeline.org_jobs.queries.jobs import NewJob, add_jobs, get_job
from automation_pipeline.org_jobs.queries.organisations import (
    add_audit_entry,
    get_organisation,
    host_of_server,
    own_type,
)
from automation_pipeline.org_jobs.queries.queue import (
    OF_SERVICE,
    next_runs,
    opening_of_run,
    postpone,
    postpone_closed,
    request_workers,
)
from automation_pipeline.org_jobs.rules.schedules import INVALID_JOB, read_job
from automation_pipeline.org_jobs.tables import (
    JobRunRow,
)
from automation_pipeline.storage.database import Database, Session


def request_job(  # noqa: PLR0913  the collaborators by name
    given: Mapping[str, object],
    *,
    org_id: str,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    call_origins: Collection[str] = (),
) -> OrgJob:
    """Raises InvalidInputError, which names every field at fault. While the organisation is suspended, the job
    waits."""
    with database.transaction() as session:
        own_types, now = own_type(session, org_id, given.get("type")), clock.now()
        wanted = read_job(given, call_origins=call_origins, own_types=own_types)
        get_organisation(session, org_id, within)
        job = NewJob(
            org_id=org_id,
            type=job_type(wanted.type, own_types),
            payload=wanted.payload,
            retry=wanted.retry_policy or DEFAULT_RETRY_POLICY,
            created_by=actor,
            priority=wanted.priority,
            server_instance_id=wanted.server_instance_id,
            host_id=host_of_server(session, wanted.server_instance_id, org_id, INVALID_JOB),
        )
        [job_id] = add_jobs(session, [job], now)
        add_audit_entry(
            session,
            org_id=org_id,
            actor=actor,
            action="request",
            entity="job",
            entity_id=str(job_id),
            after={"type": wanted.type},
            now=now,
        )
        return get_job(session, job_id, within)


def cancel_job(  # noqa: PLR0913  the collaborators and the request, by name
    job_id: int,
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    actor: str,
    reason: str | None = None,
    at_once: bool = False,
) -> OrgJob:
    """With `at_once`, a running attempt ends now, unless another system runs it and must stop it
    first. Safe to repeat. Raises ConflictError if the job has ended in another way."""
    with database.transaction() as session:
        run, now = newest_run(session, job_id, within), clock.now()
        if run.status in ENDED_RUN_STATES - {OrgJobsRunState.CANCELLED}:
            raise ConflictError(
                f"Job {job_id} has ended, it is {run.status}: there is nothing to cancel."
            )
        if run.status != OrgJobsRunState.CANCELLED:
            _stop(session, run, actor, reason, now, at_once=at_once)
        return get_job(session, job_id, within)


def _stop(
    session: Session,
    run: JobRunRow,
    actor: str,
    reason: str | None,
    now: datetime,
    *,
    at_once: bool,
) -> None:
    is_new = run.cancel_requested_at is None
    if is_new:
        run.cancel_requested_at, run.cancelled_by, run.cancel_reason = now, actor, reason
    status_before = run.status
    ends = run.status == OrgJobsRunState.PENDING or (at_once and run.following is None)
    if ends:
        end_attempts(session, {run.id: attempt_cancelled(run.cancel_reason)}, actor, now)
    if is_new or ends:
        add_audit_entry(
            session,
            org_id=run.org_id,
            actor=actor,
            action="cancel",
            entity="job",
            entity_id=str(run.job_id),
            before={"status": status_before},
            after={"status": run.status, "atOnce": at_once},
            reason=reason,
            now=now,
        )


def retry_job(
    job_id: int, *, within: OrgScope, database: Database, clock: Clock, actor: str
) -> OrgJob:
    """Raises ConflictError unless the job failed or was cancelled."""
    with database.transaction() as session:
        run, now = newest_run(session, job_id, within), clock.now()
        if run.status not in {OrgJobsRunState.FAILED, OrgJobsRunState.CANCELLED}:
            raise ConflictError(
                f"Job {job_id} is {run.status}: only a failed or cancelled job can be retried."
            )
        repeat_run(session, run, actor, now)
        add_audit_entry(
            session,
            org_id=run.org_id,
            actor=actor,
            action="retry",
            entity="job",
            entity_id=str(job_id),
            before={"status": run.status},
            after={"status": OrgJobsRunState.PENDING},
            now=now,
        )
        return get_job(session, job_id, within)


def release_jobs(*, database: Database, clock: Clock, limit: int) -> Sequence[int]:
    """Request workers for runs, and return the runs. A worker that never started is requested again
    after a while."""
    with database.transaction() as session:
        now = clock.now()
        postpone_closed(session, OF_SERVICE, now)
        chosen = next_runs(session, limit, now)
        return request_workers(session, chosen, now) if chosen else []


POSTPONED_FOR = timedelta(minutes=5)


def postpone_job(
    run_id: int, reason: str, *, request: str, database: Database, clock: Clock
) -> bool:
    """Whether the run now waits for another worker, because the worker of this request died before
    it started. A later request, or an attempt that has started, stays unchanged."""
    with database.transaction() as session:
        until = opening_of_run(session, run_id, clock.now() + POSTPONED_FOR)
        return postpone(session, run_id, request, until, reason)
