"""Occurrences of a cron in a zone: tables of clock changes, and comparison with a scan of minutes."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.cron import (
    Cron,
    latest_occurrence,
    occurrences,
    occurrences_of,
)
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline_tests.cases import every_case

MINUTE = timedelta(minutes=1)


def most_recent_due(cron: Cron, tz: ZoneInfo, now: datetime, window: timedelta) -> datetime | None:
    latest = latest_occurrence(cron, tz, now)
    return latest if latest >= now.replace(second=0, microsecond=0) - window else None


def local(name: str, text: str, after: str, n: int) -> list[str]:
    """The first n occurrences after a local time (its fold 0), in local time with their offset."""
    tz = zone(name)
    start = datetime.fromisoformat(after).replace(tzinfo=tz).astimezone(UTC)
    found = islice(occurrences(Cron.parse(text), tz, start), n)
    return [f"{at.astimezone(tz):%d %H:%M%z}" for at in found]


@every_case(
    ("text", "after", "expected"),
    [
        ("30 2 * * *", "2026-03-28T12:00", ["29 03:00+0200", "30 02:30+0200"]),
        ("30 2 * * *", "2026-10-24T12:00", ["25 02:30+0100", "26 02:30+0100"]),
        ("0,30 2 * * *", "2026-10-24T12:00", ["25 02:00+0100", "25 02:30+0100", "26 02:00+0100"]),
        ("0,30 2 * * *", "2026-10-25T02:10", ["25 02:00+0100", "25 02:30+0100", "26 02:00+0100"]),
        ("0,30 2,3 * * *", "2026-03-29T00:00", ["29 03:00+0200", "29 03:30+0200", "30 02:00+0200"]),
        ("* 2 * * *", "2026-03-29T00:00", ["29 03:00+0200", "30 02:00+0200"]),
        ("*/30 * * * *", "2026-03-29T01:00", ["29 01:30+0100", "29 03:00+0200", "29 03:30+0200"]),
        (
            "*/30 * * * *",
            "2026-10-25T01:30",
            ["25 02:00+0200", "25 02:30+0200", "25 02:00+0100", "25 02:30+0100", "25 03:00+0100"],
        ),
        ("0 * * * *", "2026-03-29T00:30", ["29 01:00+0100", "29 03:00+0200", "29 04:00+0200"]),
        ("0 * * * *", "2026-10-25T01:30", ["25 02:00+0200", "25 02:00+0100", "25 03:00+0100"]),
        ("30 * * * *", "2026-10-25T02:10", ["25 02:30+0200", "25 02:30+0100", "25 03:30+0100"]),
        ("0 */2 * * *", "2026-03-28T23:00", ["29 00:00+0100", "29 04:00+0200"]),
    ],
)
def test_occurrences_around_the_clock_changes_of_paris_in_2026(
    text: str, after: str, expected: list[str]
) -> None:
    assert local("Europe/Paris", text, after, len(expected)) == expected


@every_case(
    ("name", "text", "after", "expected"),
    [
        ("America/Santiago", "30 0 * * *", "2026-09-05T12:00", ["06 01:00-0300", "07 00:30-0300"]),
        ("Africa/Cairo", "30 0 * * *", "2026-04-23T12:00", ["24 01:00+0300", "25 00:30+0300"]),
        ("Asia/Beirut", "0 0 * * *", "2026-03-28T12:00", ["29 01:00+0300", "30 00:00+0300"]),
        ("America/Santiago", "30 23 * * *", "2026-04-04T12:00", ["04 23:30-0400", "05 23:30-0400"]),
        (
            "Australia/Lord_Howe",
            "15 2 * * *",
            "2026-10-03T12:00",
            ["04 02:30+1100", "05 02:15+1100"],
        ),
        (
            "Australia/Lord_Howe",
            "45 1 * * *",
            "2026-04-04T12:00",
            ["05 01:45+1030", "06 01:45+1030"],
        ),
        (
            "Australia/Lord_Howe",
            "30 * * * *",
            "2026-10-04T00:45",
            ["04 01:30+1030", "04 02:30+1100", "04 03:30+1100"],
        ),
        (
            "Australia/Lord_Howe",
            "30 * * * *",
            "2026-04-05T01:00",
            ["05 01:30+1100", "05 01:30+1030", "05 02:30+1030"],
        ),
        (
            "America/New_York",
            "0 0-3 * * *",
            "2026-10-31T12:00",
            ["01 00:00-0400", "01 01:00-0500", "01 02:00-0500"],
        ),
        ("America/Nuuk", "30 23 * * *", "2026-03-28T12:00", ["29 00:00-0100", "29 23:30-0100"]),
        ("Pacific/Apia", "0 12 * * *", "2011-12-29T13:00", ["31 00:00+1400", "31 12:00+1400"]),
    ],
)
def test_occurrences_in_zones_with_unusual_clock_changes(
    name: str, text: str, after: str, expected: list[str]
) -> None:
    assert local(name, text, after, len(expected)) == expected


def test_the_next_occurrence_is_strictly_after_and_in_utc() -> None:
    nine = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)
    cron, paris = Cron.parse("0 9 * * *"), zone("Europe/Paris")
    assert next(occurrences(cron, paris, nine - timedelta(microseconds=1))) == nine
    assert next(occurrences(cron, paris, nine)) == nine + timedelta(days=1)
    assert next(occurrences(cron, paris, nine)).tzinfo is UTC


@every_case(
    ("now", "window", "expected"),
    [
        ("2026-05-04T07:00:00", 20, "2026-05-04T07:00"),
        ("2026-05-04T07:00:59", 20, "2026-05-04T07:00"),
        ("2026-05-04T07:20:59", 20, "2026-05-04T07:00"),
        ("2026-05-04T07:21:00", 20, None),
        ("2026-05-04T06:59:59", 20, None),
        ("2026-05-04T06:59:59", 1440, "2026-05-03T07:00"),
        ("2026-05-04T07:00:00", 0, "2026-05-04T07:00"),
    ],
)
def test_the_due_window_includes_both_of_its_minutes(
    now: str, window: int, expected: str | None
) -> None:
    cron, at = Cron.parse("0 9 * * *"), datetime.fromisoformat(now).replace(tzinfo=UTC)
    due = most_recent_due(cron, zone("Europe/Paris"), at, timedelta(minutes=window))
    assert due == (datetime.fromisoformat(expected).replace(tzinfo=UTC) if expected else None)


@every_case(
    ("text", "now", "expected"),
    [
        # In the second pass, the last one was in the first.
        (
            "30 * * * *",
            "2026-10-25T01:10",
            "2026-10-25T00:30",
        ),
        ("30 2 * * *", "2026-10-25T01:10", "2026-10-24T00:30"),
        ("30 2 * * *", "2026-10-25T01:30", "2026-10-25T01:30"),
        ("30 2 * * *", "2026-03-29T00:59", "2026-03-28T01:30"),
        ("30 2 * * *", "2026-03-29T01:00", "2026-03-29T01:00"),
    ],
)
def test_the_most_recent_due_around_a_clock_change(text: str, now: str, expected: str) -> None:
    at, due = (datetime.fromisoformat(instant).replace(tzinfo=UTC) for instant in (now, expected))
    assert most_recent_due(Cron.parse(text), zone("Europe/Paris"), at, timedelta(days=2)) == due


def test_a_window_of_years_reaches_the_last_leap_day() -> None:
    due = most_recent_due(
        Cron.parse("0 0 29 2 *"),
        zone("UTC"),
        datetime(2027, 6, 1, tzinfo=UTC),
        timedelta(days=4000),
    )
    assert due == datetime(2024, 2, 29, tzinfo=UTC)


@every_case(
    "name",
    ["", "../etc", "/etc/passwd", "Europe/paris ", "Europe", "Mars/Base", "é", "\0", "x" * 5000],
)
def test_an_unknown_zone_is_rejected(name: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a known time zone"):
        zone(name)


@dataclass(frozen=True)
class CronSets:
    """A cron with the sets of its fields, so that the expected result needs no parser."""

    minutes: frozenset[int]
    hours: frozenset[int] | None
    days: frozenset[int] | None
    weekdays: frozenset[int] | None

    @property
    def text(self) -> str:
        fields = (self.minutes, self.hours, self.days, None, self.weekdays)
        return " ".join(
            "*" if field is None else ",".join(map(str, sorted(field))) for field in fields
        )

    def names(self, wall: datetime) -> bool:
        by_day = None if self.days is None else wall.day in self.days
        by_weekday = None if self.weekdays is None else wall.isoweekday() % 7 in self.weekdays
        restrictions = [answer for answer in (by_day, by_weekday) if answer is not None]
        in_hour = self.hours is None or wall.hour in self.hours
        return wall.minute in self.minutes and in_hour and (not restrictions or any(restrictions))

    def is_due(self, at: datetime, tz: ZoneInfo) -> bool:
        """Applies the rules of reference B4.6 to one minute and the minute before it."""
        here, before = at.astimezone(tz), (at - MINUTE).astimezone(tz)
        wall, last = here.replace(tzinfo=None, fold=0), before.replace(tzinfo=None, fold=0)
        if self.hours is None:
            return self.names(wall)
        is_repeated = here.utcoffset() != here.replace(fold=1).utcoffset()
        skipped = (last + MINUTE * k for k in range(1, (wall - last) // MINUTE))
        return (self.names(wall) and not is_repeated) or any(map(self.names, skipped))


def minutes_from(start: datetime, n: int) -> Iterator[datetime]:
    return (start + MINUTE * k for k in range(n))


def occurrences_until(
    end: datetime, cron_sets: CronSets, tz: ZoneInfo, after: datetime
) -> list[datetime]:
    return list(takewhile(lambda at: at <= end, occurrences(Cron.parse(cron_sets.text), tz, after)))


drawn_crons = st.builds(
    CronSets,
    minutes=st.frozensets(st.sampled_from([0, 1, 15, 29, 30, 45, 59]), min_size=1, max_size=3),
    hours=st.none()
    | st.frozensets(st.sampled_from([0, 1, 2, 3, 4, 12, 22, 23]), min_size=1, max_size=4),
    days=st.none() | st.frozensets(st.integers(1, 31), min_size=1, max_size=20),
    weekdays=st.none() | st.frozensets(st.integers(0, 6), min_size=1, max_size=6),
)

CLOCK_CHANGES = [
    ("Europe/Paris", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Paris", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 4, 5, 3, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 9, 6, 4, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2026, 4, 23, 22, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2026, 10, 29, 21, tzinfo=UTC)),
    ("Asia/Beirut", datetime(2026, 3, 28, 22, tzinfo=UTC)),
    ("Asia/Beirut", datetime(2026, 10, 24, 21, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("America/Nuuk", datetime(2026, 3, 29, 1, tzinfo=UTC)),
]


@every_case(("name", "change"), CLOCK_CHANGES)
def test_every_listed_clock_change_changes_the_offset(name: str, change: datetime) -> None:
    tz = zone(name)
    assert change.astimezone(tz).utcoffset() != (change - MINUTE).astimezone(tz).utcoffset()


@settings(deadline=None)
@given(
    cron_sets=drawn_crons,
    tz_and_change=st.sampled_from(CLOCK_CHANGES),
    lead=st.integers(0, 36 * 60),
    seconds=st.integers(0, 59),
)
def test_occurrences_around_a_clock_change_are_those_of_a_minute_scan(
    cron_sets: CronSets, tz_and_change: tuple[str, datetime], lead: int, seconds: int
) -> None:
    name, change = tz_and_change
    tz, start = zone(name), change - MINUTE * lead
    expected = [at for at in minutes_from(start + MINUTE, 2 * 1440) if cron_sets.is_due(at, tz)]
    after, end = start + timedelta(seconds=seconds), start + timedelta(days=2)
    assert occurrences_until(end, cron_sets, tz, after) == expected


@settings(deadline=None)
@given(cron_sets=drawn_crons, start=st.integers(0, 100 * 365 * 1440))
def test_without_clock_changes_the_occurrences_are_the_wall_clock_times_of_the_cron(
    cron_sets: CronSets, start: int
) -> None:
    kolkata = zone("Asia/Kolkata")
    after = datetime(1990, 1, 1, tzinfo=UTC) + MINUTE * start
    found = occurrences_until(after + timedelta(days=10), cron_sets, kolkata, after)
    scan = minutes_from(after + MINUTE, 10 * 1440)
    assert found == [
        at for at in scan if cron_sets.names(at.astimezone(kolkata).replace(tzinfo=None))
    ]
    assert all(earlier < later for earlier, later in pairwise([after, *found]))


@settings(deadline=None)
@given(
    cron_sets=drawn_crons,
    tz_and_change=st.sampled_from(CLOCK_CHANGES),
    lag=st.integers(-90, 90) | st.integers(0, 36 * 60),
    seconds=st.integers(0, 59),
    window=st.integers(0, 3 * 1440),
)
def test_the_most_recent_due_is_the_one_a_minute_scan_finds(
    cron_sets: CronSets, tz_and_change: tuple[str, datetime], lag: int, seconds: int, window: int
) -> None:
    name, change = tz_and_change
    tz, minute = zone(name), change + MINUTE * lag
    scan = (minute - MINUTE * k for k in range(window + 1))
    expected = next((at for at in scan if cron_sets.is_due(at, tz)), None)
    now = minute + timedelta(seconds=seconds)
    assert most_recent_due(Cron.parse(cron_sets.text), tz, now, MINUTE * window) == expected


@every_case(
    ("texts", "expected"),
    [
        ([], []),
        (["0 9 * * *"], ["02-27 09:00", "02-28 09:00", "03-01 09:00", "03-02 09:00"]),
        (
            ["0 9 29 1,3-12 *", "0 9 L 2 *"],
            ["02-28 09:00", "03-29 09:00", "04-29 09:00", "05-29 09:00"],
        ),
        (["0 9 * * *", "0 9 28 * *"], ["02-27 09:00", "02-28 09:00", "03-01 09:00", "03-02 09:00"]),
        (
            ["0 9 * * *", "0 */12 * * *"],
            ["02-27 09:00", "02-27 12:00", "02-28 00:00", "02-28 09:00"],
        ),
    ],
)
def test_several_crons_are_merged_in_order_without_duplicates(
    texts: list[str], expected: list[str]
) -> None:
    after = datetime(2027, 2, 27, 8, 0, tzinfo=UTC)
    merged = occurrences_of([Cron.parse(text) for text in texts], zone("UTC"), after)
    assert [f"{at:%m-%d %H:%M}" for at in islice(merged, 4)] == expected


@every_case("name", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
@every_case("text", ["@yearly", "0 * * * *", "59 23 31 12 *", "0 0 29 2 1"])
def test_occurrences_end_with_the_calendar(name: str, text: str) -> None:
    late = (
        datetime(9990, 1, 1, tzinfo=UTC)
        if text != "0 * * * *"
        else datetime(9999, 12, 30, tzinfo=UTC)
    )
    found = list(occurrences(Cron.parse(text), zone(name), late))
    assert found == sorted(found)
    assert all(at > late for at in found)
    assert found or text == "0 0 29 2 1"


@every_case("after", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
@every_case("name", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Paris"])
def test_the_first_and_last_representable_instants_are_accepted(name: str, after: datetime) -> None:
    cron = Cron.parse("@daily")
    assert len(list(islice(occurrences_of([cron], zone(name), after), 3))) in {0, 3}
