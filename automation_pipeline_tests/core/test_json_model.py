"""Values in JSON and query strings, and the error messages for invalid ones."""

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, HttpUrl, StrictBool, TypeAdapter, ValidationError

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import (
    LARGEST_COUNT,
    Count,
    JsonModel,
    SearchText,
    begin_of,
    end_of,
    escape_surrogates,
    is_deeper,
    parse,
    read_day,
    read_moment,
    split,
    text_fault,
)
from automation_pipeline_tests.cases import every_case

NUL, HALF = "must not hold the character NUL", "must not hold half a character"


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Inner(JsonModel):
    name: str = ""


class Outer(JsonModel):
    name: Annotated[str, Field(min_length=1, max_length=3)] = "a"
    long_name: Annotated[str, Field(min_length=2, max_length=9)] = "ab"
    names: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    some: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)] = ("a",)
    anything: object = None
    inner: Inner | None = None
    count: Annotated[int, Field(ge=1, le=5)] = 1
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    flag: bool = False
    strict: StrictBool = False
    colour: Colour = Colour.RED
    kind: Literal["one", "two"] = "one"
    address: HttpUrl | None = None


def faults(**fields: object) -> tuple[tuple[str, str], ...]:
    with pytest.raises(InvalidInputError) as refused:
        parse(Outer, fields, "No value.")
    return refused.value.fields


@every_case(("text", "fault"), [("a\0b", NUL), ("\ud800", HALF), ("a\udfff", HALF)])
def test_unstorable_text_is_rejected_at_any_depth(text: str, fault: str) -> None:
    assert faults(name=text) == (("name", fault),)
    assert faults(names=["a", text]) == (("names", fault),)
    assert faults(table=[["a"], ["b", text]]) == (("table", fault),)
    assert faults(anything=[[[text]]]) == (("anything", fault),)
    assert faults(inner={"name": text}) == (("inner.name", fault),)


@every_case(
    ("name", "shown", "fault"),
    [("a\ud800", "a\\ud800", HALF), ("\udfff", "\\udfff", HALF), ("a\0", "a\0", NUL)],
)
def test_a_field_with_an_unstorable_name_is_reported_escaped_with_all_others(
    name: str, shown: str, fault: str
) -> None:
    assert faults(**{name: 1}) == ((shown, fault),)
    assert faults(**{name: 1, "count": 6}) == ((shown, fault), ("count", "must be at most 5"))


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_becomes_encodable_and_valid_text_is_unchanged(text: str) -> None:
    assert escape_surrogates(text).encode().decode() == escape_surrogates(text)
    if text_fault(text) is None:
        assert escape_surrogates(text) == text


@given(
    st.recursive(
        st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)
    )
)
def test_the_depth_of_a_document_is_that_of_its_deepest_value(document: object) -> None:
    def depth(one: object) -> int:
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        return max((depth(inner) + 1 for inner in inside), default=0)

    for most in range(8):
        assert is_deeper(document, most) == (depth(document) > most)


@every_case("text", ["", "é", "\U0001f441", "\ue000", "\ud7ff", "\uffff"])
def test_valid_characters_are_unchanged(text: str) -> None:
    assert parse(Outer, {"names": [text], "table": [[text]]}, "No value.").table == ((text,),)


@every_case(
    ("some", "expected"),
    [
        ([7], (("some.0", "must be a text"),)),
        ([], (("some", "must have at least 1 entry"),)),
        (["a", 7], (("some.1", "must be a text"),)),
    ],
)
def test_a_length_error_of_a_list_is_reported_only_without_entry_errors(
    some: list[object], expected: object
) -> None:
    assert faults(some=some) == expected


@given(st.text(st.characters(exclude_categories=())))
def test_a_text_without_fault_is_valid_utf_8_without_nul(text: str) -> None:
    try:
        storable = b"\0" not in text.encode()
    except UnicodeEncodeError:
        storable = False
    assert (text_fault(text) is None) == storable


def test_deeply_nested_lists_are_checked() -> None:
    deep: list[object] = ["\0"]
    for _ in range(100_000):
        deep = [deep]
    assert faults(anything=deep) == (("anything", NUL),)


@every_case(
    ("field", "value", "message"),
    [
        ("name", "", "must have at least 1 character"),
        ("name", "abcd", "must have at most 3 characters"),
        ("longName", "a", "must have at least 2 characters"),
        ("name", 7, "must be a text"),
        ("names", "a", "must be a list"),
        ("some", [], "must have at least 1 entry"),
        ("some", ["a", "b", "c"], "must have at most 2 entries"),
        ("inner", 7, "must be an object"),
        ("count", 0, "must be at least 1"),
        ("count", 6, "must be at most 5"),
        ("count", "many", "must be a whole number"),
        ("count", 2.5, "must be a whole number"),
        ("count", None, "must be a whole number"),
        ("count", "9" * 5000, "must be a whole number of fewer digits"),
        ("share", 0, "must be more than 0.0"),
        ("share", 1, "must be less than 1.0"),
        ("share", "half", "must be a number"),
        ("flag", "perhaps", "must be true or false"),
        ("strict", "true", "must be true or false"),
        ("colour", "blue", "must be 'red' or 'green'"),
        ("kind", "three", "must be 'one' or 'two'"),
        ("address", "no address", "must be a web address"),
        ("address", 7, "must be a web address"),
        ("address", "ftp://a.test", "must be an address that begins with 'http' or 'https'"),
        ("nmae", "a", "is not a known field"),
        ("long_name", "ab", "is not a known field"),
    ],
)
def test_every_validation_error_has_a_readable_message(
    field: str, value: object, message: str
) -> None:
    assert faults(**{field: value}) == ((field, message),)


COUNT = TypeAdapter(Count)
PARIS = ZoneInfo("Europe/Paris")
ENTRIES = st.lists(
    st.text(st.characters(exclude_characters=",", exclude_categories=["Cs", "Z", "C"]), min_size=1)
)


@given(ENTRIES)
def test_a_comma_separated_list_is_split(entries: list[str]) -> None:
    assert split(",".join(entries)) == entries
    assert split(entries) == entries
    assert split([" , ".join(entries), ""]) == entries


def test_split_leaves_values_other_than_text_unchanged() -> None:
    assert split(None) is None
    assert split([1, "2,3", None]) == [1, "2", "3", None]


@given(st.datetimes(timezones=st.just(UTC)))
def test_an_instant_round_trips_through_iso_format(instant: datetime) -> None:
    assert read_moment(instant.isoformat()) == instant
    assert read_moment(instant.isoformat().replace("+00:00", "z")) == instant


@given(st.dates())
def test_a_day_round_trips_and_stays_a_date(day: date) -> None:
    read = read_moment(day.isoformat())
    assert (read, type(read)) == (day, date)
    assert read_day(f" {day.isoformat()} ") == day


@given(
    st.one_of(st.dates(), st.datetimes(), st.datetimes(timezones=st.timezones())), st.timezones()
)
def test_the_end_of_a_moment_is_after_its_start(moment: date, zone: ZoneInfo) -> None:
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
def test_an_instant_without_a_zone_is_read_in_the_configured_zone(
    text: str, instant: datetime
) -> None:
    moment = read_moment(text)
    assert (begin_of(moment, PARIS), end_of(moment, PARIS)) == (
        instant,
        instant + timedelta(milliseconds=1),
    )


def test_moments_at_the_ends_of_the_calendar_are_limited_to_it() -> None:
    east, west = ZoneInfo("Etc/GMT-14"), ZoneInfo("Etc/GMT+12")
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert begin_of(date.min, east) == first
    assert begin_of(datetime.fromisoformat("9999-12-31T13:00"), west) == last
    assert end_of(date.max, west) == end_of(last, east) == last
    assert begin_of(date(2, 1, 1), east) == datetime(1, 12, 31, 10, tzinfo=UTC)


def test_values_that_are_dates_already_are_unchanged() -> None:
    assert read_day(date(2026, 2, 3)) == date(2026, 2, 3)
    assert read_moment(datetime(2026, 2, 3, tzinfo=UTC)) == datetime(2026, 2, 3, tzinfo=UTC)


@every_case(
    "text", ["", "yesterday", "2026-02-30", "2026-13-01", "03/02/2026", "2026-02-03T25:00:00"]
)
def test_an_invalid_moment_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be a day"):
        read_moment(text)


@every_case("text", ["2026-02-03T10:00:00Z", "2026-02-31", "20260203"])
def test_an_invalid_day_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a day \(YYYY-MM-DD\)"):
        read_day(text)


def test_a_count_is_limited_to_its_column() -> None:
    assert COUNT.validate_python(str(LARGEST_COUNT)) == 2_147_483_647
    with pytest.raises(ValidationError):
        COUNT.validate_python(str(LARGEST_COUNT + 1))


def test_a_search_text_is_stripped_and_has_at_most_200_characters() -> None:
    text = TypeAdapter(SearchText)
    assert text.validate_python(f"  {'x' * 200} ") == "x" * 200
    with pytest.raises(ValidationError, match="at most 200 characters"):
        text.validate_python("x" * 201)
