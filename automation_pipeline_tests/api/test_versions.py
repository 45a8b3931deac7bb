"""The version that a caller has seen, by its ETag or by the instant that was shown."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.api.etags import (
    etag_of,
    expected_instant,
    expected_number,
    expected_version,
)
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.tables import every_case

CHANGED = datetime(2026, 5, 4, 10, 0, 0, 123456, UTC)
instants = st.datetimes(datetime(1970, 1, 1), datetime(5000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  bounds


@given(instants)
def test_an_etag_is_the_instant_to_the_microsecond(at: datetime) -> None:
    assert expected_instant(etag_of(at), {"updatedAt": "nonsense"}) == (at, {})
    is_expected, _ = expected_version(f"W/{etag_of(at)}", {})
    assert is_expected is not None
    assert is_expected(at)


def test_what_was_shown_is_the_instant_to_the_millisecond() -> None:
    instant, patch = expected_instant(None, {"updatedAt": iso(CHANGED), "name": "x"})
    assert (instant, patch) == (CHANGED.replace(microsecond=123000), {"name": "x"})


@every_case("if_match", [None, "*", " * "])
def test_without_either_any_version_will_do(if_match: str | None) -> None:
    assert expected_instant(if_match, {"name": "x"}) == (None, {"name": "x"})
    assert expected_version(if_match, {"name": "x"}) == (None, {"name": "x"})


@every_case(
    ("if_match", "shown", "expected"),
    [
        ('"7"', None, 7),
        ('W/"0"', iso(CHANGED), 0),
        (None, iso(CHANGED), CHANGED.replace(microsecond=123000)),
        ("*", None, None),
    ],
)
def test_a_version_may_be_a_number(
    if_match: str | None, shown: str | None, expected: object
) -> None:
    assert expected_number(if_match, {"updatedAt": shown, "name": "x"}) == (expected, {"name": "x"})


@every_case("if_match", ["", "1", '"x"', '"1", "2"', '"-1"', '"123456789012345678"'])
def test_what_is_no_etag_of_ours_is_refused(if_match: str) -> None:
    for read in (expected_instant, expected_number, expected_version):
        with pytest.raises(InvalidInputError) as refused:
            read(if_match, {})
        assert refused.value.fields[0][0] == "If-Match"


@every_case(
    "shown",
    [5, "yesterday", "2026-05-04", "2026-05-04T10:00:00", "9999-12-31T23:59:59.999-14:00", ""],
)
def test_what_was_never_shown_so_is_refused(shown: object) -> None:
    with pytest.raises(InvalidInputError) as refused:
        expected_instant(None, {"updatedAt": shown})
    assert refused.value.fields[0][0] == "updatedAt"
