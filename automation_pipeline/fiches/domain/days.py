"""What is known of one day's sales list, and whether that is as it should be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from statistics import median

from automation_pipeline.core.wall_clock import FIRST_PASS, instant_of
from automation_pipeline.fiches.domain.times import CRM_ZONE

# A list that was taken before its day was over is taken to be right for this long.
OPEN_DAY_FRESH_FOR = timedelta(hours=24)
# Volumes may differ from the median of the last same weekdays by this share, in either direction.
BAND = 0.5
WEEKDAYS_COMPARED = 4
FEWEST_COMPARED = 2
SATURDAY = 5
NAMED = 10


@dataclass(frozen=True)
class SalesDay:
    """The last sales list of a day that was understood. `listed` counts what the CRM sent, repeats included."""

    day: date
    revalidated_at: datetime
    listed: int
    duplicates: int
    new: int
    changed: int
    missing_cle: int
    without_recordings: int

    @property
    def fiches(self) -> int:
        return self.listed - self.duplicates


@dataclass(frozen=True)
class DayFailed:
    """The CRM gave no list for the day that could be used; what was known of it stays."""

    day: date
    error: str


@dataclass(frozen=True)
class Finding:
    """`grave` findings are errors, the others warnings."""

    check: str
    passed: bool
    says: str
    grave: bool = False


DAY_CHECKS = ("not_empty_on_a_weekday", "no_duplicate_ids", "volume_in_band", "every_fiche_has_a_cle")
STALE_CHECK = "no_stale_day"
NEVER_ASKED = "The day was never asked for."


def same_weekdays_before(day: date) -> tuple[date, ...]:
    return tuple(day - timedelta(weeks=weeks) for weeks in range(1, WEEKDAYS_COMPARED + 1))


def judge_day(known: SalesDay | None, earlier: Sequence[int]) -> tuple[Finding, ...]:
    """One finding a check. `earlier` are the volumes of the last same weekdays, as far as they are known."""
    if known is None:
        return never_asked(DAY_CHECKS)
    return (
        _not_empty(known),
        Finding("no_duplicate_ids", known.duplicates == 0, f"{known.duplicates} repeated ids.", grave=True),
        _in_band(known, earlier),
        Finding("every_fiche_has_a_cle", known.missing_cle == 0, f"{known.missing_cle} fiches without a cle."),
    )


def never_asked(checks: Sequence[str]) -> tuple[Finding, ...]:
    """Of a day that nobody asked for nothing is known: no check of it passes."""
    return tuple(Finding(check, passed=False, says=NEVER_ASKED, grave=True) for check in checks)


def is_final(day: date, revalidated_at: datetime) -> bool:
    """Taken after the day was over: asked again, the list would be the same."""
    day_ends = instant_of(datetime.combine(day + timedelta(days=1), time()), CRM_ZONE, FIRST_PASS)
    return revalidated_at >= day_ends


def stale_days(days: Sequence[date], asked: Mapping[date, datetime], now: datetime) -> tuple[date, ...]:
    """Those of the days that were never asked for, or last while they were running and too long ago."""
    return tuple(day for day in days if day not in asked or not _is_fresh(day, asked[day], now))


def judge_staleness(stale: Sequence[date], days: Sequence[date]) -> Finding:
    newest = sorted(stale, reverse=True)
    named = ", ".join(day.isoformat() for day in newest[:NAMED]) + (" …" if len(stale) > NAMED else "")
    says = f"{len(stale)} of the last {len(days)} days are stale: {named}"
    return Finding(STALE_CHECK, not stale, says if stale else f"The lists of the last {len(days)} days are fresh.")


def _is_fresh(day: date, revalidated_at: datetime, now: datetime) -> bool:
    return is_final(day, revalidated_at) or now - revalidated_at <= OPEN_DAY_FRESH_FOR


def _not_empty(known: SalesDay) -> Finding:
    weekend = known.day.weekday() >= SATURDAY
    says = f"{known.fiches} fiches on a {known.day:%A}."
    return Finding("not_empty_on_a_weekday", known.fiches > 0 or weekend, says, grave=True)


def _in_band(known: SalesDay, earlier: Sequence[int]) -> Finding:
    if len(earlier) < FEWEST_COMPARED:
        return Finding("volume_in_band", passed=True, says=f"Too few earlier {known.day:%A}s to compare with.")
    usual = median(earlier)
    low, high = usual * (1 - BAND), usual * (1 + BAND)
    says = f"{known.fiches} fiches; the last {len(earlier)} {known.day:%A}s suggest {low:.0f} to {high:.0f}."
    return Finding("volume_in_band", low <= known.fiches <= high, says)
