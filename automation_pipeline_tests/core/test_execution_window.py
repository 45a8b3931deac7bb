"""Execution windows: the tables of reference B4.5 and B4.6, and properties of every window."""

from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling.cron import Cron, occurrences
from automation_pipeline.core.scheduling.timing import (
    ExecutionWindow,
    Planned,
    Timing,
    WindowPolicy,
    is_never_due,
    undelayed_after,
)
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline_tests.cases import every_case

PARIS = zone("Europe/Paris")
CLAMP, FILTER = WindowPolicy.CLAMP, WindowPolicy.FILTER


def window_of(text: str) -> ExecutionWindow:
    window = ExecutionWindow.parse(*text.split("-"))
    assert window is not None
    return window


def timed(
    cron: Cron,
    tz: ZoneInfo,
    window: ExecutionWindow | None = None,
    policy: WindowPolicy = CLAMP,
) -> Timing:
    return Timing(crons=(cron,), zone=tz, window=window, window_policy=policy)


def fires(text: str, window: str, policy: WindowPolicy, after: str, n: int) -> list[Planned]:
    timing = timed(Cron.parse(text), PARIS, window_of(window), policy)
    at = datetime.fromisoformat(after).replace(tzinfo=PARIS).astimezone(UTC)
    found: list[Planned] = []
    while len(found) < n and (fire := undelayed_after(timing, at)):
        found.append(fire)
        at = fire.effective_for
    return found


def shown(found: list[Planned]) -> list[str]:
    """Day and local time. A star marks an instant that the cron does not name, as in the reference."""
    return [
        f"{fire.effective_for.astimezone(PARIS):%d %H:%M}{'*' * (fire.effective_for != fire.scheduled_for)}"
        for fire in found
    ]


@every_case(
    ("window", "text", "clamp", "filtered"),
    [
        ("22:00-06:00", "0 23 * * *", ["04 23:00", "05 23:00"], ["04 23:00", "05 23:00"]),
        ("22:00-06:00", "0 3 * * *", ["04 03:00", "05 03:00"], ["04 03:00", "05 03:00"]),
        ("22:00-06:00", "0 12 * * *", ["04 22:00*", "05 22:00*", "06 22:00*"], []),
        (
            "22:00-06:00",
            "0 */4 * * *",
            ["04 04:00", "04 22:00*", "05 00:00", "05 04:00", "05 22:00*", "06 00:00"],
            ["04 04:00", "05 00:00", "05 04:00", "06 00:00"],
        ),
        (
            "02:00-06:00",
            "30 * * * *",
            ["04 02:00*", "04 02:30", "04 03:30", "04 04:30", "04 05:30", "05 02:00*"],
            ["04 02:30", "04 03:30", "04 04:30", "04 05:30", "05 02:30"],
        ),
        (
            "02:00-03:00",
            "*/15 * * * *",
            ["04 02:00", "04 02:15", "04 02:30", "04 02:45", "04 03:00", "05 02:00"],
            ["04 02:00", "04 02:15", "04 02:30", "04 02:45", "04 03:00", "05 02:00"],
        ),
        ("02:00-06:00", "0 12 * * 1", ["05 02:00*", "12 02:00*", "19 02:00*"], []),
        ("02:00-06:00", "0 1 * * *", ["04 02:00*", "05 02:00*"], []),
    ],
)
def test_the_window_table_of_the_reference(
    window: str, text: str, clamp: list[str], filtered: list[str]
) -> None:
    midnight = "2026-05-04T00:00"
    assert shown(fires(text, window, CLAMP, midnight, len(clamp))) == clamp
    assert shown(fires(text, window, FILTER, midnight, len(filtered) or 3)) == filtered
    assert is_never_due(timed(Cron.parse(text), PARIS, window_of(window), FILTER)) is not bool(
        filtered
    )
    assert not is_never_due(timed(Cron.parse(text), PARIS, window_of(window)))


def test_merged_occurrences_are_scheduled_for_the_latest() -> None:
    (fire,) = fires("0 */4 * * *", "22:00-06:00", CLAMP, "2026-05-04T04:00", 1)
    assert fire == Planned(
        datetime(2026, 5, 4, 18, tzinfo=UTC), datetime(2026, 5, 4, 20, tzinfo=UTC)
    )


def test_a_clamped_fire_keeps_the_cron_instant_as_scheduled_for() -> None:
    (fire,) = fires("0 12 * * *", "22:00-06:00", CLAMP, "2026-05-04T00:00", 1)
    assert fire == Planned(
        datetime(2026, 5, 4, 10, tzinfo=UTC), datetime(2026, 5, 4, 20, tzinfo=UTC)
    )


@every_case(
    ("window", "text", "policy", "after", "expected"),
    [
        ("02:00-02:59", "30 2 * * *", CLAMP, "2026-03-28T12:00", ["29 03:00", "30 02:30"]),
        ("02:00-02:59", "30 2 * * *", FILTER, "2026-03-28T12:00", ["30 02:30", "31 02:30"]),
        ("02:00-02:59", "0 12 * * *", CLAMP, "2026-03-28T11:00", ["29 03:00*", "30 02:00*"]),
        (
            "02:00-02:59",
            "*/30 * * * *",
            CLAMP,
            "2026-03-29T00:00",
            ["29 03:00", "30 02:00", "30 02:30"],
        ),
        ("02:00-02:59", "*/30 * * * *", FILTER, "2026-03-29T00:00", ["30 02:00", "30 02:30"]),
        ("02:30-05:00", "0 1 * * *", CLAMP, "2026-03-29T00:00", ["29 03:00*", "30 02:30*"]),
        ("02:00-02:59", "30 2 * * *", CLAMP, "2026-10-24T12:00", ["25 02:30", "26 02:30"]),
        (
            "02:00-02:59",
            "30 * * * *",
            FILTER,
            "2026-10-24T12:00",
            ["25 02:30", "25 02:30", "26 02:30"],
        ),
        ("02:30-02:59", "10 * * * *", CLAMP, "2026-10-25T00:30", ["25 02:30*", "26 02:30*"]),
    ],
)
def test_windows_over_the_clock_changes_of_2026(
    window: str, text: str, policy: WindowPolicy, after: str, expected: list[str]
) -> None:
    assert shown(fires(text, window, policy, after, len(expected))) == expected


def test_a_window_opens_in_the_first_pass_of_a_repeated_hour() -> None:
    (fire,) = fires("0 1 * * *", "02:00-06:00", CLAMP, "2026-10-25T00:00", 1)
    assert fire.effective_for == datetime(2026, 10, 25, 0, tzinfo=UTC)


def test_a_start_moved_to_the_next_date_by_a_gap_is_still_found() -> None:
    nuuk, window = zone("America/Nuuk"), window_of("23:00-23:59")
    fire = undelayed_after(
        timed(Cron.parse("30 23 * * *"), nuuk, window), datetime(2026, 3, 28, 12, tzinfo=UTC)
    )
    assert fire == Planned(
        datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)
    )


def test_without_a_window_a_fire_is_effective_when_scheduled() -> None:
    seven = datetime(2026, 5, 4, 7, tzinfo=UTC)
    assert undelayed_after(
        timed(Cron.parse("0 9 * * *"), PARIS), seven - timedelta(hours=1)
    ) == Planned(seven, seven)


@every_case(
    ("window", "at", "inside"),
    [
        ("22:00-06:00", "06:00:59", True),
        ("22:00-06:00", "06:01:00", False),
        ("22:00-06:00", "21:59:59", False),
        ("22:00-06:00", "22:00:00", True),
        ("23:30-00:30", "00:30:00", True),
        ("23:30-00:30", "00:31:00", False),
        ("02:00-06:00", "01:59:59", False),
        ("02:00-06:00", "02:00:00", True),
        ("02:00-06:00", "06:00:59", True),
        ("02:00-06:00", "06:01:00", False),
    ],
)
def test_window_bounds_are_inclusive_to_the_minute(window: str, at: str, inside: bool) -> None:
    assert window_of(window).contains(time.fromisoformat(at)) is inside


@every_case(("start", "end"), [(None, None), ("", ""), (None, "")])
def test_no_bounds_mean_no_window(start: str | None, end: str | None) -> None:
    assert ExecutionWindow.parse(start, end) is None


@every_case(
    ("start", "end"),
    [
        ("02:00", None),
        (None, "06:00"),
        ("02:00", ""),
        ("02:00", "02:00"),
        ("24:00", "06:00"),
        ("2:00", "06:00"),
        ("02:60", "06:00"),
        ("02:00\n", "06:00"),
        ("02:00:00", "06:00"),
        ("٠٢:٠٠", "06:00"),
    ],
)
def test_an_incomplete_empty_or_misspelt_window_is_refused(
    start: str | None, end: str | None
) -> None:
    with pytest.raises(InvalidInputError):
        ExecutionWindow.parse(start, end)


def test_a_late_start_in_the_minute_of_a_moved_window_start_is_not_postponed() -> None:
    at = datetime(2026, 3, 29, 1, 0, 30, tzinfo=UTC)
    assert window_of("02:00-02:59").clamp(at, PARIS) == at


times_of_day = st.builds(time, st.integers(0, 23), st.integers(0, 59))
windows = st.builds(ExecutionWindow, times_of_day, times_of_day).filter(
    lambda window: window.start != window.end
)
instants = st.timedeltas(timedelta(0), timedelta(days=365)).map(
    lambda length: datetime(2026, 1, 1, tzinfo=UTC) + length
)
crons = st.sampled_from(
    ["*/20 * * * *", "0 */4 * * *", "30 2 * * *", "0 1,12 * * 1", "15 0-5 * * *", "@daily"]
).map(Cron.parse)
zones = st.sampled_from(
    ["Europe/Paris", "America/Santiago", "Africa/Cairo", "Australia/Lord_Howe", "UTC"]
).map(zone)


@settings(deadline=None)
@given(window=windows, at=instants, tz=zones)
def test_clamping_never_moves_back_and_is_idempotent(
    window: ExecutionWindow, at: datetime, tz: ZoneInfo
) -> None:
    clamped = window.clamp(at, tz)
    assert clamped >= at
    assert window.clamp(clamped, tz) == clamped


@settings(deadline=None)
@given(cron=crons, window=windows, after=instants, tz=zones, policy=st.sampled_from(WindowPolicy))
def test_effective_instants_increase_and_are_delayed_at_most_once_per_window(
    cron: Cron, window: ExecutionWindow, after: datetime, tz: ZoneInfo, policy: WindowPolicy
) -> None:
    found: list[Planned] = []
    at, timing = after, timed(cron, tz, window, policy)
    while len(found) < 12 and (fire := undelayed_after(timing, at)):
        found.append(fire)
        at = fire.effective_for
    assert bool(found) is not is_never_due(timing)
    effective = [fire.effective_for for fire in found]
    assert all(earlier < later for earlier, later in pairwise([after, *effective]))
    for fire in found:
        assert (
            fire.scheduled_for
            <= fire.effective_for
            < next(occurrences(cron, tz, fire.scheduled_for))
        )
        assert undelayed_after(timing, fire.scheduled_for) == undelayed_after(
            timing, fire.effective_for
        )
    waited = [fire.effective_for for fire in found if fire.effective_for != fire.scheduled_for]
    assert all(later - earlier > timedelta(hours=22) for earlier, later in pairwise(waited))
