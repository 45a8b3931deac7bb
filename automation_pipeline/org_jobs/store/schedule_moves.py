"""Every change of a schedule's state: legal or refused, with when it is due next, and logged."""

from datetime import datetime

from sqlalchemy.orm import Session

from automation_pipeline.org_jobs.domain.states import SCHEDULE, ScheduleState
from automation_pipeline.org_jobs.domain.timing import Planned
from automation_pipeline.org_jobs.tables import ScheduleRow
from automation_pipeline.storage.transitions import Transition, record_transitions


def move_schedule(  # noqa: PLR0913  who moves what where, and why
    session: Session,
    row: ScheduleRow,
    to: ScheduleState,
    *,
    actor: str,
    now: datetime,
    planned: Planned | None = None,
    reason: str | None = None,
) -> None:
    """Of a row that is locked. `planned` is when it is due next: of an ACTIVE one, and of no other."""
    frm = ScheduleState(row.state)
    if to is not frm:
        SCHEDULE.move(frm, to)
        record_transitions(session, [Transition(SCHEDULE.name, row.id, frm, to, actor, now, reason)])
    row.state = to
    plan(row, planned)
    row.updated_at, row.version = now, row.version + 1


def plan(row: ScheduleRow, planned: Planned | None) -> None:
    row.next_run_at = None if planned is None else planned.effective_for
    row.next_scheduled_for = None if planned is None else planned.scheduled_for
