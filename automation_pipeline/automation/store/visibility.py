"""Which schedules and runs are within somebody's reach."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.automation.domain.visibility import is_visible
from automation_pipeline.automation.store.schedules import get_schedule, list_schedules
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.access import Reach
from automation_pipeline.core.errors import NotFoundError


def is_schedule_visible(session: Session, reach: Reach, schedule_id: int) -> bool:
    try:
        return is_visible(get_schedule(session, schedule_id), reach)
    except NotFoundError:
        return False


def is_run_visible(session: Session, reach: Reach, run_id: int) -> bool:
    """As its schedule is."""
    schedule_id = session.scalar(select(RunRow.schedule_id).where(RunRow.id == run_id))
    return schedule_id is not None and is_schedule_visible(session, reach, schedule_id)


def visible_schedules(session: Session, reach: Reach) -> list[int] | None:
    """None: all of them."""
    if reach.is_whole:
        return None
    return [one.id for one in list_schedules(session, include_inactive=True) if is_visible(one, reach)]
