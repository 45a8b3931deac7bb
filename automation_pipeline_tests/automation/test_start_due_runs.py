"""Start due runs and end stale ones."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, update

from automation_pipeline.automation import schedules
from automation_pipeline.automation.models.runs import RunAttempt, RunFilter, Trigger
from automation_pipeline.automation.queries.ledger import outcomes
from automation_pipeline.automation.queries.run_details import find_runs, logs_after
from automation_pipeline.automation.queries.runs import add_run, get_run
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.rules.schedules import (
    CHANGED,
    EXCLUDED,
    MISSED,
    OVERLAP_REASONS,
    SKIPPED,
    SUPERSEDED,
    WAITS,
    DueReport,
    ScheduleLoad,
    SkippedOccurrence,
)
from automation_pipeline.automation.runs import REPLACED_WORDS, finalise_run, open_run, request_run
from automation_pipeline.automation.schedules import (
    pause_schedule,
    reconcile_stale_runs,
    resume_schedule,
)
from automation_pipeline.automation.tables import HeartbeatRow, OccurrenceRow, RunRow
from automation_pipeline.core.errors import ConflictError
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.automation.due import (
    RULES,
    change,
    check_due,
    check_due_repeatedly,
    make_daily_schedule,
    make_hourly_schedule,
    occurrences,
    run_now,
)
from automation_pipeline_tests.factories import make_launch, make_open_run, make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes

BUSY, OUTLASTING = OVERLAP_REASONS[ScheduleLoad.BUSY], OVERLAP_REASONS[ScheduleLoad.OUTLASTING]


def end_newest_run(database: Database, clock: FakeClock) -> None:
    with database.reading() as session:
        run = find_runs(session, RunFilter(), limit=1, offset=0)[0]
    finalise_run(run.id, database=database, clock=clock, breakdown="over")


def test_a_due_schedule_gets_a_run_and_an_occurrence(database: Database, clock: FakeClock) -> None:
    schedule, due_at = make_daily_schedule(database, clock), clock.now()
    clock.advance(timedelta(minutes=3))
    report = check_due(database, clock)
    with database.reading() as session:
        [run] = find_runs(session, RunFilter(schedule.id), limit=10, offset=0)
        request = session.scalars(select(RunRequestRow)).one()
        stored = get_schedule(session, schedule.id)
        key = session.get_one(RunRow, run.id).request_key
    assert [(one.schedule_id, one.due_at, one.run_id) for one in report.triggered] == [
        (schedule.id, due_at, run.id)
    ]
    assert (run.status, run.trigger, run.due_at, run.started_at) == (
        "pending",
        "schedule",
        due_at,
        clock.now(),
    )
    assert (stored.last_run_status, stored.last_run_at, stored.last_due_at) == (
        "running",
        due_at,
        due_at,
    )
    assert (
        request.request_key
        == key
        == f"automation-schedule-{schedule.id}-{due_at.timestamp() * 1000:.0f}"
    )
    assert request.job == "automation_run"
    assert request.config == {
        "schedule_id": schedule.id,
        "run_id": run.id,
        "due_at": "2026-05-04T10:00:00+00:00",
    }
    assert request.tags == {
        "automation/schedule_id": str(schedule.id),
        "automation/run_id": str(run.id),
        "automation/trigger": "schedule",
    }
    assert occurrences(database) == [("04 10:00", run.id, None)]


def test_a_requested_run_can_be_opened_as_requested(database: Database, clock: FakeClock) -> None:
    schedule = make_daily_schedule(database, clock)
    [started] = check_due(database, clock).triggered
    run_attempt = open_run(
        make_launch(schedule.id, run_id=started.run_id), database=database, clock=clock
    )
    assert (run_attempt.run_id, run_attempt.attempt) == (started.run_id, 1)


def test_each_due_time_is_decided_once(database: Database, clock: FakeClock) -> None:
    make_daily_schedule(database, clock)
    assert len(check_due(database, clock).triggered) == 1
    end_newest_run(database, clock)
    for _ in range(3):
        clock.advance(timedelta(minutes=5))
        assert check_due(database, clock) == DueReport(checked=1)


def test_a_recorded_occurrence_is_not_run_again_even_without_the_schedules_marker(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_daily_schedule(database, clock)
    check_due(database, clock)
    end_newest_run(database, clock)
    change(database, schedule.id, last_due_at=None, timezone="Etc/UTC")
    assert check_due(database, clock).triggered == ()
    with database.reading() as session:
        assert get_schedule(session, schedule.id).last_run_status == "failed"
        assert len(find_runs(session, RunFilter(), limit=10, offset=0)) == 1


def test_a_manual_run_that_ended_after_the_due_time_does_not_suppress_it(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_daily_schedule(database, clock)
    request_run(schedule.id, database=database, clock=clock)
    end_newest_run(database, clock)
    change(database, schedule.id, last_run_at=clock.now() + timedelta(minutes=1))
    clock.advance(timedelta(minutes=2))
    assert len(check_due(database, clock).triggered) == 1


@pytest.mark.parametrize("opened", [False, True])
def test_during_a_manual_run_nothing_starts_and_the_reason_is_stored(
    opened: bool, database: Database, clock: FakeClock
) -> None:
    schedule = make_daily_schedule(database, clock)
    run = request_run(schedule.id, database=database, clock=clock)
    if opened:
        open_run(make_launch(schedule.id, run_id=run.id), database=database, clock=clock)
    assert check_due(database, clock).triggered == ()
    assert occurrences(database) == [("04 10:00", None, BUSY)]


def test_a_run_with_heartbeats_is_never_stale(database: Database, clock: FakeClock) -> None:
    schedule = make_hourly_schedule(database, clock)
    [started] = check_due(database, clock).triggered
    open_run(make_launch(schedule.id, run_id=started.run_id), database=database, clock=clock)
    clock.advance(timedelta(hours=2))
    report = check_due(database, clock)
    assert (report.triggered, report.reconciled) == ((), ())
    assert occurrences(database)[1:] == [("04 11:00", None, MISSED), ("04 12:00", None, OUTLASTING)]


def test_a_stale_run_is_ended_and_the_next_one_starts_in_the_same_tick(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_hourly_schedule(database, clock)
    [started] = check_due(database, clock).triggered
    open_run(make_launch(schedule.id, run_id=started.run_id), database=database, clock=clock)
    with database.transaction() as session:
        session.execute(update(HeartbeatRow).values(beat_at=clock.now() - timedelta(days=365)))
    clock.advance(timedelta(hours=2))
    report = check_due(database, clock)
    assert report.reconciled == (schedule.id,)
    assert [f"{one.due_at:%H:%M}" for one in report.triggered] == ["12:00"]
    with database.reading() as session:
        runs = find_runs(session, RunFilter(), limit=10, offset=0)
    assert [run.status for run in runs] == ["pending", "failed"]


def test_a_pending_run_keeps_its_occurrence_and_blocks_the_next_run(
    database: Database, clock: FakeClock
) -> None:
    make_hourly_schedule(database, clock)
    check_due(database, clock)
    clock.advance(timedelta(hours=2))
    report = check_due(database, clock)
    assert (report.triggered, report.reconciled) == ((), ())
    assert occurrences(database)[1:] == [("04 11:00", None, MISSED), ("04 12:00", None, BUSY)]


def test_a_new_schedule_has_no_missed_due_times(database: Database, clock: FakeClock) -> None:
    clock.advance(timedelta(seconds=30))
    make_schedule(database, clock, scheduleType="CRON", cronExpression="*/5 * * * *")
    assert [f"{one.due_at:%H:%M}" for one in check_due(database, clock).triggered] == ["10:00"]
    assert occurrences(database) == [("04 10:00", 1, None)]


@pytest.mark.parametrize("fields", [{"isActive": False}, {"scheduleType": "MANUAL"}])
def test_paused_and_manual_schedules_are_never_due(
    fields: dict[str, object], database: Database, clock: FakeClock
) -> None:
    make_schedule(database, clock, **{"scheduleType": "DAILY", "timeOfDay": "10:00", **fields})
    assert check_due(database, clock) == DueReport(checked=0)


def test_due_times_during_a_pause_are_not_missed(database: Database, clock: FakeClock) -> None:
    schedule = make_hourly_schedule(database, clock, catchUp="all")
    check_due(database, clock)
    end_newest_run(database, clock)
    change(database, schedule.id, is_active=False)
    check_due(database, clock)
    clock.advance(timedelta(hours=5, minutes=30))
    change(database, schedule.id, is_active=True, updated_at=clock.now())
    assert check_due(database, clock) == DueReport(checked=1)


def test_changed_times_of_a_schedule_are_detected(database: Database, clock: FakeClock) -> None:
    schedule = make_daily_schedule(database, clock, "18:00")
    assert check_due(database, clock).triggered == ()
    change(database, schedule.id, time_of_day="10:00")
    assert len(check_due(database, clock).triggered) == 1


def test_after_an_outage_every_missed_due_time_is_recorded(
    database: Database, clock: FakeClock
) -> None:
    make_hourly_schedule(database, clock)
    check_due(database, clock)
    end_newest_run(database, clock)
    clock.advance(timedelta(hours=3, minutes=30))
    assert len(check_due(database, clock).not_run) == 3
    assert occurrences(database)[1:] == [(f"04 {hour}:00", None, MISSED) for hour in (11, 12, 13)]


def test_catch_up_all_starts_missed_runs_one_at_a_time(
    database: Database, clock: FakeClock
) -> None:
    make_hourly_schedule(database, clock, catchUp="all")
    check_due(database, clock)
    end_newest_run(database, clock)
    clock.advance(timedelta(hours=3, minutes=30))
    started = []
    for _ in range(4):
        started += check_due(database, clock).triggered
        assert check_due(database, clock).triggered == ()
        end_newest_run(database, clock)
        clock.advance(timedelta(minutes=1))
    assert [f"{one.due_at:%H:%M}" for one in started] == ["11:00", "12:00", "13:00"]
    assert {because for _, _, because in occurrences(database)} == {None}


def test_a_skipped_occurrence_is_recorded_and_the_next_one_runs(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_hourly_schedule(database, clock, isActive=True)
    change(database, schedule.id, skip_due_at=clock.now())
    assert check_due(database, clock).triggered == ()
    clock.advance(timedelta(hours=1))
    assert len(check_due(database, clock).triggered) == 1
    assert [because for _, _, because in occurrences(database)] == [SKIPPED, None]


def test_a_buffered_due_time_starts_after_the_active_run_regardless_of_delay(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_hourly_schedule(database, clock, overlapPolicy="BUFFER_ONE")
    request_run(schedule.id, database=database, clock=clock)
    assert check_due(database, clock).not_run == (
        (schedule.id, SkippedOccurrence(clock.now(), WAITS)),
    )
    clock.advance(timedelta(minutes=50))
    assert check_due(database, clock) == DueReport(checked=1), "what waits is reported once"
    clock.advance(timedelta(minutes=10))
    assert occurrences(database) == [("04 10:00", None, WAITS)]
    check_due(database, clock)
    end_newest_run(database, clock)
    [started] = check_due(database, clock).triggered
    assert occurrences(database) == [
        ("04 10:00", None, SUPERSEDED),
        ("04 11:00", started.run_id, None),
    ]


def test_a_buffered_due_time_of_a_paused_schedule_does_not_run(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_hourly_schedule(database, clock, overlapPolicy="BUFFER_ALL")
    request_run(schedule.id, database=database, clock=clock)
    check_due(database, clock)
    pause_schedule(schedule.id, database=database, clock=clock)
    end_newest_run(database, clock)
    resume_schedule(schedule.id, database=database, clock=clock)
    assert check_due(database, clock).triggered == ()
    assert occurrences(database) == [("04 10:00", None, CHANGED)]


@pytest.mark.parametrize(("policy", "checks"), [("CANCEL_OTHER", 2), ("TERMINATE_OTHER", 1)])
def test_a_newer_run_replaces_the_active_one(
    policy: str, checks: int, database: Database, clock: FakeClock
) -> None:
    schedule = make_hourly_schedule(database, clock, overlapPolicy=policy)
    first = request_run(schedule.id, database=database, clock=clock)
    open_run(make_launch(schedule.id, run_id=first.id), database=database, clock=clock)
    reports = [check_due(database, clock) for _ in range(checks)]
    assert [len(one.triggered) for one in reports] == [0] * (checks - 1) + [1]
    manual_run = request_run(schedule.id, database=database, clock=clock)
    with database.reading() as session:
        runs = find_runs(session, RunFilter(schedule.id), limit=10, offset=0)
    assert [(one.status, one.error_message) for one in runs] == [
        ("pending", None),
        ("cancelled", REPLACED_WORDS),
        ("cancelled", REPLACED_WORDS),
    ]
    assert runs[0].id == manual_run.id


def test_runs_of_a_schedule_overlap_if_the_policy_allows_it(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_hourly_schedule(database, clock, overlapPolicy="ALLOW_ALL")
    request_run(schedule.id, database=database, clock=clock)
    assert len(check_due(database, clock).triggered) == 1
    clock.advance(timedelta(hours=1))
    assert len(check_due(database, clock).triggered) == 1
    request_run(schedule.id, database=database, clock=clock)
    with database.reading() as session:
        runs = find_runs(session, RunFilter(schedule.id), limit=10, offset=0)
    assert [one.status for one in runs] == ["pending"] * 4


def test_excluded_days_start_no_run_and_record_the_reason(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_daily_schedule(
        database, clock, excludedOn=["2026-05-04"], timezone="Europe/Paris"
    )
    change(database, schedule.id, time_of_day="12:00")
    assert check_due(database, clock).triggered == ()
    assert occurrences(database) == [("04 10:00", None, EXCLUDED)]
    clock.advance(timedelta(days=1))
    assert len(check_due(database, clock).triggered) == 1


def test_an_unreadable_schedule_does_not_block_other_schedules(
    database: Database, clock: FakeClock
) -> None:
    broken, lost, good = (make_daily_schedule(database, clock) for _ in range(3))
    change(database, broken.id, time_of_day=None)
    change(database, lost.id, timezone="Europe/Atlantis")
    report = check_due(database, clock)
    assert [one.schedule_id for one in report.triggered] == [good.id]
    assert dict(report.broken) == {
        broken.id: "DAILY schedule requires timeOfDay",
        lost.id: "'Europe/Atlantis' is not a known time zone.",
    }


def test_the_due_report_formats_as_a_sentence(database: Database, clock: FakeClock) -> None:
    make_daily_schedule(database, clock)
    assert (
        str(check_due(database, clock))
        == "1 schedules checked; Started schedule 1, due 2026-05-04 10:00 UTC, as run 1."
    )
    assert str(check_due(database, clock)) == "1 schedules checked, none is due."


@pytest.mark.parametrize("manual_runs", [0, 1])
def test_concurrent_processes_start_a_due_schedule_once(
    manual_runs: int, database: Database, database_url: str, clock: FakeClock
) -> None:
    schedules = [make_daily_schedule(database, clock) for _ in range(5)]
    now = f"{clock.now():%Y-%m-%dT%H:%M}"
    if manual_runs:
        started = run_in_processes(
            start_in_process,
            *(
                (database_url, now, schedules[0].id if one == 0 else 0)
                for one in range(PROCESS_COUNT)
            ),
        )
    else:
        started = run_in_processes(check_due_repeatedly, *[(database_url, now, 3)] * PROCESS_COUNT)
    with database.reading() as session:
        by_schedule = session.execute(
            select(RunRow.schedule_id, func.count())
            .where(RunRow.trigger == "schedule")
            .group_by(RunRow.schedule_id)
        ).tuples()
        runs = dict(iter(by_schedule))
        decided = session.scalar(select(func.count()).select_from(OccurrenceRow))
    assert sum(started) == sum(runs.values())
    assert set(runs.values()) == {1}
    assert len(runs) in ({4, 5} if manual_runs else {5})
    assert decided == 5


def start_in_process(url: str, now: str, schedule_id: int) -> int:
    """Return how many runs due detection started in this process."""
    if schedule_id:
        run_now(url, now, schedule_id)
        return 0
    return check_due_repeatedly(url, now, 3)


def run_without_heartbeats(database: Database, clock: FakeClock, minutes: int) -> RunAttempt:
    """Return a run opened the given number of minutes ago, without a heartbeat for days."""
    run_attempt = make_open_run(database, clock)
    with database.transaction() as session:
        session.execute(update(HeartbeatRow).values(beat_at=clock.now() - timedelta(days=365)))
    clock.advance(timedelta(minutes=minutes))
    return run_attempt


def reconcile(database: Database, clock: FakeClock) -> list[int]:
    return reconcile_stale_runs(RULES, database=database, clock=clock)


def test_a_stale_run_fails_with_the_fixed_message(database: Database, clock: FakeClock) -> None:
    run_attempt = run_without_heartbeats(database, clock, 75)
    with database.reading() as session:
        before = get_schedule(session, get_run(session, run_attempt.run_id).schedule_id)
    assert reconcile(database, clock) == [before.id]
    with database.reading() as session:
        run, after = get_run(session, run_attempt.run_id), get_schedule(session, before.id)
        fiches = outcomes(session, run_attempt.run_id)
        last_entry = logs_after(session, run_attempt.run_id, 0, "debug")[-1]
    assert (run.status, run.completed_at) == ("failed", clock.now())
    assert run.error_message == "Marked stale by scheduler after 75m (threshold 70m)"
    assert run.error_details
    assert set(run.error_details) == {"marked_stale", "reason", "stale_before", "marked_at"}
    assert {fiche.status for fiche in fiches} == {"failed"}
    assert (last_entry.level, last_entry.message) == (
        "error",
        "Automation run marked stale by scheduler",
    )
    assert after.last_run_status == "failed"
    counters = ("last_run_at", "total_runs", "failed_runs", "failures_in_a_row")
    assert [getattr(after, name) for name in counters] == [
        getattr(before, name) for name in counters
    ]


@pytest.mark.parametrize("minutes", [0, 69])
def test_a_run_without_heartbeats_is_kept_until_the_threshold(
    minutes: int, database: Database, clock: FakeClock
) -> None:
    run_attempt = run_without_heartbeats(database, clock, minutes)
    assert reconcile(database, clock) == []
    with database.reading() as session:
        assert get_run(session, run_attempt.run_id).status == "running"


def test_a_stale_run_that_cannot_be_ended_does_not_delay_others(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (
        open_run(
            make_launch(make_schedule(database, clock).id, f"dagster-{number}"),
            database=database,
            clock=clock,
        )
        for number in range(2)
    )
    with database.transaction() as session:
        session.execute(update(HeartbeatRow).values(beat_at=clock.now() - timedelta(days=365)))
    clock.advance(timedelta(minutes=75))
    end = schedules.finalise_run

    def end_all_but_the_first(run_id: int, **options: Any) -> object:
        if run_id == first.run_id:
            raise ConflictError("A new attempt has started")
        return end(run_id, **options)

    monkeypatch.setattr(schedules, "finalise_run", end_all_but_the_first)
    reconcile(database, clock)
    with database.reading() as session:
        assert get_run(session, first.run_id).status == "running"
        assert get_run(session, second.run_id).status == "failed"


def test_a_run_with_heartbeats_is_not_reconciled(database: Database, clock: FakeClock) -> None:
    make_open_run(database, clock)
    clock.advance(timedelta(days=2))
    assert reconcile(database, clock) == []


def test_a_run_queued_in_dagster_is_never_stale(database: Database, clock: FakeClock) -> None:
    run = request_run(make_schedule(database, clock).id, database=database, clock=clock)
    clock.advance(timedelta(days=3))
    assert reconcile(database, clock) == []
    with database.reading() as session:
        assert get_run(session, run.id).status == "pending"


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("minutes", [None, 70, 500])
def test_a_schedule_marked_running_without_a_run_is_reset(
    minutes: int | None, active: bool, database: Database, clock: FakeClock
) -> None:
    schedule = make_daily_schedule(database, clock, "23:00")
    last_run_at = None if minutes is None else clock.now() - timedelta(minutes=minutes)
    change(
        database, schedule.id, last_run_status="running", last_run_at=last_run_at, is_active=active
    )
    assert reconcile(database, clock) == [schedule.id]
    with database.reading() as session:
        freed = get_schedule(session, schedule.id)
    assert (freed.last_run_status, freed.last_run_at, freed.total_runs) == (
        "failed",
        last_run_at,
        0,
    )
    assert reconcile(database, clock) == []


def test_a_recent_running_marker_is_kept(database: Database, clock: FakeClock) -> None:
    schedule = make_daily_schedule(database, clock, "23:00")
    change(
        database,
        schedule.id,
        last_run_status="running",
        last_run_at=clock.now() - timedelta(minutes=69),
    )
    assert reconcile(database, clock) == []


def test_a_second_active_run_keeps_the_schedule_running(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = run_without_heartbeats(database, clock, 75)
    with database.reading() as session:
        schedule = get_schedule(session, get_run(session, run_attempt.run_id).schedule_id)
    with database.transaction() as session:
        add_run(session, schedule, Trigger.MANUAL, clock.now())
    assert reconcile(database, clock) == []
