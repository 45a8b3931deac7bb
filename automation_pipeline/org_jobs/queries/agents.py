"""Queries of agents: the host that reports, its heartbeat, and late reports."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import iso
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.models.agents import ResultReport, is_agent
from automation_pipeline.org_jobs.models.jobs import Performer
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.states import JOB_RUN, OrgJobsRunState
from automation_pipeline.org_jobs.queries.organisations import add_audit_entry
from automation_pipeline.org_jobs.queries.queue import AttemptHold, Run, no_such_run
from automation_pipeline.org_jobs.rules.agents import PastAttempt
from automation_pipeline.org_jobs.tables import AttemptRow, HostRow, JobRunRow, OrgJobRow
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.statements import database_now, where_given

SEEN_EVERY_SECONDS = 15.0
LATE_REPORT = "late_report"


@dataclass(frozen=True)
class Reporter:
    """The host whose agent holds or held the attempt, and the time limit of the job."""

    host: HostRow
    limit_seconds: int


def record_agent_report(session: Session, hold: AttemptHold, within: OrgScope) -> Reporter:
    """Record that the agent reported. A run moves with its server; an ended attempt stays with its
    host. The host counts as seen only if it holds or held the attempt, not if only the run moved to
    it."""
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
    return Reporter(host, limit_seconds)


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
    session.execute(seen.values(**changes).execution_options(synchronize_session=False))


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
    its = AttemptRow.run_id == run.id, AttemptRow.attempt_no == attempt_no
    return session.scalar(select(AttemptRow).where(*its))


def _ended_by(session: Session, attempt: AttemptRow) -> str:
    """Every stored attempt has left the state running once, so both lists are in the same order."""
    earlier = select(func.count(AttemptRow.id)).where(
        AttemptRow.run_id == attempt.run_id, AttemptRow.attempt_no < attempt.attempt_no
    )
    ended = select(TransitionRow.actor).where(
        TransitionRow.machine == JOB_RUN.name,
        TransitionRow.entity_id == str(attempt.run_id),
        TransitionRow.from_state == OrgJobsRunState.RUNNING,
    )
    nth = ended.order_by(TransitionRow.id).offset(session.scalar(earlier) or 0).limit(1)
    return session.scalar(nth) or ""
