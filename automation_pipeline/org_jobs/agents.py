"""Use cases of agents: heartbeat, claim, progress and result."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.json_model import parse
from automation_pipeline.core.metrics import Meter
from automation_pipeline.org_jobs.models.agents import (
    AgentJob,
    Orders,
    ProgressReport,
    ResultReport,
    agent_name,
    read_result,
)
from automation_pipeline.org_jobs.models.jobs import AGENT_LEASE_SECONDS, OrgJobRun
from automation_pipeline.org_jobs.models.organisations import Host, OrgScope
from automation_pipeline.org_jobs.models.states import OrgJobsRunState
from automation_pipeline.org_jobs.queries.agents import (
    keep_late_report,
    past_attempt,
    record_agent_report,
    record_heartbeat,
)
from automation_pipeline.org_jobs.queries.attempts import (
    EndedRun,
    LostLeaseError,
    end_attempts,
    extend_lease,
    held_run,
    locked_run,
    start_run,
)
from automation_pipeline.org_jobs.queries.jobs import get_run
from automation_pipeline.org_jobs.queries.organisations import find, get_host
from automation_pipeline.org_jobs.queries.queue import (
    AttemptHold,
    ClaimedRun,
    claim_for_host,
    held_by_host,
    of_host,
    postpone_closed,
)
from automation_pipeline.org_jobs.rules.agents import (
    ReportVerdict,
    attempt_end,
    lost_lease_message,
    refusal_message,
    verdict_on,
)
from automation_pipeline.org_jobs.runs import count_ended_runs
from automation_pipeline.org_jobs.tables import HostRow
from automation_pipeline.storage.database import Database, Session


def touch_heartbeat(
    host_id: int, *, within: OrgScope, database: Database, agent_version: str | None = None
) -> Host:
    with database.transaction() as session:
        record_heartbeat(session, find(session, HostRow, host_id, within), agent_version)
        return get_host(session, host_id, within)


def claim_jobs(
    host_id: int, *, within: OrgScope, database: Database, clock: Clock, most: int = 1
) -> list[AgentJob]:
    """Most urgent first. A job that does not start before its lease ends is free again."""
    with database.transaction() as session:
        host = find(session, HostRow, host_id, within)
        record_heartbeat(session, host)
        postpone_closed(session, of_host(host.id, host.org_id), clock.now())
    with database.transaction() as session:
        actor = agent_name(host.name)
        claimed = claim_for_host(session, host, actor, most, AGENT_LEASE_SECONDS, clock.now())
        return [_agent_job(one) for one in claimed]


def list_held_jobs(host_id: int, *, within: OrgScope, database: Database) -> list[AgentJob]:
    """Oldest first, with the agent's lease tokens."""
    with database.transaction() as session:
        host = find(session, HostRow, host_id, within)
        record_heartbeat(session, host)
        return [_agent_job(one) for one in held_by_host(session, host)]


def _agent_job(claimed: ClaimedRun) -> AgentJob:
    run, job, server = claimed.run, claimed.job, claimed.server
    assert run.lease_until is not None  # noqa: S101  a held run has a lease
    return AgentJob(
        run_id=run.id,
        job_id=job.id,
        status=OrgJobsRunState(run.status),
        attempt_no=run.attempt_no,
        max_attempts=run.max_attempts,
        lease_token=run.lease_token,
        lease_expires_at=run.lease_until,
        deadline_at=run.deadline_at,
        type=job.type,
        payload=job.payload,
        server_instance_id=job.server_instance_id,
        server_name=None if server is None else server.name,
        limit_seconds=job.limit_seconds,
        scheduled_for=job.scheduled_for,
    )


def report_progress(
    run_id: int, given: Mapping[str, object], *, within: OrgScope, database: Database, clock: Clock
) -> Orders:
    """The first report starts the attempt. LostLeaseError: the agent must stop, because it no
    longer holds the attempt."""
    report = parse(ProgressReport, given, "Invalid progress")
    hold = AttemptHold(run_id, report.attempt_no, report.lease_token)
    with database.transaction() as session:
        reporter = record_agent_report(session, hold, within)
    now, actor = clock.now(), agent_name(reporter.host.name)
    deadline_at = now + timedelta(seconds=reporter.limit_seconds)
    try:
        with database.transaction() as session:
            start_run(session, hold, deadline_at, now, actor=actor)
            run = extend_lease(session, hold, AGENT_LEASE_SECONDS)
            values = {"percent": report.percent, "message": report.message}
            new = {name: value for name, value in values.items() if value is not None}
            run.progress, run.progress_at = {**(run.progress or {}), **new}, now
            assert run.lease_until is not None  # noqa: S101  a held run has a lease
            return Orders(
                cancel_requested=run.cancel_requested_at is not None,
                lease_expires_at=run.lease_until,
                deadline_at=run.deadline_at,
            )
    except LostLeaseError:
        raise LostLeaseError(lost_lease_message(run_id, report.attempt_no)) from None


def report_result(
    run_id: int,
    given: Mapping[str, object],
    *,
    within: OrgScope,
    database: Database,
    clock: Clock,
    meter: Meter,
) -> OrgJobRun:
    """Repeating a report changes nothing. ConflictError: the agent reported another result before,
    or no longer holds the attempt; a late report is stored with the attempt."""
    report = read_result(given)
    hold = AttemptHold(run_id, report.attempt_no, report.lease_token)
    with database.transaction() as session:
        reporter = record_agent_report(session, hold, within)
    now, actor = clock.now(), agent_name(reporter.host.name)
    deadline_at = now + timedelta(seconds=reporter.limit_seconds)
    ended: Sequence[EndedRun] = ()
    refusal = None
    with database.transaction() as session:
        try:
            held = held_run(session, hold, to_end=True)
        except LostLeaseError:
            refusal = _refusal(session, run_id, report, actor, now)
        else:
            # An agent reports short work without earlier progress.
            start_run(session, hold, deadline_at, now, actor=actor)
            end = attempt_end(report, is_cancel_wanted=held.cancel_requested_at is not None)
            ended = end_attempts(session, {run_id: end}, actor, now)
        run = get_run(session, run_id, within)
    count_ended_runs(ended, meter=meter, now=now)
    if refusal is not None:  # after the commit, which stores a late report
        raise ConflictError(refusal)
    return run


def _refusal(
    session: Session, run_id: int, report: ResultReport, actor: str, now: datetime
) -> str | None:
    """None: the agent reported the same result before."""
    run = locked_run(session, run_id)
    past = past_attempt(session, run, report.attempt_no)
    verdict = verdict_on(report, run.attempt_no, run.lease_token, past)
    if verdict is ReportVerdict.SAME:
        return None
    if verdict is ReportVerdict.LATE:
        keep_late_report(session, run, report, actor=actor, now=now)
    return refusal_message(verdict, run.id, report.attempt_no, past)
