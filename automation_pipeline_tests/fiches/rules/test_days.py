"""Is a day's sales list as it should be? The rules as tables."""

from datetime import UTC, date, datetime, timedelta

from automation_pipeline.fiches.models.days import SalesDay
from automation_pipeline.fiches.rules import (
    DAY_CHECKS,
    evaluate_day,
    evaluate_staleness,
    is_final,
    same_weekdays_before,
    stale_days,
)
from automation_pipeline_tests.tables import every_case

TUESDAY, SUNDAY = date(2026, 2, 3), date(2026, 2, 8)
# Midnight in Paris at the end of that Tuesday.
TUESDAY_ENDS = datetime(2026, 2, 3, 23, 0, tzinfo=UTC)


def a_day(
    day: date = TUESDAY, revalidated_at: datetime = TUESDAY_ENDS, listed: int = 20, **counts: int
) -> SalesDay:
    rest = {
        "duplicates": 0,
        "new": 0,
        "changed": 0,
        "missing_cle": 0,
        "without_recordings": 0,
        **counts,
    }
    return SalesDay(day=day, revalidated_at=revalidated_at, listed=listed, **rest)


def passed(check: str, known: SalesDay | None, earlier: tuple[int, ...] = ()) -> bool:
    return {finding.check: finding.passed for finding in evaluate_day(known, earlier)}[check]


def test_every_check_gives_exactly_one_finding() -> None:
    for known in (None, a_day()):
        assert tuple(finding.check for finding in evaluate_day(known, ())) == DAY_CHECKS


def test_a_day_that_was_never_asked_for_passes_nothing() -> None:
    assert not any(finding.passed for finding in evaluate_day(None, (20, 20)))


@every_case(
    ("taken", "now", "fresh"),
    [
        (TUESDAY_ENDS, TUESDAY_ENDS + timedelta(days=400), True),
        (TUESDAY_ENDS - timedelta(minutes=1), TUESDAY_ENDS, True),
        (TUESDAY_ENDS - timedelta(hours=10), TUESDAY_ENDS + timedelta(hours=14), True),
        (TUESDAY_ENDS - timedelta(hours=10), TUESDAY_ENDS + timedelta(hours=14, minutes=1), False),
    ],
)
def test_a_list_is_final_once_its_day_is_over_and_fresh_for_a_day_before(
    taken: datetime, now: datetime, fresh: bool
) -> None:
    assert stale_days([TUESDAY], {TUESDAY: taken}, now) == (() if fresh else (TUESDAY,))


@every_case(("early", "final"), [(timedelta(), True), (timedelta(microseconds=1), False)])
def test_a_list_is_final_from_midnight_in_paris_on(early: timedelta, final: bool) -> None:
    assert is_final(TUESDAY, TUESDAY_ENDS - early) is final


def test_a_day_that_was_never_asked_for_is_stale_and_named() -> None:
    days = [TUESDAY, SUNDAY]
    stale = stale_days(
        days, {SUNDAY: TUESDAY_ENDS + timedelta(days=5)}, TUESDAY_ENDS + timedelta(days=6)
    )
    finding = evaluate_staleness(stale, days)
    assert (finding.passed, finding.says) == (False, "1 of the last 2 days are stale: 2026-02-03")
    assert evaluate_staleness((), days).passed


@every_case(("day", "listed", "fine"), [(TUESDAY, 0, False), (TUESDAY, 1, True), (SUNDAY, 0, True)])
def test_a_weekday_has_sales(day: date, listed: int, fine: bool) -> None:
    assert passed("not_empty_on_a_weekday", a_day(day, listed=listed)) is fine


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
def test_the_volume_stays_within_half_of_the_usual(
    listed: int, earlier: tuple[int, ...], fine: bool
) -> None:
    assert passed("volume_in_band", a_day(listed=listed), earlier) is fine


def test_repeated_ids_and_missing_cles_are_found() -> None:
    assert not passed("no_duplicate_ids", a_day(duplicates=1))
    assert not passed("every_fiche_has_a_cle", a_day(missing_cle=1))
    assert passed("no_duplicate_ids", a_day())
    assert passed("every_fiche_has_a_cle", a_day())


def test_the_same_weekdays_are_compared() -> None:
    assert same_weekdays_before(TUESDAY) == (
        date(2026, 1, 27),
        date(2026, 1, 20),
        date(2026, 1, 13),
        date(2026, 1, 6),
    )
