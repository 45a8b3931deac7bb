"""Which days a selection is about (reference 3.3): presets when the clocks change, at month ends,
on a leap day; custom ranges as they may be stored."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.models.schedules import (
    DatePreset,
    FicheSelection,
    SelectionMode,
)
from automation_pipeline.automation.rules.fiches import days_of
from automation_pipeline_tests.tables import every_case

PARIS, NEW_YORK = ZoneInfo("Europe/Paris"), ZoneInfo("America/New_York")
YEARS = datetime.fromisoformat("2000-01-01"), datetime.fromisoformat("2100-01-01")
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=PARIS)


def selection(
    preset: DatePreset | None, start: str | None = None, end: str | None = None
) -> FicheSelection:
    return FicheSelection(
        mode=SelectionMode.DATE_RANGE,
        date_range=preset,
        custom_start_date=start,
        custom_end_date=end,
    )


def days(preset: DatePreset | None, wall: str, zone: ZoneInfo, fold: int = 0) -> list[str]:
    """First and last day and how many, when the wall clock of the zone says so."""
    now = datetime.fromisoformat(wall).replace(tzinfo=zone, fold=fold).astimezone(UTC)
    found = days_of(selection(preset), now, zone)
    assert list(found) == [found[0] + timedelta(days=number) for number in range(len(found))]
    return [found[0].isoformat(), found[-1].isoformat(), str(len(found))]


@every_case(
    ("wall", "zone"),
    [
        # Europe: 29 March has 23 hours, 25 October has 25. A day of 24 hours would count one day
        # too many or too few.
        ("2026-03-29 00:30", PARIS),
        ("2026-03-29 03:00", PARIS),
        ("2026-03-29 23:59", PARIS),
        ("2026-03-30 00:00", PARIS),
        ("2026-03-30 00:30", PARIS),
        ("2026-10-25 00:00", PARIS),
        ("2026-10-25 02:30", PARIS),
        ("2026-10-25 23:30", PARIS),
        ("2026-10-26 00:30", PARIS),
        # New York: 8 March and 1 November.
        ("2026-03-08 23:30", NEW_YORK),
        ("2026-03-09 00:30", NEW_YORK),
        ("2026-11-01 01:30", NEW_YORK),
        ("2026-11-01 23:30", NEW_YORK),
        ("2026-11-02 00:30", NEW_YORK),
        ("2026-05-04 12:00", PARIS),
        ("2024-03-01 00:00", PARIS),
        ("2026-01-01 00:00", NEW_YORK),
    ],
)
@every_case("fold", [0, 1])
def test_a_change_of_the_clocks_neither_adds_nor_takes_away_a_day(
    wall: str, zone: ZoneInfo, fold: int
) -> None:
    today = datetime.fromisoformat(wall).date()
    before, week = (today - timedelta(days=1)).isoformat(), (today - timedelta(days=7)).isoformat()
    assert days(DatePreset.LAST_24H, wall, zone, fold) == [before, today.isoformat(), "2"]
    assert days(DatePreset.YESTERDAY, wall, zone, fold) == [before, before, "1"]
    assert days(DatePreset.LAST_WEEK, wall, zone, fold) == [week, today.isoformat(), "8"]


@every_case(
    ("today", "first", "count"),
    [
        ("2026-05-04", "2026-04-04", 31),
        ("2026-03-31", "2026-02-28", 32),
        ("2026-03-30", "2026-02-28", 31),
        ("2026-03-29", "2026-02-28", 30),
        ("2026-03-28", "2026-02-28", 29),
        ("2026-03-01", "2026-02-01", 29),
        ("2024-03-31", "2024-02-29", 32),
        ("2024-03-29", "2024-02-29", 30),
        ("2024-02-29", "2024-01-29", 32),
        ("2026-02-28", "2026-01-28", 32),
        ("2026-05-31", "2026-04-30", 32),
        ("2026-07-31", "2026-06-30", 32),
        ("2026-08-31", "2026-07-31", 32),
        ("2026-12-31", "2026-11-30", 32),
        ("2026-01-31", "2025-12-31", 32),
        ("2026-01-01", "2025-12-01", 32),
    ],
)
@every_case("zone", [PARIS, NEW_YORK])
def test_a_month_goes_back_to_the_same_number_or_the_last_of_the_month(
    today: str, first: str, count: int, zone: ZoneInfo
) -> None:
    assert days(DatePreset.LAST_MONTH, f"{today} 12:00", zone) == [first, today, str(count)]


@every_case(
    ("now", "zone", "yesterday"),
    [
        (datetime(2026, 5, 4, 21, 59, tzinfo=UTC), PARIS, date(2026, 5, 3)),
        (datetime(2026, 5, 4, 22, 0, tzinfo=UTC), PARIS, date(2026, 5, 4)),
        (datetime(2026, 5, 4, 22, 0, tzinfo=UTC), NEW_YORK, date(2026, 5, 3)),
        (datetime(2026, 5, 4, 3, 59, tzinfo=UTC), NEW_YORK, date(2026, 5, 2)),
        (datetime(2026, 5, 4, 4, 0, tzinfo=UTC), NEW_YORK, date(2026, 5, 3)),
        (datetime(2026, 1, 1, 4, 59, tzinfo=UTC), NEW_YORK, date(2025, 12, 30)),
    ],
)
def test_today_is_the_day_of_the_schedules_zone(
    now: datetime, zone: ZoneInfo, yesterday: date
) -> None:
    assert days_of(selection(DatePreset.YESTERDAY), now, zone) == (yesterday,)


@every_case(
    ("start", "end", "found"),
    [
        ("01/05/2026", "03/05/2026", ["2026-05-01", "2026-05-02", "2026-05-03"]),
        ("2026-05-01", "2026-05-03", ["2026-05-01", "2026-05-02", "2026-05-03"]),
        ("2026-05-01", "02/05/2026", ["2026-05-01", "2026-05-02"]),
        ("03/02/2026", "03/02/2026", ["2026-02-03"]),
        ("28/02/2024", "01/03/2024", ["2024-02-28", "2024-02-29", "2024-03-01"]),
        ("28/02/2026", "01/03/2026", ["2026-02-28", "2026-03-01"]),
        ("28/03/2026", "30/03/2026", ["2026-03-28", "2026-03-29", "2026-03-30"]),
        ("03/05/2026", "09/05/2026", ["2026-05-03", "2026-05-04"]),
        ("04/05/2026", "31/12/2199", ["2026-05-04"]),
        ("03/05/2026", None, ["2026-05-03"]),
        ("03/05/2026", "", ["2026-05-03"]),
        ("05/05/2026", "09/05/2026", []),
        ("03/05/2026", "02/05/2026", []),
        (None, "03/05/2026", []),
        (None, None, []),
        ("", "", []),
        ("yesterday", None, []),
        ("31/04/2026", "03/05/2026", []),
        ("2026-13-01", None, []),
        ("03/05/26", None, []),
        ("01/05/2026", "soon", []),
    ],
)
def test_custom_days_end_today_at_the_latest(
    start: str | None, end: str | None, found: list[str]
) -> None:
    result = days_of(selection(DatePreset.CUSTOM, start, end), NOON, PARIS)
    assert [day.isoformat() for day in result] == found


def test_without_a_range_there_are_no_days() -> None:
    assert days_of(selection(None, "01/05/2026", "03/05/2026"), NOON, PARIS) == ()


@given(
    now=st.datetimes(YEARS[0], YEARS[1], timezones=st.just(UTC)),
    zone=st.sampled_from(
        [
            PARIS,
            NEW_YORK,
            ZoneInfo("UTC"),
            ZoneInfo("Pacific/Kiritimati"),
            ZoneInfo("Asia/Kathmandu"),
        ]
    ),
    preset=st.sampled_from([preset for preset in DatePreset if preset is not DatePreset.CUSTOM]),
)
def test_every_preset_has_its_count_of_days_and_none_lies_ahead(
    now: datetime, zone: ZoneInfo, preset: DatePreset
) -> None:
    found = days_of(selection(preset), now, zone)
    fewest, most = {
        DatePreset.LAST_24H: (2, 2),
        DatePreset.YESTERDAY: (1, 1),
        DatePreset.LAST_WEEK: (8, 8),
        DatePreset.LAST_MONTH: (29, 32),
    }[preset]
    assert fewest <= len(found) <= most
    assert sorted(set(found)) == list(found)
    assert found[-1] <= now.astimezone(zone).date()
