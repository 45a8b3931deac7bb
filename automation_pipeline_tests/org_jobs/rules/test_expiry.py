"""Until when an attempt waits for somebody to begin it."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.core.scheduling.timing import ExecutionWindow
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.org_jobs.models.jobs import StartWindow, expires_at
from automation_pipeline_tests.tables import every_case

BEGINS = datetime(2026, 5, 4, 10, tzinfo=UTC)
DAY = timedelta(days=1)


@every_case(("has_window", "days"), [(False, 1), (True, 2)])
def test_it_waits_a_day_and_under_a_window_until_the_next_one_is_over(
    has_window: bool, days: int
) -> None:
    assert expires_at(BEGINS, has_window=has_window) == BEGINS + days * DAY
    assert expires_at(BEGINS, has_window=has_window, waits=3 * DAY) == BEGINS + (days + 2) * DAY


@every_case("month", [3, 10])
def test_there_is_another_whole_window_also_when_the_clocks_change(month: int) -> None:
    window = StartWindow(ExecutionWindow.parse("01:00", "03:30"), zone("Europe/Paris"))
    for day in range(20, 31):
        begins = window.first_at(datetime(2026, month, day, 12, tzinfo=UTC))
        is_over = begins + timedelta(hours=4)
        next_opening = window.first_at(is_over)
        assert begins < is_over < next_opening
        assert expires_at(begins, has_window=True) >= next_opening + timedelta(hours=4)
