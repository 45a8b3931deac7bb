"""Queries of schedules: due candidates, occurrences, pauses after failures."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import event, insert, select

from automation_pipeline.automation.models.runs import RunStatus
from automation_pipeline.automation.queries.due import decided_occurrences
from automation_pipeline.automation.queries.schedules import count_ended_run, get_schedule
from automation_pipeline.automation.rules.schedules import DueReport
from automation_pipeline.automation.runs import request_run
from automation_pipeline.automation.tables import OccurrenceRow, ScheduleRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.due import change, check_due, make_daily_schedule
from automation_pipeline_tests.factories import make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock


def add_schedules(database: Database, clock: FakeClock, schedules: int, due: int) -> None:
    """Add schedules, of which some are due at 10:00 and the others later at different times."""
    make_daily_schedule(database, clock)
    with database.transaction() as session:
        [first] = session.execute(select(*ScheduleRow.__table__.columns)).mappings()
        others = [
            {
                **first,
                "id": first["id"] + number - 1,
                "time_of_day": "10:00" if number <= due else f"{11 + number % 12}:{number % 60:02}",
            }
            for number in range(2, schedules + 1)
        ]
        session.execute(insert(ScheduleRow), others)


def counted(database: Database, clock: FakeClock) -> tuple[DueReport, int]:
    statements: list[str] = []

    def count(*given: object) -> None:
        statements.append(str(given[2]))

    event.listen(database.engine, "before_cursor_execute", count)
    report = check_due(database, clock)
    event.remove(database.engine, "before_cursor_execute", count)
    return report, len(statements)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_the_statement_count_does_not_depend_on_the_number_of_schedules(
    database: Database, clock: FakeClock
) -> None:
    make_daily_schedule(database, clock)
    _, statements_for_one = counted(database, clock)
    with database.transaction() as session:
        session.delete(session.get_one(ScheduleRow, 1))
    add_schedules(database, clock, 10_000, 50)
    report, statements_for_many = counted(database, clock)
    assert (report.checked, len(report.triggered)) == (10_000, 50)
    assert statements_for_many == statements_for_one
    clock.advance(timedelta(seconds=15))
    report, idle = counted(database, clock)
    assert report == DueReport(checked=10_000)
    assert idle < statements_for_one


def test_a_hundred_schedules_due_at_the_same_time_all_start(
    database: Database, clock: FakeClock
) -> None:
    add_schedules(database, clock, 300, 100)
    report, statements = counted(database, clock)
    assert len(report.triggered) == 100
    assert statements < 20


def test_recent_due_times_have_a_run_or_a_skip_reason(database: Database, clock: FakeClock) -> None:
    mine, other = make_schedule(database, clock), make_schedule(database, clock)
    run, now = request_run(mine.id, database=database, clock=clock), clock.now()
    decided = [
        (mine, 2, None, "skipped"),
        (mine, 1, run.id, None),
        (mine, 3, None, "old"),
        (other, 0, None, "other"),
    ]
    with database.transaction() as session:
        session.add_all(
            OccurrenceRow(
                schedule_id=schedule.id,
                due_at=now - timedelta(days=days),
                run_id=run_id,
                not_run_because=why,
                decided_at=now,
            )
            for schedule, days, run_id, why in decided
        )
    with database.reading() as session:
        result = decided_occurrences(session, mine.id, limit=2)
    assert [(o.due_at, o.run_id, o.run_status, o.not_run_because) for o in result] == [
        (now - timedelta(days=1), run.id, "pending", None),
        (now - timedelta(days=2), None, None, "skipped"),
    ]


WORDS = "Paused after {} failed runs in a row"
STATUSES = {
    "f": RunStatus.FAILED,
    "p": RunStatus.PARTIAL,
    "c": RunStatus.COMPLETED,
    "x": RunStatus.CANCELLED,
}


@pytest.mark.parametrize(
    ("limit", "ended", "in_a_row", "active", "reason"),
    [
        (2, "f", 1, True, None),
        (2, "ff", 2, False, WORDS.format(2)),
        (1, "f", 1, False, WORDS.format(1)),
        (2, "fcf", 1, True, None),
        (2, "fpf", 1, True, None),
        (1, "x", 0, True, None),
        (2, "fxf", 2, False, WORDS.format(2)),
        (2, "ffc", 0, False, WORDS.format(2)),
        (3, "cff", 2, True, None),
        (None, "ffff", 4, True, None),
    ],
)
def test_consecutive_failures_pause_a_schedule(
    limit: int | None, ended: Sequence[str], in_a_row: int, active: bool, reason: str | None,
    database: Database, clock: FakeClock,
) -> None:  # fmt: skip
    schedule = make_schedule(database, clock, pauseAfterFailures=limit)
    for status in ended:
        with database.transaction() as session:
            count_ended_run(session, schedule.id, STATUSES[status])
    with database.reading() as session:
        stored = get_schedule(session, schedule.id)
    assert (stored.failures_in_a_row, stored.is_active, stored.paused_reason) == (
        in_a_row,
        active,
        reason,
    )
    assert stored.total_runs == len(ended)


def test_a_schedule_paused_by_an_operator_keeps_its_reason(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock, pauseAfterFailures=1)
    change(database, schedule.id, is_active=False, paused_reason="Holidays")
    with database.transaction() as session:
        count_ended_run(session, schedule.id, RunStatus.FAILED)
    with database.reading() as session:
        assert get_schedule(session, schedule.id).paused_reason == "Holidays"
