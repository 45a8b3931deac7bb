"""Claims on runs: one holder at a time, by the database's clock, fenced by a rising token."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, case, func, literal, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    TransientError,
)
from automation_pipeline.org_jobs.events import run_event
from automation_pipeline.org_jobs.models.jobs import Performer
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.states import JOB_RUN, BatchState, OrgJobsRunState
from automation_pipeline.org_jobs.queries.attempts import lock_schedules_of
from automation_pipeline.org_jobs.queries.jobs import no_such_job, run_columns
from automation_pipeline.org_jobs.queries.queue import (
    RUNS,
    has_open_place,
    is_at_work,
    is_open,
    is_waiting,
    opens_at,
    reserved_places,
    waits_before,
)
from automation_pipeline.org_jobs.rules.attempts import expires_at
from automation_pipeline.org_jobs.rules.schedules import INVALID_JOB
from automation_pipeline.org_jobs.tables import (
    BatchRow,
    HostRow,
    JobRunRow,
    OrganisationRow,
    OrgJobRow,
    ServerRow,
)
from automation_pipeline.storage.clock import database_now, database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import among
from automation_pipeline.storage.transitions import Transition, record_transitions
from automation_pipeline.storage.types import JsonObject

MOST_MUTATIONS, MOST_READS = 1, 8


@dataclass(frozen=True)
class AttemptHold:
    """What somebody has who works on an attempt."""

    run_id: int
    attempt_no: int
    token: int


@dataclass(frozen=True, kw_only=True)
class ClaimedRun:
    """`lease_until` is by the database's clock."""

    hold: AttemptHold
    org_id: str
    job_id: int
    type: str
    limit_seconds: int
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


def claim_run(
    session: Session, run_id: int, owner: str, lease_seconds: float, now: datetime
) -> ClaimedRun | None:
    """One that this system does. None: it is not to be begun, not now or not any more."""
    org_id = session.scalar(select(JobRunRow.org_id).where(JobRunRow.id == run_id))
    if org_id is None:
        raise NotFoundError(f"Job run {run_id} not found")
    if _free_places(session, org_id, now) < 1:
        return None
    query = _claimable(org_id, Performer.SERVICE, now).where(
        JobRunRow.id == run_id, has_open_place(now)
    )
    return next(iter(_claim(session, query, None, owner, lease_seconds, now)), None)


def claim_for_host(
    session: Session, host: HostRow, owner: str, most: int, lease_seconds: float, now: datetime
) -> list[ClaimedRun]:
    """What the agent of the host may begin, most urgent first. What it was given before counts
    against its limits. A place is left for a worker that was asked for, and for what this system is
    to do before."""
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
    """How many more the organisation may have at work; it is locked from now on. Less than one
    while it is closed."""
    locked = select(OrganisationRow.max_running).where(OrganisationRow.id == org_id, is_open(now))
    most = session.scalar(locked.with_for_update(key_share=True))
    if most is None:
        return 0
    return most - (
        session.scalar(
            select(func.count(JobRunRow.id)).where(JobRunRow.org_id == org_id, is_at_work())
        )
        or 0
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


def _claimable(
    org_id: str, performer: Performer, now: datetime
) -> Select[tuple[JobRunRow, OrgJobRow, ServerRow]]:
    return (
        select(JobRunRow, OrgJobRow, ServerRow)
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .outerjoin(ServerRow, ServerRow.id == OrgJobRow.server_instance_id)
        .where(JobRunRow.org_id == org_id, JobRunRow.performer == performer, is_waiting(now))
    )


def _most_urgent(
    session: Session,
    claimable: Select[tuple[JobRunRow, OrgJobRow, ServerRow]],
    host_places: dict[bool, int],
    places: int,
) -> Sequence[int]:
    urgency = JobRunRow.priority, JobRunRow.id
    rank = func.row_number().over(partition_by=JobRunRow.is_mutation, order_by=urgency)
    ranked = claimable.with_only_columns(
        JobRunRow.id, JobRunRow.priority, JobRunRow.is_mutation, rank.label("rank")
    ).subquery()
    allowed = case(
        (ranked.c.is_mutation, literal(host_places[True])), else_=literal(host_places[False])
    )
    chosen = (
        select(ranked.c.id).where(ranked.c.rank <= allowed).order_by(ranked.c.priority, ranked.c.id)
    )
    return session.scalars(chosen.limit(places)).all()


def _claim(
    session: Session,
    query: Select[tuple[JobRunRow, OrgJobRow, ServerRow]],
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


def _may_begin(run: JobRunRow, job: OrgJobRow, now: datetime) -> bool:
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


def _claimed(
    run: JobRunRow, job: OrgJobRow, server: ServerRow | None, token: int, lease_until: datetime
) -> ClaimedRun:
    return ClaimedRun(
        hold=AttemptHold(run.id, run.attempt_no, token),
        org_id=run.org_id,
        job_id=job.id,
        type=job.type,
        limit_seconds=job.limit_seconds,
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


class LostLeaseError(ConflictError):
    """The attempt was ended or given to somebody else: whatever its holder did is not wanted any
    more."""


class JobRunBusyError(TransientError):
    """Somebody else works on the run."""


def locked_run(session: Session, run_id: int, within: OrgScope) -> JobRunRow:
    """Nobody else's until the transaction ends. Whoever may end its attempt calls
    `lock_schedules_of` first."""
    query = select(JobRunRow).where(JobRunRow.id == run_id)
    if within.org_id is not None:
        query = query.where(JobRunRow.org_id == within.org_id)
    row = session.scalar(query.with_for_update().execution_options(populate_existing=True))
    if row is None:
        raise no_such_run(run_id)
    return row


def held_run(
    session: Session, hold: AttemptHold, within: OrgScope, *, to_end: bool = False
) -> JobRunRow:
    """LostLeaseError: it is not this holder's any more. One that runs is its holder's until
    somebody gives it up, even if its lease is over: nobody else takes it before. `to_end`: its
    attempt may be ended in this transaction."""
    if to_end:
        lock_schedules_of(session, [hold.run_id])
    row = locked_run(session, hold.run_id, within)
    if not _is_held(session, row, hold):
        raise LostLeaseError(
            f"Attempt {hold.attempt_no} of job run {hold.run_id} is not yours any more."
        )
    return row


def begin_run(
    session: Session,
    hold: AttemptHold,
    deadline_at: datetime,
    now: datetime,
    *,
    within: OrgScope,
    actor: str,
) -> JobRunRow:
    """From pending to running, once an attempt; of one that runs already, nothing. LostLeaseError
    as `held_run`."""
    row = held_run(session, hold, within)
    if row.status == OrgJobsRunState.RUNNING:
        return row
    row.status = JOB_RUN.move(OrgJobsRunState(row.status), OrgJobsRunState.RUNNING)
    row.started_at, row.deadline_at = now, deadline_at
    row.error = row.error_code = row.result = row.log_ref = None
    session.flush()
    session.execute(
        update(OrgJobRow)
        .where(OrgJobRow.id == row.job_id, OrgJobRow.org_id == row.org_id)
        .values(status=OrgJobsRunState.RUNNING)
        .execution_options(synchronize_session=False)
    )
    moved = Transition(
        JOB_RUN.name, str(row.id), OrgJobsRunState.PENDING, OrgJobsRunState.RUNNING, actor, now
    )
    record_transitions(session, [moved])
    told = {"jobId": str(row.job_id), "scheduleId": row.schedule_id}
    enqueue(session, [run_event(row.org_id, row.id, row.attempt_no, "started", now, told)])
    return row


def extend_lease(
    session: Session, hold: AttemptHold, seconds: float, within: OrgScope
) -> JobRunRow:
    """For so long from now on. The row knows its new `lease_until`."""
    row = held_run(session, hold, within)
    row.lease_until = session.scalars(select(database_now(seconds))).one()
    session.flush()
    return row


def check_unclaimed(session: Session, run_id: int) -> None:
    """RunBusyError: somebody has begun it, and is heard of."""
    query = select(JobRunRow.lease_until).where(
        JobRunRow.id == run_id, JobRunRow.status == OrgJobsRunState.RUNNING
    )
    until = session.scalar(query)
    left = 0.0 if until is None else (until - database_time(session)).total_seconds()
    if left > 0:
        raise JobRunBusyError(f"Job run {run_id} is being worked on.", retry_after_seconds=left + 1)


def no_such_run(run_id: int) -> NotFoundError:
    return NotFoundError(f"Job run {run_id} not found")


def _is_held(session: Session, row: JobRunRow, hold: AttemptHold) -> bool:
    if (row.attempt_no, row.lease_token) != (
        hold.attempt_no,
        hold.token,
    ) or row.lease_until is None:
        return False
    return row.status == OrgJobsRunState.RUNNING or (
        row.status == OrgJobsRunState.PENDING and row.lease_until > database_time(session)
    )


def newest_run(session: Session, job_id: int, within: OrgScope) -> JobRunRow:
    """Held, with its schedule, so that it may be ended or followed by another. NotFoundError: there
    is no such job."""
    run_id = _newest_id(session, job_id, within)
    while True:
        lock_schedules_of(session, [run_id])
        run = locked_run(session, run_id, within)
        newest_id = _newest_id(session, job_id, within)
        if newest_id == run_id:
            return run
        run_id = newest_id


def add_run(session: Session, run: JobRunRow, actor: str, now: datetime) -> None:
    """After one that has ended, and is held. The batch of the job is at work again."""
    its = OrgJobRow.id == run.job_id, OrgJobRow.org_id == run.org_id
    job = session.scalars(select(OrgJobRow).where(*its)).one()
    again = JobRunRow(**run_columns(job, actor, now, like=run))
    session.add(again)
    job.status, job.finished_at = again.status, None
    job.expires_at = expires_at(now, has_window=job.start_window is not None)
    session.flush()
    if job.batch_id is not None:
        session.execute(
            update(BatchRow)
            .where(BatchRow.id == job.batch_id, BatchRow.org_id == run.org_id)
            .values(status=BatchState.RUNNING, finished_at=None)
            .execution_options(synchronize_session=False)
        )


def host_of_server(session: Session, server_id: int | None, org_id: str) -> int | None:
    """InvalidInputError: the organisation has no such server. It stays until the transaction
    ends."""
    if server_id is None:
        return None
    query = select(ServerRow).where(ServerRow.id == server_id, ServerRow.org_id == org_id)
    server = session.scalar(query.with_for_update(read=True, key_share=True))
    if server is None:
        fault = ("serverInstanceId", f"is not a server of organisation '{org_id}'")
        raise InvalidInputError(INVALID_JOB, (fault,))
    return server.host_id


def _newest_id(session: Session, job_id: int, within: OrgScope) -> int:
    query = (
        select(JobRunRow.id)
        .where(JobRunRow.job_id == job_id)
        .order_by(JobRunRow.id.desc())
        .limit(1)
    )
    if within.org_id is not None:
        query = query.where(JobRunRow.org_id == within.org_id)
    run_id = session.scalar(query)
    if run_id is None:
        raise no_such_job(job_id)
    return run_id
