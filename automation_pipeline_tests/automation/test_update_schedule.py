"""A patch of a schedule: stored whole or not at all, and no patch undoes another."""

import threading
from datetime import UTC, datetime

import pytest
from sqlalchemy import update

from automation_pipeline.automation.models.schedules import Schedule
from automation_pipeline.automation.queries.schedules import (
    change_schedule,
    get_schedule,
    lock_schedule,
)
from automation_pipeline.automation.schedules import pause_schedule, skip_next, update_schedule
from automation_pipeline.automation.tables import ScheduleRow
from automation_pipeline.core.errors import InvalidInputError, NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits import configurations
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule

DAILY = {"scheduleType": "DAILY", "timeOfDay": "09:00"}


def patched(
    schedule: Schedule, patch: dict[str, object], database: Database, clock: StandingClock
) -> Schedule:
    return update_schedule(schedule.id, patch, database=database, clock=clock)


def stored(database: Database, schedule: Schedule) -> Schedule:
    with database.reading() as session:
        return get_schedule(session, schedule.id)


def test_only_what_is_named_changes(database: Database, clock: StandingClock) -> None:
    before = a_schedule(
        database, clock, **DAILY, description="Old", externalApiKey="s3cret", maxRetries=2
    )
    clock.pass_time_a_second()
    after = patched(before, {"description": None, "name": "New"}, database, clock)
    assert after == stored(database, before)
    assert after == before.model_copy(
        update={"description": None, "name": "New", "updated_at": clock.now()}
    )


def test_a_patch_of_nothing_changes_nothing(database: Database, clock: StandingClock) -> None:
    before = a_schedule(database, clock)
    clock.pass_time_a_second()
    assert patched(before, {}, database, clock) == before


def test_new_times_begin_now_and_forget_what_was_skipped(
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock, **DAILY)
    skip_next(schedule.id, database=database, clock=clock)
    same = patched(schedule, {"timeOfDay": "09:00"}, database, clock)
    assert (same.last_due_at, same.skip_due_at) == (None, datetime(2026, 5, 5, 9, tzinfo=UTC))
    moved = patched(schedule, {"timeOfDay": "09:55"}, database, clock)
    assert (moved.last_due_at, moved.skip_due_at) == (clock.now(), None)


def test_set_active_by_a_patch_is_resumed(database: Database, clock: StandingClock) -> None:
    schedule = a_schedule(database, clock, **DAILY)
    pause_schedule(schedule.id, database=database, clock=clock, reason="Holidays")
    resumed = patched(schedule, {"isActive": True}, database, clock)
    assert (resumed.is_active, resumed.paused_reason, resumed.last_due_at) == (
        True,
        None,
        clock.now(),
    )


def test_only_new_audit_configurations_must_exist(database: Database, clock: StandingClock) -> None:
    known = configurations.add(database)
    schedule = a_schedule(database, clock)
    with database.transaction() as session:
        change_schedule(session, schedule.id, {"specific_audit_configs": [97]}, clock.now())
    kept = patched(schedule, {"name": "New", "specificAuditConfigs": [97, known]}, database, clock)
    assert kept.specific_audit_configs == (97, known)
    with pytest.raises(
        InvalidInputError, match=r"^Invalid automation schedule update data$"
    ) as caught:
        patched(schedule, {"specificAuditConfigs": [98, known]}, database, clock)
    assert caught.value.fields == (("specificAuditConfigs", "there is no audit configuration 98"),)


def test_a_wrong_patch_stores_nothing(database: Database, clock: StandingClock) -> None:
    schedule = a_schedule(database, clock, **DAILY)
    with pytest.raises(InvalidInputError):
        patched(schedule, {"name": "New", "timeOfDay": None}, database, clock)
    assert stored(database, schedule) == schedule


def test_an_unknown_schedule_is_not_found(database: Database, clock: StandingClock) -> None:
    with pytest.raises(NotFoundError, match="Schedule 9 not found"):
        update_schedule(9, {"name": "New"}, database=database, clock=clock)


def test_of_two_patches_at_once_the_second_sees_what_the_first_did(
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock, **DAILY)
    second = threading.Thread(target=patched, args=(schedule, {"maxRetries": 5}, database, clock))
    with database.transaction() as session:
        lock_schedule(session, schedule.id)
        second.start()
        second.join(0.1)
        assert second.is_alive()
        session.execute(update(ScheduleRow).values(description="First"))
    second.join()
    assert (stored(database, schedule).description, stored(database, schedule).max_retries) == (
        "First",
        5,
    )


def test_many_patches_at_once_are_all_kept(database: Database, clock: StandingClock) -> None:
    schedule = a_schedule(database, clock, **DAILY)
    patch = {
        "name": "New",
        "maxRetries": 5,
        "jitterSeconds": 7,
        "catchUp": "all",
        "timezone": "Europe/Paris",
    }
    threads = [
        threading.Thread(target=patched, args=(schedule, {field: value}, database, clock))
        for field, value in patch.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert patch.items() <= stored(database, schedule).model_dump(by_alias=True).items()
