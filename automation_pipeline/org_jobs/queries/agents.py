"""Queries of agents: their host, what they hold, and what they report."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.models.agents import (
    AgentJob,
    Orders,
    ProgressReport,
    ResultReport,
    is_agent,
)
from automation_pipeline.org_jobs.models.jobs import Performer
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.states import JOB_RUN, OrgJobsRunState
from automation_pipeline.org_jobs.queries.attempts import no_such_run
from automation_pipeline.org_jobs.queries.organisations import add_audit_entry
from automation_pipeline.org_jobs.queries.queue import AttemptHold, ClaimedRun, is_at_work
from automation_pipeline.org_jobs.rules.attempts import PastAttempt
from automation_pipeline.org_jobs.tables import AttemptRow, HostRow, JobRunRow, OrgJobRow, ServerRow
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.transitions import TransitionRow

SEEN_EVERY_SECONDS = 15.0


def host_of_agent(session: Session, host_id: int, within: OrgScope) -> HostRow:
    row = session.scalar(select(HostRow).where(HostRow.id == host_id, *_reached(within)))
    if row is None:
        raise NotFoundError(f"Host {host_id} not found")
    return row


@dataclass(frozen=True)
class Reporter:
    """The host whose agent has an attempt or had it, and the job's limit. `is_known`: not
    merely guessed from where the run is now, because the attempt is nobody's."""

    host: HostRow
    limit_seconds: int
    is_known: bool


def reporter_of(session: Session, hold: AttemptHold, within: OrgScope) -> Reporter:
    """A run moves with its server, an attempt that has ended stays its host's. What no agent does
    is not there."""
    its_host = func.coalesce(AttemptRow.host_id, JobRunRow.host_id)
    is_held = and_(JobRunRow.attempt_no == hold.attempt_no, JobRunRow.lease_token == hold.token)
    is_known = or_(AttemptRow.id.is_not(None), and_(is_held, JobRunRow.lease_until.is_not(None)))
    query = (
        select(HostRow, OrgJobRow.limit_seconds, is_known)
        .select_from(JobRunRow)
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .outerjoin(
            AttemptRow,
            (AttemptRow.run_id == JobRunRow.id) & (AttemptRow.attempt_no == hold.attempt_no),
        )
        .join(HostRow, (HostRow.id == its_host) & (HostRow.org_id == JobRunRow.org_id))
        .where(
            JobRunRow.id == hold.run_id, JobRunRow.performer == Performer.AGENT, *_reached(within)
        )
    )
    found = session.execute(query).tuples().first()
    if found is None:
        raise no_such_run(hold.run_id)
    host, limit_seconds, known = found
    return Reporter(host, limit_seconds, bool(known))


def record_agent_report(session: Session, reporter: Reporter) -> None:
    """No host is seen because another one speaks of a run that has moved there."""
    if reporter.is_known:
        record_heartbeat(session, reporter.host)


def record_heartbeat(session: Session, host: HostRow, agent_version: str | None = None) -> None:
    """By the database's clock; not worth a write every second, unless there is something new about
    it."""
    is_due = or_(
        HostRow.last_seen_at.is_(None), HostRow.last_seen_at <= database_now(-SEEN_EVERY_SECONDS)
    )
    is_new = agent_version is not None and agent_version != host.agent_version
    version = {"agent_version": agent_version} if is_new else {}
    session.execute(
        update(HostRow)
        .where(HostRow.id == host.id, HostRow.org_id == host.org_id, *(() if is_new else (is_due,)))
        .values(last_seen_at=database_now(), **version)
        .execution_options(synchronize_session=False)
    )


def held_jobs(session: Session, host: HostRow) -> list[AgentJob]:
    """Also those whose lease is over, as long as nobody has given them up. Oldest first."""
    query = (
        select(JobRunRow, OrgJobRow, ServerRow)
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .outerjoin(ServerRow, ServerRow.id == OrgJobRow.server_instance_id)
        .where(JobRunRow.org_id == host.org_id, JobRunRow.host_id == host.id, is_at_work())
        .where(JobRunRow.performer == Performer.AGENT, JobRunRow.lease_until.is_not(None))
        .order_by(JobRunRow.id)
    )
    rows = session.execute(query).tuples().all()
    return [
        _held(run, job, server, run.lease_until)
        for run, job, server in rows
        if run.lease_until is not None
    ]


def as_agent_jobs(claimed: Sequence[ClaimedRun]) -> list[AgentJob]:
    return [_claimed(one) for one in claimed]


def _reached(within: OrgScope) -> list[ColumnElement[bool]]:
    return [] if within.org_id is None else [HostRow.org_id == within.org_id]


def _claimed(one: ClaimedRun) -> AgentJob:
    return AgentJob(
        run_id=one.hold.run_id,
        job_id=one.job_id,
        status=OrgJobsRunState.PENDING,
        attempt_no=one.hold.attempt_no,
        max_attempts=one.max_attempts,
        lease_token=one.hold.token,
        lease_expires_at=one.lease_until,
        deadline_at=None,
        type=one.type,
        payload=one.payload,
        server_instance_id=one.server_instance_id,
        server_name=one.server_name,
        limit_seconds=one.limit_seconds,
        scheduled_for=one.scheduled_for,
    )


def _held(
    run: JobRunRow, job: OrgJobRow, server: ServerRow | None, lease_until: datetime
) -> AgentJob:
    return AgentJob(
        run_id=run.id,
        job_id=job.id,
        status=OrgJobsRunState(run.status),
        attempt_no=run.attempt_no,
        max_attempts=run.max_attempts,
        lease_token=run.lease_token,
        lease_expires_at=lease_until,
        deadline_at=run.deadline_at,
        type=job.type,
        payload=job.payload,
        server_instance_id=job.server_instance_id,
        server_name=None if server is None else server.name,
        limit_seconds=job.limit_seconds,
        scheduled_for=job.scheduled_for,
    )


LATE_REPORT = "late_report"


def write_progress(run: JobRunRow, report: ProgressReport, now: datetime) -> None:
    """Of a run that is locked. What is not said this time stays as it was said before."""
    said = {"percent": report.percent, "message": report.message}
    run.progress = {
        **(run.progress or {}),
        **{name: value for name, value in said.items() if value is not None},
    }
    run.progress_at = now


def orders_of(run: JobRunRow) -> Orders:
    """Of a run that somebody holds."""
    assert run.lease_until is not None  # noqa: S101  whoever holds a run has a lease
    return Orders(
        cancel_requested=run.cancel_requested_at is not None,
        lease_expires_at=run.lease_until,
        deadline_at=run.deadline_at,
    )


def past_attempt(session: Session, run: JobRunRow, attempt_no: int) -> PastAttempt | None:
    """None: no such attempt has begun and ended."""
    row = _attempt(session, run, attempt_no)
    if row is None:
        return None
    return PastAttempt(
        OrgJobsRunState(row.status), row.error_code, was_reported=is_agent(_ended_by(session, row))
    )


def keep_late_report(
    session: Session, run: JobRunRow, report: ResultReport, *, actor: str, now: datetime
) -> None:
    """The first one of an attempt; what is said after that adds nothing."""
    row = _attempt(session, run, report.attempt_no)
    if row is None or row.late_report is not None:
        return
    row.late_report = {**as_document(report), "at": iso(now), "actor": actor}
    said = {"runId": str(run.id), "attemptNo": report.attempt_no, "status": report.status.value}
    add_audit_entry(
        session,
        org_id=run.org_id,
        actor=actor,
        action=LATE_REPORT,
        entity="job",
        entity_id=str(run.job_id),
        before={"status": row.status, "errorCode": row.error_code},
        after=said,
        reason="Its attempt had been given up by then.",
        now=now,
    )


def _attempt(session: Session, run: JobRunRow, attempt_no: int) -> AttemptRow | None:
    return session.scalar(
        select(AttemptRow).where(
            AttemptRow.run_id == run.id,
            AttemptRow.org_id == run.org_id,
            AttemptRow.attempt_no == attempt_no,
        )
    )


def _ended_by(session: Session, attempt: AttemptRow) -> str:
    """Every attempt that is kept has left the state running once, so both are in the same order."""
    before = select(func.count(AttemptRow.id)).where(
        AttemptRow.run_id == attempt.run_id, AttemptRow.attempt_no < attempt.attempt_no
    )
    ended = select(TransitionRow.actor).where(
        TransitionRow.machine == JOB_RUN.name,
        TransitionRow.entity_id == str(attempt.run_id),
        TransitionRow.from_state == OrgJobsRunState.RUNNING,
    )
    return (
        session.scalar(
            ended.order_by(TransitionRow.id).offset(session.scalar(before) or 0).limit(1)
        )
        or ""
    )
