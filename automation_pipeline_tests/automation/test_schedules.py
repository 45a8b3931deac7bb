"""Schedules: create, update, pause, delete, skip, back-fill, preview."""

import threading
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import func, select, update

from automation_pipeline.automation.models.runs import RunFilter
from automation_pipeline.automation.models.schedules import Schedule
from automation_pipeline.automation.queries.run_details import runs_within
from automation_pipeline.automation.queries.runs import get_run, selection_of
from automation_pipeline.automation.queries.schedules import (
    change_schedule,
    get_schedule,
    list_schedules,
)
from automation_pipeline.automation.rules.schedules import next_due
from automation_pipeline.automation.runs import finalise_run, open_run, request_run
from automation_pipeline.automation.schedules import (
    MAX_BACKFILL_DAYS,
    backfill_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    skip_next,
    update_schedule,
)
from automation_pipeline.automation.selection import preview_schedule
from automation_pipeline.automation.tables import RunRow, ScheduleRow
from automation_pipeline.core.access import EVERYTHING
from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    TransientError,
)
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.claims import DatabasePermits
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.audits import configurations
from automation_pipeline_tests.automation.harness import AutomationHarness
from automation_pipeline_tests.factories import make_launch, make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import summary
from automation_pipeline_tests.waiting import run_with_fake_time


def test_a_new_schedule_has_an_empty_run_history(database: Database, clock: FakeClock) -> None:
    created = make_schedule(
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


def test_existing_configurations_are_accepted_active_or_not(
    database: Database, clock: FakeClock
) -> None:
    ids = configurations.add(database), configurations.add(database, "Old", isActive=False)
    created = make_schedule(database, clock, specificAuditConfigs=[str(ids[1]), ids[0]])
    assert created.specific_audit_configs == (ids[1], ids[0])


def test_unknown_configurations_are_reported(database: Database, clock: FakeClock) -> None:
    known = configurations.add(database)
    with pytest.raises(InvalidInputError, match=r"^Invalid automation schedule data$") as caught:
        make_schedule(database, clock, specificAuditConfigs=[98, known, 97])
    assert caught.value.fields == (
        ("specificAuditConfigs", "there is no audit configuration 97, 98"),
    )
    with database.reading() as session:
        assert list_schedules(session, include_inactive=True) == []


DAILY = {"scheduleType": "DAILY", "timeOfDay": "09:00"}


def patched(
    schedule: Schedule, patch: dict[str, object], database: Database, clock: FakeClock
) -> Schedule:
    return update_schedule(schedule.id, patch, database=database, clock=clock)


def stored(database: Database, schedule: Schedule) -> Schedule:
    with database.reading() as session:
        return get_schedule(session, schedule.id)


def test_a_patch_changes_only_the_named_fields(database: Database, clock: FakeClock) -> None:
    before = make_schedule(
        database, clock, **DAILY, description="Old", externalApiKey="s3cret", maxRetries=2
    )
    clock.advance_one_second()
    after = patched(before, {"description": None, "name": "New"}, database, clock)
    assert after == stored(database, before)
    assert after == before.model_copy(
        update={"description": None, "name": "New", "updated_at": clock.now()}
    )


def test_an_empty_patch_changes_nothing(database: Database, clock: FakeClock) -> None:
    before = make_schedule(database, clock)
    clock.advance_one_second()
    assert patched(before, {}, database, clock) == before


def test_changed_times_apply_from_now_and_clear_the_skipped_occurrence(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock, **DAILY)
    skip_next(schedule.id, database=database, clock=clock)
    same = patched(schedule, {"timeOfDay": "09:00"}, database, clock)
    assert (same.last_due_at, same.skip_due_at) == (None, datetime(2026, 5, 5, 9, tzinfo=UTC))
    moved = patched(schedule, {"timeOfDay": "09:55"}, database, clock)
    assert (moved.last_due_at, moved.skip_due_at) == (clock.now(), None)


def test_a_patch_that_sets_active_resumes_the_schedule(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock, **DAILY)
    pause_schedule(schedule.id, database=database, clock=clock, reason="Holidays")
    resumed = patched(schedule, {"isActive": True}, database, clock)
    assert (resumed.is_active, resumed.paused_reason, resumed.last_due_at) == (
        True,
        None,
        clock.now(),
    )


def test_only_newly_added_audit_configurations_must_exist(
    database: Database, clock: FakeClock
) -> None:
    known = configurations.add(database)
    schedule = make_schedule(database, clock)
    with database.transaction() as session:
        change_schedule(session, schedule.id, {"specific_audit_configs": [97]})
    kept = patched(schedule, {"name": "New", "specificAuditConfigs": [97, known]}, database, clock)
    assert kept.specific_audit_configs == (97, known)
    with pytest.raises(
        InvalidInputError, match=r"^Invalid automation schedule update data$"
    ) as caught:
        patched(schedule, {"specificAuditConfigs": [98, known]}, database, clock)
    assert caught.value.fields == (("specificAuditConfigs", "there is no audit configuration 98"),)


def test_an_invalid_patch_stores_nothing(database: Database, clock: FakeClock) -> None:
    schedule = make_schedule(database, clock, **DAILY)
    with pytest.raises(InvalidInputError):
        patched(schedule, {"name": "New", "timeOfDay": None}, database, clock)
    assert stored(database, schedule) == schedule


def test_an_unknown_schedule_to_update_is_not_found(database: Database, clock: FakeClock) -> None:
    with pytest.raises(NotFoundError, match="Schedule 9 not found"):
        update_schedule(9, {"name": "New"}, database=database, clock=clock)


def test_the_second_of_two_concurrent_patches_sees_the_first(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock, **DAILY)
    second = threading.Thread(target=patched, args=(schedule, {"maxRetries": 5}, database, clock))
    with database.transaction() as session:
        get_schedule(session, schedule.id, lock=True)
        second.start()
        second.join(0.1)
        assert second.is_alive()
        session.execute(update(ScheduleRow).values(description="First"))
    second.join()
    assert (stored(database, schedule).description, stored(database, schedule).max_retries) == (
        "First",
        5,
    )


def test_concurrent_patches_are_all_applied(database: Database, clock: FakeClock) -> None:
    schedule = make_schedule(database, clock, **DAILY)
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


def test_a_paused_schedule_does_not_run_and_keeps_its_first_reason(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock)
    pause_schedule(schedule.id, database=database, clock=clock, reason="Holidays")
    paused = pause_schedule(schedule.id, database=database, clock=clock, reason="Again")
    assert (paused.is_active, paused.paused_reason) == (False, "Holidays")
    with pytest.raises(ConflictError, match="is not active"):
        request_run(schedule.id, database=database, clock=clock)


def test_an_unknown_schedule_to_pause_is_not_found(database: Database, clock: FakeClock) -> None:
    with pytest.raises(NotFoundError, match="Schedule 9 not found"):
        pause_schedule(9, database=database, clock=clock)


def test_a_resumed_schedule_does_not_catch_up_with_its_pause(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock)
    with database.transaction() as session:
        change_schedule(session, schedule.id, {"failures_in_a_row": 3})
    pause_schedule(schedule.id, database=database, clock=clock, reason="3 failed runs in a row")
    clock.advance(timedelta(days=3))
    resumed = resume_schedule(schedule.id, database=database, clock=clock)
    assert (resumed.is_active, resumed.paused_reason, resumed.failures_in_a_row) == (True, None, 0)
    assert resumed.last_due_at == clock.now()


def test_resuming_an_active_schedule_changes_nothing(database: Database, clock: FakeClock) -> None:
    schedule = make_schedule(database, clock)
    clock.advance(timedelta(days=3))
    assert resume_schedule(schedule.id, database=database, clock=clock) == schedule


def test_an_unknown_schedule_to_resume_is_not_found(database: Database, clock: FakeClock) -> None:
    with pytest.raises(NotFoundError, match="Schedule 9 not found"):
        resume_schedule(9, database=database, clock=clock)


def test_repeated_skips_skip_successive_occurrences(database: Database, clock: FakeClock) -> None:
    schedule = make_schedule(database, clock, **DAILY)
    skipped = [skip_next(schedule.id, database=database, clock=clock) for _ in range(2)]
    assert skipped == [datetime(2026, 5, 5, 9, tzinfo=UTC), datetime(2026, 5, 6, 9, tzinfo=UTC)]
    with database.reading() as session:
        stored = get_schedule(session, schedule.id)
    assert stored.skip_due_at == skipped[-1]
    assert next_due(stored, clock.now()) == datetime(2026, 5, 7, 9, tzinfo=UTC)


def test_a_skip_in_the_past_does_not_affect_the_next_skip(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock, **DAILY)
    skip_next(schedule.id, database=database, clock=clock)
    clock.advance(timedelta(days=7))
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
def test_skipping_without_a_next_occurrence_is_rejected(
    database: Database, clock: FakeClock, fields: dict[str, object], sentence: str
) -> None:
    schedule = make_schedule(database, clock, ("1",), **fields)
    with pytest.raises(ConflictError, match=sentence):
        skip_next(schedule.id, database=database, clock=clock)


def test_an_unknown_schedule_to_skip_is_not_found(database: Database, clock: FakeClock) -> None:
    with pytest.raises(NotFoundError, match="Schedule 9 not found"):
        skip_next(9, database=database, clock=clock)


def test_deleting_a_schedule_keeps_its_runs(database: Database, clock: FakeClock) -> None:
    mine, other = make_schedule(database, clock), make_schedule(database, clock)
    run_attempt = open_run(make_launch(mine.id), database=database, clock=clock)
    finalise_run(run_attempt.run_id, database=database, clock=clock, breakdown="The worker is gone")
    delete_schedule(mine.id, database=database)
    for use in (
        lambda: open_run(make_launch(mine.id, "dagster-2"), database=database, clock=clock),
        lambda: request_run(mine.id, database=database, clock=clock),
        lambda: update_schedule(mine.id, {"name": "other"}, database=database, clock=clock),
        lambda: resume_schedule(mine.id, database=database, clock=clock),
        lambda: delete_schedule(mine.id, database=database),
    ):
        with pytest.raises(NotFoundError, match=f"Schedule {mine.id} not found"):
            use()
    with database.reading() as session:
        assert [one.id for one in list_schedules(session, include_inactive=True)] == [other.id]
        assert get_run(session, run_attempt.run_id).status == "failed"
        assert runs_within(session, EVERYTHING, RunFilter(), limit=9, offset=0) == [
            get_run(session, run_attempt.run_id)
        ]


def test_a_schedule_with_an_active_or_pending_run_cannot_be_deleted(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock)
    run = request_run(schedule.id, database=database, clock=clock)
    with pytest.raises(ConflictError, match=f"end it by `automation runs cancel {run.id}`"):
        delete_schedule(schedule.id, database=database)
    open_run(make_launch(schedule.id, run_id=run.id), database=database, clock=clock)
    with pytest.raises(ConflictError, match=f"cannot be deleted while run {run.id} is not over"):
        delete_schedule(schedule.id, database=database)
    with database.reading() as session:
        assert get_schedule(session, schedule.id).name == schedule.name


def test_an_unknown_schedule_to_delete_is_not_found(database: Database) -> None:
    with pytest.raises(NotFoundError, match="Schedule 9 not found"):
        delete_schedule(9, database=database)


SALES = {"mode": "date_range", "dateRange": "yesterday", "groupes": ["TEAM R1"], "maxFiches": 9}
TODAY = date(2026, 5, 4)
FIRST, LAST = TODAY - timedelta(days=2), TODAY


def test_a_backfill_creates_one_run_per_day(database: Database, clock: FakeClock) -> None:
    schedule = make_schedule(database, clock, ficheSelection=SALES)
    collaborators = {"database": database, "clock": clock}
    dry = backfill_schedule(schedule.id, FIRST, LAST, **collaborators, dry_run=True)
    assert [(day.filed, day.run_id) for day in dry.days] == [(True, None)] * 3
    first = backfill_schedule(schedule.id, FIRST, FIRST, **collaborators)
    whole = backfill_schedule(schedule.id, FIRST, LAST, **collaborators)
    assert [day.filed for day in whole.days] == [False, True, True]
    assert whole.days[0].run_id == first.days[0].run_id
    with database.reading() as session:
        rows = session.scalars(select(RunRow).order_by(RunRow.request_key)).all()
        requests = session.scalars(
            select(RunRequestRow.request_key).order_by(RunRequestRow.request_key)
        ).all()
        chosen = [selection_of(session, row) for row in rows]
    keys = [f"automation-backfill-{schedule.id}-2026-05-0{day}" for day in (2, 3, 4)]
    assert ([row.request_key for row in rows], list(requests)) == (keys, keys)
    assert {row.trigger for row in rows} == {"backfill"}
    assert [(one.custom_start_date, one.custom_end_date) for one in chosen] == [
        (f"0{day}/05/2026", f"0{day}/05/2026") for day in (2, 3, 4)
    ]
    assert {(one.groupes, one.max_fiches, one.date_range) for one in chosen} == {
        (("TEAM R1",), 9, "custom")
    }


def test_a_backfill_skips_excluded_days(database: Database, clock: FakeClock) -> None:
    schedule = make_schedule(database, clock, ficheSelection=SALES, excludedOn=["2026-05-03"])
    made = backfill_schedule(schedule.id, FIRST, LAST, database=database, clock=clock)
    assert [(day.filed, day.excluded, day.run_id is None) for day in made.days] == [
        (True, False, False),
        (False, True, True),
        (True, False, False),
    ]


def test_a_backfill_range_is_limited(database: Database, clock: FakeClock) -> None:
    by_days, by_ids = (
        make_schedule(database, clock, ficheSelection=SALES),
        make_schedule(database, clock),
    )
    paused = make_schedule(database, clock, ficheSelection=SALES)
    pause_schedule(paused.id, database=database, clock=clock)
    cases: list[tuple[int, date, date, type[AutomationError], str]] = [
        (by_days.id, LAST, FIRST, InvalidInputError, "must not lie before from"),
        (
            by_days.id,
            FIRST,
            TODAY + timedelta(days=1),
            InvalidInputError,
            "must not lie after today",
        ),
        (
            by_days.id,
            TODAY - timedelta(days=MAX_BACKFILL_DAYS),
            TODAY,
            InvalidInputError,
            "at most 91 days after from",
        ),
        (by_ids.id, FIRST, LAST, ConflictError, "it has no days to backfill"),
        (paused.id, FIRST, LAST, ConflictError, "is not active"),
    ]
    for schedule_id, first, last, error, message in cases:
        with pytest.raises(error) as refused:
            backfill_schedule(schedule_id, first, last, database=database, clock=clock)
        assert message in f"{refused.value} {getattr(refused.value, 'fields', '')}"
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(RunRow)) == 0


def test_a_preview_lists_kept_dropped_and_ignored_fiches_and_writes_nothing(
    database: Database, clock: FakeClock
) -> None:
    harness = AutomationHarness(database, clock)
    harness.sell("known", *harness.calls("known", 3), text=None)
    yesterday, before = TODAY - timedelta(days=1), TODAY - timedelta(days=2)
    harness.crm.set_sales(yesterday, summary("known"), summary("new"), summary("over"))
    harness.crm.fail_always(before.isoformat(), TransientError("The CRM did not answer in time."))
    selection = {
        "mode": "date_range",
        "dateRange": "custom",
        "customStartDate": before.isoformat(),
        "customEndDate": yesterday.isoformat(),
        "maxFiches": 2,
        "maxRecordingsPerFiche": 2,
    }
    config, schedule = harness.automatic(), make_schedule(database, clock, ficheSelection=selection)

    def counts() -> list[int | None]:
        with database.reading() as session:
            tables = (RunRow, RunRequestRow, OutboxRow, FicheCacheRow)
            return [session.scalar(select(func.count()).select_from(table)) for table in tables]

    stored = counts()
    shown = run_with_fake_time(
        preview_schedule(
            schedule.id,
            database=database,
            source=harness.crm,
            clock=clock,
            semaphore=Semaphore(DatabasePermits(database), "crm", 3, "me"),
        )
    )
    assert counts() == stored
    assert (shown.candidates, shown.selected, shown.fiches) == (3, 2, ("known", "new"))
    assert [(one.fiche_id, one.reason) for one in shown.dropped] == [("over", "over_max_fiches")]
    assert [(one.fiche_id, one.reason, one.why) for one in shown.ignored] == [
        ("known", "too_many_recordings", "Too many recordings (3 > 2)")
    ]
    assert [one.date for one in shown.unread_days] == [before.isoformat()]
    assert (shown.audit_configs, shown.empty_reason) == ((config,), None)


def test_a_preview_ignores_fiches_that_the_crm_did_not_know(harness: AutomationHarness) -> None:
    harness.run("gone")
    selection = {"mode": "manual", "ficheIds": ["unknown", "gone"]}
    schedule = harness.schedule(ficheSelection=selection)
    permits = DatabasePermits(harness.database)
    shown = run_with_fake_time(
        preview_schedule(
            schedule.id,
            database=harness.database,
            source=harness.crm,
            clock=harness.clock,
            semaphore=Semaphore(permits, "crm", 3, "me"),
        )
    )
    assert (shown.fiches, shown.empty_reason) == (("unknown", "gone"), None)
    assert [(one.fiche_id, one.reason, one.why) for one in shown.ignored] == [
        ("gone", "not_found", "Fiche not found (404)")
    ]
