"""Offsets of a zone over an interval, compared with the zone itself."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.scheduling.zones import offsets_between

ZONES = st.sampled_from(
    ["Europe/Paris", "UTC", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"]
).map(ZoneInfo)
INSTANTS = st.datetimes(
    datetime.fromisoformat("1975-01-01"),
    datetime.fromisoformat("2040-01-01"),
    timezones=st.just(UTC),
)


@given(ZONES, INSTANTS, st.timedeltas(timedelta(0), timedelta(days=900)), st.data())
def test_every_instant_of_the_interval_has_the_offset_of_the_zone(
    zone: ZoneInfo, first: datetime, length: timedelta, data: st.DataObject
) -> None:
    offsets = offsets_between(first, first + length, zone)
    edges = [since + timedelta(seconds=step) for since, _ in offsets for step in (-1, 0, 1)]
    anywhere = data.draw(st.lists(st.timedeltas(timedelta(0), length).map(first.__add__)))
    for instant in (*edges, *anywhere):
        if first <= instant <= first + length:
            held = next(offset for since, offset in reversed(offsets) if since <= instant)
            assert timedelta(seconds=held) == instant.astimezone(zone).utcoffset()


def test_a_year_in_paris_has_two_offset_changes() -> None:
    offsets = offsets_between(
        datetime(2026, 1, 1, 12, 0, 0, 500, UTC),
        datetime(2026, 12, 31, tzinfo=UTC),
        ZoneInfo("Europe/Paris"),
    )
    assert [offset for _, offset in offsets] == [3600, 7200, 3600]
    assert [since for since, _ in offsets[1:]] == [
        datetime(2026, 3, 29, 1, tzinfo=UTC),
        datetime(2026, 10, 25, 1, tzinfo=UTC),
    ]
