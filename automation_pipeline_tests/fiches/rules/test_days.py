"""Sales days: the CRM's dates, ranges, freshness, and the checks of a day."""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.fiches.models.days import (
    MAX_RANGE_DAYS,
    DayCoverage,
    DayFinding,
    SalesDay,
    crm_day,
    crm_instant,
    paris_day,
    paris_minute,
    parse_day,
    requested_days,
)
from automation_pipeline.fiches.rules import (
    COVERAGE_CHECKS,
    DAY_CHECKS,
    evaluate_coverage,
    evaluate_day,
    evaluate_staleness,
    is_final,
    same_weekdays_before,
    stale_days,
)
from automation_pipeline_tests.cases import every_case

TUESDAY, SUNDAY = date(2026, 2, 3), date(2026, 2, 8)
# Midnight in Paris at the end of that Tuesday.
TUESDAY_ENDS = datetime(2026, 2, 3, 23, 0, tzinfo=UTC)


def sales_day(
    day: date = TUESDAY, revalidated_at: datetime = TUESDAY_ENDS, listed: int = 20, **counts: int
) -> SalesDay:
    other_counts = {
        "duplicates": 0,
        "new": 0,
        "changed": 0,
        "missing_cle": 0,
        "without_recordings": 0,
        **counts,
    }
    return SalesDay(day=day, revalidated_at=revalidated_at, listed=listed, **other_counts)


def test_the_findings_of_a_day_have_messages_and_severities() -> None:
    known = sales_day(listed=12, duplicates=2, missing_cle=3)
    assert evaluate_day(known, (20, 18)) == (
        DayFinding("not_empty_on_a_weekday", True, "10 fiches on a Tuesday.", grave=True),
        DayFinding("no_duplicate_ids", False, "2 repeated ids.", grave=True),
        DayFinding("volume_in_band", True, "10 fiches; the last 2 Tuesdays suggest 10 to 28."),
        DayFinding("every_fiche_has_a_cle", False, "3 fiches without a cle."),
    )
    assert evaluate_day(known, (20,))[2] == DayFinding(
        "volume_in_band", True, "Too few earlier Tuesdays to compare with."
    )
    assert evaluate_day(None, ())[0] == DayFinding(
        "not_empty_on_a_weekday", False, "The day was never fetched.", grave=True
    )


def passed(check: str, known: SalesDay | None, earlier: tuple[int, ...] = ()) -> bool:
    return {finding.check: finding.passed for finding in evaluate_day(known, earlier)}[check]


def test_every_day_check_returns_exactly_one_finding() -> None:
    for known in (None, sales_day()):
        assert tuple(finding.check for finding in evaluate_day(known, ())) == DAY_CHECKS


def test_a_day_that_was_never_fetched_passes_no_check() -> None:
    assert not any(finding.passed for finding in evaluate_day(None, (20, 20)))


@every_case(
    ("fetched_at", "now", "fresh"),
    [
        (TUESDAY_ENDS, TUESDAY_ENDS + timedelta(days=400), True),
        (TUESDAY_ENDS - timedelta(minutes=1), TUESDAY_ENDS, True),
        (TUESDAY_ENDS - timedelta(hours=10), TUESDAY_ENDS + timedelta(hours=14), True),
        (TUESDAY_ENDS - timedelta(hours=10), TUESDAY_ENDS + timedelta(hours=14, minutes=1), False),
    ],
)
def test_a_final_list_never_becomes_stale_and_an_earlier_one_does_after_a_day(
    fetched_at: datetime, now: datetime, fresh: bool
) -> None:
    assert stale_days([TUESDAY], {TUESDAY: fetched_at}, now) == (() if fresh else (TUESDAY,))


@every_case(("early", "final"), [(timedelta(), True), (timedelta(microseconds=1), False)])
def test_a_list_fetched_after_midnight_in_paris_is_final(early: timedelta, final: bool) -> None:
    assert is_final(TUESDAY, TUESDAY_ENDS - early) is final


def test_a_day_that_was_never_fetched_is_reported_stale() -> None:
    days = [TUESDAY, SUNDAY]
    stale = stale_days(
        days, {SUNDAY: TUESDAY_ENDS + timedelta(days=5)}, TUESDAY_ENDS + timedelta(days=6)
    )
    finding = evaluate_staleness(stale, days)
    assert (finding.passed, finding.message) == (
        False,
        "1 of the last 2 days are stale: 2026-02-03",
    )
    assert finding.check == "no_stale_day"
    assert not finding.grave
    fresh = evaluate_staleness((), days)
    assert (fresh.passed, fresh.message) == (True, "The lists of the last 2 days are fresh.")
    many = [TUESDAY + timedelta(days=n) for n in range(11)]
    assert evaluate_staleness(many[:10], many).message.endswith("2026-02-04, 2026-02-03")
    assert evaluate_staleness(many, many).message == (
        "11 of the last 11 days are stale: 2026-02-13, 2026-02-12, 2026-02-11, 2026-02-10, 2026-02-09, "
        "2026-02-08, 2026-02-07, 2026-02-06, 2026-02-05, 2026-02-04 …"
    )


@every_case(("day", "listed", "fine"), [(TUESDAY, 0, False), (TUESDAY, 1, True), (SUNDAY, 0, True)])
def test_an_empty_list_fails_the_check_on_weekdays_only(day: date, listed: int, fine: bool) -> None:
    assert passed("not_empty_on_a_weekday", sales_day(day, listed=listed)) is fine


@every_case(
    ("listed", "earlier", "fine"),
    [
        (20, (), True),
        (500, (20,), True),
        (30, (20, 20, 20), True),
        (31, (20, 20, 20), False),
        (11, (20, 18, 22, 500), True),
        (9, (20, 20), False),
        (0, (0, 0), True),
    ],
)
def test_the_volume_check_allows_half_more_or_less_than_usual(
    listed: int, earlier: tuple[int, ...], fine: bool
) -> None:
    assert passed("volume_in_band", sales_day(listed=listed), earlier) is fine


def test_duplicate_ids_and_missing_cles_fail_their_checks() -> None:
    assert not passed("no_duplicate_ids", sales_day(duplicates=1))
    assert not passed("every_fiche_has_a_cle", sales_day(missing_cle=1))
    assert passed("no_duplicate_ids", sales_day())
    assert passed("every_fiche_has_a_cle", sales_day())


def test_the_same_weekday_of_the_four_previous_weeks_is_compared() -> None:
    assert same_weekdays_before(TUESDAY) == (
        date(2026, 1, 27),
        date(2026, 1, 20),
        date(2026, 1, 13),
        date(2026, 1, 6),
    )


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
        ("03/02/2026 10:12", utc(2026, 2, 3, 9, 12)),  # the third of February
        ("12/11/2026 10:12", utc(2026, 11, 12, 9, 12)),
        ("13/02/2026 10:12:59", utc(2026, 2, 13, 9, 12, 59)),
        (" 03/02/2026 10:12\n", utc(2026, 2, 3, 9, 12)),
        ("01/01/2026 00:30", utc(2025, 12, 31, 23, 30)),
    ],
)
def test_crm_timestamps_are_parsed_to_utc(text: str, instant: datetime) -> None:
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
        ("25/10/2026 02:30", utc(2026, 10, 25, 0, 30)),  # occurs twice: the first one
        ("25/10/2026 03:00", utc(2026, 10, 25, 2, 0)),
        ("2026-03-29T02:30", utc(2026, 3, 29, 1, 0)),
        ("2026-10-25T02:30+01:00", utc(2026, 10, 25, 1, 30)),  # the offset says which one
    ],
)
def test_local_times_around_daylight_saving_changes_are_parsed(
    text: str, instant: datetime
) -> None:
    assert crm_instant(text) == instant


@every_case(
    ("text", "reason"),
    [
        ("", "not in the CRM's date format"),
        ("hier", "not in the CRM's date format"),
        ("3/2/2026 10:12", "not in the CRM's date format"),
        ("2026/02/03 10:12", "not in the CRM's date format"),
        ("03-02-2026 10:12", "not in the CRM's date format"),
        ("20260203T1012", "not in the CRM's date format"),
        ("2026-W06-2T10:12", "not in the CRM's date format"),
        ("03/02/26 10:12", "not in the CRM's date format"),
        ("03/02/2026 10h12", "not in the CRM's date format"),
        ("٠٣/٠٢/٢٠٢٦ ١٠:١٢", "not in the CRM's date format"),
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
def test_an_invalid_timestamp_raises_an_error_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        crm_instant(text)


@every_case(
    ("text", "day"),
    [
        ("03/02/2026", date(2026, 2, 3)),
        ("03/02/2026 23:59", date(2026, 2, 3)),
        ("2026-02-03", date(2026, 2, 3)),
        ("2026-02-03T00:30:00", date(2026, 2, 3)),
        ("2026-02-03T23:30:00Z", date(2026, 2, 4)),  # the next day in Paris
        ("29/03/2026 02:30", date(2026, 3, 29)),
    ],
)
def test_a_crm_day_is_the_day_in_paris(text: str, day: date) -> None:
    assert crm_day(text) == day


@every_case("text", ["", "31/02/2026", "2026", "03/2026", "02/13/2026", "01/01/0001"])
def test_an_invalid_crm_day_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="is"):
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
def test_an_instant_is_formatted_in_paris_time(instant: datetime, day: str, minute: str) -> None:
    assert (paris_day(instant), paris_minute(instant)) == (day, minute)


@given(
    st.text()
    | st.from_regex(
        r"\d\d/\d\d/\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(Z|[+-]\d\d:\d\d)?", fullmatch=True
    )
)
def test_any_text_parses_to_utc_or_raises_value_error(text: str) -> None:
    with suppress(ValueError):
        assert crm_instant(text).tzinfo is UTC


TODAY = date(2026, 5, 4)


@every_case(
    ("start", "end", "days"),
    [
        (date(2026, 5, 1), date(2026, 5, 3), 3),
        (date(2026, 5, 4), date(2026, 5, 4), 1),
        (date(2026, 5, 3), date(2026, 5, 9), 2),
        (date(2026, 5, 5), date(2026, 5, 9), 0),
        (date(1900, 1, 1), date(1900, 1, 2), 2),
        (date(2026, 5, 3), date.max, 2),
        (date(2025, 5, 4), date(2026, 5, 4), 366),
    ],
)
def test_requested_days_end_today_at_the_latest(start: date, end: date, days: int) -> None:
    days_requested = requested_days(start, end, TODAY)
    assert len(days_requested) == days
    assert days_requested == tuple(start + timedelta(days=n) for n in range(days))


@every_case(
    ("start", "end", "message"),
    [
        (date(2026, 5, 3), date(2026, 5, 2), "startDate must be before or equal to endDate"),
        (date(2026, 5, 9), date(2026, 5, 8), "startDate must be before or equal to endDate"),
        (date(2025, 5, 3), date(2026, 5, 4), "A range may have at most 366 days"),
        (date(1850, 1, 1), date(1850, 1, 1), "startDate must not be before the year 1900"),
    ],
)
def test_an_invalid_range_is_rejected(start: date, end: date, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        requested_days(start, end, TODAY)


@given(st.dates(), st.dates())
def test_requested_days_are_consecutive_and_within_the_range(start: date, end: date) -> None:
    try:
        days = requested_days(start, end, TODAY)
    except InvalidInputError:
        return
    assert len(days) <= MAX_RANGE_DAYS
    assert all(start <= day <= min(end, TODAY) for day in days)
    assert all(later - earlier == timedelta(days=1) for earlier, later in pairwise(days))


def test_an_iso_date_is_parsed() -> None:
    assert parse_day("2026-02-28", "no") == date(2026, 2, 28)


@every_case(
    "text",
    [None, "", "2026-02-29", "28/02/2026", "20260228", "2026-2-8", "2026-02-28T00:00:00", " 2026-02-28", "1899-12-31",
     "2200-01-01", "２０２６-02-28", "2026-W05-1", "x"],
)  # fmt: skip
def test_text_other_than_an_iso_date_is_rejected(text: str | None) -> None:
    with pytest.raises(InvalidInputError, match="Use YYYY"):
        parse_day(text, "Use YYYY-MM-DD")


@every_case(
    ("coverage", "share", "not_found_share", "verdicts"),
    [
        (DayCoverage(0, 0, 0), 1.0, 0.0, (True, True)),
        (DayCoverage(100, 100, 0), 1.0, 0.0, (True, True)),
        (DayCoverage(100, 95, 5), 1.0, 0.05, (True, True)),
        (DayCoverage(100, 95, 0), 0.95, 0.0, (True, True)),
        (DayCoverage(100, 94, 0), 0.94, 0.0, (False, True)),
        (DayCoverage(100, 94, 6), 1.0, 0.06, (True, False)),
        (DayCoverage(10, 0, 0), 0.0, 0.0, (False, True)),
        (DayCoverage(10, 0, 10), 1.0, 1.0, (True, False)),
    ],
)
def test_coverage_shares_determine_the_findings(
    coverage: DayCoverage, share: float, not_found_share: float, verdicts: tuple[bool, ...]
) -> None:
    assert (coverage.share, coverage.not_found_share) == (share, not_found_share)
    findings = evaluate_coverage(coverage, has_sales_list=True)
    assert tuple(finding.check for finding in findings) == COVERAGE_CHECKS
    assert tuple(finding.passed for finding in findings) == verdicts
    message = (
        f"{coverage.with_details} of {coverage.fiches} fiches have their details; "
        f"{coverage.not_found} not found."
    )
    assert {(finding.message, finding.grave) for finding in findings} == {(message, False)}


@every_case("coverage", [DayCoverage(0, 0, 0), DayCoverage(3, 3, 0)])
def test_a_day_without_a_list_passes_no_coverage_check(coverage: DayCoverage) -> None:
    findings = evaluate_coverage(coverage, has_sales_list=False)
    assert tuple(finding.check for finding in findings) == COVERAGE_CHECKS
    assert [(finding.passed, finding.grave, finding.message) for finding in findings] == [
        (False, True, "The day was never fetched.")
    ] * 2


def test_fiches_without_details_are_the_remainder_of_the_listed_ones() -> None:
    assert DayCoverage(10, 6, 1).without_details == 3
