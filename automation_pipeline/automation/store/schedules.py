"""Queries over schedules."""

from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from automation_pipeline.automation.domain.run import SCHEDULE_STATUS, RunStatus
from automation_pipeline.automation.domain.schedule import Schedule, ScheduleInput
from automation_pipeline.automation.tables import ScheduleRow
from automation_pipeline.core.errors import NotFoundError

_SELECTION_PREFIX = "fiche_selection_"


def add_schedule(session: Session, schedule: ScheduleInput, now: datetime) -> Schedule:
    row = ScheduleRow(**_columns(schedule), created_at=now, updated_at=now)
    session.add(row)
    session.flush()
    return _schedule(row)


def get_schedule(session: Session, schedule_id: int) -> Schedule:
    row = session.get(ScheduleRow, schedule_id)
    if row is None:
        raise NotFoundError(f"Schedule {schedule_id} not found")
    return _schedule(row)


def list_schedules(session: Session, *, include_inactive: bool) -> list[Schedule]:
    """Newest first."""
    query = select(ScheduleRow).order_by(ScheduleRow.id.desc())
    if not include_inactive:
        query = query.where(ScheduleRow.is_active)
    return [_schedule(row) for row in session.scalars(query)]


def mark_running(session: Session, schedule_id: int, at: datetime) -> None:
    session.execute(
        update(ScheduleRow)
        .where(ScheduleRow.id == schedule_id)
        .values(last_run_at=at, last_run_status="running")
        .execution_options(synchronize_session=False)
    )


def count_ended_run(session: Session, schedule_id: int, status: RunStatus) -> None:
    """Counters move in the database, so that two runs ending at once are both counted."""
    session.execute(
        update(ScheduleRow)
        .where(ScheduleRow.id == schedule_id)
        .values(
            last_run_status=SCHEDULE_STATUS[status],
            total_runs=ScheduleRow.total_runs + 1,
            successful_runs=ScheduleRow.successful_runs + int(status is RunStatus.COMPLETED),
            failed_runs=ScheduleRow.failed_runs + int(status is RunStatus.FAILED),
        )
        .execution_options(synchronize_session=False)
    )


def _columns(schedule: ScheduleInput) -> dict[str, object]:
    selection = schedule.fiche_selection.model_dump()
    key = schedule.external_api_key
    return {
        **schedule.model_dump(exclude={"fiche_selection"}),
        **{_SELECTION_PREFIX + name: value for name, value in selection.items()},
        "external_api_key": key and key.get_secret_value(),
    }


def _schedule(row: ScheduleRow) -> Schedule:
    values = {column.key: getattr(row, column.key) for column in ScheduleRow.__table__.columns}
    selection = {
        name.removeprefix(_SELECTION_PREFIX): values.pop(name)
        for name in list(values)
        if name.startswith(_SELECTION_PREFIX)
    }
    return Schedule.model_validate({**values, "fiche_selection": selection})
