"""Checks of a day's sales list and details: freshness, volume, coverage."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from statistics import median

from automation_pipeline.core.scheduling.zones import FIRST_PASS, instant_of
from automation_pipeline.fiches.models.days import CRM_ZONE, DayCoverage, DayFinding, SalesDay

# A list that was taken before its day was over is taken to be right for this long.
OPEN_DAY_FRESH_FOR = timedelta(hours=24)
# Volumes may differ from the median of the last same weekdays by this share, in either direction.
VOLUME_BAND = 0.5
COMPARED_WEEKS = 4
MIN_COMPARED_DAYS = 2
SATURDAY = 5
MAX_NAMED_DAYS = 10

DAY_CHECKS = (
    "not_empty_on_a_weekday",
    "no_duplicate_ids",
    "volume_in_band",
    "every_fiche_has_a_cle",
)
STALE_CHECK = "no_stale_day"
NEVER_REQUESTED = "The day was never asked for."


def same_weekdays_before(day: date) -> tuple[date, ...]:
    return tuple(day - timedelta(weeks=weeks) for weeks in range(1, COMPARED_WEEKS + 1))


def evaluate_day(known: SalesDay | None, earlier: Sequence[int]) -> tuple[DayFinding, ...]:
    """One finding a check. `earlier` are the volumes of the last same weekdays, as far as they are
    known."""
    if known is None:
        return never_requested(DAY_CHECKS)
    return (
        _not_empty(known),
        DayFinding(
            "no_duplicate_ids",
            known.duplicates == 0,
            f"{known.duplicates} repeated ids.",
            grave=True,
        ),
        _in_band(known, earlier),
        DayFinding(
            "every_fiche_has_a_cle",
            known.missing_cle == 0,
            f"{known.missing_cle} fiches without a cle.",
        ),
    )


def never_requested(checks: Sequence[str]) -> tuple[DayFinding, ...]:
    """Of a day that nobody asked for nothing is known: no check of it passes."""
    return tuple(
        DayFinding(check, passed=False, says=NEVER_REQUESTED, grave=True) for check in checks
    )


def is_final(day: date, revalidated_at: datetime) -> bool:
    """Taken after the day was over: asked again, the list would be the same."""
    day_ends = instant_of(datetime.combine(day + timedelta(days=1), time()), CRM_ZONE, FIRST_PASS)
    return revalidated_at >= day_ends


def stale_days(
    days: Sequence[date], asked: Mapping[date, datetime], now: datetime
) -> tuple[date, ...]:
    """Those of the days that were never asked for, or last while they were running and too long
    ago."""
    return tuple(day for day in days if day not in asked or not _is_fresh(day, asked[day], now))


def evaluate_staleness(stale: Sequence[date], days: Sequence[date]) -> DayFinding:
    newest = sorted(stale, reverse=True)
    named = ", ".join(day.isoformat() for day in newest[:MAX_NAMED_DAYS]) + (
        " …" if len(stale) > MAX_NAMED_DAYS else ""
    )
    says = f"{len(stale)} of the last {len(days)} days are stale: {named}"
    return DayFinding(
        STALE_CHECK,
        not stale,
        says if stale else f"The lists of the last {len(days)} days are fresh.",
    )


def _is_fresh(day: date, revalidated_at: datetime, now: datetime) -> bool:
    return is_final(day, revalidated_at) or now - revalidated_at <= OPEN_DAY_FRESH_FOR


def _not_empty(known: SalesDay) -> DayFinding:
    weekend = known.day.weekday() >= SATURDAY
    says = f"{known.fiches} fiches on a {known.day:%A}."
    return DayFinding("not_empty_on_a_weekday", known.fiches > 0 or weekend, says, grave=True)


def _in_band(known: SalesDay, earlier: Sequence[int]) -> DayFinding:
    if len(earlier) < MIN_COMPARED_DAYS:
        return DayFinding(
            "volume_in_band", passed=True, says=f"Too few earlier {known.day:%A}s to compare with."
        )
    usual = median(earlier)
    low, high = usual * (1 - VOLUME_BAND), usual * (1 + VOLUME_BAND)
    says = f"{known.fiches} fiches; the last {len(earlier)} {known.day:%A}s suggest {low:.0f} to {high:.0f}."
    return DayFinding("volume_in_band", low <= known.fiches <= high, says)


MIN_COVERAGE = 0.95
MAX_NOT_FOUND_SHARE = 0.05

COVERAGE_CHECKS = ("coverage", "not_found_share")


def evaluate_coverage(coverage: DayCoverage, *, asked: bool) -> tuple[DayFinding, ...]:
    """One finding a check. Without a sales list (`asked`), that no details are missing says
    nothing."""
    if not asked:
        return never_requested(COVERAGE_CHECKS)
    says = f"{coverage.with_details} of {coverage.fiches} fiches have their details; {coverage.not_found} not found."
    return (
        DayFinding("coverage", coverage.share >= MIN_COVERAGE, says),
        DayFinding("not_found_share", coverage.not_found_share <= MAX_NOT_FOUND_SHARE, says),
    )
