"""The queue of runs: which may begin, who takes them, and which workers are requested."""

import json
from collections.abc import Collection, Mapping, Sequence
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
from automation_pipeline.org_jobs.models.jobs import JOB, Performer, request_key
from automation_pipeline.org_jobs.models.states import ACTIVE_RUN_STATES, OrgJobsRunState
from automation_pipeline.org_jobs.queries.jobs import window_of
from automation_pipeline.org_jobs.rules.attempts import expires_at
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
from automation_pipeline.storage.statements import among
from automation_pipeline.storage.types import JsonObject, UtcDateTime

Run = JobRunRow


RUNS = RowClaims(Run, Run.id, owner=Run.lease_owner, token=Run.lease_token, until=Run.lease_until)


def is_free() -> ColumnElement[bool]:
    return RUNS.is_free()


def is_at_work() -> ColumnElement[bool]:
    """It runs, or somebody has taken it and will begin."""
    is_claimed = and_(Run.status == OrgJobsRunState.PENDING, RUNS.is_held())
    return or_(Run.status == OrgJobsRunState.RUNNING, is_claimed)


def is_waiting(now: datetime) -> ColumnElement[bool]:
    """It has nobody, its time has come, and no run before it in its line is left."""
    return and_(is_due(now), ~_has_one_before_it())


def is_due(now: datetime) -> ColumnElement[bool]:
    """It has nobody, and its time has come."""
    has_come = or_(Run.next_attempt_at.is_(None), Run.next_attempt_at <= now)
    return and_(
        Run.status == OrgJobsRunState.PENDING,
        Run.cancel_requested_at.is_(None),
        is_free(),
        has_come,
    )


def is_open(now: datetime) -> ColumnElement[bool]:
    """Of organisations: neither suspended nor in maintenance."""
    return and_(
        OrganisationRow.suspended_at.is_(None), _is_over(OrganisationRow.maintenance_until, now)
    )


def is_of_open(now: datetime) -> ColumnElement[bool]:
    """Of runs: their organisation is open."""
    return exists().where(OrganisationRow.id == Run.org_id, is_open(now)).correlate(Run)


def has_open_place(now: datetime) -> ColumnElement[bool]:
    """Of runs joined with their jobs: the server is switched on, and its host is not in
    maintenance."""
    of_job = ServerRow.id == OrgJobRow.server_instance_id
    is_off = exists().where(of_job, ~ServerRow.is_enabled).correlate(OrgJobRow)
    is_on_host = of_job, HostRow.id == ServerRow.host_id
    is_maintained = (
        exists().where(*is_on_host, ~_is_over(HostRow.maintenance_until, now)).correlate(OrgJobRow)
    )
    return and_(~is_off, ~is_maintained)


def _is_over(until: InstrumentedAttribute[datetime | None], now: datetime) -> ColumnElement[bool]:
    return or_(until.is_(None), until <= now)


def _has_one_before_it() -> ColumnElement[bool]:
    earlier = aliased(JobRunRow)
    is_before = earlier.line == Run.line, earlier.id < Run.id, earlier.org_id == Run.org_id
    # Written out, or SQLite would not see that the index of lines holds them.
    active = [literal_column(f"'{state.value}'", Text()) for state in sorted(ACTIVE_RUN_STATES)]
    return and_(Run.line.is_not(None), exists().where(*is_before, earlier.status.in_(active)))


_WINDOW = cast(OrgJobRow.start_window, Text)


def opens_at(start_window: Mapping[str, object] | None, at: datetime) -> datetime:
    """The first time from then on at which an attempt may begin."""
    window = window_of(start_window)
    return at if window is None else window.first_at(at)


def opening_of_run(session: Session, run_id: int, at: datetime) -> datetime:
    of_run = (
        select(OrgJobRow.start_window).join(Run, Run.job_id == OrgJobRow.id).where(Run.id == run_id)
    )
    return opens_at(session.scalar(of_run), at)


def of_service() -> ColumnElement[bool]:
    return Run.performer == Performer.SERVICE


def of_host(host_id: int, org_id: str) -> ColumnElement[bool]:
    """By where its server is now."""
    servers = select(ServerRow.id).where(ServerRow.host_id == host_id, ServerRow.org_id == org_id)
    of_agents = Run.org_id == org_id, Run.performer == Performer.AGENT
    return and_(*of_agents, OrgJobRow.server_instance_id.in_(servers))


def postpone_closed(session: Session, chosen: ColumnElement[bool], now: datetime) -> None:
    """Whoever holds one at this moment keeps it, and nobody is waited for: who begins one looks at
    its window, too."""
    due = (
        select(Run.id, _WINDOW)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .where(is_due(now), OrgJobRow.start_window.is_not(None), chosen)
    )
    windows = session.scalars(due.with_only_columns(_WINDOW).distinct())
    opens = {window: opens_at(json.loads(window), now) for window in windows}
    closed = {window: at for window, at in opens.items() if at > now}
    if not closed:
        return
    held = (
        due.where(among(session, _WINDOW, closed))
        .order_by(Run.id)
        .with_for_update(of=Run, skip_locked=True)
    )
    put_off = [
        {"closed": run_id, "until": closed[window]}
        for run_id, window in session.execute(held).tuples()
    ]
    if put_off:
        change = update(Run).where(Run.id == bindparam("closed"))
        session.connection().execute(
            change.values(next_attempt_at=bindparam("until"), requested_at=None), put_off
        )


# A worker that was asked for comes within this time, if Dagster has the room.
STARTS_WITHIN = timedelta(minutes=5)
# One that Dagster knows of may stand in its queue for so long.
STANDS_IN_QUEUE = timedelta(hours=1)


def newest_request() -> ColumnElement[str]:
    """The key of the last worker that was asked for: `keys.request_key`, in SQL."""
    return literal("org-job-") + cast(Run.id, Text) + literal("-") + cast(Run.requests, Text)


def was_asked_for_lately(now: datetime) -> ColumnElement[bool]:
    return _was_asked_for(Run.requested_at > now - STARTS_WITHIN)


def has_worker_coming(now: datetime) -> ColumnElement[bool]:
    """Also later, when Dagster has launched it and it was not refused: it waits there for its
    turn."""
    is_offered = and_(RunRequestRow.state == "waiting", RunRequestRow.offered_at.is_not(None))
    is_known = or_(RunRequestRow.state == "taken", is_offered)
    in_dagster = (
        exists().where(RunRequestRow.request_key == newest_request(), is_known).correlate(Run)
    )
    stands_there = and_(Run.requested_at > now - STANDS_IN_QUEUE, in_dagster)
    return _was_asked_for(or_(Run.requested_at > now - STARTS_WITHIN, stands_there))


def _was_asked_for(so: ColumnElement[bool]) -> ColumnElement[bool]:
    # Never NULL: it is negated, too.
    return and_(Run.status == OrgJobsRunState.PENDING, Run.requested_at.is_not(None), so)


def reserved_places(session: Session, org_id: str, now: datetime) -> int:
    """Of workers that were asked for a moment ago, and have not begun."""
    its = (
        Run.org_id == org_id,
        Run.performer == Performer.SERVICE,
        was_asked_for_lately(now),
        is_free(),
    )
    return session.scalar(select(func.count(Run.id)).where(*its)) or 0


def waits_before(session: Session, org_id: str, run_id: int, now: datetime) -> bool:
    """Whether something that only this system can do is more urgent than this run, and nothing is
    reserved for it."""
    this = aliased(JobRunRow)
    is_before = or_(
        Run.priority < this.priority, and_(Run.priority == this.priority, Run.id < this.id)
    )
    query = (
        select(Run.id)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .join(this, and_(this.id == run_id, this.org_id == Run.org_id))
        .where(Run.org_id == org_id, Run.performer == Performer.SERVICE, is_before)
        .where(is_waiting(now), has_open_place(now), ~was_asked_for_lately(now))
        .limit(1)
    )
    return session.scalar(query) is not None


def job_of_worker(
    session: Session, run_id: int, request: str | None, dagster_run_ids: Collection[str]
) -> int | None:
    """None where there is no such run, another worker is at it, or before one is, another was asked
    for since. Without a request somebody has launched it by hand. `dagster_run_ids`: its own, and
    that of which it is a retry."""
    query = select(Run.job_id, Run.status, Run.requests, Run.dagster_run_id).where(Run.id == run_id)
    found = session.execute(query).tuples().one_or_none()
    if found is None:
        return None
    job_id, status, requests, at_work = found
    is_there = request in {None, request_key(run_id, requests)}
    if status == OrgJobsRunState.RUNNING:
        is_there = at_work in dagster_run_ids
    return job_id if is_there else None


_TOO_LATE = "It did not begin in time: another worker was asked for."


def next_runs(session: Session, limit: int, now: datetime) -> Sequence[int]:
    """So many that `limit` runs of this system are at work or asked for, at most, and of each
    organisation no more than it may have. What is followed has no worker: it takes a place of its
    organisation, and none of `limit`. Who has least at work comes first; within an organisation,
    what is most urgent. One statement: what another copy of this asks for meanwhile is either
    counted, or chosen here too and found out when it is locked."""
    has_worker = and_(Run.performer == Performer.SERVICE, Run.following.is_(None))
    busy = (
        select(
            Run.org_id,
            func.count(Run.id).label("count"),
            func.count(Run.id).filter(has_worker).label("of_ours"),
        )
        .where(Run.status.in_(ACTIVE_RUN_STATES), or_(is_at_work(), has_worker_coming(now)))
        .group_by(Run.org_id)
        .subquery()
    )
    mine = func.coalesce(busy.c.count, 0)
    rank = mine + func.row_number().over(partition_by=Run.org_id, order_by=(Run.priority, Run.id))
    ranked = (
        select(Run.id, OrganisationRow.max_running, rank.label("rank"))
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .join(OrganisationRow, OrganisationRow.id == Run.org_id)
        .outerjoin(busy, busy.c.org_id == Run.org_id)
        .where(*_wants_worker(now), is_waiting(now), is_open(now), has_open_place(now))
        .subquery()
    )
    place = func.row_number().over(order_by=(ranked.c.rank, ranked.c.id)).label("place")
    placed = select(ranked.c.id, place).where(ranked.c.rank <= ranked.c.max_running).subquery()
    at_work = select(func.coalesce(func.sum(busy.c.of_ours), 0)).scalar_subquery()
    chosen = select(placed.c.id).where(placed.c.place <= limit - at_work).order_by(placed.c.place)
    return session.scalars(chosen).all()


def request_workers(session: Session, run_ids: Collection[int], now: datetime) -> list[int]:
    """Those of them for which nobody else has asked meanwhile. The worker that each was to have
    before, and that has not come, is not launched any more."""
    query = (
        select(Run, OrgJobRow.server_instance_id, FireRow.trigger)
        .join(OrgJobRow, OrgJobRow.id == Run.job_id)
        .outerjoin(FireRow, FireRow.id == OrgJobRow.schedule_fire_id)
        .where(among(session, Run.id, run_ids), *_wants_worker(now))
        .order_by(Run.id)
        .with_for_update(of=Run, skip_locked=True)
        .execution_options(populate_existing=True)
    )
    rows = session.execute(query).tuples().all()
    _refuse_waiting(session, [request_key(run.id, run.requests) for run, _, _ in rows])
    session.execute(
        update(Run)
        .where(among(session, Run.id, [run.id for run, _, _ in rows]))
        .values(requests=Run.requests + 1, requested_at=now)
        .execution_options(synchronize_session=False)
    )
    file_requests(
        session, [_wish(run, server_id, trigger) for run, server_id, trigger in rows], now
    )
    return [run.id for run, _, _ in rows]


def clear_request(session: Session, run_id: int) -> None:
    """Its worker came, and could not begin: when it may, another one is asked for."""
    session.execute(
        update(Run)
        .where(Run.id == run_id, Run.status == OrgJobsRunState.PENDING, is_free())
        .values(requested_at=None)
        .execution_options(synchronize_session=False)
    )


def postpone(session: Session, run_id: int, request: str, until: datetime, reason: str) -> bool:
    """False where this worker is not the one that was asked for to begin it, or it waits for longer
    already."""
    waits_less = or_(Run.next_attempt_at.is_(None), Run.next_attempt_at < until)
    found = session.scalar(
        update(Run)
        .where(
            Run.id == run_id,
            Run.status == OrgJobsRunState.PENDING,
            Run.performer == Performer.SERVICE,
        )
        .where(is_free(), waits_less, Run.requested_at.is_not(None), newest_request() == request)
        .values(next_attempt_at=until, requested_at=None, error=reason)
        .returning(Run.id)
        .execution_options(synchronize_session=False)
    )
    return found is not None


def _wants_worker(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        Run.performer == Performer.SERVICE,
        Run.status == OrgJobsRunState.PENDING,
        is_free(),
        ~has_worker_coming(now),
    )


def _refuse_waiting(session: Session, keys: Collection[str]) -> None:
    session.execute(
        update(RunRequestRow)
        .where(among(session, RunRequestRow.request_key, keys), RunRequestRow.state == "waiting")
        .values(state="refused", reason=_TOO_LATE)
        .execution_options(synchronize_session=False)
    )


def _wish(run: JobRunRow, server_id: int | None, trigger: str | None) -> NewRunRequest:
    said = {
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
        tags={f"org_jobs/{name}": str(value) for name, value in said.items() if value is not None},
    )


def move_waiting_runs(session: Session, server_id: int, host_id: int | None) -> None:
    """Runs of the server that nobody holds, locked in the order of their ids like everywhere."""
    of_server = select(OrgJobRow.id).where(OrgJobRow.server_instance_id == server_id)
    waiting = (
        select(Run.id)
        .where(Run.job_id.in_(of_server), Run.status == OrgJobsRunState.PENDING, is_free())
        .order_by(Run.id)
        .with_for_update()
    )
    moved = update(Run).where(among(session, Run.id, session.scalars(waiting)))
    session.execute(moved.values(host_id=host_id).execution_options(synchronize_session=False))


# So often, at most, is a job written to while its organisation is closed.
_EVERY = timedelta(hours=1)


def lengthen_closed(session: Session, now: datetime, limit: int) -> None:
    """Once it opens again, they have nearly all their time."""
    plain, in_window = (expires_at(now, has_window=has_window) for has_window in (False, True))
    until = case(
        (OrgJobRow.start_window.is_(None), literal(plain, UtcDateTime())),
        else_=literal(in_window, UtcDateTime()),
    )
    is_short = case(
        (OrgJobRow.start_window.is_(None), OrgJobRow.expires_at < plain - _EVERY),
        else_=OrgJobRow.expires_at < in_window - _EVERY,
    )
    held = (
        select(JobRunRow.job_id)
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .where(JobRunRow.status == OrgJobsRunState.PENDING, is_free(), ~is_of_open(now), is_short)
        .order_by(JobRunRow.id)
        .limit(limit)
        .with_for_update(of=JobRunRow, skip_locked=True)
    )
    job_ids = session.scalars(held).all()
    if job_ids:
        session.execute(
            update(OrgJobRow)
            .where(among(session, OrgJobRow.id, job_ids))
            .values(expires_at=until)
            .execution_options(synchronize_session=False)
        )


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
