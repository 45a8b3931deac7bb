"""The CRM's texts as days and instants: day first, Paris without an offset, the two days a year
when clocks change."""

from contextlib import suppress
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.fiches.models.days import crm_day, crm_instant, paris_day, paris_minute
from automation_pipeline_tests.tables import every_case


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type]  year to microsecond


@every_case(
    ("text", "instant"),
    [
        ("2026-02-03T09:14:05.120000+00:00", utc(2026, 2, 3, 9, 14, 5, 120_000)),
        ("2026-02-03T09:14:05Z", utc(2026, 2, 3, 9, 14, 5)),
        ("2026-02-03T09:14:05.123456789Z", utc(2026, 2, 3, 9, 14, 5, 123_456)),
        ("2026-02-03T09:14+0200", utc(2026, 2, 3, 7, 14)),
        ("2026-02-03 09:14:05-05:30", utc(2026, 2, 3, 14, 44, 5)),
        ("2026-02-03T10:12", utc(2026, 2, 3, 9, 12)),
        ("2026-07-03T10:12:30", utc(2026, 7, 3, 8, 12, 30)),
        ("2026-02-03 10:12", utc(2026, 2, 3, 9, 12)),
        ("2026-07-03 10:12:30", utc(2026, 7, 3, 8, 12, 30)),
        ("03/02/2026 10:12", utc(2026, 2, 3, 9, 12)),  # never the second of March
        ("12/11/2026 10:12", utc(2026, 11, 12, 9, 12)),
        ("13/02/2026 10:12:59", utc(2026, 2, 13, 9, 12, 59)),
        (" 03/02/2026 10:12\n", utc(2026, 2, 3, 9, 12)),
        ("01/01/2026 00:30", utc(2025, 12, 31, 23, 30)),
    ],
)
def test_an_instant_is_read_in_utc(text: str, instant: datetime) -> None:
    assert crm_instant(text) == instant
    assert crm_instant(text).tzinfo is UTC


@every_case(
    ("text", "instant"),
    [
        ("29/03/2026 01:59", utc(2026, 3, 29, 0, 59)),
        ("29/03/2026 02:00", utc(2026, 3, 29, 1, 0)),
        ("29/03/2026 02:30", utc(2026, 3, 29, 1, 0)),  # skipped: the first instant after the gap
        ("29/03/2026 03:00", utc(2026, 3, 29, 1, 0)),
        ("25/10/2026 01:59", utc(2026, 10, 24, 23, 59)),
        ("25/10/2026 02:30", utc(2026, 10, 25, 0, 30)),  # comes twice: the first pass
        ("25/10/2026 03:00", utc(2026, 10, 25, 2, 0)),
        ("2026-03-29T02:30", utc(2026, 3, 29, 1, 0)),
        ("2026-10-25T02:30+01:00", utc(2026, 10, 25, 1, 30)),  # the offset says which pass
    ],
)
def test_the_days_when_the_clock_changes(text: str, instant: datetime) -> None:
    assert crm_instant(text) == instant


@every_case(
    ("text", "why"),
    [
        ("", "not written like"),
        ("hier", "not written like"),
        ("3/2/2026 10:12", "not written like"),
        ("2026/02/03 10:12", "not written like"),
        ("03-02-2026 10:12", "not written like"),
        ("20260203T1012", "not written like"),
        ("2026-W06-2T10:12", "not written like"),
        ("03/02/26 10:12", "not written like"),
        ("03/02/2026 10h12", "not written like"),
        ("٠٣/٠٢/٢٠٢٦ ١٠:١٢", "not written like"),
        ("02/13/2026 10:12", "does not exist"),
        ("31/02/2026 10:12", "does not exist"),
        ("03/02/2026 24:00", "does not exist"),
        ("2026-02-03T10:12:60Z", "does not exist"),
        ("2026-02-03T10:12+25:00", "does not exist"),
        ("0001-01-01T00:00:00+14:00", "outside the years 1900 to 2199"),
        ("31/12/9999 23:59", "outside the years 1900 to 2199"),
        ("03/02/2026", "no time of day"),
        ("2026-02-03", "no time of day"),
    ],
)
def test_what_is_no_instant_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        crm_instant(text)


@every_case(
    ("text", "day"),
    [
        ("03/02/2026", date(2026, 2, 3)),
        ("03/02/2026 23:59", date(2026, 2, 3)),
        ("2026-02-03", date(2026, 2, 3)),
        ("2026-02-03T00:30:00", date(2026, 2, 3)),
        ("2026-02-03T23:30:00Z", date(2026, 2, 4)),  # in Paris it is tomorrow
        ("29/03/2026 02:30", date(2026, 3, 29)),
    ],
)
def test_a_day_is_that_of_paris(text: str, day: date) -> None:
    assert crm_day(text) == day


@every_case("text", ["", "31/02/2026", "2026", "03/2026", "02/13/2026", "01/01/0001"])
def test_what_is_no_day_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"is|lies"):
        crm_day(text)


@every_case(
    ("instant", "day", "minute"),
    [
        (utc(2026, 2, 3, 9, 14, 5), "03/02/2026", "10:14"),
        (utc(2026, 7, 3, 9, 14, 5), "03/07/2026", "11:14"),
        (utc(2026, 2, 3, 23, 30), "04/02/2026", "00:30"),
        (utc(2026, 3, 29, 0, 59), "29/03/2026", "01:59"),
        (utc(2026, 3, 29, 1, 0), "29/03/2026", "03:00"),
        (utc(2026, 10, 25, 0, 30), "25/10/2026", "02:30"),
        (utc(2026, 10, 25, 1, 30), "25/10/2026", "02:30"),
    ],
)
def test_an_instant_is_shown_on_the_clock_of_paris(
    instant: datetime, day: str, minute: str
) -> None:
    assert (paris_day(instant), paris_minute(instant)) == (day, minute)


@given(
    st.text()
    | st.from_regex(
        r"\d\d/\d\d/\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(Z|[+-]\d\d:\d\d)?", fullmatch=True
    )
)
def test_any_text_is_an_instant_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert crm_instant(text).tzinfo is UTC
