"""Which days a range asks for."""

from datetime import date, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.fiches.models.days import MAX_RANGE_DAYS, parse_day, requested_days
from automation_pipeline_tests.tables import every_case

TODAY = date(2026, 5, 4)


@every_case(
    ("start", "end", "days"),
    [
        (date(2026, 5, 1), date(2026, 5, 3), 3),
        (date(2026, 5, 4), date(2026, 5, 4), 1),
        (date(2026, 5, 3), date(2026, 5, 9), 2),
        (date(2026, 5, 5), date(2026, 5, 9), 0),
        (date(2026, 5, 3), date.max, 2),
        (date(2025, 5, 4), date(2026, 5, 4), 366),
    ],
)
def test_no_day_is_after_today(start: date, end: date, days: int) -> None:
    asked = requested_days(start, end, TODAY)
    assert len(asked) == days
    assert asked == tuple(start + timedelta(days=n) for n in range(days))


@every_case(
    ("start", "end", "complaint"),
    [
        (date(2026, 5, 3), date(2026, 5, 2), "startDate must be before or equal to endDate"),
        (date(2026, 5, 9), date(2026, 5, 8), "startDate must be before or equal to endDate"),
        (date(2025, 5, 3), date(2026, 5, 4), "A range may have at most 366 days"),
        (date(1850, 1, 1), date(1850, 1, 1), "startDate must not be before the year 1900"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(start: date, end: date, complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        requested_days(start, end, TODAY)


@given(st.dates(), st.dates())
def test_whatever_is_asked_the_days_are_in_a_row_within_it(start: date, end: date) -> None:
    try:
        days = requested_days(start, end, TODAY)
    except InvalidInputError:
        return
    assert len(days) <= MAX_RANGE_DAYS
    assert all(start <= day <= min(end, TODAY) for day in days)
    assert all(later - earlier == timedelta(days=1) for earlier, later in pairwise(days))


def test_a_day_is_read_as_it_is_written() -> None:
    assert parse_day("2026-02-28", "no") == date(2026, 2, 28)


@every_case(
    "text",
    [None, "", "2026-02-29", "28/02/2026", "20260228", "2026-2-8", "2026-02-28T00:00:00", " 2026-02-28", "1899-12-31",
     "2200-01-01", "２０２６-02-28", "2026-W05-1", "x"],
)  # fmt: skip
def test_anything_else_is_no_day(text: str | None) -> None:
    with pytest.raises(InvalidInputError, match="Use YYYY"):
        parse_day(text, "Use YYYY-MM-DD")
