"""A cron expression in plain words, where it has a common form; all others speak for themselves."""

import re

from automation_pipeline.core.cron import MACROS

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_DAY_NAMES = {name[:3].upper(): number for number, name in enumerate(_DAYS[:7])}
_MONTH_NAMES = {name[:3].upper(): number for number, name in enumerate(_MONTHS, 1)}
_NUMBERS = re.compile(r"[0-9]{1,2}(,[0-9]{1,2})*")
_EVERY = re.compile(r"\*/([0-9]{1,2})")
_MOST_TIMES = 6


def in_words(expression: str) -> str:
    """Of one that can be read."""
    fields = MACROS.get(expression.strip().lower(), expression).upper().split()
    if len(fields) != 5:
        return expression
    minute, hour, day, month, weekday = fields
    when, days = _when(minute, hour), _days(day, month, weekday)
    if when is None or days is None:
        return expression
    is_by_the_hour = hour == "*" or hour.startswith("*/")
    every_day = "" if is_by_the_hour else " every day"
    return f"{when}{f' {days}' if days else every_day}"


def _when(minute: str, hour: str) -> str | None:
    if hour == "*" and minute in {"*", "*/1"}:
        return "Every minute"
    every_minutes, every_hours = _step(minute, 60), _step(hour, 24)
    if hour == "*" and every_minutes is not None:
        return f"Every {every_minutes} minutes"
    if not minute.isdecimal():
        return None
    past = f" at {int(minute)} minutes past" if int(minute) else ""
    if hour == "*":
        return f"Every hour{past}"
    if every_hours is not None:
        return f"Every {every_hours} hours{past}, from midnight on"
    return _at(minute, hour)


def _step(text: str, size: int) -> int | None:
    """None: it does not come round evenly."""
    found = _EVERY.fullmatch(text)
    step = int(found[1]) if found else 0
    return step if step > 1 and size % step == 0 else None


def _at(minute: str, hours: str) -> str | None:
    if not _NUMBERS.fullmatch(hours):
        return None
    times = [f"{hour:02}:{int(minute):02}" for hour in sorted(set(map(int, hours.split(","))))]
    return f"At {_listed(times)}" if len(times) <= _MOST_TIMES else None


def _days(day: str, month: str, weekday: str) -> str | None:
    """Empty: on all of them."""
    days, weekdays, months = _month_days(day), _weekdays(weekday), _months(month)
    if days is None or weekdays is None or months is None:
        return None
    # Either suffices where both are said.
    either = " or ".join(part for part in (days, weekdays) if part)
    if not either and months:
        return f"every day {months}"
    if months:
        return f"{either} {months}"
    return f"{either} of every month" if days and not weekdays else either


def _month_days(text: str) -> str | None:
    if text == "*":
        return ""
    if text == "L":
        return "on the last day"
    if not _NUMBERS.fullmatch(text):
        return None
    numbers = sorted(set(map(int, text.split(","))))
    return f"on day {numbers[0]}" if len(numbers) == 1 else f"on days {_listed(list(map(str, numbers)))}"


def _weekdays(text: str) -> str | None:
    if text == "*":
        return ""
    numbers = _span(text, _DAY_NAMES)
    if numbers is not None:
        first, last = numbers
        return f"from {_DAYS[first]} to {_DAYS[last]}"
    entries = [_number(entry, _DAY_NAMES) for entry in text.split(",")]
    known = sorted({(entry - 1) % 7 for entry in entries if entry is not None})
    return None if None in entries else f"on {_listed([_DAYS[number + 1] for number in known])}"


def _months(text: str) -> str | None:
    if text == "*":
        return ""
    numbers = _span(text, _MONTH_NAMES)
    if numbers is not None:
        return f"from {_MONTHS[numbers[0] - 1]} to {_MONTHS[numbers[1] - 1]}"
    entries = [_number(entry, _MONTH_NAMES) for entry in text.split(",")]
    known = sorted({entry for entry in entries if entry is not None})
    return None if None in entries else f"in {_listed([_MONTHS[number - 1] for number in known])}"


def _span(text: str, names: dict[str, int]) -> tuple[int, int] | None:
    first, _, last = text.partition("-")
    low, high = _number(first, names), _number(last, names)
    return None if low is None or high is None or low >= high else (low, high)


def _number(text: str, names: dict[str, int]) -> int | None:
    return int(text) if text.isdecimal() else names.get(text)


def _listed(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
