"""What the dispatcher and a manual run read and write of due schedules."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import ConflictError, InvalidInputError, PermanentError
from automation_pipeline.core.events import Event
from automation_pipeline.core.json_model import parse
from automation_pipeline.core.scheduling.plan import OverlapPolicy
from automation_pipeline.core.scheduling.timing import Planned, Timing
from automation_pipeline.org_jobs import events
from automation_pipeline.org_jobs.events import schedule_fired
from automation_pipeline.org_jobs.models.job_types import job_type
from automation_pipeline.org_jobs.models.jobs import (
    AttemptEnd,
    JobType,
    RetryPolicy,
    attempt_cancelled,
)
from automation_pipeline.org_jobs.models.schedules import Dispatched, OrgSchedule
from automation_pipeline.org_jobs.models.states import (
    ACTIVE_RUN_STATES,
    FireOutcome,
    FireTrigger,
    MisfirePolicy,
    OrgJobsRunState,
    ScheduleState,
    SkipReason,
)
from automation_pipeline.org_jobs.queries.attempts import SCHEDULER, end_attempts, record_failure
from automation_pipeline.org_jobs.queries.fires import NewFire, WrittenFire, write_fires
from automation_pipeline.org_jobs.queries.jobs import NewJob
from automation_pipeline.org_jobs.queries.schedules import (
    add_schedule_entry,
    end_schedule,
    move_schedule,
    plan,
    timing_of,
)
from automation_pipeline.org_jobs.rules.due import (
    DueOrgSchedule,
    FireDecision,
    PlannedFire,
    ScheduleFacts,
)
from automation_pipeline.org_jobs.rules.schedules import refuse_overlap
from automation_pipeline.org_jobs.tables import (
    FireRow,
    HostRow,
    JobRunRow,
    OrganisationRow,
    OrgJobRow,
    OrgScheduleRow,
    ServerRow,
)
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import among

# An agent that is silent for longer is taken for away.
OFFLINE_AFTER = timedelta(minutes=3)

ServersAndHosts = Mapping[int, tuple[ServerRow, HostRow | None]]


@dataclass(frozen=True)
class OrgDueCandidate:
    """A schedule that is due. Its row belongs to no session: all that are decided upon are written
    together. `fault`: it cannot be read any more, and has no `timing`."""

    row: OrgScheduleRow
    timing: Timing | None
    schedule: DueOrgSchedule | None
    host_id: int | None
    fault: str | None = None


@dataclass(frozen=True)
class DueBatch:
    """`is_all`: nothing else is due, but for what others hold."""

    candidates: Sequence[OrgDueCandidate]
    is_all: bool


def lock_due_schedules(session: Session, now: datetime, limit: int) -> DueBatch:
    """A fair share for each organisation: the oldest of each, then the next oldest of each. One
    that another dispatcher holds is left to it."""
    rank = func.row_number().over(
        partition_by=OrgScheduleRow.org_id, order_by=(OrgScheduleRow.next_run_at, OrgScheduleRow.id)
    )
    ranked = (
        select(OrgScheduleRow.id, OrgScheduleRow.next_run_at, rank.label("rank"))
        .where(*_is_due(now))
        .subquery()
    )
    first = (
        select(ranked.c.id).order_by(ranked.c.rank, ranked.c.next_run_at, ranked.c.id).limit(limit)
    )
    chosen = session.scalars(first).all()
    query = (
        select(OrgScheduleRow)
        .where(among(session, OrgScheduleRow.id, chosen), *_is_due(now))
        .order_by(OrgScheduleRow.id)
    )
    rows = session.scalars(
        query.with_for_update(skip_locked=True).execution_options(populate_existing=True)
    ).all()
    candidates = _with_surroundings(session, rows, now)
    for row in rows:
        session.expunge(row)
    return DueBatch(candidates, is_all=len(chosen) < limit)


def count_due(session: Session, now: datetime) -> int:
    return (
        session.scalar(select(func.count()).select_from(OrgScheduleRow).where(*_is_due(now))) or 0
    )


def _is_due(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        OrgScheduleRow.state == ScheduleState.ACTIVE,
        OrgScheduleRow.deleted_at.is_(None),
        OrgScheduleRow.next_run_at <= now,
    )


def _with_surroundings(
    session: Session, rows: Sequence[OrgScheduleRow], now: datetime
) -> list[OrgDueCandidate]:
    if not rows:
        return []
    counts = _active_runs(session, [row.id for row in rows])
    places = _places(
        session, {row.server_instance_id for row in rows if row.server_instance_id is not None}
    )
    organisations = {
        one.id: one
        for one in session.scalars(
            select(OrganisationRow).where(
                among(session, OrganisationRow.id, {row.org_id for row in rows})
            )
        )
    }
    return [_candidate(row, counts, places, organisations[row.org_id], now) for row in rows]


def _active_runs(session: Session, schedule_ids: Sequence[str]) -> dict[tuple[str, str], int]:
    """A backfill is beside the plan: its jobs keep nothing from being done."""
    query = (
        select(JobRunRow.schedule_id, JobRunRow.status, func.count())
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .where(OrgJobRow.batch_id.is_(None))
        .where(
            among(session, JobRunRow.schedule_id, schedule_ids),
            JobRunRow.status.in_(ACTIVE_RUN_STATES),
        )
        .group_by(JobRunRow.schedule_id, JobRunRow.status)
    )
    return {(str(id_), status): count for id_, status, count in session.execute(query).tuples()}


def _places(session: Session, server_ids: set[int]) -> ServersAndHosts:
    query = (
        select(ServerRow, HostRow)
        .outerjoin(HostRow, HostRow.id == ServerRow.host_id)
        .where(among(session, ServerRow.id, server_ids))
    )
    return {server.id: (server, host) for server, host in session.execute(query).tuples()}


def _candidate(
    row: OrgScheduleRow,
    counts: Mapping[tuple[str, str], int],
    places: ServersAndHosts,
    organisation: OrganisationRow,
    now: datetime,
) -> OrgDueCandidate:
    server, host = places.get(row.server_instance_id or 0, (None, None))
    try:
        timing = timing_of(row)
    except InvalidInputError as error:
        return OrgDueCandidate(row, None, None, None, str(error))
    assert row.next_scheduled_for is not None  # noqa: S101  a due one has both
    assert row.next_run_at is not None  # noqa: S101  the same
    around = ScheduleFacts(
        at_work=counts.get((row.id, OrgJobsRunState.RUNNING), 0),
        waiting=counts.get((row.id, OrgJobsRunState.PENDING), 0),
        is_disabled=organisation.suspended_at is not None
        or (server is not None and not server.is_enabled),
        is_in_maintenance=_lasts(organisation.maintenance_until, now)
        or (host is not None and _lasts(host.maintenance_until, now)),
        is_host_offline=row.skip_if_offline and server is not None and _is_away(host, now),
    )
    schedule = DueOrgSchedule(
        timing=timing,
        due=Planned(row.next_scheduled_for, row.next_run_at),
        misfire_policy=MisfirePolicy(row.misfire_policy),
        grace_seconds=row.misfire_grace_s,
        overlap_policy=OverlapPolicy(row.overlap_policy),
        skips_next=row.skip_next_run,
        around=around,
    )
    return OrgDueCandidate(row, timing, schedule, None if host is None else host.id)


def _lasts(until: datetime | None, now: datetime) -> bool:
    return until is not None and until > now


def _is_away(host: HostRow | None, now: datetime) -> bool:
    return host is None or host.last_seen_at is None or now - host.last_seen_at > OFFLINE_AFTER


SUPERSEDED = "Its schedule is due again, and the newer job takes its place."
DISPATCHED, SCHEDULER_FAILED, SKIPPED = "dispatched", "scheduler_failed", "skipped_"

_WRITTEN = (
    "id", "enabled", "state", "pause_reason", "next_run_at", "next_scheduled_for", "updated_at", "version",
    "skip_next_run", "skip_next_run_reason", "skip_next_run_requested_at", "last_run_at", "last_run_job_id",
    "last_dispatch_status", "last_job_status", "last_scheduled_for", "run_count", "failure_count",
    "consecutive_failures",
)  # fmt: skip

Written = Mapping[str, Sequence[WrittenFire]]


def record_decided(
    session: Session,
    decided: Sequence[tuple[OrgDueCandidate, FireDecision]],
    written: Written,
    now: datetime,
) -> None:
    """Whatever became of it, a schedule is due again, unless it is over."""
    told: list[Event] = []
    for candidate, decision in decided:
        row = candidate.row
        fires = sorted(written.get(row.id, ()), key=lambda one: one.new.fire.scheduled_for)
        for one in fires:
            _note_fire(session, row, one, now)
        if decision.clears_skip:
            row.skip_next_run, row.skip_next_run_reason, row.skip_next_run_requested_at = (
                False,
                None,
                None,
            )
        if row.state == ScheduleState.ACTIVE:
            if decision.next is not None:
                plan(row, decision.next)
            else:
                end_schedule(session, row, actor=SCHEDULER, now=now)
        told += _events(row, fires, now)
    _write(session, [candidate.row for candidate, _ in decided])
    enqueue(session, told)


def record_unreadable(
    session: Session, candidates: Sequence[OrgDueCandidate], now: datetime
) -> None:
    """They are due no more, until somebody corrects them."""
    for one in candidates:
        move_schedule(
            session, one.row, ScheduleState.INVALID_CRON, actor=SCHEDULER, now=now, reason=one.fault
        )
    _write(session, [one.row for one in candidates])
    enqueue(session, [_invalid(one, now) for one in candidates])


def _invalid(one: OrgDueCandidate, now: datetime) -> Event:
    row = one.row
    payload = {"error": one.fault, "consecutiveFailures": row.consecutive_failures}
    return events.schedule_event(row.org_id, row.id, "invalid", str(row.version), now, payload)


def _write(session: Session, rows: Sequence[OrgScheduleRow]) -> None:
    """All of them at once: the rows belong to no session."""
    if rows:
        session.execute(
            update(OrgScheduleRow),
            [{name: getattr(row, name) for name in _WRITTEN} for row in rows],
        )


def cancel_superseded(
    session: Session, rows: Sequence[OrgScheduleRow], now: datetime, sparing: Collection[int] = ()
) -> None:
    """Jobs of schedules that are due again: what has not begun is cancelled, what is at work is
    asked to stop, or is ended at once where the schedule says so. What goes on elsewhere is stopped
    there first, by whoever follows it. `sparing`: the jobs that they give way to. Backfills are
    beside the plan."""
    if not rows:
        return
    at_once = {row.id for row in rows if row.overlap_policy == OverlapPolicy.TERMINATE_OTHER}
    is_elsewhere = JobRunRow.following.is_not(None)
    query = (
        select(JobRunRow.id, JobRunRow.schedule_id, JobRunRow.status, is_elsewhere)
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .where(
            among(session, JobRunRow.schedule_id, [row.id for row in rows]),
            OrgJobRow.batch_id.is_(None),
        )
        .where(JobRunRow.status.in_(ACTIVE_RUN_STATES), ~among(session, JobRunRow.job_id, sparing))
    )
    # Locked, so that none is begun meanwhile: it would be ended as one that has not begun.
    locked = query.order_by(JobRunRow.id).with_for_update(of=JobRunRow)
    active = session.execute(locked).tuples().all()
    ended: dict[int, AttemptEnd] = {
        id_: attempt_cancelled(SUPERSEDED)
        for id_, schedule_id, status, goes_on_elsewhere in active
        if status == OrgJobsRunState.PENDING or (schedule_id in at_once and not goes_on_elsewhere)
    }
    end_attempts(session, ended, SCHEDULER, now)
    asked = [id_ for id_, *_ in active if id_ not in ended]
    session.execute(
        update(JobRunRow)
        .where(among(session, JobRunRow.id, asked), JobRunRow.cancel_requested_at.is_(None))
        .values(cancel_requested_at=now, cancelled_by=SCHEDULER, cancel_reason=SUPERSEDED)
        .execution_options(synchronize_session=False)
    )


def _note_fire(session: Session, row: OrgScheduleRow, one: WrittenFire, now: datetime) -> None:
    row.last_scheduled_for = one.new.fire.scheduled_for
    match one.outcome:
        case FireOutcome.DISPATCHED:
            row.last_dispatch_status, row.last_job_status = DISPATCHED, None
            row.last_run_at, row.last_run_job_id = now, one.job_id
            row.run_count += 1
        case FireOutcome.SKIPPED:
            row.last_dispatch_status = f"{SKIPPED}{one.new.fire.skip}"
        case FireOutcome.FAILED:
            row.last_dispatch_status = SCHEDULER_FAILED
            record_failure(session, row, now)


def _events(row: OrgScheduleRow, fires: Sequence[WrittenFire], now: datetime) -> Iterator[Event]:
    """Of many that were missed, the newest is told, with how many there were."""
    missed = [one for one in fires if one.new.fire.skip is SkipReason.MISFIRE]
    for one in fires:
        fire = one.new.fire
        if one.job_id is not None:
            yield events.schedule_fired(row.org_id, row.id, fire, one.fire_id, one.job_id, now)
        elif fire.skip is None:
            error = one.error or ""
            yield events.schedule_failed(
                row.org_id,
                row.id,
                fire,
                one.fire_id,
                now,
                error=error,
                in_a_row=row.consecutive_failures,
            )
        elif fire.skip is not SkipReason.MISFIRE:
            yield events.schedule_skipped(row.org_id, row.id, fire, one.fire_id, now)
    if missed:
        last = missed[-1]
        told = events.schedule_skipped(row.org_id, row.id, last.new.fire, last.fire_id, now)
        yield replace(told, payload={**told.payload, "missed": len(missed)})


def find_dispatched(
    session: Session, row: OrgScheduleRow, client_key: str | None
) -> Dispatched | None:
    """What the key was given for before, of a schedule that is locked."""
    if client_key is None:
        return None
    query = select(FireRow.id, OrgJobRow.id).join(
        OrgJobRow, OrgJobRow.schedule_fire_id == FireRow.id
    )
    its = (
        FireRow.schedule_id == row.id,
        FireRow.org_id == row.org_id,
        FireRow.client_key == client_key,
    )
    found = session.execute(query.where(*its)).tuples().first()
    return None if found is None else Dispatched(fire_id=found[0], job_id=found[1])


def refuse_over(row: OrgScheduleRow) -> None:
    """Active and paused ones are run by hand, and no others."""
    if row.state not in {ScheduleState.ACTIVE, ScheduleState.PAUSED}:
        raise ConflictError(
            f"Schedule {row.id} is {row.state}: correct when it is due, or make a job of its own."
        )


def refuse_disabled(session: Session, row: OrgScheduleRow, organisation: OrganisationRow) -> None:
    if organisation.suspended_at is not None:
        raise ConflictError(f"Organisation '{row.org_id}' is suspended: resume it first.")
    of_server = ServerRow.id == row.server_instance_id, ServerRow.org_id == row.org_id
    if session.scalar(select(ServerRow.is_enabled).where(*of_server)) is False:
        raise ConflictError(f"Server {row.server_instance_id} is not enabled: enable it first.")


def resolve_overlap(
    session: Session, row: OrgScheduleRow, schedule: OrgSchedule, now: datetime
) -> None:
    """ConflictError names the job in the way. By some policies the others give way."""
    its = (
        JobRunRow.schedule_id == row.id,
        JobRunRow.org_id == row.org_id,
        JobRunRow.status.in_(ACTIVE_RUN_STATES),
    )
    of_plan = select(JobRunRow.job_id, JobRunRow.status).join(
        OrgJobRow, OrgJobRow.id == JobRunRow.job_id
    )
    query = of_plan.where(*its, OrgJobRow.batch_id.is_(None)).order_by(JobRunRow.id)
    active = session.execute(query).tuples().all()
    at_work = [job_id for job_id, status in active if status == OrgJobsRunState.RUNNING]
    waiting = [job_id for job_id, status in active if status == OrgJobsRunState.PENDING]
    refuse_overlap(schedule, at_work, waiting)
    if active and schedule.overlap_policy.replaces_others:
        cancel_superseded(session, [row], now)


def write_manual_run(
    session: Session,
    row: OrgScheduleRow,
    job: NewJob,
    *,
    client_key: str | None,
    actor: str,
    now: datetime,
) -> Dispatched:
    """What the cron says next stays as it is."""
    fire = PlannedFire(now, now, FireTrigger.MANUAL)
    new = NewFire(
        org_id=row.org_id,
        schedule_id=row.id,
        fire=fire,
        actor=actor,
        job=job,
        client_key=client_key,
    )
    (written,) = write_fires(session, [new], now)
    if written.job_id is None:
        raise PermanentError(written.error or "Its job could not be made.")
    row.last_dispatch_status, row.last_job_status = DISPATCHED, None
    row.last_run_at, row.last_run_job_id = now, written.job_id
    row.run_count += 1
    enqueue(
        session, [schedule_fired(row.org_id, row.id, fire, written.fire_id, written.job_id, now)]
    )
    after = {"fireId": str(written.fire_id), "jobId": str(written.job_id)}
    add_schedule_entry(session, row, "run_now", actor=actor, now=now, after=after)
    return Dispatched(fire_id=written.fire_id, job_id=written.job_id)


def stored_window(timing: Timing) -> dict[str, object] | None:
    if timing.window is None:
        return None
    start, end = (f"{at:%H:%M}" for at in (timing.window.start, timing.window.end))
    return {"start": start, "end": end, "timezone": timing.zone.key}


def job_of(
    row: OrgScheduleRow,
    timing: Timing,
    scheduled_for: datetime,
    host_id: int | None,
    own_types: Mapping[str, JobType],
) -> NewJob:
    """InvalidInputError: there is no such type of job any more, or no such retry policy. `host_id`:
    see `host_of`; `own_types`: those of the organisation."""
    return NewJob(
        org_id=row.org_id,
        type=job_type(row.job_type, own_types),
        payload=row.payload,
        retry=parse(
            RetryPolicy, row.retry_policy or {}, "Its retry policy cannot be used any more"
        ),
        created_by=f"schedule:{row.id}",
        priority=row.priority,
        server_instance_id=row.server_instance_id,
        host_id=host_id,
        schedule_id=row.id,
        scheduled_for=scheduled_for,
        start_window=stored_window(timing),
        line=row.id if OverlapPolicy(row.overlap_policy).is_serial else None,
    )


def host_of(session: Session, row: OrgScheduleRow) -> int | None:
    """That of its server, where it has both."""
    of_server = ServerRow.id == row.server_instance_id, ServerRow.org_id == row.org_id
    return session.scalar(select(ServerRow.host_id).where(*of_server))
