"""A schedule that fails too often in a row pauses, and says so."""

from collections.abc import Sequence

import pytest

from automation_pipeline.automation.models.runs import RunStatus
from automation_pipeline.automation.queries.schedules import count_ended_run, get_schedule
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.due import change
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import a_schedule

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
def test_failures_in_a_row_pause_a_schedule(
    limit: int | None, ended: Sequence[str], in_a_row: int, active: bool, reason: str | None,
    database: Database, clock: StandingClock,
) -> None:  # fmt: skip
    schedule = a_schedule(database, clock, pauseAfterFailures=limit)
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
    database: Database, clock: StandingClock
) -> None:
    schedule = a_schedule(database, clock, pauseAfterFailures=1)
    change(database, schedule.id, is_active=False, paused_reason="Holidays")
    with database.transaction() as session:
        count_ended_run(session, schedule.id, RunStatus.FAILED)
    with database.reading() as session:
        assert get_schedule(session, schedule.id).paused_reason == "Holidays"
