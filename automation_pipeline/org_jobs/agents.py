"""Use cases of agents: heartbeat, claim, progress and result."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import and_, func, or_, select, update

from automation_pipeline.core.clock import Clock, iso
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.core.json_model import as_document, parse
from automation_pipeline.core.metrics import Meter
from automation_pipeline.org_jobs.models.agents import (
    AgentJob,
    Orders,
    PastAttempt,
    ProgressReport,
    ReportVerdict,
    ResultReport,
    agent_name,
    attempt_end,
    is_agent,
    lost_lease_message,
    read_result,
    refusal_message,
    verdict_on,
)
from automation_pipeline.org_jobs.models.jobs import (
    AGENT_LEASE_SECONDS,
    JOB_RUN,
    OrgJobRun,
    OrgJobsRunState,
    Performer,
)
from automation_pipeline.org_jobs.models.organisations import Host, OrgScope
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
from automation_pipeline.org_jobs.queries.organisations import add_audit_entry, find, get_host
from automation_pipeline.org_jobs.queries.queue import (
    AttemptHold,
    ClaimedRun,
    Run,
    claim_for_host,
    held_by_host,
    no_such_run,
    of_host,
    postpone_closed,
)
from automation_pipeline.org_jobs.runs import count_ended_runs
from automation_pipeline.org_jobs.tables import AttemptRow, HostRow, JobRunRow, OrgJobRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.statements import UNSYNCHRONIZED, database_now, where_given

SEEN_EVERY_SECONDS = 15.0
LATE_REPORT = "late_report"


def record_agent_report(
    session: Session, hold: AttemptHold, within: OrgScope
) -> tuple[str, timedelta]:
    """Record that the agent reported, and return its name and the time limit of the job.

    A run moves with its server; an ended attempt stays with its host. The host counts as seen only
    if it holds or held the attempt, not if only the run moved to it."""
    its_host = func.coalesce(AttemptRow.host_id, Run.host_id)
    is_held = and_(Run.attempt_no == hold.attempt_no, Run.lease_token == hold.token)
    is_its = or_(AttemptRow.id.is_not(None), and_(is_held, Run.lease_until.is_not(None)))
    is_attempt = (AttemptRow.run_id == Run.id) & (AttemptRow.attempt_no == hold.attempt_no)
    query = (
        select(HostRow, OrgJobRow.limit_seconds, is_its)
        .select_from(Run)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .outerjoin(AttemptRow, is_attempt)
        .join(HostRow, (HostRow.id == its_host) & (HostRow.org_id == Run.org_id))
        .where(Run.id == hold.run_id, Run.performer == Performer.AGENT)
        .where(*where_given((HostRow.org_id, within.org_id)))
    )
    found = session.execute(query).tuples().first()
    if found is None:
        raise no_such_run(hold.run_id)
    host, limit_seconds, has_attempt = found
    if has_attempt:
        record_heartbeat(session, host)
    return agent_name(host.name), timedelta(seconds=limit_seconds)


def record_heartbeat(session: Session, host: HostRow, agent_version: str | None = None) -> None:
    """Record a heartbeat by the database's clock, at most every 15 seconds unless the version changes."""
    is_due = or_(
        HostRow.last_seen_at.is_(None), HostRow.last_seen_at <= database_now(-SEEN_EVERY_SECONDS)
    )
    changes: dict[str, object] = {"last_seen_at": database_now()}
    seen = update(HostRow).where(HostRow.id == host.id)
    if agent_version is None or agent_version == host.agent_version:
        seen = seen.where(is_due)
    else:
        changes["agent_version"] = agent_version
    session.execute(seen.values(**changes).execution_options(**UNSYNCHRONIZED))


def past_attempt(session: Session, run: JobRunRow, attempt_no: int) -> PastAttempt | None:
    """None: no such attempt has started and ended."""
    row = _attempt(session, run, attempt_no)
    if row is None:
        return None
    return PastAttempt(
        OrgJobsRunState(row.status), row.error_code, was_reported=is_agent(_ended_by(session, row))
    )


def keep_late_report(
    session: Session, run: JobRunRow, report: ResultReport, *, actor: str, now: datetime
) -> None:
    """Store the first late report of an attempt."""
    row = _attempt(session, run, report.attempt_no)
    if row is None or row.late_report is not None:
        return
    row.late_report = {**as_document(report), "at": iso(now), "actor": actor}
    after = {"runId": str(run.id), "attemptNo": report.attempt_no, "status": report.status.value}
    add_audit_entry(
        session,
        org_id=run.org_id,
        actor=actor,
        action=LATE_REPORT,
        entity="job",
        entity_id=str(run.job_id),
        before={"status": row.status, "errorCode": row.error_code},
        after=after,
        reason="Its attempt had ended before.",
        now=now,
    )


def _attempt(session: Session, run: JobRunRow, attempt_no: int) -> AttemptRow | None:
    return session.scalar(
        select(AttemptRow).where(AttemptRow.run_id == run.id, AttemptRow.attempt_no == attempt_no)
    )


def _ended_by(session: Session, attempt: AttemptRow) -> str:
    """Every stored attempt has left the state running once, so both lists are in the same order."""
    earlier = select(func.count(AttemptRow.id)).where(
        AttemptRow.run_id == attempt.run_id, AttemptRow.attempt_no < attempt.attempt_no
    )
    nth = (
        select(TransitionRow.actor)
        .where(
            TransitionRow.machine == JOB_RUN.name,
            TransitionRow.entity_id == str(attempt.run_id),
            TransitionRow.from_state == OrgJobsRunState.RUNNING,
        )
        .order_by(TransitionRow.id)
        .offset(session.scalar(earlier) or 0)
        .limit(1)
    )
    return session.scalar(nth) or ""


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
    """The first report starts the attempt. Raises LostLeaseError if the agent must stop, because it no
    longer holds the attempt."""
    report = parse(ProgressReport, given, "Invalid progress")
    hold = AttemptHold(run_id, report.attempt_no, report.lease_token)
    with database.transaction() as session:
        actor, limit = record_agent_report(session, hold, within)
    now = clock.now()
    try:
        with database.transaction() as session:
            start_run(session, hold, now + limit, now, actor=actor)
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
    """Repeating a report changes nothing. Raises ConflictError if the agent reported another result before,
    or no longer holds the attempt; a late report is stored with the attempt."""
    report = read_result(given)
    hold = AttemptHold(run_id, report.attempt_no, report.lease_token)
    with database.transaction() as session:
        actor, limit = record_agent_report(session, hold, within)
    now = clock.now()
    ended: Sequence[EndedRun] = ()
    refusal = None
    with database.transaction() as session:
        try:
            held = held_run(session, hold, to_end=True)
        except LostLeaseError:
            refusal = _refusal(session, run_id, report, actor, now)
        else:
            # An agent reports short work without earlier progress.
            start_run(session, hold, now + limit, now, actor=actor)
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
