"""What the dispatcher writes of schedules: what became of them, when they are due next, and who gives way to whom."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.events import Event
from automation_pipeline.org_jobs.domain import events
from automation_pipeline.org_jobs.domain.due import Decision
from automation_pipeline.org_jobs.domain.endings import AttemptEnd, cancelled
from automation_pipeline.org_jobs.domain.policies import OverlapPolicy
from automation_pipeline.org_jobs.domain.states import (
    ACTIVE_RUN_STATES,
    FireOutcome,
    RunState,
    ScheduleState,
    SkipReason,
)
from automation_pipeline.org_jobs.store.due import Candidate
from automation_pipeline.org_jobs.store.endings import end_attempts
from automation_pipeline.org_jobs.store.fires import WrittenFire
from automation_pipeline.org_jobs.store.outcomes import SCHEDULER, note_failure
from automation_pipeline.org_jobs.store.schedule_moves import move_schedule, plan
from automation_pipeline.org_jobs.tables import JobRow, JobRunRow, ScheduleRow
from automation_pipeline.storage.bulk import among
from automation_pipeline.storage.outbox import enqueue

SUPERSEDED = "Its schedule is due again, and the newer job takes its place."
DISPATCHED, SCHEDULER_FAILED, SKIPPED = "dispatched", "scheduler_failed", "skipped_"

_WRITTEN = (
    "id", "enabled", "state", "pause_reason", "next_run_at", "next_scheduled_for", "updated_at", "version",
    "skip_next_run", "skip_next_run_reason", "skip_next_run_requested_at", "last_run_at", "last_run_job_id",
    "last_dispatch_status", "last_job_status", "last_scheduled_for", "run_count", "failure_count",
    "consecutive_failures",
)  # fmt: skip

Written = Mapping[str, Sequence[WrittenFire]]


def note_decided(
    session: Session, decided: Sequence[tuple[Candidate, Decision]], written: Written, now: datetime
) -> None:
    """Whatever became of it, a schedule is due again, unless it is over."""
    told: list[Event] = []
    for candidate, decision in decided:
        row = candidate.row
        fires = sorted(written.get(row.id, ()), key=lambda one: one.new.fire.scheduled_for)
        for one in fires:
            _note_fire(session, row, one, now)
        if decision.clears_skip:
            row.skip_next_run, row.skip_next_run_reason, row.skip_next_run_requested_at = False, None, None
        if row.state == ScheduleState.ACTIVE:
            _plan_next(session, row, decision, now)
        told += _events(row, fires, now)
    _write(session, [candidate.row for candidate, _ in decided])
    enqueue(session, told)


def note_unreadable(session: Session, candidates: Sequence[Candidate], now: datetime) -> None:
    """They are due no more, until somebody corrects them."""
    for one in candidates:
        move_schedule(session, one.row, ScheduleState.INVALID_CRON, actor=SCHEDULER, now=now, reason=one.fault)
    _write(session, [one.row for one in candidates])
    enqueue(session, [_invalid(one, now) for one in candidates])


def _invalid(one: Candidate, now: datetime) -> Event:
    row = one.row
    payload = {"error": one.fault, "consecutiveFailures": row.consecutive_failures}
    return events.schedule_event(row.org_id, row.id, "invalid", str(row.version), now, payload)


def _write(session: Session, rows: Sequence[ScheduleRow]) -> None:
    """All of them at once: the rows belong to no session."""
    if rows:
        session.execute(update(ScheduleRow), [{name: getattr(row, name) for name in _WRITTEN} for row in rows])


def give_way(session: Session, rows: Sequence[ScheduleRow], now: datetime, sparing: Collection[int] = ()) -> None:
    """Jobs of schedules that are due again: what has not begun is cancelled, what is at work is asked to stop, or is
    ended at once where the schedule says so. What goes on elsewhere is stopped there first, by whoever follows it.
    `sparing`: the jobs that they give way to. Backfills are beside the plan."""
    if not rows:
        return
    at_once = {row.id for row in rows if row.overlap_policy == OverlapPolicy.TERMINATE_OTHER}
    is_elsewhere = JobRunRow.following.is_not(None)
    query = (
        select(JobRunRow.id, JobRunRow.schedule_id, JobRunRow.status, is_elsewhere)
        .join(JobRow, JobRow.id == JobRunRow.job_id)
        .where(among(session, JobRunRow.schedule_id, [row.id for row in rows]), JobRow.batch_id.is_(None))
        .where(JobRunRow.status.in_(ACTIVE_RUN_STATES), ~among(session, JobRunRow.job_id, sparing))
    )
    # Locked, so that none is begun meanwhile: it would be ended as one that has not begun.
    locked = query.order_by(JobRunRow.id).with_for_update(of=JobRunRow)
    active = session.execute(locked).tuples().all()
    ended: dict[int, AttemptEnd] = {
        id_: cancelled(SUPERSEDED)
        for id_, schedule_id, status, goes_on_elsewhere in active
        if status == RunState.PENDING or (schedule_id in at_once and not goes_on_elsewhere)
    }
    end_attempts(session, ended, SCHEDULER, now)
    asked = [id_ for id_, *_ in active if id_ not in ended]
    session.execute(
        update(JobRunRow)
        .where(among(session, JobRunRow.id, asked), JobRunRow.cancel_requested_at.is_(None))
        .values(cancel_requested_at=now, cancelled_by=SCHEDULER, cancel_reason=SUPERSEDED)
        .execution_options(synchronize_session=False)
    )


def _note_fire(session: Session, row: ScheduleRow, one: WrittenFire, now: datetime) -> None:
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
            note_failure(session, row, now)


def _plan_next(session: Session, row: ScheduleRow, decision: Decision, now: datetime) -> None:
    if decision.next is not None:
        plan(row, decision.next)
    elif row.end_at is not None:
        move_schedule(session, row, ScheduleState.COMPLETED, actor=SCHEDULER, now=now, reason="Its last time is over.")
    else:
        move_schedule(
            session, row, ScheduleState.INVALID_CRON, actor=SCHEDULER, now=now, reason="It is never due again."
        )


def _events(row: ScheduleRow, fires: Sequence[WrittenFire], now: datetime) -> Iterator[Event]:
    """Of many that were missed, the newest is told, with how many there were."""
    missed = [one for one in fires if one.new.fire.skip is SkipReason.MISFIRE]
    for one in fires:
        fire = one.new.fire
        if one.job_id is not None:
            yield events.fired(row.org_id, row.id, fire, one.fire_id, one.job_id, now)
        elif fire.skip is None:
            error = one.error or ""
            yield events.failed(
                row.org_id, row.id, fire, one.fire_id, now, error=error, in_a_row=row.consecutive_failures
            )
        elif fire.skip is not SkipReason.MISFIRE:
            yield events.skipped(row.org_id, row.id, fire, one.fire_id, now)
    if missed:
        last = missed[-1]
        told = events.skipped(row.org_id, row.id, last.new.fire, last.fire_id, now)
        yield replace(told, payload={**told.payload, "missed": len(missed)})
