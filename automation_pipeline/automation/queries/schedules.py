"""Queries about schedules."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Text, and_, case, cast, false, literal, select, update
from sqlalchemy.orm import Session

from automation_pipeline.automation.models.runs import SCHEDULE_STATUS, RunStatus
from automation_pipeline.automation.models.schedules import Schedule, ScheduleInput
from automation_pipeline.automation.tables import RunRow, ScheduleRow
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.core.scheduling.cron import OverlapPolicy

_SELECTION_PREFIX = "fiche_selection_"


def add_schedule(session: Session, schedule: ScheduleInput, now: datetime) -> Schedule:
    row = ScheduleRow(**schedule_columns(schedule), created_at=now, updated_at=now)
    session.add(row)
    session.flush()
    return as_schedule(row)


def get_schedule(session: Session, schedule_id: int, *, lock: bool = False) -> Schedule:
    """NotFoundError also for a deleted schedule. With `lock`, no other transaction can change the
    schedule or file a run of it until this transaction ends."""
    row = session.get(ScheduleRow, schedule_id, populate_existing=True, with_for_update=lock)
    if row is None or row.deleted_at is not None:
        raise NotFoundError(f"Schedule {schedule_id} not found")
    return as_schedule(row)


def schedule_of_run(session: Session, schedule_id: int) -> Schedule:
    """The schedule of a stored run, even if it is deleted."""
    return as_schedule(session.get_one(ScheduleRow, schedule_id, populate_existing=True))


def lock_for_new_run(session: Session, schedule_id: int) -> Schedule:
    """Lock the schedule until the transaction ends. Raises ConflictError if the schedule is paused, or has
    an unfinished run and its overlap policy does not allow another one."""
    schedule = get_schedule(session, schedule_id, lock=True)
    refuse_paused(schedule)
    if schedule.overlap_policy is OverlapPolicy.ALLOW_ALL:
        return schedule
    for run_id in unended_runs(session, schedule_id):
        raise ConflictError(
            f"Run {run_id} of schedule {schedule_id} is still at work: `automation runs watch {run_id}` follows it"
        )
    return schedule


def refuse_paused(schedule: Schedule) -> None:
    if not schedule.is_active:
        raise ConflictError(f"Schedule {schedule.id} is not active")


def change_schedule(session: Session, schedule_id: int, changes: Mapping[str, object]) -> None:
    session.execute(
        update(ScheduleRow)
        .where(ScheduleRow.id == schedule_id)
        .values(changes)
        .execution_options(synchronize_session=False)
    )


def unended_runs(session: Session, schedule_id: int) -> list[int]:
    """The ids of the runs that have not ended, oldest first."""
    unended = (RunRow.schedule_id == schedule_id, RunRow.completed_at.is_(None))
    return list(session.scalars(select(RunRow.id).where(*unended).order_by(RunRow.id)))


def list_schedules(
    session: Session, *, include_inactive: bool, limit: int | None = None, offset: int = 0
) -> list[Schedule]:
    """Newest first."""
    kept = select(ScheduleRow).where(ScheduleRow.deleted_at.is_(None))
    query = kept.order_by(ScheduleRow.id.desc()).limit(limit).offset(offset)
    if not include_inactive:
        query = query.where(ScheduleRow.is_active)
    return [as_schedule(row) for row in session.scalars(query)]


def mark_running(session: Session, schedule_id: int, at: datetime) -> None:
    change_schedule(session, schedule_id, {"last_run_at": at, "last_run_status": "running"})


def count_ended_run(
    session: Session, schedule_id: int, status: RunStatus, *, counted: bool = True
) -> None:
    """Increment the counters in SQL, so that two runs that end at once are both counted. A schedule
    with too many consecutive failures is paused. A cancelled run does not change the number of
    consecutive failures."""
    changes: dict[str, object] = {"last_run_status": SCHEDULE_STATUS[status]}
    if counted:
        changes |= {
            "total_runs": ScheduleRow.total_runs + 1,
            "successful_runs": ScheduleRow.successful_runs + int(status is RunStatus.COMPLETED),
            "failed_runs": ScheduleRow.failed_runs + int(status is RunStatus.FAILED),
            **_pause(status),
        }
    change_schedule(session, schedule_id, changes)


def _pause(status: RunStatus) -> dict[str, object]:
    if status is RunStatus.CANCELLED:
        return {}
    if status is not RunStatus.FAILED:
        return {"failures_in_a_row": 0}
    in_a_row = ScheduleRow.failures_in_a_row + 1
    pauses = and_(ScheduleRow.is_active, in_a_row >= ScheduleRow.pause_after_failures)
    reason = literal("Paused after ").concat(cast(in_a_row, Text)).concat(" failed runs in a row")
    return {
        "failures_in_a_row": in_a_row,
        "is_active": case((pauses, false()), else_=ScheduleRow.is_active),
        "paused_reason": case((pauses, reason), else_=ScheduleRow.paused_reason),
    }


def schedule_columns(schedule: ScheduleInput) -> dict[str, object]:
    selection = schedule.fiche_selection.model_dump()
    key = schedule.external_api_key
    return {
        **schedule.model_dump(exclude={"fiche_selection"}),
        **{_SELECTION_PREFIX + name: value for name, value in selection.items()},
        "external_api_key": key and key.get_secret_value(),
    }


def as_schedule(row: ScheduleRow) -> Schedule:
    values = {column.key: getattr(row, column.key) for column in ScheduleRow.__table__.columns}
    del values["deleted_at"]
    selection = {
        name.removeprefix(_SELECTION_PREFIX): values.pop(name)
        for name in list(values)
        if name.startswith(_SELECTION_PREFIX)
    }
    return Schedule.model_validate({**values, "fiche_selection": selection})
