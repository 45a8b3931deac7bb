"""When a schedule is due: start and end, excluded days, jitter, and windows with a cutoff."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.timing import (
    ExecutionWindow,
    Timing,
    TimingFields,
    is_never_due,
    next_planned,
    planned_after,
    read_timing,
)
from automation_pipeline_tests.cases import every_case

MONDAY = datetime(2026, 5, 4, tzinfo=UTC)


def timing(cron: str = "0 * * * *", zone: str = "UTC", **fields: Any) -> Timing:
    return read_timing(TimingFields(seed="s", cron_expression=cron, timezone=zone, **fields))


def nominal(schedule: Timing, count: int, after: datetime = MONDAY) -> list[str]:
    return [
        f"{one.scheduled_for:%d %H:%M}" for one in islice(planned_after(schedule, after), count)
    ]


def effective(schedule: Timing, count: int, after: datetime = MONDAY) -> list[str]:
    return [
        f"{one.effective_for:%d %H:%M}" for one in islice(planned_after(schedule, after), count)
    ]


def test_a_weekday_cron_is_due_on_five_days_per_week() -> None:
    schedule = timing("0 9 * * 1-5")
    assert [
        one.scheduled_for.isoweekday() for one in islice(planned_after(schedule, MONDAY), 10)
    ] == [
        1,
        2,
        3,
        4,
        5,
    ] * 2


@every_case(
    ("fields", "expected"),
    [
        ({"start_at": MONDAY + timedelta(hours=5)}, ["04 05:00", "04 06:00"]),
        ({"start_at": MONDAY + timedelta(hours=5, minutes=1)}, ["04 06:00", "04 07:00"]),
        ({"end_at": MONDAY + timedelta(hours=2)}, ["04 01:00", "04 02:00"]),
        ({"end_at": MONDAY + timedelta(hours=1, minutes=59)}, ["04 01:00"]),
        ({"end_at": MONDAY}, []),
    ],
)
def test_the_start_and_end_of_a_schedule_are_inclusive(
    fields: dict[str, Any], expected: list[str]
) -> None:
    assert nominal(timing(**fields), 2) == expected


def test_excluded_days_are_days_in_the_zone_of_the_schedule() -> None:
    schedule = timing("30 23 * * *", "Europe/Paris", excluded_on=("2026-05-05",))
    assert nominal(schedule, 3) == ["04 21:30", "06 21:30", "07 21:30"]


def test_a_schedule_with_every_day_excluded_is_never_due() -> None:
    days = tuple((date(2026, 5, 4) + timedelta(days=day)).isoformat() for day in range(5))
    assert next_planned(timing(excluded_on=days, end_at=MONDAY + timedelta(days=4)), MONDAY) is None


@every_case(
    ("window", "expected"),
    [
        ({}, "08 00:00"),
        ({"window_start": "08:00", "window_end": "20:00"}, "08 08:00"),
        ({"window_start": "08:00", "window_end": "20:00", "window_policy": "FILTER"}, "08 08:00"),
    ],
)
def test_a_schedule_of_every_minute_continues_after_adjacent_excluded_days(
    window: dict[str, Any], expected: str
) -> None:
    first = date(2026, 5, 5)
    days = tuple((first + timedelta(days=day)).isoformat() for day in range(3))
    schedule = timing("* * * * *", excluded_on=days, **window)
    after = MONDAY + timedelta(hours=23, minutes=59)
    assert effective(schedule, 1, after) == [expected]


@given(
    cron=st.sampled_from(["*/20 * * * *", "0 */4 * * *", "0 12-22 * * *", "30 1,2 * * *"]),
    zone=st.sampled_from(["UTC", "Europe/Paris", "America/Havana"]),
    window=st.sampled_from([None, ("22:00", "06:00"), ("08:00", "18:00"), ("23:30", "00:30")]),
    policy=st.sampled_from(["CLAMP", "FILTER"]),
    start=st.sampled_from(
        [date(2026, 3, 6), date(2026, 3, 27), date(2026, 10, 23), date(2026, 10, 30)]
    ),
    days=st.sets(st.integers(0, 5), max_size=5),
)
def test_excluded_days_remove_their_due_times_and_no_others(
    cron: str, zone: str, window: tuple[str, str] | None, policy: str, start: date, days: set[int]
) -> None:
    opens, closes = window or (None, None)
    schedule = timing(
        cron,
        zone,
        window_start=opens,
        window_end=closes,
        window_policy=policy,
        excluded_on=tuple((start + timedelta(days=day)).isoformat() for day in days),
        end_at=datetime.combine(start, time.min, UTC) + timedelta(days=8),
    )
    after = datetime.combine(start, time.min, UTC)
    all_planned = planned_after(schedule, after, with_excluded=True)
    expected = [one for one in all_planned if not schedule.is_excluded(one.effective_for)]
    assert list(planned_after(schedule, after)) == expected


def test_a_clamped_due_time_starts_with_the_window_and_keeps_its_instant() -> None:
    schedule = timing("0 */4 * * *", window_start="22:00", window_end="06:00")
    assert effective(schedule, 5) == ["04 04:00", "04 22:00", "05 00:00", "05 04:00", "05 22:00"]
    assert nominal(schedule, 5) == ["04 04:00", "04 20:00", "05 00:00", "05 04:00", "05 20:00"]


def test_a_cutoff_excludes_the_last_minutes_of_a_window() -> None:
    schedule = timing(
        "30 * * * *",
        window_start="02:00",
        window_end="06:00",
        window_policy="FILTER",
        cutoff_minutes=60,
    )
    assert effective(schedule, 4) == ["04 02:30", "04 03:30", "04 04:30", "05 02:30"]


@every_case(
    ("start", "end", "minutes", "becomes"),
    [
        ("02:00", "06:00", 30, "05:30"),
        ("22:00", "06:00", 420, "23:00"),
        ("23:30", "00:30", 45, "23:45"),
    ],
)
def test_a_shortened_window_ends_earlier(start: str, end: str, minutes: int, becomes: str) -> None:
    window = ExecutionWindow.parse(start, end)
    assert window is not None
    assert window.shortened(minutes).end == time.fromisoformat(becomes)


@every_case("minutes", [60, 61, 1440])
def test_a_cutoff_longer_than_the_window_is_rejected(minutes: int) -> None:
    window = ExecutionWindow(time(23, 30), time(0, 30))
    with pytest.raises(InvalidInputError, match="shorter than the execution window"):
        window.shortened(minutes)


@every_case("fields", [{"cron": "0 2 * * * *"}, {"cron": "0 24 * * *"}, {"zone": "Mars/Olympus"}])
def test_an_invalid_cron_or_zone_is_rejected(fields: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        timing(**fields)


def test_a_filter_that_drops_every_due_time_is_detected() -> None:
    window = {"window_start": "02:00", "window_end": "06:00"}
    assert is_never_due(timing("0 12 * * *", window_policy="FILTER", **window))
    assert not is_never_due(timing("0 12 * * *", **window))


@given(jitter=st.integers(1, 86_400), hour=st.integers(0, 23))
def test_jitter_is_bounded_and_deterministic(jitter: int, hour: int) -> None:
    first, again = (
        next_planned(timing(f"0 {hour} * * *", jitter_seconds=jitter), MONDAY) for _ in range(2)
    )
    assert first == again
    assert first is not None
    assert timedelta(0) <= first.effective_for - first.scheduled_for <= timedelta(seconds=jitter)


@given(st.uuids().map(str))
def test_jitter_does_not_reach_into_an_excluded_day(seed: str) -> None:
    fields = TimingFields(
        seed=seed,
        cron_expression="55 23 * * *",
        timezone="UTC",
        jitter_seconds=3600,
        excluded_on=("2026-05-05",),
    )
    planned = next_planned(read_timing(fields), MONDAY)
    assert planned is not None
    assert planned.effective_for.date() == date(2026, 5, 4)


@given(st.integers(1, 86_400))
def test_jitter_does_not_leave_the_window(jitter: int) -> None:
    schedule = timing(
        "*/20 * * * *", window_start="22:00", window_end="06:00", jitter_seconds=jitter
    )
    assert all(
        schedule.is_open(one.effective_for) for one in islice(planned_after(schedule, MONDAY), 20)
    )


@given(
    cron=st.sampled_from(["*/5 * * * *", "0 */4 * * *", "30 2 * * *", "0 12 * * 1", "0 0 29 2 *"]),
    window=st.sampled_from([None, ("22:00", "06:00"), ("02:00", "02:59"), ("23:30", "00:30")]),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001  bounds have no zone
)
def test_due_times_strictly_increase(
    cron: str, window: tuple[str, str] | None, start: datetime
) -> None:
    bounds = {"window_start": window[0], "window_end": window[1]} if window else {}
    planned = list(islice(planned_after(timing(cron, "Europe/Paris", **bounds), start), 6))
    assert [one.scheduled_for for one in planned] == sorted({one.scheduled_for for one in planned})
    assert [one.effective_for for one in planned] == sorted({one.effective_for for one in planned})
    assert all(one.effective_for >= one.scheduled_for for one in planned)


@every_case(
    ("start", "end", "hours", "minutes"),
    [("22:00", "06:00", 8, 1), ("09:00", "17:30", 8, 31), ("00:00", "23:59", 24, 0)],
)
def test_the_length_of_a_window_includes_its_last_minute(
    start: str, end: str, hours: int, minutes: int
) -> None:
    window = ExecutionWindow.parse(start, end)
    assert window is not None
    assert window.length == timedelta(hours=hours, minutes=minutes)
