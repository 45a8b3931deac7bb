"""Queries of schedules: read and lock them, change their state, record changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast
from uuid import uuid4

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.core.json_model import as_document, text_fault
from automation_pipeline.core.scheduling.timing import (
    Planned,
    Timing,
    next_planned,
    read_timing,
)
from automation_pipeline.org_jobs.events import schedule_event
from automation_pipeline.org_jobs.models.jobs import (
    SCHEDULE,
    OrgJobsRunState,
    ScheduleState,
    attempt_cancelled,
)
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.schedules import (
    OrgSchedule,
    OrgScheduleDefinition,
    ScheduleFire,
    last_run_status,
    timing_fields,
)
from automation_pipeline.org_jobs.queries.attempts import SCHEDULER, end_attempts
from automation_pipeline.org_jobs.queries.jobs import shown
from automation_pipeline.org_jobs.queries.organisations import add_audit_entry, is_named
from automation_pipeline.org_jobs.rules.schedules import NextState, next_after
from automation_pipeline.org_jobs.tables import (
    FireRow,
    JobRunRow,
    OrganisationRow,
    OrgJobRow,
    OrgScheduleRow,
)
from automation_pipeline.storage.history import Transition, record_transitions
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import FRESH, among, where_given


def timing_of(row: OrgScheduleRow) -> Timing:
    """Raises InvalidInputError if its cron or its time zone is no longer valid."""
    # A row has the attributes of a schedule.
    return read_timing(timing_fields(cast("OrgSchedule", row), row.id))


def move_schedule(  # noqa: PLR0913  the parts of a transition
    session: Session,
    row: OrgScheduleRow,
    to: ScheduleState,
    *,
    actor: str,
    now: datetime,
    planned: Planned | None = None,
    reason: str | None = None,
) -> None:
    """The row is locked. `planned` is the next due time of an ACTIVE schedule; others have none."""
    from_state = ScheduleState(row.state)
    if to is not from_state:
        SCHEDULE.move(from_state, to)
        record_transitions(
            session, [Transition(SCHEDULE.name, row.id, from_state, to, actor, now, reason)]
        )
    row.state = to
    plan(row, planned)
    row.updated_at, row.version = now, row.version + 1


def plan(row: OrgScheduleRow, planned: Planned | None) -> None:
    row.next_run_at = None if planned is None else planned.effective_for
    row.next_scheduled_for = None if planned is None else planned.scheduled_for


SUSPENDED_WORDS = "The organisation is suspended."


@dataclass(frozen=True, kw_only=True)
class ScheduleFilter:
    """`q` is part of the name."""

    org_id: str | None = None
    state: ScheduleState | None = None
    job_type: str | None = None
    server_instance_id: int | None = None
    q: str | None = None


def get_schedule(session: Session, schedule_id: str, within: OrgScope) -> OrgSchedule:
    return as_schedule(_found(session, _visible(schedule_id, within), schedule_id))


def list_schedules(
    session: Session,
    within: OrgScope,
    *,
    chosen: ScheduleFilter | None = None,
    limit: int,
    offset: int,
) -> list[OrgSchedule]:
    """Newest first, without deleted ones."""
    chosen = chosen or ScheduleFilter()
    page = (
        select(OrgScheduleRow)
        .where(
            OrgScheduleRow.deleted_at.is_(None),
            *where_given(
                (OrgScheduleRow.org_id, within.org_id),
                (OrgScheduleRow.org_id, chosen.org_id),
                (OrgScheduleRow.state, chosen.state),
                (OrgScheduleRow.job_type, chosen.job_type),
                (OrgScheduleRow.server_instance_id, chosen.server_instance_id),
            ),
            is_named(OrgScheduleRow.name, chosen.q),
        )
        .order_by(OrgScheduleRow.created_at.desc(), OrgScheduleRow.id)
        .limit(limit)
        .offset(offset)
    )
    return [as_schedule(row) for row in session.scalars(page)]


def lock_schedule(session: Session, schedule_id: str, within: OrgScope) -> OrgScheduleRow:
    """Lock the schedule, but not its organisation, until the transaction ends."""
    query = _visible(schedule_id, within).with_for_update()
    return _found(session, query.execution_options(**FRESH), schedule_id)


def lock_with_organisation(
    session: Session, schedule_id: str, within: OrgScope
) -> tuple[OrgScheduleRow, OrganisationRow]:
    """Lock the organisation, against being suspended or resumed, and then its schedule."""
    of_schedule = _visible(schedule_id, within).with_only_columns(OrgScheduleRow.org_id)
    query = (
        select(OrganisationRow)
        .where(OrganisationRow.id == of_schedule.scalar_subquery())
        .with_for_update(read=True)
        .execution_options(**FRESH)
    )
    organisation = None if text_fault(schedule_id) else session.scalar(query)
    if organisation is None:
        raise _missing(schedule_id)
    return lock_schedule(session, schedule_id, within), organisation


def add_schedule(
    session: Session,
    schedule: OrgScheduleDefinition,
    *,
    org_id: str,
    is_suspended: bool,
    actor: str,
    now: datetime,
) -> OrgScheduleRow:
    """The caller has locked the organisation. The schedule is ACTIVE if it is enabled and the
    organisation is not suspended."""
    waits = schedule.enabled and is_suspended
    row = OrgScheduleRow(
        id=str(uuid4()),
        org_id=org_id,
        state=ScheduleState.ACTIVE if schedule.enabled and not waits else ScheduleState.PAUSED,
        is_suspended=waits,
        pause_reason=SUSPENDED_WORDS if waits else None,
        created_by=actor,
        created_at=now,
        updated_at=now,
        version=1,
        **columns_of(schedule),
    )
    if row.state == ScheduleState.ACTIVE:
        plan(row, next_planned(timing_of(row), now))
    session.add(row)
    session.flush()
    return row


def columns_of(schedule: OrgScheduleDefinition) -> dict[str, object]:
    retry = None if schedule.retry_policy is None else as_document(schedule.retry_policy)
    return {
        **{name: getattr(schedule, name) for name in OrgScheduleDefinition.model_fields},
        "retry_policy": retry,
        "excluded_on": list(schedule.excluded_on),
    }


def fires_of(
    session: Session,
    schedule_id: str,
    within: OrgScope,
    limit: int,
    after_id: int = 0,
    *,
    newest_first: bool = False,
) -> list[ScheduleFire]:
    """The fires of a schedule, deleted or not, oldest first unless `newest_first`. `after_id` is the
    last fire of the previous page."""
    known = where_given((OrgScheduleRow.org_id, within.org_id))
    _found(
        session, select(OrgScheduleRow).where(OrgScheduleRow.id == schedule_id, *known), schedule_id
    )
    query = (
        select(FireRow, OrgJobRow.id, OrgJobRow.status)
        .outerjoin(OrgJobRow, OrgJobRow.schedule_fire_id == FireRow.id)
        .where(FireRow.schedule_id == schedule_id)
        .order_by(FireRow.id.desc() if newest_first else FireRow.id)
        .limit(limit)
    )
    if after_id:
        query = query.where(FireRow.id < after_id if newest_first else FireRow.id > after_id)
    return [
        shown(ScheduleFire, fire, job_id=job_id, job_status=status)
        for fire, job_id, status in session.execute(query).tuples()
    ]


def as_schedule(row: OrgScheduleRow) -> OrgSchedule:
    status = last_run_status(row.last_dispatch_status, row.last_job_status)
    return shown(OrgSchedule, row, last_run_status=status)


def _visible(schedule_id: str, within: OrgScope) -> Select[tuple[OrgScheduleRow]]:
    return select(OrgScheduleRow).where(
        OrgScheduleRow.id == schedule_id,
        OrgScheduleRow.deleted_at.is_(None),
        *where_given((OrgScheduleRow.org_id, within.org_id)),
    )


def _found(
    session: Session, query: Select[tuple[OrgScheduleRow]], schedule_id: str
) -> OrgScheduleRow:
    row = None if text_fault(schedule_id) else session.scalar(query)
    if row is None:
        raise _missing(schedule_id)
    return row


def _missing(schedule_id: str) -> NotFoundError:
    return NotFoundError(f"Schedule {schedule_id[:100]} not found")


# The event of each action in the audit log.
_EVENTS = {
    "create": "created",
    "update": "updated",
    "pause": "paused",
    "resume": "resumed",
    "delete": "deleted",
    "skip_next": "updated",
    "keep_next": "updated",
}


def record_change(  # noqa: PLR0913  the parts of a log entry
    session: Session,
    row: OrgScheduleRow,
    action: str,
    *,
    actor: str,
    now: datetime,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    reason: str | None = None,
) -> None:
    """Write the audit entry and the event of a change that has raised the version."""
    add_schedule_entry(
        session, row, action, actor=actor, now=now, before=before, after=after, reason=reason
    )
    values = {
        "actor": actor,
        "changed": sorted(after or ()),
        **({"reason": reason} if reason else {}),
    }
    enqueue(
        session,
        [schedule_event(row.org_id, row.id, _EVENTS[action], str(row.version), now, values)],
    )


def add_schedule_entry(  # noqa: PLR0913  the parts of a log entry
    session: Session,
    row: OrgScheduleRow,
    action: str,
    *,
    actor: str,
    now: datetime,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    reason: str | None = None,
) -> None:
    add_audit_entry(
        session,
        org_id=row.org_id,
        actor=actor,
        action=action,
        entity="schedule",
        entity_id=row.id,
        before=before,
        after=after,
        reason=reason,
        now=now,
    )


def change_state(
    session: Session,
    row: OrgScheduleRow,
    following: NextState,
    *,
    actor: str,
    now: datetime,
    reason: str | None = None,
) -> None:
    """The row is locked. The new plan starts after `now`: a due time that has passed without a
    dispatch is dropped, and recorded in the audit log."""
    due, starts_at = row.next_scheduled_for, row.next_run_at
    if due is not None and starts_at is not None and due <= now:
        before = {"nextRunAt": iso(starts_at), "nextScheduledFor": iso(due)}
        why = "It was due before the schedule was changed, and is not run."
        add_schedule_entry(
            session, row, "drop_due", actor=actor, now=now, before=before, reason=why
        )
    move_schedule(
        session,
        row,
        following.state,
        actor=actor,
        now=now,
        planned=following.planned,
        reason=reason,
    )


def apply_state(
    session: Session,
    row: OrgScheduleRow,
    following: NextState | None,
    *,
    is_suspended: bool,
    actor: str,
    now: datetime,
) -> None:
    """Apply the state of a schedule that was changed. None: its state stays. In a suspended
    organisation it is paused."""
    if following is None:
        raise_version(row, now)
        return
    if following.state is ScheduleState.ACTIVE and is_suspended:
        following = NextState(ScheduleState.PAUSED)
    if row.enabled and row.state != ScheduleState.ACTIVE:
        clear_pause(row)
    waits = row.enabled and following.state is ScheduleState.PAUSED
    if waits or row.is_suspended:
        row.is_suspended, row.pause_reason = waits, SUSPENDED_WORDS if waits else None
    change_state(session, row, following, actor=actor, now=now)


def clear_pause(row: OrgScheduleRow) -> None:
    row.pause_reason, row.paused_until = None, None
    row.is_suspended, row.consecutive_failures = False, 0


def raise_version(row: OrgScheduleRow, now: datetime) -> None:
    row.updated_at, row.version = now, row.version + 1


def cancel_waiting(
    session: Session, schedule_id: str, *, actor: str, now: datetime, reason: str
) -> int:
    """Cancel the runs of a locked schedule that have not started. Returns how many."""
    waiting = (
        select(JobRunRow.id)
        .where(JobRunRow.schedule_id == schedule_id, JobRunRow.status == OrgJobsRunState.PENDING)
        .order_by(JobRunRow.id)
        .with_for_update()
    )
    ids: Sequence[int] = session.scalars(waiting).all()
    return len(
        end_attempts(session, {run_id: attempt_cancelled(reason) for run_id in ids}, actor, now)
    )


def lock_ended_pauses(session: Session, now: datetime, limit: int) -> Sequence[OrgScheduleRow]:
    """Lock the schedules whose pause is over, after their organisations. Schedules of suspended
    organisations wait, and rows that another transaction holds are left to it."""
    conditions = (
        OrgScheduleRow.paused_until <= now,
        OrgScheduleRow.state == ScheduleState.PAUSED,
        OrgScheduleRow.deleted_at.is_(None),
    )
    of_ended = select(OrgScheduleRow.org_id).where(*conditions)
    org_ids = session.scalars(
        select(OrganisationRow.id)
        .where(OrganisationRow.id.in_(of_ended), OrganisationRow.suspended_at.is_(None))
        .order_by(OrganisationRow.id)
        .with_for_update(read=True, skip_locked=True)
    ).all()
    if not org_ids:
        return []
    return session.scalars(
        select(OrgScheduleRow)
        .where(*conditions, among(session, OrgScheduleRow.org_id, org_ids))
        .order_by(OrgScheduleRow.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .execution_options(**FRESH)
    ).all()


def resume_locked(session: Session, rows: Sequence[OrgScheduleRow], now: datetime) -> list[str]:
    """Resume schedules whose pause is over. Returns the ids of those that are active again."""
    for row in rows:
        clear_pause(row)
        row.enabled = True
        reason = _continue(session, row, SCHEDULER, now)
        after = {"state": row.state}
        add_schedule_entry(
            session, row, "resume", actor=SCHEDULER, now=now, after=after, reason=reason
        )
    return _record_resumed(session, rows, now)


def _continue(session: Session, row: OrgScheduleRow, actor: str, now: datetime) -> str | None:
    """Activate the schedule from now on. Returns the reason when that is not possible."""
    try:
        planned, fault = next_after(timing_of(row), now, row.last_scheduled_for), None
    except InvalidInputError as error:
        planned, fault = None, str(error)
    if planned is None:
        return end_schedule(session, row, actor=actor, now=now, fault=fault)
    move_schedule(session, row, ScheduleState.ACTIVE, actor=actor, now=now, planned=planned)
    return None


def end_schedule(
    session: Session, row: OrgScheduleRow, *, actor: str, now: datetime, fault: str | None = None
) -> str:
    """Move a schedule that has no due time left to its final state. Returns the reason."""
    if fault is None and row.end_at is not None:
        state, reason = ScheduleState.COMPLETED, "Its last due time has passed."
    else:
        state, reason = ScheduleState.INVALID_CRON, fault or "It is never due again."
    move_schedule(session, row, state, actor=actor, now=now, reason=reason)
    return reason


def _record_resumed(session: Session, rows: Sequence[OrgScheduleRow], now: datetime) -> list[str]:
    resumed = [row for row in rows if row.state == ScheduleState.ACTIVE]
    enqueue(
        session,
        [schedule_event(row.org_id, row.id, "resumed", str(row.version), now) for row in resumed],
    )
    return [row.id for row in resumed]


def suspend_schedules(
    session: Session, org_id: str, actor: str, now: datetime, reason: str | None
) -> int:
    """Pause the active schedules of the organisation. Returns how many."""
    rows = _locked(session, org_id, OrgScheduleRow.state == ScheduleState.ACTIVE)
    why = f"{SUSPENDED_WORDS} {reason}" if reason else SUSPENDED_WORDS
    for row in rows:
        row.is_suspended, row.pause_reason = True, why
        move_schedule(session, row, ScheduleState.PAUSED, actor=actor, now=now, reason=why)
    values = {"reason": why}
    enqueue(
        session,
        [schedule_event(org_id, row.id, "paused", str(row.version), now, values) for row in rows],
    )
    return len(rows)


def resume_schedules(session: Session, org_id: str, actor: str, now: datetime) -> int:
    """Resume the schedules that were paused with their organisation. Returns how many are active
    again."""
    rows = _locked(session, org_id, OrgScheduleRow.is_suspended.is_(True))
    for row in rows:
        row.is_suspended, row.pause_reason = False, None
        _continue(session, row, actor, now)
    return len(_record_resumed(session, rows, now))


def _locked(session: Session, org_id: str, chosen: ColumnElement[bool]) -> Sequence[OrgScheduleRow]:
    return session.scalars(
        select(OrgScheduleRow)
        .where(OrgScheduleRow.org_id == org_id, OrgScheduleRow.deleted_at.is_(None), chosen)
        .order_by(OrgScheduleRow.id)
        .with_for_update()
        .execution_options(**FRESH)
    ).all()
