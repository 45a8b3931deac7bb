"""The queue of runs: which may start, who claims them, and which workers are requested."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.models.jobs import (
    ACTIVE_RUN_STATES,
    JOB,
    OrgJobsRunState,
    Performer,
    expires_at,
    opens_at,
    request_key,
)
from automation_pipeline.org_jobs.tables import (
    FireRow,
    HostRow,
    JobRunRow,
    OrganisationRow,
    OrgJobRow,
    ServerRow,
)
from automation_pipeline.storage.claims import RowClaims
from automation_pipeline.storage.run_requests import NewRunRequest, RunRequestRow, file_requests
from automation_pipeline.storage.statements import FRESH, UNSYNCHRONIZED, among
from automation_pipeline.storage.types import UtcDateTime

Run = JobRunRow
Claimable = Select[tuple[JobRunRow, OrgJobRow, ServerRow]]

IS_PENDING = Run.status == OrgJobsRunState.PENDING
IS_RUNNING = Run.status == OrgJobsRunState.RUNNING
IS_ACTIVE = Run.status.in_(ACTIVE_RUN_STATES)
OF_SERVICE = Run.performer == Performer.SERVICE

# A running attempt belongs to its holder until it ends: no other worker can claim the run.
RUNS = RowClaims(
    Run,
    Run.id,
    owner=Run.lease_owner,
    token=Run.lease_token,
    until=Run.lease_until,
    outlasting=IS_RUNNING,
)

MOST_MUTATIONS, MOST_READS = 1, 8
# Dagster starts a requested worker within this time, if it has the capacity.
STARTS_WITHIN = timedelta(minutes=5)
# A launched worker may wait in Dagster's queue for this time.
_WAITS_IN_DAGSTER = timedelta(hours=1)
# While an organisation is closed, its jobs' expiry moves in steps of this length.
_EXPIRY_STEP = timedelta(hours=1)
_TOO_LATE = "It did not start in time: another worker was requested."


def is_claimed() -> ColumnElement[bool]:
    """Claimed, and not started."""
    return and_(IS_PENDING, RUNS.is_held())


def is_at_work() -> ColumnElement[bool]:
    """Running, or claimed by a worker or an agent that will start it."""
    return or_(IS_RUNNING, is_claimed())


def is_due(now: datetime) -> ColumnElement[bool]:
    """The run has no holder and is due."""
    is_time = or_(Run.next_attempt_at.is_(None), Run.next_attempt_at <= now)
    return and_(IS_PENDING, Run.cancel_requested_at.is_(None), RUNS.is_free(), is_time)


def is_waiting(now: datetime) -> ColumnElement[bool]:
    """Due, and no earlier run of its line is unfinished."""
    earlier = aliased(JobRunRow)
    is_before = earlier.line == Run.line, earlier.id < Run.id, earlier.org_id == Run.org_id
    # As literals: otherwise SQLite does not use the partial index of lines.
    active = [literal_column(f"'{state.value}'", Text()) for state in sorted(ACTIVE_RUN_STATES)]
    has_earlier = exists().where(*is_before, earlier.status.in_(active))
    return and_(is_due(now), ~and_(Run.line.is_not(None), has_earlier))


def is_open(now: datetime) -> ColumnElement[bool]:
    """For organisations: neither suspended nor in maintenance."""
    is_maintained = is_in_future(OrganisationRow.maintenance_until, now)
    return and_(OrganisationRow.suspended_at.is_(None), ~is_maintained)


def has_open_organisation(now: datetime) -> ColumnElement[bool]:
    """For runs: the organisation is open."""
    return exists().where(OrganisationRow.id == Run.org_id, is_open(now)).correlate(Run)


def _has_open_server(now: datetime) -> ColumnElement[bool]:
    """For runs joined with their jobs: the server, if there is one, is enabled, and its host is not
    in maintenance."""
    of_job = ServerRow.id == OrgJobRow.server_instance_id
    is_off = exists().where(of_job, ~ServerRow.is_enabled).correlate(OrgJobRow)
    is_maintained = exists().where(
        of_job, HostRow.id == ServerRow.host_id, is_in_future(HostRow.maintenance_until, now)
    )
    return and_(~is_off, ~is_maintained.correlate(OrgJobRow))


def is_in_future(
    until: InstrumentedAttribute[datetime | None], now: datetime
) -> ColumnElement[bool]:
    """False instead of NULL for a missing time, because callers negate the condition."""
    return and_(until.is_not(None), until > now)


@dataclass(frozen=True)
class AttemptHold:
    run_id: int
    attempt_no: int
    token: int


@dataclass(frozen=True)
class ClaimedRun:
    """A held run with its job and its server."""

    run: JobRunRow
    job: OrgJobRow
    server: ServerRow | None

    @property
    def hold(self) -> AttemptHold:
        return AttemptHold(self.run.id, self.run.attempt_no, self.run.lease_token)


def held_by_host(session: Session, host: HostRow) -> list[ClaimedRun]:
    """The held runs, oldest first, including those with an expired lease that have not ended."""
    conditions = Run.org_id == host.org_id, Run.host_id == host.id, Run.performer == Performer.AGENT
    query = (
        _with_job().where(*conditions, is_at_work(), Run.lease_until.is_not(None)).order_by(Run.id)
    )
    return [ClaimedRun(*row) for row in session.execute(query).tuples()]


def claim_run(
    session: Session, run_id: int, owner: str, lease_seconds: float, now: datetime
) -> ClaimedRun | None:
    """Claim a run of this system. None: it cannot start now, or has ended."""
    org_id = session.scalar(select(Run.org_id).where(Run.id == run_id))
    if org_id is None:
        raise no_such_run(run_id)
    if _free_capacity(session, org_id, now) < 1:
        return None
    query = _with_job().where(Run.id == run_id, OF_SERVICE, is_waiting(now), _has_open_server(now))
    return next(iter(_claim(session, query, None, owner, lease_seconds, now)), None)


def claim_for_host(
    session: Session, host: HostRow, owner: str, most: int, lease_seconds: float, now: datetime
) -> list[ClaimedRun]:
    """Claim the runs that the host's agent may start, most urgent first. Its held runs count
    against its limits. Capacity is reserved for requested workers, and for more urgent runs of this
    system."""
    free = _free_capacity(session, host.org_id, now) - _reserved_capacity(session, host.org_id, now)
    is_maintained = host.maintenance_until is not None and host.maintenance_until > now
    if min(most, free) < 1 or is_maintained:
        return []
    on_host = ServerRow.host_id == host.id, ServerRow.org_id == host.org_id, ServerRow.is_enabled
    claimable = _with_job().where(
        Run.org_id == host.org_id, Run.performer == Performer.AGENT, *on_host, is_waiting(now)
    )
    ids = _most_urgent(session, claimable, host, min(most, free))
    if len(ids) == free and _waits_before(session, host.org_id, ids[-1], now):
        ids = ids[:-1]
    query = claimable.where(among(session, Run.id, ids))
    return _claim(session, query, host.id, owner, lease_seconds, now) if ids else []


def no_such_run(run_id: int) -> NotFoundError:
    return NotFoundError(f"Job run {run_id} not found")


def _with_job() -> Claimable:
    return (
        select(Run, OrgJobRow, ServerRow)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .outerjoin(ServerRow, ServerRow.id == OrgJobRow.server_instance_id)
    )


def _free_capacity(session: Session, org_id: str, now: datetime) -> int:
    """The number of runs that the organisation may still start; 0 while it is closed. The
    organisation stays locked until the transaction ends."""
    most = session.scalar(
        select(OrganisationRow.max_running)
        .where(OrganisationRow.id == org_id, is_open(now))
        .with_for_update(key_share=True)
    )
    if most is None:
        return 0
    at_work = select(func.count(Run.id)).where(Run.org_id == org_id, is_at_work())
    return most - (session.scalar(at_work) or 0)


def _reserved_capacity(session: Session, org_id: str, now: datetime) -> int:
    """The number of recently requested workers that have not started."""
    return (
        session.scalar(
            select(func.count(Run.id)).where(
                Run.org_id == org_id, OF_SERVICE, _is_requested(now), RUNS.is_free()
            )
        )
        or 0
    )


def _most_urgent(
    session: Session, claimable: Claimable, host: HostRow, limit: int
) -> Sequence[int]:
    at_work = (
        select(Run.is_mutation, func.count(Run.id))
        .where(Run.org_id == host.org_id, Run.host_id == host.id, is_at_work())
        .group_by(Run.is_mutation)
    )
    busy = dict(session.execute(at_work).tuples().all())
    rank = func.row_number().over(partition_by=Run.is_mutation, order_by=(Run.priority, Run.id))
    ranked = claimable.with_only_columns(
        Run.id, Run.priority, Run.is_mutation, rank.label("rank")
    ).subquery()
    allowed = case(
        (ranked.c.is_mutation, literal(MOST_MUTATIONS - busy.get(True, 0))),
        else_=literal(MOST_READS - busy.get(False, 0)),
    )
    return session.scalars(
        select(ranked.c.id)
        .where(ranked.c.rank <= allowed)
        .order_by(ranked.c.priority, ranked.c.id)
        .limit(limit)
    ).all()


def _waits_before(session: Session, org_id: str, run_id: int, now: datetime) -> bool:
    """Whether a run of this system is more urgent than this one and has no reserved capacity."""
    this = aliased(JobRunRow)
    is_before = or_(
        Run.priority < this.priority, and_(Run.priority == this.priority, Run.id < this.id)
    )
    query = (
        select(Run.id)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .join(this, and_(this.id == run_id, this.org_id == Run.org_id))
        .where(Run.org_id == org_id, OF_SERVICE, is_before)
        .where(is_waiting(now), _has_open_server(now), ~_is_requested(now))
        .limit(1)
    )
    return session.scalar(query) is not None


def _claim(
    session: Session,
    claimable: Claimable,
    host_id: int | None,
    owner: str,
    lease_seconds: float,
    now: datetime,
) -> list[ClaimedRun]:
    """Claim the runs. A run outside its window is postponed to the next opening instead."""
    fresh = claimable.execution_options(**FRESH)
    open_ids: list[int] = []
    for run, job, _ in session.execute(fresh.with_for_update(of=Run)).tuples():
        opens = opens_at(job.start_window, now)
        if opens > now:
            run.next_attempt_at, run.requested_at = opens, None
        else:
            open_ids.append(run.id)
    if not open_ids:
        return []
    changes = {} if host_id is None else {"host_id": host_id}
    which = among(session, Run.id, open_ids)
    taken = RUNS.take(session, [which], owner, lease_seconds, **changes)
    fresh = (
        _with_job()
        .where(among(session, Run.id, [one.key for one in taken]))
        .order_by(Run.priority, Run.id)
        .execution_options(**FRESH)
    )
    return [ClaimedRun(*row) for row in session.execute(fresh).tuples()]


def of_host(host_id: int, org_id: str) -> ColumnElement[bool]:
    """For runs joined with their jobs: the server of the job is on the host now."""
    servers = select(ServerRow.id).where(ServerRow.host_id == host_id, ServerRow.org_id == org_id)
    return and_(
        Run.org_id == org_id,
        Run.performer == Performer.AGENT,
        OrgJobRow.server_instance_id.in_(servers),
    )


def opening_of_run(session: Session, run_id: int, at: datetime) -> datetime:
    window = select(OrgJobRow.start_window).join(Run, Run.job_id == OrgJobRow.id)
    return opens_at(session.scalar(window.where(Run.id == run_id)), at)


def postpone_closed(session: Session, chosen: ColumnElement[bool], now: datetime) -> None:
    """Postpone runs outside their window to the next opening. Locked runs are skipped, because
    `claim_run` and `claim_for_host` check the window too."""
    text = cast(OrgJobRow.start_window, Text)
    due = (
        select(Run.id, text)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .where(is_due(now), OrgJobRow.start_window.is_not(None), chosen)
    )
    windows = session.scalars(due.with_only_columns(text).distinct())
    opens = {window: opens_at(json.loads(window), now) for window in windows}
    closed = {window: at for window, at in opens.items() if at > now}
    if not closed:
        return
    rows = session.execute(
        due.where(among(session, text, closed))
        .order_by(Run.id)
        .with_for_update(of=Run, skip_locked=True)
    ).tuples()
    postponed = [{"closed": run_id, "until": closed[window]} for run_id, window in rows]
    if postponed:
        change = update(Run).where(Run.id == bindparam("closed"))
        session.connection().execute(
            change.values(next_attempt_at=bindparam("until"), requested_at=None), postponed
        )


def _newest_request() -> ColumnElement[str]:
    """The `request_key` of the last requested worker."""
    return literal("org-job-") + cast(Run.id, Text) + literal("-") + cast(Run.requests, Text)


def _is_requested(now: datetime) -> ColumnElement[bool]:
    """A worker was requested recently. Never NULL, because callers negate it."""
    is_asked = Run.requested_at.is_not(None)
    return and_(IS_PENDING, is_asked, Run.requested_at > now - STARTS_WITHIN)


def has_worker_coming(now: datetime) -> ColumnElement[bool]:
    """A worker was requested recently, or waits in Dagster's queue. Never NULL."""
    is_offered = and_(RunRequestRow.state == "waiting", RunRequestRow.offered_at.is_not(None))
    is_known = or_(RunRequestRow.state == "taken", is_offered)
    in_dagster = exists().where(RunRequestRow.request_key == _newest_request(), is_known)
    is_asked = IS_PENDING, Run.requested_at.is_not(None)
    is_recent = Run.requested_at > now - _WAITS_IN_DAGSTER
    return or_(_is_requested(now), and_(*is_asked, is_recent, in_dagster.correlate(Run)))


def job_of_worker(
    session: Session, run_id: int, request: str | None, dagster_run_ids: Collection[str]
) -> int | None:
    """The job of the run if this worker is responsible for it. Without a request, an operator
    launched the worker. `dagster_run_ids`: the worker's id and, for a retry, that of the original."""
    query = select(Run.job_id, Run.status, Run.requests, Run.dagster_run_id).where(Run.id == run_id)
    found = session.execute(query).tuples().one_or_none()
    if found is None:
        return None
    job_id, status, requests, dagster_run_id = found
    if status == OrgJobsRunState.RUNNING:
        return job_id if dagster_run_id in dagster_run_ids else None
    return job_id if request in {None, request_key(run_id, requests)} else None


def next_runs(session: Session, limit: int, now: datetime) -> Sequence[int]:
    """Runs that need a worker, so that at most `limit` runs have a worker or a request, and each
    organisation stays within its limit. A followed run counts for its organisation and not for
    `limit`. Organisations with the fewest active runs come first; within one, the most urgent runs.
    This is one statement: a run that another process requests concurrently is either counted here,
    or chosen here too and skipped when it is locked."""
    has_worker = and_(OF_SERVICE, Run.following.is_(None))
    busy = (
        select(
            Run.org_id,
            func.count(Run.id).label("count"),
            func.count(Run.id).filter(has_worker).label("workers"),
        )
        .where(IS_ACTIVE, or_(is_at_work(), has_worker_coming(now)))
        .group_by(Run.org_id)
        .subquery()
    )
    rank = func.coalesce(busy.c.count, 0) + func.row_number().over(
        partition_by=Run.org_id, order_by=(Run.priority, Run.id)
    )
    ranked = (
        select(Run.id, OrganisationRow.max_running, rank.label("rank"))
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .join(OrganisationRow, OrganisationRow.id == Run.org_id)
        .outerjoin(busy, busy.c.org_id == Run.org_id)
        .where(_wants_worker(now), is_waiting(now), is_open(now), _has_open_server(now))
        .subquery()
    )
    position = func.row_number().over(order_by=(ranked.c.rank, ranked.c.id)).label("position")
    positioned = (
        select(ranked.c.id, position).where(ranked.c.rank <= ranked.c.max_running).subquery()
    )
    workers = select(func.coalesce(func.sum(busy.c.workers), 0)).scalar_subquery()
    return session.scalars(
        select(positioned.c.id)
        .where(positioned.c.position <= limit - workers)
        .order_by(positioned.c.position)
    ).all()


def request_workers(session: Session, run_ids: Collection[int], now: datetime) -> list[int]:
    """Request workers and return the runs for which no other process has requested one. Older
    requests of these runs are withdrawn."""
    query = (
        select(Run, OrgJobRow.server_instance_id, FireRow.trigger)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .outerjoin(FireRow, FireRow.id == OrgJobRow.schedule_fire_id)
        .where(among(session, Run.id, run_ids), _wants_worker(now))
        .order_by(Run.id)
        .with_for_update(of=Run, skip_locked=True)
        .execution_options(**FRESH)
    )
    rows = session.execute(query).tuples().all()
    earlier = [request_key(run.id, run.requests) for run, _, _ in rows]
    is_earlier = among(session, RunRequestRow.request_key, earlier)
    session.execute(
        update(RunRequestRow)
        .where(is_earlier, RunRequestRow.state == "waiting")
        .values(state="refused", reason=_TOO_LATE)
        .execution_options(**UNSYNCHRONIZED)
    )
    wanted = [run.id for run, _, _ in rows]
    session.execute(
        update(Run)
        .where(among(session, Run.id, wanted))
        .values(requests=Run.requests + 1, requested_at=now)
        .execution_options(**UNSYNCHRONIZED)
    )
    file_requests(session, [_run_request(*row) for row in rows], now)
    return wanted


def _wants_worker(now: datetime) -> ColumnElement[bool]:
    return and_(OF_SERVICE, IS_PENDING, RUNS.is_free(), ~has_worker_coming(now))


def _run_request(run: JobRunRow, server_id: int | None, trigger: str | None) -> NewRunRequest:
    tags = {
        "org_id": run.org_id,
        "job_id": run.job_id,
        "job_run_id": run.id,
        "schedule_id": run.schedule_id,
        "server_instance_id": server_id,
        "trigger": trigger,
    }
    return NewRunRequest(
        key=request_key(run.id, run.requests + 1),
        job=JOB,
        config={"job_run_id": run.id},
        tags={f"org_jobs/{name}": str(value) for name, value in tags.items() if value is not None},
    )


def clear_request(session: Session, run_id: int) -> None:
    """The worker could not start the run: another worker will be requested."""
    session.execute(
        update(Run)
        .where(Run.id == run_id, IS_PENDING, RUNS.is_free())
        .values(requested_at=None)
        .execution_options(**UNSYNCHRONIZED)
    )


def postpone(session: Session, run_id: int, request: str, until: datetime, reason: str) -> bool:
    """Postpone the run. False unless the request is the run's newest one and the run waits for a
    shorter time."""
    waits_less = or_(Run.next_attempt_at.is_(None), Run.next_attempt_at < until)
    is_its = Run.requested_at.is_not(None), _newest_request() == request
    found = session.scalar(
        update(Run)
        .where(Run.id == run_id, IS_PENDING, OF_SERVICE, RUNS.is_free(), waits_less, *is_its)
        .values(next_attempt_at=until, requested_at=None, error=reason)
        .returning(Run.id)
        .execution_options(**UNSYNCHRONIZED)
    )
    return found is not None


def move_waiting_runs(session: Session, server_id: int, host_id: int | None) -> None:
    """Move the server's runs without a holder, locked in the order of their ids."""
    of_server = select(OrgJobRow.id).where(OrgJobRow.server_instance_id == server_id)
    locked = session.scalars(
        select(Run.id)
        .where(Run.job_id.in_(of_server), IS_PENDING, RUNS.is_free())
        .order_by(Run.id)
        .with_for_update()
    )
    session.execute(
        update(Run)
        .where(among(session, Run.id, locked))
        .values(host_id=host_id)
        .execution_options(**UNSYNCHRONIZED)
    )


def extend_expiry_of_closed(session: Session, now: datetime, limit: int) -> None:
    """Extend the expiry of waiting jobs while their organisation is closed."""
    has_no_window = OrgJobRow.start_window.is_(None)
    plain, in_window = (expires_at(now, has_window=has_window) for has_window in (False, True))
    until = case(
        (has_no_window, literal(plain, UtcDateTime())), else_=literal(in_window, UtcDateTime())
    )
    is_short = case(
        (has_no_window, OrgJobRow.expires_at < plain - _EXPIRY_STEP),
        else_=OrgJobRow.expires_at < in_window - _EXPIRY_STEP,
    )
    job_ids = session.scalars(
        select(Run.job_id)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .where(IS_PENDING, RUNS.is_free(), ~has_open_organisation(now), is_short)
        .order_by(Run.id)
        .limit(limit)
        .with_for_update(of=Run, skip_locked=True)
    ).all()
    if job_ids:
        session.execute(
            update(OrgJobRow)
            .where(among(session, OrgJobRow.id, job_ids))
            .values(expires_at=until)
            .execution_options(**UNSYNCHRONIZED)
        )
