"""Queries about schedules: read them, and move them between states."""

from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from sqlalchemy import ColumnElement, Select, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document, text_fault
from automation_pipeline.core.scheduling.timing import (
    Planned,
    Timing,
    TimingFields,
    next_planned,
    read_timing,
)
from automation_pipeline.org_jobs.models.organisations import OrgScope
from automation_pipeline.org_jobs.models.schedules import (
    OrgSchedule,
    OrgScheduleDefinition,
    ScheduleFire,
    last_run_status,
)
from automation_pipeline.org_jobs.models.states import SCHEDULE, ScheduleState
from automation_pipeline.org_jobs.tables import FireRow, OrganisationRow, OrgJobRow, OrgScheduleRow
from automation_pipeline.storage.transitions import Transition, record_transitions


def timing_of(row: OrgScheduleRow) -> Timing:
    """InvalidInputError: its cron or its time zone means nothing any more."""
    return read_timing(
        TimingFields(
            seed=row.id,
            cron_expression=row.cron_expression,
            timezone=row.timezone,
            window_start=row.execution_window_start,
            window_end=row.execution_window_end,
            window_policy=row.window_policy,
            cutoff_minutes=row.latest_start_cutoff_min,
            jitter_seconds=row.jitter_s,
            start_at=row.start_at,
            end_at=row.end_at,
            excluded_on=tuple(row.excluded_on),
        )
    )


def planned_of(row: OrgScheduleRow) -> Planned | None:
    if row.next_run_at is None or row.next_scheduled_for is None:
        return None
    return Planned(row.next_scheduled_for, row.next_run_at)


def move_schedule(  # noqa: PLR0913  who moves what where, and why
    session: Session,
    row: OrgScheduleRow,
    to: ScheduleState,
    *,
    actor: str,
    now: datetime,
    planned: Planned | None = None,
    reason: str | None = None,
) -> None:
    """Of a row that is locked. `planned` is when it is due next: of an ACTIVE one, and of no
    other."""
    frm = ScheduleState(row.state)
    if to is not frm:
        SCHEDULE.move(frm, to)
        record_transitions(
            session, [Transition(SCHEDULE.name, row.id, frm, to, actor, now, reason)]
        )
    row.state = to
    plan(row, planned)
    row.updated_at, row.version = now, row.version + 1


def plan(row: OrgScheduleRow, planned: Planned | None) -> None:
    row.next_run_at = None if planned is None else planned.effective_for
    row.next_scheduled_for = None if planned is None else planned.scheduled_for


SUSPENDED_WORDS = "The organisation is suspended."
# They are not stored.
_DERIVED = {"last_run_status"}


@dataclass(frozen=True, kw_only=True)
class ScheduleFilter:
    """`q` is part of the name."""

    org_id: str | None = None
    state: ScheduleState | None = None
    job_type: str | None = None
    server_instance_id: int | None = None
    q: str | None = None


def get_schedule(session: Session, schedule_id: str, within: OrgScope) -> OrgSchedule:
    return as_schedule(
        _found(session, select(OrgScheduleRow).where(*_is_there(schedule_id, within)), schedule_id)
    )


def list_schedules(
    session: Session,
    within: OrgScope,
    *,
    chosen: ScheduleFilter | None = None,
    limit: int,
    offset: int,
) -> list[OrgSchedule]:
    """Newest first, without deleted ones."""
    query = select(OrgScheduleRow).where(*_chosen(chosen or ScheduleFilter(), within))
    page = (
        query.order_by(OrgScheduleRow.created_at.desc(), OrgScheduleRow.id)
        .limit(limit)
        .offset(offset)
    )
    return [as_schedule(row) for row in session.scalars(page)]


def locked_schedule(session: Session, schedule_id: str, within: OrgScope) -> OrgScheduleRow:
    """Nobody else changes or fires it until the transaction ends. Without its organisation: see
    `locked_with_place`."""
    query = select(OrgScheduleRow).where(*_is_there(schedule_id, within)).with_for_update()
    return _found(session, query.execution_options(populate_existing=True), schedule_id)


def locked_with_place(
    session: Session, schedule_id: str, within: OrgScope
) -> tuple[OrgScheduleRow, OrganisationRow]:
    """Its organisation is neither suspended nor resumed meanwhile; it is locked before the
    schedule."""
    of_schedule = (
        select(OrgScheduleRow.org_id).where(*_is_there(schedule_id, within)).scalar_subquery()
    )
    query = (
        select(OrganisationRow).where(OrganisationRow.id == of_schedule).with_for_update(read=True)
    )
    query = query.execution_options(populate_existing=True)
    organisation = None if text_fault(schedule_id) else session.scalar(query)
    if organisation is None:
        raise _missing(schedule_id)
    return locked_schedule(session, schedule_id, within), organisation


def add_schedule(
    session: Session,
    schedule: OrgScheduleDefinition,
    *,
    org_id: str,
    is_suspended: bool,
    actor: str,
    now: datetime,
) -> OrgScheduleRow:
    """ACTIVE if it is wanted and its organisation is not suspended, which whoever asks has
    locked."""
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
    """What people write, as it is stored."""
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
    """Those of a deleted one too. Oldest first, unless the newest are wanted; `after_id` is the
    last one of the page before."""
    _found(
        session,
        select(OrgScheduleRow).where(OrgScheduleRow.id == schedule_id, *_of(within)),
        schedule_id,
    )
    query = select(FireRow, OrgJobRow.id, OrgJobRow.status).outerjoin(
        OrgJobRow, OrgJobRow.schedule_fire_id == FireRow.id
    )
    query = query.where(FireRow.schedule_id == schedule_id)
    if newest_first:
        query = query.where(FireRow.id < after_id) if after_id else query
        query = query.order_by(FireRow.id.desc())
    else:
        query = query.where(FireRow.id > after_id).order_by(FireRow.id)
    return [as_fire(*found) for found in session.execute(query.limit(limit)).tuples()]


def as_schedule(row: OrgScheduleRow) -> OrgSchedule:
    stored = {name: getattr(row, name) for name in OrgSchedule.model_fields.keys() - _DERIVED}
    status = last_run_status(row.last_dispatch_status, row.last_job_status)
    return OrgSchedule.model_validate({**stored, "last_run_status": status})


def as_fire(row: FireRow, job_id: int | None, job_status: str | None) -> ScheduleFire:
    known = {"job_id": job_id, "job_status": job_status}
    names = ScheduleFire.model_fields.keys() - known.keys()
    return ScheduleFire.model_validate({**{name: getattr(row, name) for name in names}, **known})


def _found(
    session: Session, query: Select[tuple[OrgScheduleRow]], schedule_id: str
) -> OrgScheduleRow:
    row = None if text_fault(schedule_id) else session.scalar(query)
    if row is None:
        raise _missing(schedule_id)
    return row


def _missing(schedule_id: str) -> NotFoundError:
    return NotFoundError(f"Schedule {schedule_id[:100]} not found")


def _is_there(schedule_id: str, within: OrgScope) -> tuple[ColumnElement[bool], ...]:
    return OrgScheduleRow.id == schedule_id, OrgScheduleRow.deleted_at.is_(None), *_of(within)


def _of(within: OrgScope) -> tuple[ColumnElement[bool], ...]:
    return () if within.org_id is None else (OrgScheduleRow.org_id == within.org_id,)


def _chosen(chosen: ScheduleFilter, within: OrgScope) -> list[ColumnElement[bool]]:
    exact = (
        (OrgScheduleRow.org_id, chosen.org_id),
        (OrgScheduleRow.state, chosen.state),
        (OrgScheduleRow.job_type, chosen.job_type),
        (OrgScheduleRow.server_instance_id, chosen.server_instance_id),
    )
    conditions = [OrgScheduleRow.deleted_at.is_(None), *_of(within)]
    conditions += [column == value for column, value in exact if value is not None]
    return [*conditions, _is_named(chosen.q)] if chosen.q else conditions


def _is_named(text: str) -> ColumnElement[bool]:
    """Databases fold the case of unaccented letters only: accented ones are tried as people write
    them."""
    ways = sorted({text, text.lower(), text.upper(), text.title()})
    return or_(*(OrgScheduleRow.name.icontains(way, autoescape=True) for way in ways))
