"""When a schedule counts as at work, and when what seems to be at work is stale."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.automation.rules.schedules import (
    ScheduleLoad,
    ScheduleWork,
    UnendedRun,
    schedule_load,
    stale_mark,
)
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
THRESHOLD = timedelta(minutes=70)


def ago(minutes: int) -> datetime:
    return NOW - timedelta(minutes=minutes)


def run(minutes: int, *, alive: bool = False) -> UnendedRun:
    return UnendedRun(1, 1, ago(minutes), alive)


WAITING = UnendedRun(1, 0, ago(5000), alive=False)


@every_case(
    ("at_work", "status"),
    [
        (ScheduleWork(), ScheduleLoad.IDLE),
        (ScheduleWork(last_run_at=ago(1)), ScheduleLoad.IDLE),
        (ScheduleWork(True, ago(69)), ScheduleLoad.BUSY),
        (ScheduleWork(True, ago(70)), ScheduleLoad.STALE),
        (ScheduleWork(True, None), ScheduleLoad.STALE),
        (ScheduleWork(True, None, (run(1),)), ScheduleLoad.BUSY),
        (ScheduleWork(True, ago(500), (run(1),)), ScheduleLoad.BUSY),
        (ScheduleWork(True, ago(1), (run(70),)), ScheduleLoad.STALE),
        (ScheduleWork(True, ago(500), (run(70, alive=True),)), ScheduleLoad.OUTLASTING),
        (ScheduleWork(True, ago(500), (run(70), run(70, alive=True))), ScheduleLoad.OUTLASTING),
        (ScheduleWork(False, ago(1), (run(5),)), ScheduleLoad.BUSY),
        (ScheduleWork(False, ago(1), (run(70),)), ScheduleLoad.STALE),
        (ScheduleWork(True, ago(500), (WAITING,)), ScheduleLoad.BUSY),
        (ScheduleWork(False, None, (run(70), WAITING)), ScheduleLoad.BUSY),
    ],
)
def test_the_runs_tell_and_the_mark_only_where_there_is_none(
    at_work: ScheduleWork, status: ScheduleLoad
) -> None:
    assert schedule_load(at_work, NOW, THRESHOLD) is status


def test_the_text_on_a_stale_run_is_fixed() -> None:
    mark = stale_mark(ago(83), NOW, THRESHOLD)
    assert mark.message == "Marked stale by scheduler after 83m (threshold 70m)"
    assert mark.details["marked_stale"] is True
    assert mark.details["stale_before"] == ago(70).isoformat()
    assert mark.details["marked_at"] == NOW.isoformat()
