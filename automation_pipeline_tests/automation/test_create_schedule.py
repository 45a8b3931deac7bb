"""A new schedule: stored with its defaults; audit configurations that do not exist are refused by
name."""

import pytest

from automation_pipeline.automation.queries.schedules import get_schedule, list_schedules
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits import configurations
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule


def test_a_new_schedule_has_decided_upon_nothing(database: Database, clock: StandingClock) -> None:
    created = a_schedule(
        database,
        clock,
        scheduleType="DAILY",
        timeOfDay="09:00",
        catchUp="all",
        shortMonths="last_day",
    )
    with database.reading() as session:
        assert get_schedule(session, created.id) == created
    assert (created.last_due_at, created.skip_due_at, created.paused_reason) == (None, None, None)
    assert (created.failures_in_a_row, created.total_runs, created.created_at) == (
        0,
        0,
        clock.now(),
    )


def test_configurations_that_exist_are_kept_in_use_or_not(
    database: Database, clock: StandingClock
) -> None:
    ids = configurations.add(database), configurations.add(database, "Old", isActive=False)
    created = a_schedule(database, clock, specificAuditConfigs=[str(ids[1]), ids[0]])
    assert created.specific_audit_configs == (ids[1], ids[0])


def test_configurations_that_do_not_exist_are_named(
    database: Database, clock: StandingClock
) -> None:
    known = configurations.add(database)
    with pytest.raises(InvalidInputError, match=r"^Invalid automation schedule data$") as caught:
        a_schedule(database, clock, specificAuditConfigs=[98, known, 97])
    assert caught.value.fields == (
        ("specificAuditConfigs", "there is no audit configuration 97, 98"),
    )
    with database.reading() as session:
        assert list_schedules(session, include_inactive=True) == []
