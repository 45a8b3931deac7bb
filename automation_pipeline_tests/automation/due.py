"""Helpers for tests of due detection. Test processes can import them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select, update

from automation_pipeline.automation.models.schedules import Schedule
from automation_pipeline.automation.rules.schedules import DuePolicy, DueReport
from automation_pipeline.automation.runs import request_run
from automation_pipeline.automation.schedules import start_due_runs
from automation_pipeline.automation.tables import OccurrenceRow, ScheduleRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.factories import make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock

RULES = DuePolicy(timedelta(minutes=20), timedelta(minutes=70), lost_after_seconds=25)


def check_due(database: Database, clock: Clock) -> DueReport:
    return start_due_runs(RULES, database=database, clock=clock)


def make_daily_schedule(
    database: Database, clock: Clock, time_of_day: str = "10:00", **fields: Any
) -> Schedule:
    return make_schedule(database, clock, scheduleType="DAILY", timeOfDay=time_of_day, **fields)


def make_hourly_schedule(database: Database, clock: Clock, **fields: Any) -> Schedule:
    return make_schedule(database, clock, scheduleType="CRON", cronExpression="0 * * * *", **fields)


def change(database: Database, schedule_id: int, **values: object) -> None:
    with database.transaction() as session:
        session.execute(update(ScheduleRow).where(ScheduleRow.id == schedule_id).values(**values))


def occurrences(database: Database) -> list[tuple[str, int | None, str | None]]:
    with database.reading() as session:
        rows = session.scalars(
            select(OccurrenceRow).order_by(OccurrenceRow.schedule_id, OccurrenceRow.due_at)
        )
        return [(f"{row.due_at:%d %H:%M}", row.run_id, row.not_run_because) for row in rows]


def check_due_repeatedly(url: str, now: str, times: int) -> int:
    """Return the number of runs that this process starts."""
    database, clock = Database(url), FakeClock(datetime.fromisoformat(now).replace(tzinfo=UTC))
    try:
        return sum(len(check_due(database, clock).triggered) for _ in range(times))
    finally:
        database.dispose()


def run_now(url: str, now: str, schedule_id: int) -> bool:
    """Return whether this process created its run."""
    database, clock = Database(url), FakeClock(datetime.fromisoformat(now).replace(tzinfo=UTC))
    try:
        request_run(schedule_id, database=database, clock=clock)
    except ConflictError:
        return False
    else:
        return True
    finally:
        database.dispose()
