"""When a schedule is run next: short months, leap days, clock changes, what is skipped."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from automation_pipeline.automation.models.schedules import Schedule, parse_schedule
from automation_pipeline.automation.rules.schedules import next_due, next_to_skip, occurrences_after
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline_tests.tables import every_case

MANUAL: dict[str, Any] = {
    "name": "Sales",
    "scheduleType": "MANUAL",
    "ficheSelection": {"mode": "manual"},
}
MONTHLY = {"scheduleType": "MONTHLY", "timeOfDay": "09:00"}
DAILY = {"scheduleType": "DAILY", "timeOfDay": "09:00"}
NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


def stored(**fields: object) -> Schedule:
    given, known = MANUAL | DAILY, set(Schedule.model_fields)
    columns = {name: value for name, value in fields.items() if name in known}
    read = parse_schedule(
        given | {name: value for name, value in fields.items() if name not in known}
    )
    nothing = dict.fromkeys(
        ("last_run_at", "last_run_status", "paused_reason", "skip_due_at", "last_due_at")
    )
    counters = dict.fromkeys(
        ("failures_in_a_row", "total_runs", "successful_runs", "failed_runs"), 0
    )
    of_row = {"id": 1, "created_at": NOW, "updated_at": NOW, **nothing, **counters}
    return Schedule.model_validate({**read.model_dump(), **of_row, **columns})


@every_case(
    ("day", "short_months", "year", "days"),
    [
        (31, "skip", 2027, "01-31 03-31 05-31 07-31 08-31 10-31 12-31"),
        (
            31,
            "last_day",
            2027,
            "01-31 02-28 03-31 04-30 05-31 06-30 07-31 08-31 09-30 10-31 11-30 12-31",
        ),
        (
            31,
            "last_day",
            2028,
            "01-31 02-29 03-31 04-30 05-31 06-30 07-31 08-31 09-30 10-31 11-30 12-31",
        ),
        (30, "skip", 2027, "01-30 03-30 04-30 05-30 06-30 07-30 08-30 09-30 10-30 11-30 12-30"),
        (
            30,
            "last_day",
            2027,
            "01-30 02-28 03-30 04-30 05-30 06-30 07-30 08-30 09-30 10-30 11-30 12-30",
        ),
        (
            30,
            "last_day",
            2028,
            "01-30 02-29 03-30 04-30 05-30 06-30 07-30 08-30 09-30 10-30 11-30 12-30",
        ),
        (29, "skip", 2027, "01-29 03-29 04-29 05-29 06-29 07-29 08-29 09-29 10-29 11-29 12-29"),
        (
            29,
            "skip",
            2028,
            "01-29 02-29 03-29 04-29 05-29 06-29 07-29 08-29 09-29 10-29 11-29 12-29",
        ),
        (
            29,
            "last_day",
            2027,
            "01-29 02-28 03-29 04-29 05-29 06-29 07-29 08-29 09-29 10-29 11-29 12-29",
        ),
        (
            29,
            "last_day",
            2028,
            "01-29 02-29 03-29 04-29 05-29 06-29 07-29 08-29 09-29 10-29 11-29 12-29",
        ),
        (
            28,
            "last_day",
            2027,
            "01-28 02-28 03-28 04-28 05-28 06-28 07-28 08-28 09-28 10-28 11-28 12-28",
        ),
    ],
)
def test_a_month_that_is_too_short_is_left_out_or_ends_the_wait(
    day: int, short_months: str, year: int, days: str
) -> None:
    schedule = parse_schedule({**MANUAL, **MONTHLY, "dayOfMonth": day, "shortMonths": short_months})
    coming = islice(occurrences_after(schedule, datetime(year, 1, 1, tzinfo=UTC)), 20)
    assert " ".join(f"{at:%m-%d}" for at in coming if at.year == year) == days


@every_case(
    ("now", "fields", "due", "to_skip"),
    [
        ("04 10:00", {}, "05 09:00", "05 09:00"),
        ("04 08:59", {}, "04 09:00", "04 09:00"),
        ("04 10:00", {"scheduleType": "MANUAL"}, None, None),
        ("04 10:00", {"is_active": False}, None, None),
        ("04 10:00", {"skip_due_at": "05 09:00"}, "06 09:00", "06 09:00"),
        ("04 10:00", {"skip_due_at": "07 09:00"}, "08 09:00", "08 09:00"),
        ("04 10:00", {"skip_due_at": "01 09:00"}, "05 09:00", "05 09:00"),
        ("04 09:00", {}, "05 09:00", "04 09:00"),
        ("04 09:00", {"last_due_at": "04 09:00"}, "05 09:00", "05 09:00"),
        ("04 09:20", {"jitterSeconds": 1800, "last_due_at": "03 09:00"}, "05 09:00", "04 09:00"),
        ("04 09:20", {"jitterSeconds": 1800, "last_due_at": "04 09:00"}, "05 09:00", "05 09:00"),
        ("04 09:20", {"jitterSeconds": 1800, "skip_due_at": "04 09:00"}, "05 09:00", "05 09:00"),
    ],
)
def test_the_next_occurrence_is_the_first_that_is_neither_decided_nor_skipped(
    now: str, fields: dict[str, object], due: str | None, to_skip: str | None
) -> None:
    def at(text: object) -> object:
        is_instant = isinstance(text, str) and ":" in text
        return (
            datetime.strptime(f"2026-05-{text} +0000", "%Y-%m-%d %H:%M %z") if is_instant else text
        )

    schedule, instant = stored(**{name: at(value) for name, value in fields.items()}), at(now)
    assert isinstance(instant, datetime)
    assert (next_due(schedule, instant), next_to_skip(schedule, instant)) == (at(due), at(to_skip))


@every_case(
    ("place", "changes_on", "local"),
    [
        ("Europe/Paris", (2026, 3, 29), "03:00 +02:00, 02:30 +02:00"),
        ("Europe/Paris", (2026, 10, 25), "02:30 +01:00, 02:30 +01:00"),
        ("America/New_York", (2026, 3, 8), "03:00 -04:00, 02:30 -04:00"),
        ("America/New_York", (2026, 11, 1), "01:30 -05:00, 01:30 -05:00"),
    ],
)
def test_a_day_of_a_clock_change_has_one_occurrence(
    place: str, changes_on: tuple[int, int, int], local: str
) -> None:
    schedule = parse_schedule({**MANUAL, **DAILY, "timezone": place, "timeOfDay": local[-12:-7]})
    day_before = datetime(*changes_on, 12, tzinfo=UTC) - timedelta(days=1)
    coming = [
        at.astimezone(zone(place)) for at in islice(occurrences_after(schedule, day_before), 2)
    ]
    assert ", ".join(f"{at:%H:%M} {at.isoformat()[-6:]}" for at in coming) == local
    assert coming[0].date() == datetime(*changes_on, tzinfo=UTC).date()
