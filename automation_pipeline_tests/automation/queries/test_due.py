"""Looking for due schedules takes as many statements for thousands as for one."""

from datetime import timedelta

import pytest
from sqlalchemy import event, insert, select

from automation_pipeline.automation.rules.schedules import DueReport
from automation_pipeline.automation.tables import ScheduleRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.due import a_daily, look
from automation_pipeline_tests.conftest import StandingClock


def many(database: Database, clock: StandingClock, schedules: int, due: int) -> None:
    """So many, of which so many are due at ten and the others later, at a thousand different
    times."""
    a_daily(database, clock)
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


def counted(database: Database, clock: StandingClock) -> tuple[DueReport, int]:
    statements: list[str] = []

    def count(*given: object) -> None:
        statements.append(str(given[2]))

    event.listen(database.engine, "before_cursor_execute", count)
    report = look(database, clock)
    event.remove(database.engine, "before_cursor_execute", count)
    return report, len(statements)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_ten_thousand_schedules_with_fifty_due_cost_as_many_statements_as_one(
    database: Database, clock: StandingClock
) -> None:
    a_daily(database, clock)
    _, for_one = counted(database, clock)
    with database.transaction() as session:
        session.delete(session.get_one(ScheduleRow, 1))
    many(database, clock, 10_000, 50)
    report, for_many = counted(database, clock)
    assert (report.checked, len(report.triggered)) == (10_000, 50)
    assert for_many == for_one
    clock.pass_time(timedelta(seconds=15))
    report, idle = counted(database, clock)
    assert report == DueReport(checked=10_000)
    assert idle < for_one


def test_a_hundred_due_at_once_are_all_started(database: Database, clock: StandingClock) -> None:
    many(database, clock, 300, 100)
    report, statements = counted(database, clock)
    assert len(report.triggered) == 100
    assert statements < 20
