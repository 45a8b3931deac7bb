"""Queries of agents: the host that each works for, when it was last heard of, and what it holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.domain.agent_job import AgentJob
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.job_types import JOB_TYPES
from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.claims import ClaimedRun, Hold
from automation_pipeline.org_jobs.store.holds import no_such_run
from automation_pipeline.org_jobs.store.readiness import is_at_work
from automation_pipeline.org_jobs.tables import AttemptRow, HostRow, JobRow, JobRunRow, ServerRow
from automation_pipeline.storage.instants import database_now

SEEN_EVERY_SECONDS = 15.0
# Of a type that this version does not know any more.
_LIMIT_SECONDS = 900


def host_of_agent(session: Session, host_id: int, within: Within) -> HostRow:
    row = session.scalar(select(HostRow).where(HostRow.id == host_id, *_reached(within)))
    if row is None:
        raise NotFoundError(f"Host {host_id} does not exist.")
    return row


@dataclass(frozen=True)
class Reporter:
    """The host whose agent has an attempt or had it, and the type of the job. `is_known`: not merely guessed from where
    the run is now, because the attempt is nobody's."""

    host: HostRow
    type_name: str
    is_known: bool


def reporter_of(session: Session, hold: Hold, within: Within) -> Reporter:
    """A run moves with its server, an attempt that has ended stays its host's. What no agent does is not there."""
    its_host = func.coalesce(AttemptRow.host_id, JobRunRow.host_id)
    is_held = and_(JobRunRow.attempt_no == hold.attempt_no, JobRunRow.lease_token == hold.token)
    is_known = or_(AttemptRow.id.is_not(None), and_(is_held, JobRunRow.lease_until.is_not(None)))
    query = (
        select(HostRow, JobRow.type, is_known)
        .select_from(JobRunRow)
        .join(JobRow, JobRow.id == JobRunRow.job_id)
        .outerjoin(AttemptRow, (AttemptRow.run_id == JobRunRow.id) & (AttemptRow.attempt_no == hold.attempt_no))
        .join(HostRow, (HostRow.id == its_host) & (HostRow.org_id == JobRunRow.org_id))
        .where(JobRunRow.id == hold.run_id, JobRunRow.performer == Performer.AGENT, *_reached(within))
    )
    found = session.execute(query).tuples().first()
    if found is None:
        raise no_such_run(hold.run_id)
    host, type_name, known = found
    return Reporter(host, type_name, bool(known))


def note_reported(session: Session, reporter: Reporter) -> None:
    """No host is seen because another one speaks of a run that has moved there."""
    if reporter.is_known:
        note_seen(session, reporter.host)


def note_seen(session: Session, host: HostRow, agent_version: str | None = None) -> None:
    """By the database's clock; not worth a write every second, unless there is something new about it."""
    is_due = or_(HostRow.last_seen_at.is_(None), HostRow.last_seen_at <= database_now(-SEEN_EVERY_SECONDS))
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
        select(JobRunRow, JobRow, ServerRow)
        .join(JobRow, JobRow.id == JobRunRow.job_id)
        .outerjoin(ServerRow, ServerRow.id == JobRow.server_instance_id)
        .where(JobRunRow.org_id == host.org_id, JobRunRow.host_id == host.id, is_at_work())
        .where(JobRunRow.performer == Performer.AGENT, JobRunRow.lease_until.is_not(None))
        .order_by(JobRunRow.id)
    )
    rows = session.execute(query).tuples().all()
    return [_held(run, job, server, run.lease_until) for run, job, server in rows if run.lease_until is not None]


def handed_out(claimed: Sequence[ClaimedRun]) -> list[AgentJob]:
    return [_claimed(one) for one in claimed]


def limit_seconds(type_name: str) -> int:
    known = JOB_TYPES.get(type_name)
    return _LIMIT_SECONDS if known is None else known.limit_seconds


def _reached(within: Within) -> list[ColumnElement[bool]]:
    return [] if within.org_id is None else [HostRow.org_id == within.org_id]


def _claimed(one: ClaimedRun) -> AgentJob:
    return AgentJob(
        run_id=one.hold.run_id,
        job_id=one.job_id,
        status=RunState.PENDING,
        attempt_no=one.hold.attempt_no,
        max_attempts=one.max_attempts,
        lease_token=one.hold.token,
        lease_expires_at=one.lease_until,
        deadline_at=None,
        type=one.type,
        payload=one.payload,
        server_instance_id=one.server_instance_id,
        server_name=one.server_name,
        limit_seconds=limit_seconds(one.type),
        scheduled_for=one.scheduled_for,
    )


def _held(run: JobRunRow, job: JobRow, server: ServerRow | None, lease_until: datetime) -> AgentJob:
    return AgentJob(
        run_id=run.id,
        job_id=job.id,
        status=RunState(run.status),
        attempt_no=run.attempt_no,
        max_attempts=run.max_attempts,
        lease_token=run.lease_token,
        lease_expires_at=lease_until,
        deadline_at=run.deadline_at,
        type=job.type,
        payload=job.payload,
        server_instance_id=job.server_instance_id,
        server_name=None if server is None else server.name,
        limit_seconds=limit_seconds(job.type),
        scheduled_for=job.scheduled_for,
    )
