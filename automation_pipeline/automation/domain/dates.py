"""The days that a selection is about: calendar days on the wall clock of the schedule's zone.

A day counts as one however long it is, so a change of the clocks neither adds nor takes away a day.
"""

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from automation_pipeline.automation.domain.selection import DatePreset, FicheSelection
from automation_pipeline.core.wall_clock import wall_time
from automation_pipeline.fiches.domain.times import crm_day

ONE_DAY = timedelta(days=1)


def days_of(selection: FicheSelection, now: datetime, zone: ZoneInfo) -> tuple[date, ...]:
    """Ascending, each once.

    | dateRange  | first day                                           | last day                           | days     |
    |------------|-----------------------------------------------------|------------------------------------|----------|
    | last_24h   | the day before today                                | today                              | 2        |
    | yesterday  | the day before today                                | the same                           | 1        |
    | last_week  | seven days before today                             | today                              | 8        |
    | last_month | today's number in the month before, or its last day | today                              | 29 to 32 |
    | custom     | customStartDate                                     | customEndDate, today at the latest | 0 and up |
    | (none)     |                                                     |                                    | 0        |

    Custom without an end is its first day alone. Dates that cannot be read, an end without a start and a start after
    the end give no days.
    """
    today = wall_time(now, zone).date()
    match selection.date_range:
        case DatePreset.LAST_24H:
            return _days(today - ONE_DAY, today)
        case DatePreset.YESTERDAY:
            return (today - ONE_DAY,)
        case DatePreset.LAST_WEEK:
            return _days(today - timedelta(weeks=1), today)
        case DatePreset.LAST_MONTH:
            return _days(_a_month_before(today), today)
        case DatePreset.CUSTOM:
            return _custom_days(selection, today)
        case None:
            return ()


def _custom_days(selection: FicheSelection, today: date) -> tuple[date, ...]:
    if not selection.custom_start_date:
        return ()
    try:
        first = crm_day(selection.custom_start_date)
        last = crm_day(selection.custom_end_date) if selection.custom_end_date else None
    except ValueError:  # refused when a schedule is saved; an older one may hold anything
        return ()
    return (first,) if last is None else _days(first, min(last, today))


def _a_month_before(day: date) -> date:
    last_of_month = day.replace(day=1) - ONE_DAY
    return last_of_month.replace(day=min(day.day, last_of_month.day))


def _days(first: date, last: date) -> tuple[date, ...]:
    return tuple(first + timedelta(days=number) for number in range((last - first).days + 1))
