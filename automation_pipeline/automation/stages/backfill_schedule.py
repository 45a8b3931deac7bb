"""File one run per day of a range for a schedule: each day once, however often the backfill is asked for."""

from datetime import date, datetime, timedelta

from automation_pipeline.automation.domain.field_rules import written
from automation_pipeline.automation.domain.run import RunStatus, Trigger
from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.domain.selection import DatePreset, FicheSelection, SelectionMode
from automation_pipeline.automation.stages.request_run import JOB
from automation_pipeline.automation.store.runs import add_run, runs_by_key
from automation_pipeline.automation.store.schedules import lock_schedule, refuse_paused
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, InvalidInputError
from automation_pipeline.core.json_model import Id, JsonModel
from automation_pipeline.core.wall_clock import wall_time, zone
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.run_requests import RunWish, file_requests

MOST_DAYS = 92
INVALID = "Invalid backfill data"


class BackfillDay(JsonModel):
    """A day and its run. `filed`: this call has filed it, or would have without the dry run."""

    day: date
    key: str
    filed: bool
    run_id: Id | None
    status: RunStatus | None


class ScheduleBackfill(JsonModel):
    schedule_id: Id
    dry_run: bool
    days: tuple[BackfillDay, ...]


def backfill_schedule(
    schedule_id: int, first: date, last: date, *, database: Database, clock: Clock, dry_run: bool = False
) -> ScheduleBackfill:
    """Every run selects the sales of its day, with the schedule's other filters. A day that has its run keeps it."""
    now = clock.now()
    with database.transaction() as session:
        schedule = lock_schedule(session, schedule_id)
        _refuse(schedule, first, last, now)
        days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
        known = _known(session, schedule, days)
        filed = {day: _file(session, schedule, day, now) for day in days if day not in known and not dry_run}
        runs = {**known, **filed}
        return ScheduleBackfill(
            schedule_id=schedule_id,
            dry_run=dry_run,
            days=tuple(_shown(schedule, day, runs.get(day), filed=day not in known) for day in days),
        )


def backfill_key(schedule_id: int, day: date) -> str:
    return f"automation-backfill-{schedule_id}-{day.isoformat()}"


def _refuse(schedule: Schedule, first: date, last: date, now: datetime) -> None:
    refuse_paused(schedule)
    if schedule.fiche_selection.mode is SelectionMode.MANUAL:
        raise ConflictError(f"Schedule {schedule.id} selects fiches by their ids: it has no days to backfill")
    today = wall_time(now, zone(schedule.timezone)).date()
    if last < first:
        raise InvalidInputError(INVALID, (("to", "must not lie before from"),))
    if last > today:
        raise InvalidInputError(INVALID, (("to", f"must not lie after today, {today.isoformat()}"),))
    if (last - first).days >= MOST_DAYS:
        raise InvalidInputError(INVALID, (("to", f"must be at most {MOST_DAYS - 1} days after from"),))


def _known(session: Session, schedule: Schedule, days: list[date]) -> dict[date, RunRow]:
    keys = {backfill_key(schedule.id, day): day for day in days}
    return {keys[key]: row for key, row in runs_by_key(session, list(keys)).items()}


def _file(session: Session, schedule: Schedule, day: date, now: datetime) -> RunRow:
    row = add_run(session, schedule, Trigger.BACKFILL, now, override=_of_day(schedule.fiche_selection, day))
    row.request_key = key = backfill_key(schedule.id, day)
    tags = {
        "automation/schedule_id": str(schedule.id),
        "automation/run_id": str(row.id),
        "automation/trigger": Trigger.BACKFILL,
    }
    config = {"schedule_id": schedule.id, "run_id": row.id}
    file_requests(session, [RunWish(key, JOB, config, tags)], now)
    return row


def _of_day(selection: FicheSelection, day: date) -> FicheSelection:
    days = {"date_range": DatePreset.CUSTOM, "custom_start_date": written(day), "custom_end_date": written(day)}
    return selection.model_copy(update=days)


def _shown(schedule: Schedule, day: date, row: RunRow | None, *, filed: bool) -> BackfillDay:
    status = None if row is None else RunStatus(row.status)
    run_id = None if row is None else row.id
    return BackfillDay(day=day, key=backfill_key(schedule.id, day), filed=filed, run_id=run_id, status=status)
