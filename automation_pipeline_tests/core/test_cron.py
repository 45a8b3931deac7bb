"""Parsing of cron expressions, and the wall-clock times that they match."""

from datetime import datetime, time
from itertools import islice

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.cron import Cron
from automation_pipeline_tests.cases import every_case


def first(text: str, n: int, start: str) -> list[str]:
    wall_times = Cron.parse(text).wall_times(datetime.fromisoformat(start))
    return [f"{wall:%m-%d %H:%M}" for wall in islice(wall_times, n)]


def days(text: str, n: int, start: str = "2026-04-30T23:59") -> list[str]:
    """May 2026 starts on a Friday."""
    return [
        f"{wall:%a %d}"
        for wall in islice(Cron.parse(text).wall_times(datetime.fromisoformat(start)), n)
    ]


@every_case(
    ("text", "expected"),
    [
        ("0 0 * * MON", ["Mon 04", "Mon 11"]),
        ("0 0 * * mon", ["Mon 04", "Mon 11"]),
        ("0 0 * * 0", ["Sun 03", "Sun 10"]),
        ("0 0 * * 7", ["Sun 03", "Sun 10"]),
        ("0 0 * * 1-5", ["Fri 01", "Mon 04", "Tue 05", "Wed 06", "Thu 07", "Fri 08"]),
        ("0 0 * * MON-FRI", ["Fri 01", "Mon 04", "Tue 05", "Wed 06", "Thu 07", "Fri 08"]),
        ("0 0 * * 6-7", ["Sat 02", "Sun 03", "Sat 09"]),
        ("0 0 * * 1-5/2", ["Fri 01", "Mon 04", "Wed 06", "Fri 08"]),
        ("0 0 * * 5/1", ["Fri 01", "Sat 02", "Sun 03", "Fri 08"]),
        ("0 0 * * 5-5/2", ["Fri 01", "Fri 08"]),
        ("0 0 */10 * *", ["Fri 01", "Mon 11", "Thu 21", "Sun 31", "Mon 01"]),
        ("0 0 20/5 * *", ["Wed 20", "Mon 25", "Sat 30", "Sat 20"]),
        ("0 0 L * *", ["Sun 31", "Tue 30", "Fri 31"]),
        ("0 0 l * *", ["Sun 31", "Tue 30"]),
        ("0 0 15,L * *", ["Fri 15", "Sun 31", "Mon 15", "Tue 30"]),
    ],
)
def test_days_are_read_as_in_cron(text: str, expected: list[str]) -> None:
    assert days(text, len(expected)) == expected


@every_case(
    ("text", "expected"),
    [
        ("0 0 13 * FRI", ["Fri 01", "Fri 08", "Wed 13", "Fri 15"]),
        ("0 0 L * MON", ["Mon 04", "Mon 11", "Mon 18", "Mon 25", "Sun 31"]),
        ("0 0 */15 * MON", ["Fri 01", "Mon 04", "Mon 11", "Sat 16"]),
        ("0 0 3 * */3", ["Sat 02", "Sun 03", "Wed 06"]),
        ("0 0 */1 * MON", ["Mon 04", "Mon 11"]),
        ("0 0 1-31 * MON", ["Mon 04", "Mon 11"]),
        ("0 0 5,* * MON", ["Mon 04", "Mon 11"]),
        ("0 0 *,L * MON", ["Mon 04", "Mon 11"]),
        ("0 0 13 * */1", ["Wed 13", "Sat 13"]),
        ("0 0 13 * 0-6", ["Wed 13", "Sat 13"]),
        ("0 0 13 * 1-7", ["Wed 13", "Sat 13"]),
    ],
)
def test_a_day_matches_if_either_restricted_day_field_matches(
    text: str, expected: list[str]
) -> None:
    assert days(text, len(expected)) == expected


@every_case(
    ("text", "expected"),
    [
        (
            "0,30 9-10 * * *",
            ["05-04 09:00", "05-04 09:30", "05-04 10:00", "05-04 10:30", "05-05 09:00"],
        ),
        ("*/25 8 * * *", ["05-04 08:00", "05-04 08:25", "05-04 08:50", "05-05 08:00"]),
        ("50/5 8 * * *", ["05-04 08:50", "05-04 08:55", "05-05 08:50"]),
        ("10-40/15 8 * * *", ["05-04 08:10", "05-04 08:25", "05-04 08:40", "05-05 08:10"]),
        ("0 0 1 JAN,jul *", ["07-01 00:00", "01-01 00:00"]),
        ("  0   12 * *  * ", ["05-04 12:00", "05-05 12:00"]),
        ("@hourly", ["05-04 01:00", "05-04 02:00"]),
        ("@daily", ["05-05 00:00", "05-06 00:00"]),
        ("@Weekly", ["05-10 00:00", "05-17 00:00"]),
        ("@monthly", ["06-01 00:00", "07-01 00:00"]),
        ("@yearly", ["01-01 00:00", "01-01 00:00"]),
    ],
)
def test_times_are_read_as_in_cron(text: str, expected: list[str]) -> None:
    assert first(text, len(expected), "2026-05-04T00:00") == expected


@every_case(
    "text",
    [
        "",
        "* * * *",
        "0 * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 0 *",
        "* * * 13 *",
        "* * * * 8",
        "-1 * * * *",
        "5-1 * * * *",
        "* * * * FRI-MON",
        "*/0 * * * *",
        "*/90 * * * *",
        "*/ * * * *",
        "1,,2 * * * *",
        ", * * * *",
        "1- * * * *",
        "1.5 * * * *",
        "٣ * * * *",
        "R * * * *",
        "H * * * *",
        "0 0 ? * 1",
        "0 0 LW * *",
        "0 0 L-3 * *",
        "0 0 ,L * *",
        "0 0 15W * *",
        "0 0 * * 5L",
        "0 0 * * 5#2",
        "0 0 * * L",
        "L * * * *",
        "0 0 MON * *",
        "0 0 * MON *",
        "0 0 * * JAN",
        "0 0 * * MONDAY",
        "@reboot",
        "@every 5m",
        "9" * 5000 + " * * * *",
    ],
)
def test_an_unsupported_cron_expression_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"\.$"):
        Cron.parse(text)


@every_case(
    "text", ["0 0 31 2 *", "0 0 30 2 *", "0 0 30-31 FEB *", "0 0 31 4,6,9,11 *", "0 0 31 2 */1"]
)
def test_a_cron_expression_that_never_fires_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInputError, match="never fires"):
        Cron.parse(text)


@every_case(
    ("start", "expected"),
    [
        ("2025-03-01T00:00", "2028-02-29"),
        ("2096-03-01T00:00", "2104-02-29"),
    ],
)
def test_a_leap_day_is_found_years_ahead(start: str, expected: str) -> None:
    wall = next(Cron.parse("0 0 29 2 *").wall_times(datetime.fromisoformat(start)))
    assert wall.date().isoformat() == expected


def test_wall_clock_times_can_be_iterated_backwards() -> None:
    wall_times = Cron.parse("0 9 * * MON").wall_times(
        datetime.fromisoformat("2026-05-04T09:00"), backwards=True
    )
    assert [wall.day for wall in islice(wall_times, 2)] == [27, 20]


@every_case(
    ("text", "wildcard"),
    [
        ("0 * * * *", True),
        ("0 */4 * * *", True),
        ("@hourly", True),
        ("* 2 * * *", False),
        ("0 0-23 * * *", False),
    ],
)
def test_the_hour_is_wildcard_when_its_field_starts_with_a_star(text: str, wildcard: bool) -> None:
    assert Cron.parse(text).wildcard_hour is wildcard


def test_the_times_of_day_are_the_product_of_hours_and_minutes() -> None:
    assert list(Cron.parse("0,30 9,18 * * MON").times()) == [
        time(9),
        time(9, 30),
        time(18),
        time(18, 30),
    ]
