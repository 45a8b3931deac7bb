"""What operators' changes of schedules write: the state with when it is due next, the audit log, and an event."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.instants import iso
from automation_pipeline.org_jobs.domain.endings import cancelled
from automation_pipeline.org_jobs.domain.events import schedule_event
from automation_pipeline.org_jobs.domain.schedule_changes import Standing
from automation_pipeline.org_jobs.domain.schedule_rules import INVALID_SCHEDULE
from automation_pipeline.org_jobs.domain.states import RunState, ScheduleState
from automation_pipeline.org_jobs.domain.timing import Planned
from automation_pipeline.org_jobs.store.audit_log import note
from automation_pipeline.org_jobs.store.endings import end_attempts
from automation_pipeline.org_jobs.store.schedule_moves import move_schedule
from automation_pipeline.org_jobs.store.schedules import SUSPENDED_WORDS
from automation_pipeline.org_jobs.tables import JobRunRow, ScheduleRow, ServerRow
from automation_pipeline.storage.outbox import enqueue

SCHEDULE_ENTITY = "schedule"
# What is said of a change: in the audit log, and as an event.
_EVENTS = {
    "create": "created",
    "update": "updated",
    "pause": "paused",
    "resume": "resumed",
    "delete": "deleted",
    "skip_next": "updated",
    "keep_next": "updated",
}


def check_server(session: Session, server_id: int | None, org_id: str) -> None:
    """It stays until the transaction ends."""
    if server_id is None:
        return
    query = select(ServerRow.id).where(ServerRow.id == server_id, ServerRow.org_id == org_id)
    if session.scalar(query.with_for_update(read=True, key_share=True)) is None:
        fault = ("serverInstanceId", f"is not a server of organisation '{org_id}'")
        raise InvalidInputError(INVALID_SCHEDULE, (fault,))


def tell(  # noqa: PLR0913  who did what, and what changed by it
    session: Session,
    row: ScheduleRow,
    action: str,
    *,
    actor: str,
    now: datetime,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    reason: str | None = None,
) -> None:
    """Of a schedule whose version has risen by the change."""
    log(session, row, action, actor=actor, now=now, before=before, after=after, reason=reason)
    said = {"actor": actor, "changed": sorted(after or ()), **({"reason": reason} if reason else {})}
    enqueue(session, [schedule_event(row.org_id, row.id, _EVENTS[action], str(row.version), now, said)])


def log(  # noqa: PLR0913  who did what, and what changed by it
    session: Session,
    row: ScheduleRow,
    action: str,
    *,
    actor: str,
    now: datetime,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    reason: str | None = None,
) -> None:
    note(
        session,
        org_id=row.org_id,
        actor=actor,
        action=action,
        entity=SCHEDULE_ENTITY,
        entity_id=row.id,
        before=before,
        after=after,
        reason=reason,
        now=now,
    )


def settle(
    session: Session, row: ScheduleRow, standing: Standing, *, actor: str, now: datetime, reason: str | None = None
) -> None:
    """Of a row that is locked. A time that is due already and is dropped by this is written down."""
    if _is_dropped(row, standing.planned, now):
        _note_dropped(session, row, actor, now)
    to, planned = standing.state, standing.planned
    move_schedule(session, row, to, actor=actor, now=now, planned=planned, reason=reason)


def set_going(session: Session, row: ScheduleRow, planned: Planned, *, actor: str, now: datetime) -> None:
    """Whatever it was paused for is over."""
    forget_pause(row)
    row.enabled = True
    settle(session, row, Standing(ScheduleState.ACTIVE, planned), actor=actor, now=now)


def restand(
    session: Session, row: ScheduleRow, standing: Standing | None, *, is_suspended: bool, actor: str, now: datetime
) -> None:
    """Of a row that was changed. None: its state stays. What would go on waits with its organisation."""
    if standing is None:
        touch(row, now)
        return
    if standing.state is ScheduleState.ACTIVE and is_suspended:
        standing = Standing(ScheduleState.PAUSED)
    if row.enabled and row.state != ScheduleState.ACTIVE:
        forget_pause(row)
    waits = row.enabled and standing.state is ScheduleState.PAUSED
    if waits or row.is_suspended:
        row.is_suspended, row.pause_reason = waits, SUSPENDED_WORDS if waits else None
    settle(session, row, standing, actor=actor, now=now)


def forget_pause(row: ScheduleRow) -> None:
    row.pause_reason, row.paused_until = None, None
    row.is_suspended, row.consecutive_failures = False, 0


def touch(row: ScheduleRow, now: datetime) -> None:
    row.updated_at, row.version = now, row.version + 1


def cancel_waiting(session: Session, schedule_id: str, *, actor: str, now: datetime, reason: str) -> int:
    """How many: the runs of the schedule, which is locked, that wait. What is at work goes on."""
    waiting = (
        select(JobRunRow.id)
        .where(JobRunRow.schedule_id == schedule_id, JobRunRow.status == RunState.PENDING)
        .order_by(JobRunRow.id)
        .with_for_update()
    )
    ids: Sequence[int] = session.scalars(waiting).all()
    return len(end_attempts(session, {run_id: cancelled(reason) for run_id in ids}, actor, now))


def _is_dropped(row: ScheduleRow, planned: Planned | None, now: datetime) -> bool:
    """One that waits for its window counts: the cron has said it."""
    due = row.next_scheduled_for
    return due is not None and due <= now and (planned is None or planned.scheduled_for > due)


def _note_dropped(session: Session, row: ScheduleRow, actor: str, now: datetime) -> None:
    assert row.next_run_at is not None  # noqa: S101  set wherever what it stands for is
    assert row.next_scheduled_for is not None  # noqa: S101  the same
    before = {"nextRunAt": iso(row.next_run_at), "nextScheduledFor": iso(row.next_scheduled_for)}
    why = "It was due already when the schedule was changed, and is not made up for."
    log(session, row, "drop_due", actor=actor, now=now, before=before, reason=why)
