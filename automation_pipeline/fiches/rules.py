"""Rules of sales days: when a list is fresh or final, and the checks of a day."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from statistics import median

from automation_pipeline.core.scheduling.zones import FIRST_PASS, instant_of
from automation_pipeline.fiches.models.days import CRM_ZONE, DayCoverage, DayFinding, SalesDay

# A list that was fetched before the end of its day is fresh for this long.
OPEN_DAY_FRESH_FOR = timedelta(hours=24)
# The share by which a volume may differ from the median of the same weekday in earlier weeks.
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
NEVER_REQUESTED = "The day was never fetched."


def same_weekdays_before(day: date) -> tuple[date, ...]:
    return tuple(day - timedelta(weeks=weeks) for weeks in range(1, COMPARED_WEEKS + 1))


def evaluate_day(known: SalesDay | None, earlier: Sequence[int]) -> tuple[DayFinding, ...]:
    """Return one finding per check. `earlier` are the known volumes of the same weekday in earlier weeks."""
    if known is None:
        return never_requested(DAY_CHECKS)
    weekend = known.day.weekday() >= SATURDAY
    return (
        DayFinding(
            "not_empty_on_a_weekday",
            known.fiches > 0 or weekend,
            f"{known.fiches} fiches on a {known.day:%A}.",
            grave=True,
        ),
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
    """Return the findings for a day whose list was never fetched: no check passes."""
    return tuple(
        DayFinding(check, passed=False, message=NEVER_REQUESTED, grave=True) for check in checks
    )


def is_final(day: date, revalidated_at: datetime) -> bool:
    """Whether the list was fetched after the end of its day, after which it no longer changes."""
    day_ends = instant_of(datetime.combine(day + timedelta(days=1), time()), CRM_ZONE, FIRST_PASS)
    return revalidated_at >= day_ends


def stale_days(
    days: Sequence[date], revalidated: Mapping[date, datetime], now: datetime
) -> tuple[date, ...]:
    """Return the days without a list, and those whose list is neither final nor fresh."""
    return tuple(
        day
        for day in days
        if day not in revalidated
        or not (is_final(day, revalidated[day]) or now - revalidated[day] <= OPEN_DAY_FRESH_FOR)
    )


def evaluate_staleness(stale: Sequence[date], days: Sequence[date]) -> DayFinding:
    named = ", ".join(day.isoformat() for day in sorted(stale, reverse=True)[:MAX_NAMED_DAYS]) + (
        " …" if len(stale) > MAX_NAMED_DAYS else ""
    )
    message = f"{len(stale)} of the last {len(days)} days are stale: {named}"
    return DayFinding(
        STALE_CHECK,
        not stale,
        message if stale else f"The lists of the last {len(days)} days are fresh.",
    )


def _in_band(known: SalesDay, earlier: Sequence[int]) -> DayFinding:
    if len(earlier) < MIN_COMPARED_DAYS:
        return DayFinding(
            "volume_in_band",
            passed=True,
            message=f"Too few earlier {known.day:%A}s to compare with.",
        )
    usual = median(earlier)
    low, high = usual * (1 - VOLUME_BAND), usual * (1 + VOLUME_BAND)
    message = f"{known.fiches} fiches; the last {len(earlier)} {known.day:%A}s suggest {low:.0f} to {high:.0f}."
    return DayFinding("volume_in_band", low <= known.fiches <= high, message)


MIN_COVERAGE = 0.95
MAX_NOT_FOUND_SHARE = 0.05

COVERAGE_CHECKS = ("coverage", "not_found_share")


def evaluate_coverage(coverage: DayCoverage, *, has_sales_list: bool) -> tuple[DayFinding, ...]:
    """Return one finding per check. Without a sales list, no check passes."""
    if not has_sales_list:
        return never_requested(COVERAGE_CHECKS)
    message = f"{coverage.with_details} of {coverage.fiches} fiches have their details; {coverage.not_found} not found."
    return (
        DayFinding("coverage", coverage.share >= MIN_COVERAGE, message),
        DayFinding("not_found_share", coverage.not_found_share <= MAX_NOT_FOUND_SHARE, message),
    )
