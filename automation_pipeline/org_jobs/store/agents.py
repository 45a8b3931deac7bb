"""Queries of agents: the host that each works for, when it was last heard of, and what it holds."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.domain.agent_job import AgentJob
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.job_types import JOB_TYPES
from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.domain.tenancy import Within
from automation_pipeline.org_jobs.store.claims import ClaimedRun
from automation_pipeline.org_jobs.store.holds import no_such_run
from automation_pipeline.org_jobs.store.readiness import is_at_work
from automation_pipeline.org_jobs.tables import HostRow, JobRow, JobRunRow, ServerRow
from automation_pipeline.storage.instants import database_now

SEEN_EVERY_SECONDS = 15.0
# Of a type that this version does not know any more.
_LIMIT_SECONDS = 900


def host_of_agent(session: Session, host_id: int, within: Within) -> HostRow:
    row = session.scalar(select(HostRow).where(HostRow.id == host_id, *_reached(within)))
    if row is None:
        raise NotFoundError(f"Host {host_id} does not exist.")
    return row


def host_of_run(session: Session, run_id: int, within: Within) -> tuple[HostRow, str]:
    """The host whose agent has it or had it, and the type of its job. What no agent does is not there."""
    query = (
        select(HostRow, JobRow.type)
        .join(JobRunRow, (JobRunRow.host_id == HostRow.id) & (JobRunRow.org_id == HostRow.org_id))
        .join(JobRow, JobRow.id == JobRunRow.job_id)
        .where(JobRunRow.id == run_id, JobRunRow.performer == Performer.AGENT, *_reached(within))
    )
    found = session.execute(query).tuples().first()
    if found is None:
        raise no_such_run(run_id)
    return found


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
