"""Who works on a run: one at a time, by the database's clock, fenced by a token that only rises, within all limits.

An organisation's claims are made one after another. Its row is locked so that other rows may still refer to it: those
who end attempts write such rows while they have runs locked. What the holder of a claim may do: `holds`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, case, func, literal, select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.store.openings import opens_at
from automation_pipeline.org_jobs.store.readiness import RUNS, has_open_place, is_at_work, is_open, is_waiting
from automation_pipeline.org_jobs.store.workers import reserved_places, waits_before
from automation_pipeline.org_jobs.tables import HostRow, JobRow, JobRunRow, OrganisationRow, ServerRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.types import JsonObject

MOST_MUTATIONS, MOST_READS = 1, 8


@dataclass(frozen=True)
class Hold:
    """What somebody has who works on an attempt."""

    run_id: int
    attempt_no: int
    token: int


@dataclass(frozen=True, kw_only=True)
class ClaimedRun:
    """`lease_until` is by the database's clock."""

    hold: Hold
    org_id: str
    job_id: int
    type: str
    payload: JsonObject
    server_instance_id: int | None
    server_name: str | None
    schedule_id: str | None
    scheduled_for: datetime | None
    max_attempts: int
    priority: int
    is_mutation: bool
    created_by: str
    lease_until: datetime


def claim_run(session: Session, run_id: int, owner: str, lease_seconds: float, now: datetime) -> ClaimedRun | None:
    """One that this system does. None: it is not to be begun, not now or not any more."""
    org_id = session.scalar(select(JobRunRow.org_id).where(JobRunRow.id == run_id))
    if org_id is None:
        raise NotFoundError(f"Job run {run_id} does not exist.")
    if _free_places(session, org_id, now) < 1:
        return None
    query = _claimable(org_id, Performer.SERVICE, now).where(JobRunRow.id == run_id, has_open_place(now))
    return next(iter(_claim(session, query, None, owner, lease_seconds, now)), None)


def claim_for_host(
    session: Session, host: HostRow, owner: str, most: int, lease_seconds: float, now: datetime
) -> list[ClaimedRun]:
    """What the agent of the host may begin, most urgent first. What it was given before counts against its limits. A
    place is left for a worker that was asked for, and for what this system is to do before."""
    free = _free_places(session, host.org_id, now) - reserved_places(session, host.org_id, now)
    if min(most, free) < 1 or (host.maintenance_until is not None and host.maintenance_until > now):
        return []
    of_host = _claimable(host.org_id, Performer.AGENT, now).where(
        ServerRow.host_id == host.id, ServerRow.org_id == host.org_id, ServerRow.is_enabled
    )
    ids = _most_urgent(session, of_host, _host_places(session, host), min(most, free))
    if len(ids) == free and waits_before(session, host.org_id, ids[-1], now):
        ids = ids[:-1]
    query = of_host.where(among(session, JobRunRow.id, ids))
    return _claim(session, query, host.id, owner, lease_seconds, now) if ids else []


def _free_places(session: Session, org_id: str, now: datetime) -> int:
    """How many more the organisation may have at work; it is locked from now on. Less than one while it is closed."""
    locked = select(OrganisationRow.max_running).where(OrganisationRow.id == org_id, is_open(now))
    most = session.scalar(locked.with_for_update(key_share=True))
    if most is None:
        return 0
    return most - (
        session.scalar(select(func.count(JobRunRow.id)).where(JobRunRow.org_id == org_id, is_at_work())) or 0
    )


def _host_places(session: Session, host: HostRow) -> dict[bool, int]:
    """By whether the job changes something."""
    query = (
        select(JobRunRow.is_mutation, func.count(JobRunRow.id))
        .where(JobRunRow.org_id == host.org_id, JobRunRow.host_id == host.id, is_at_work())
        .group_by(JobRunRow.is_mutation)
    )
    at_work = dict(session.execute(query).tuples().all())
    return {True: MOST_MUTATIONS - at_work.get(True, 0), False: MOST_READS - at_work.get(False, 0)}


def _claimable(org_id: str, performer: Performer, now: datetime) -> Select[tuple[JobRunRow, JobRow, ServerRow]]:
    return (
        select(JobRunRow, JobRow, ServerRow)
        .join(JobRow, JobRow.id == JobRunRow.job_id)
        .outerjoin(ServerRow, ServerRow.id == JobRow.server_instance_id)
        .where(JobRunRow.org_id == org_id, JobRunRow.performer == performer, is_waiting(now))
    )


def _most_urgent(
    session: Session,
    claimable: Select[tuple[JobRunRow, JobRow, ServerRow]],
    host_places: dict[bool, int],
    places: int,
) -> Sequence[int]:
    urgency = JobRunRow.priority, JobRunRow.id
    rank = func.row_number().over(partition_by=JobRunRow.is_mutation, order_by=urgency)
    ranked = claimable.with_only_columns(
        JobRunRow.id, JobRunRow.priority, JobRunRow.is_mutation, rank.label("rank")
    ).subquery()
    allowed = case((ranked.c.is_mutation, literal(host_places[True])), else_=literal(host_places[False]))
    chosen = select(ranked.c.id).where(ranked.c.rank <= allowed).order_by(ranked.c.priority, ranked.c.id)
    return session.scalars(chosen.limit(places)).all()


def _claim(
    session: Session,
    query: Select[tuple[JobRunRow, JobRow, ServerRow]],
    host_id: int | None,
    owner: str,
    lease_seconds: float,
    now: datetime,
) -> list[ClaimedRun]:
    locked = query.with_for_update(of=JobRunRow).execution_options(populate_existing=True)
    rows = [row for row in session.execute(locked).tuples() if _may_begin(row[0], row[1], now)]
    leases = _lease(session, [run.id for run, _, _ in rows], host_id, owner, lease_seconds)
    claimed = [_claimed(run, job, server, *leases[run.id]) for run, job, server in rows]
    return sorted(claimed, key=lambda one: (one.priority, one.hold.run_id))


def _may_begin(run: JobRunRow, job: JobRow, now: datetime) -> bool:
    """Outside of its window it waits for the next opening."""
    at = opens_at(job.start_window, now)
    if at > now:
        run.next_attempt_at, run.requested_at = at, None
    return at <= now


def _lease(
    session: Session, run_ids: Sequence[int], host_id: int | None, owner: str, seconds: float
) -> dict[int, tuple[int, datetime]]:
    """Token and end of each."""
    host = {} if host_id is None else {"host_id": host_id}
    taken = RUNS.take(session, [among(session, JobRunRow.id, run_ids)], owner, seconds, **host)
    return {one.key: (one.token, one.until) for one in taken}


def _claimed(run: JobRunRow, job: JobRow, server: ServerRow | None, token: int, lease_until: datetime) -> ClaimedRun:
    return ClaimedRun(
        hold=Hold(run.id, run.attempt_no, token),
        org_id=run.org_id,
        job_id=job.id,
        type=job.type,
        payload=job.payload,
        server_instance_id=job.server_instance_id,
        server_name=None if server is None else server.name,
        schedule_id=run.schedule_id,
        scheduled_for=job.scheduled_for,
        max_attempts=run.max_attempts,
        priority=run.priority,
        is_mutation=run.is_mutation,
        created_by=run.created_by,
        lease_until=lease_until,
    )
