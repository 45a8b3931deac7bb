"""Skipping leaves out one occurrence more each time."""

from datetime import UTC, datetime, timedelta

import pytest

from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.rules.due import next_due
from automation_pipeline.automation.schedules import skip_next
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule

DAILY = {"scheduleType": "DAILY", "timeOfDay": "09:00"}


def test_each_time_the_one_after_is_left_out_too(database: Database, clock: StandingClock) -> None:
    schedule = a_schedule(database, clock, **DAILY)
    skipped = [skip_next(schedule.id, database=database, clock=clock) for _ in range(2)]
    assert skipped == [datetime(2026, 5, 5, 9, tzinfo=UTC), datetime(2026, 5, 6, 9, tzinfo=UTC)]
    with database.reading() as session:
        stored = get_schedule(session, schedule.id)
    assert stored.skip_due_at == skipped[-1]
    assert next_due(stored, clock.now()) == datetime(2026, 5, 7, 9, tzinfo=UTC)


def test_a_skip_of_long_ago_does_not_count(database: Database, clock: StandingClock) -> None:
    schedule = a_schedule(database, clock, **DAILY)
    skip_next(schedule.id, database=database, clock=clock)
    clock.pass_time(timedelta(days=7))
    assert skip_next(schedule.id, database=database, clock=clock) == datetime(
        2026, 5, 12, 9, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"scheduleType": "MANUAL"}, "is MANUAL: it has no next occurrence to skip"),
        ({**DAILY, "isActive": False}, "is not active: it has no next occurrence to skip"),
    ],
)
def test_there_may_be_nothing_to_skip(
    database: Database, clock: StandingClock, fields: dict[str, object], sentence: str
) -> None:
    schedule = a_schedule(database, clock, ("1",), **fields)
    with pytest.raises(ConflictError, match=sentence):
        skip_next(schedule.id, database=database, clock=clock)


def test_an_unknown_schedule_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError, match="Schedule 9 not found"):
        skip_next(9, database=database, clock=clock)
