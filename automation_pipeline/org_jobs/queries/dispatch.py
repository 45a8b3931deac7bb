"""Dispatch of due schedules and manual runs."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import ConflictError, InvalidInputError, PermanentError
from automation_pipeline.core.events import Event
from automation_pipeline.core.json_model import parse
from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.timing import Planned, Timing
from automation_pipeline.org_jobs.events import schedule_event
from automation_pipeline.org_jobs.models.job_types import job_type
from automation_pipeline.org_jobs.models.jobs import (
    AttemptEnd,
    FireOutcome,
    FireTrigger,
    JobType,
    MisfirePolicy,
    OrgJobsRunState,
    RetryPolicy,
    ScheduleState,
    SkipReason,
    attempt_cancelled,
)
from automation_pipeline.org_jobs.models.schedules import Dispatched, OrgSchedule
from automation_pipeline.org_jobs.queries.attempts import SCHEDULER, end_attempts, record_failure
from automation_pipeline.org_jobs.queries.fires import Fire, fire_event, write_fires
from automation_pipeline.org_jobs.queries.jobs import NewJob
from automation_pipeline.org_jobs.queries.queue import IS_ACTIVE
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
from automation_pipeline.storage.statements import FRESH, UNSYNCHRONIZED, among

# An agent that is silent for longer counts as offline.
OFFLINE_AFTER = timedelta(minutes=3)
SUPERSEDED = "Its schedule is due again, and the newer job takes its place."


@dataclass(frozen=True)
class OrgDueCandidate:
    """A due schedule. Its row is detached, because all rows are written in one statement. A
    schedule that is no longer readable has a `fault`."""

    row: OrgScheduleRow
    schedule: DueOrgSchedule | None = None
    host_id: int | None = None
    fault: str | None = None


def lock_due_schedules(
    session: Session, now: datetime, limit: int
) -> tuple[list[OrgDueCandidate], bool]:
    """The oldest schedule of each organisation, then the next oldest of each; and whether nothing
    else is due, except schedules that other dispatchers have locked, which are skipped."""
    key = OrgScheduleRow.next_run_at, OrgScheduleRow.id
    rank = func.row_number().over(partition_by=OrgScheduleRow.org_id, order_by=key)
    ranked = select(*key, rank.label("rank")).where(*_is_due(now)).subquery()
    chosen = session.scalars(
        select(ranked.c.id).order_by(ranked.c.rank, ranked.c.next_run_at, ranked.c.id).limit(limit)
    ).all()
    query = (
        select(OrgScheduleRow, OrganisationRow, ServerRow, HostRow)
        .join(OrganisationRow, OrganisationRow.id == OrgScheduleRow.org_id)
        .outerjoin(ServerRow, ServerRow.id == OrgScheduleRow.server_instance_id)
        .outerjoin(HostRow, HostRow.id == ServerRow.host_id)
        .where(among(session, OrgScheduleRow.id, chosen), *_is_due(now))
        .order_by(OrgScheduleRow.id)
        .with_for_update(of=OrgScheduleRow, skip_locked=True)
        .execution_options(**FRESH)
    )
    rows = session.execute(query).tuples().all()
    counts = _active_runs(session, [row.id for row, *_ in rows])
    candidates = [_candidate(*found, counts, now) for found in rows]
    for row, *_ in rows:
        session.expunge(row)
    return candidates, len(chosen) < limit


def _is_due(now: datetime) -> tuple[ColumnElement[bool], ...]:
    is_active = OrgScheduleRow.state == ScheduleState.ACTIVE
    return is_active, OrgScheduleRow.deleted_at.is_(None), OrgScheduleRow.next_run_at <= now


def _active_runs(session: Session, schedule_ids: Sequence[str]) -> dict[tuple[str, str], int]:
    """By schedule and status. Jobs of backfills do not count."""
    query = (
        select(JobRunRow.schedule_id, JobRunRow.status, func.count())
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .where(among(session, JobRunRow.schedule_id, schedule_ids))
        .where(OrgJobRow.batch_id.is_(None), IS_ACTIVE)
        .group_by(JobRunRow.schedule_id, JobRunRow.status)
    )
    return {(str(id_), status): count for id_, status, count in session.execute(query).tuples()}


def _candidate(
    row: OrgScheduleRow,
    organisation: OrganisationRow,
    server: ServerRow | None,
    host: HostRow | None,
    counts: Mapping[tuple[str, str], int],
    now: datetime,
) -> OrgDueCandidate:
    try:
        timing = timing_of(row)
    except InvalidInputError as error:
        return OrgDueCandidate(row, fault=str(error))
    assert row.next_scheduled_for is not None  # noqa: S101  a due schedule has both
    assert row.next_run_at is not None  # noqa: S101  a due schedule has both
    is_off = server is not None and not server.is_enabled
    maintained = [organisation.maintenance_until, None if host is None else host.maintenance_until]
    seen_at = None if host is None else host.last_seen_at
    is_online = seen_at is not None and now - seen_at <= OFFLINE_AFTER
    schedule = DueOrgSchedule(
        timing=timing,
        due=Planned(row.next_scheduled_for, row.next_run_at),
        misfire_policy=MisfirePolicy(row.misfire_policy),
        grace_seconds=row.misfire_grace_s,
        overlap_policy=OverlapPolicy(row.overlap_policy),
        skips_next=row.skip_next_run,
        facts=ScheduleFacts(
            at_work=counts.get((row.id, OrgJobsRunState.RUNNING), 0),
            waiting=counts.get((row.id, OrgJobsRunState.PENDING), 0),
            is_disabled=organisation.suspended_at is not None or is_off,
            is_in_maintenance=any(until is not None and until > now for until in maintained),
            is_host_offline=row.skip_if_offline and server is not None and not is_online,
        ),
    )
    return OrgDueCandidate(row, schedule, None if host is None else host.id)


_WRITTEN = (
    "id", "enabled", "state", "pause_reason", "next_run_at", "next_scheduled_for", "updated_at", "version",
    "skip_next_run", "skip_next_run_reason", "skip_next_run_requested_at", "last_run_at", "last_run_job_id",
    "last_dispatch_status", "last_job_status", "last_scheduled_for", "run_count", "failure_count",
    "consecutive_failures",
)  # fmt: skip


def record_decided(
    session: Session,
    decided: Sequence[tuple[OrgDueCandidate, FireDecision]],
    written: Mapping[str, Sequence[Fire]],
    now: datetime,
) -> None:
    """Write the fires of each schedule to its row, and plan its next due time."""
    events: list[Event] = []
    for candidate, decision in decided:
        row = candidate.row
        fires = sorted(written.get(row.id, ()), key=lambda one: one.planned.scheduled_for)
        for one in fires:
            row.last_scheduled_for = one.planned.scheduled_for
            _record_fire(session, row, one, now)
        if decision.clears_skip:
            row.skip_next_run = False
            row.skip_next_run_reason = row.skip_next_run_requested_at = None
        if row.state == ScheduleState.ACTIVE:
            if decision.next is not None:
                plan(row, decision.next)
            else:
                end_schedule(session, row, actor=SCHEDULER, now=now)
        events += _events(row, fires, now)
    _write(session, [candidate.row for candidate, _ in decided])
    enqueue(session, events)


def record_unreadable(
    session: Session, candidates: Sequence[OrgDueCandidate], now: datetime
) -> None:
    """Schedules with a fault are no longer due until an operator corrects them."""
    events: list[Event] = []
    for one in candidates:
        row, state = one.row, ScheduleState.INVALID_CRON
        move_schedule(session, row, state, actor=SCHEDULER, now=now, reason=one.fault)
        payload = {"error": one.fault, "consecutiveFailures": row.consecutive_failures}
        events.append(schedule_event(row.org_id, row.id, "invalid", str(row.version), now, payload))
    _write(session, [one.row for one in candidates])
    enqueue(session, events)


def _write(session: Session, rows: Sequence[OrgScheduleRow]) -> None:
    columns = [{name: getattr(row, name) for name in _WRITTEN} for row in rows]
    if columns:
        session.execute(update(OrgScheduleRow), columns)


def cancel_superseded(
    session: Session,
    rows: Sequence[OrgScheduleRow],
    now: datetime,
    except_job_ids: Collection[int] = (),
) -> None:
    """Cancel the waiting jobs of schedules that are due again, and ask running jobs to stop, or end
    them at once, by the schedule's policy. `follow_jobs` stops work of other packages. The jobs in
    `except_job_ids` and those of backfills stay unchanged."""
    if not rows:
        return
    at_once = {row.id for row in rows if row.overlap_policy == OverlapPolicy.TERMINATE_OTHER}
    is_followed = JobRunRow.following.is_not(None)
    query = (
        select(JobRunRow.id, JobRunRow.schedule_id, JobRunRow.status, is_followed)
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .where(among(session, JobRunRow.schedule_id, [row.id for row in rows]))
        .where(OrgJobRow.batch_id.is_(None), IS_ACTIVE)
        .where(~among(session, JobRunRow.job_id, except_job_ids))
    )
    # The lock prevents an attempt that starts now from ending as one that has not started.
    locked = query.order_by(JobRunRow.id).with_for_update(of=JobRunRow)
    active = session.execute(locked).tuples().all()
    ended: dict[int, AttemptEnd] = {
        id_: attempt_cancelled(SUPERSEDED)
        for id_, schedule_id, status, is_followed in active
        if status == OrgJobsRunState.PENDING or (schedule_id in at_once and not is_followed)
    }
    end_attempts(session, ended, SCHEDULER, now)
    ids_to_stop = [id_ for id_, *_ in active if id_ not in ended]
    session.execute(
        update(JobRunRow)
        .where(among(session, JobRunRow.id, ids_to_stop), JobRunRow.cancel_requested_at.is_(None))
        .values(cancel_requested_at=now, cancelled_by=SCHEDULER, cancel_reason=SUPERSEDED)
        .execution_options(**UNSYNCHRONIZED)
    )


def _record_fire(session: Session, row: OrgScheduleRow, one: Fire, now: datetime) -> None:
    match one.outcome:
        case FireOutcome.DISPATCHED:
            row.last_dispatch_status, row.last_job_status = "dispatched", None
            row.last_run_at, row.last_run_job_id = now, one.job_id
            row.run_count += 1
        case FireOutcome.SKIPPED:
            row.last_dispatch_status = f"skipped_{one.planned.skip}"
        case FireOutcome.FAILED:
            row.last_dispatch_status = "scheduler_failed"
            record_failure(session, row, now)


def _events(row: OrgScheduleRow, fires: Sequence[Fire], now: datetime) -> Iterator[Event]:
    """Missed due times have one event, for the newest, with their number."""
    missed = [one for one in fires if one.planned.skip is SkipReason.MISFIRE]
    for one in fires:
        if one.planned.skip is not SkipReason.MISFIRE:
            yield fire_event(row, one, now)
    if missed:
        event = fire_event(row, missed[-1], now)
        yield replace(event, payload={**event.payload, "missed": len(missed)})


def find_dispatched(
    session: Session, row: OrgScheduleRow, client_key: str | None
) -> Dispatched | None:
    """The job that an earlier call with this key requested."""
    if client_key is None:
        return None
    query = (
        select(FireRow.id, OrgJobRow.id)
        .join(OrgJobRow, OrgJobRow.schedule_fire_id == FireRow.id)
        .where(FireRow.schedule_id == row.id, FireRow.client_key == client_key)
    )
    found = session.execute(query).tuples().first()
    return None if found is None else Dispatched(fire_id=found[0], job_id=found[1])


def refuse_ended(row: OrgScheduleRow) -> None:
    """Only active and paused schedules can run manually."""
    if row.state not in {ScheduleState.ACTIVE, ScheduleState.PAUSED}:
        raise ConflictError(
            f"Schedule {row.id} is {row.state}: correct its cron or time zone, or request a job without a schedule."
        )


def refuse_disabled(session: Session, row: OrgScheduleRow, organisation: OrganisationRow) -> None:
    if organisation.suspended_at is not None:
        raise ConflictError(f"Organisation '{row.org_id}' is suspended: resume it first.")
    is_enabled = select(ServerRow.is_enabled).where(
        ServerRow.id == row.server_instance_id, ServerRow.org_id == row.org_id
    )
    if session.scalar(is_enabled) is False:
        raise ConflictError(f"Server {row.server_instance_id} is not enabled: enable it first.")


def resolve_overlap(
    session: Session, row: OrgScheduleRow, schedule: OrgSchedule, now: datetime
) -> None:
    """Raises ConflictError, which names the active job, unless the policy cancels the others."""
    active_runs = (
        select(JobRunRow.job_id, JobRunRow.status)
        .join(OrgJobRow, OrgJobRow.id == JobRunRow.job_id)
        .where(JobRunRow.schedule_id == row.id, OrgJobRow.batch_id.is_(None), IS_ACTIVE)
    )
    active = session.execute(active_runs.order_by(JobRunRow.id)).tuples().all()
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
    """The next due time does not change."""
    fire = Fire(
        org_id=row.org_id,
        schedule_id=row.id,
        planned=PlannedFire(now, now, FireTrigger.MANUAL),
        actor=actor,
        job=job,
        client_key=client_key,
    )
    [written] = write_fires(session, [fire], now)
    if written.job_id is None:
        raise PermanentError(written.fault or "Its job could not be created.")
    _record_fire(session, row, written, now)
    enqueue(session, [fire_event(row, written, now)])
    after = {"fireId": str(written.id), "jobId": str(written.job_id)}
    add_schedule_entry(session, row, "run_now", actor=actor, now=now, after=after)
    return Dispatched(fire_id=written.id, job_id=written.job_id)


def job_of(
    row: OrgScheduleRow,
    timing: Timing,
    scheduled_for: datetime,
    host_id: int | None,
    own_types: Mapping[str, JobType],
) -> NewJob:
    """Raises InvalidInputError if the type of the job no longer exists, or its retry policy is out of
    bounds. `own_types` are those of the organisation."""
    window = None
    if timing.window is not None:
        start, end = (f"{at:%H:%M}" for at in (timing.window.start, timing.window.end))
        window = {"start": start, "end": end, "timezone": timing.zone.key}
    return NewJob(
        org_id=row.org_id,
        type=job_type(row.job_type, own_types),
        payload=row.payload,
        retry=parse(RetryPolicy, row.retry_policy or {}, "Its retry policy is no longer valid"),
        created_by=f"schedule:{row.id}",
        priority=row.priority,
        server_instance_id=row.server_instance_id,
        host_id=host_id,
        schedule_id=row.id,
        scheduled_for=scheduled_for,
        start_window=window,
        line=row.id if OverlapPolicy(row.overlap_policy).is_serial else None,
    )


def host_of(session: Session, row: OrgScheduleRow) -> int | None:
    return session.scalar(
        select(ServerRow.host_id).where(
            ServerRow.id == row.server_instance_id, ServerRow.org_id == row.org_id
        )
    )
