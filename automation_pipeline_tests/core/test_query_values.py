"""Lists, days and instants of query strings."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from automation_pipeline.core.json_model import (
    LARGEST_COUNT,
    Count,
    SearchText,
    begin_of,
    end_of,
    read_day,
    read_moment,
    split,
)
from automation_pipeline_tests.tables import every_case

COUNT = TypeAdapter(Count)
PARIS = ZoneInfo("Europe/Paris")
ENTRIES = st.lists(
    st.text(st.characters(exclude_characters=",", exclude_categories=["Cs", "Z", "C"]), min_size=1)
)


@given(ENTRIES)
def test_a_list_comes_back_however_it_was_written(entries: list[str]) -> None:
    assert split(",".join(entries)) == entries
    assert split(entries) == entries
    assert split([" , ".join(entries), ""]) == entries


def test_what_is_no_text_is_left_to_whoever_checks_it() -> None:
    assert split(None) is None
    assert split([1, "2,3", None]) == [1, "2", "3", None]


@given(st.datetimes(timezones=st.just(UTC)))
def test_an_instant_comes_back(instant: datetime) -> None:
    assert read_moment(instant.isoformat()) == instant
    assert read_moment(instant.isoformat().replace("+00:00", "z")) == instant


@given(st.dates())
def test_a_day_comes_back_and_is_not_an_instant(day: date) -> None:
    read = read_moment(day.isoformat())
    assert (read, type(read)) == (day, date)
    assert read_day(f" {day.isoformat()} ") == day


@given(
    st.one_of(st.dates(), st.datetimes(), st.datetimes(timezones=st.timezones())), st.timezones()
)
def test_what_begins_ends_later(moment: date, zone: ZoneInfo) -> None:
    first, after = begin_of(moment, zone), end_of(moment, zone)
    assert first < after or after.year in {1, 9999}
    assert first.tzinfo is UTC


@every_case(
    ("text", "first", "hours"),
    [
        ("2026-02-03", datetime(2026, 2, 2, 23, tzinfo=UTC), 24),
        ("2026-03-29", datetime(2026, 3, 28, 23, tzinfo=UTC), 23),
        ("2026-10-25", datetime(2026, 10, 24, 22, tzinfo=UTC), 25),
    ],
)
def test_a_day_is_as_long_as_the_zone_makes_it(text: str, first: datetime, hours: int) -> None:
    day = read_moment(text)
    assert (begin_of(day, PARIS), end_of(day, PARIS)) == (first, first + timedelta(hours=hours))


@every_case(
    ("text", "instant"),
    [
        ("2026-02-03T10:00:00Z", datetime(2026, 2, 3, 10, tzinfo=UTC)),
        ("2026-02-03T10:00:00 01:00", datetime(2026, 2, 3, 9, tzinfo=UTC)),
        ("2026-02-03T10:00", datetime(2026, 2, 3, 9, tzinfo=UTC)),
    ],
)
def test_an_instant_without_a_zone_is_read_in_ours(text: str, instant: datetime) -> None:
    moment = read_moment(text)
    assert (begin_of(moment, PARIS), end_of(moment, PARIS)) == (
        instant,
        instant + timedelta(milliseconds=1),
    )


@every_case(
    "text", ["", "yesterday", "2026-02-30", "2026-13-01", "03/02/2026", "2026-02-03T25:00:00"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a day"):
        read_moment(text)


@every_case("text", ["2026-02-03T10:00:00Z", "2026-02-31", "20260203"])
def test_what_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a day \(YYYY-MM-DD\)"):
        read_day(text)


def test_a_count_fits_its_column() -> None:
    assert COUNT.validate_python(str(LARGEST_COUNT)) == 2_147_483_647
    with pytest.raises(ValidationError):
        COUNT.validate_python(str(LARGEST_COUNT + 1))


def test_a_search_text_is_stripped_and_has_at_most_200_characters() -> None:
    text = TypeAdapter(SearchText)
    assert text.validate_python(f"  {'x' * 200} ") == "x" * 200
    with pytest.raises(ValidationError, match="at most 200 characters"):
        text.validate_python("x" * 201)
