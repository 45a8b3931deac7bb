"""What single fields of rules and policies must be. Each rule answers the value as it is kept."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from automation_pipeline.core.json_model import Instant
from automation_pipeline.pricing.domain.money import LARGEST_AMOUNT, is_currency

MOST_NAMES = 10_000
MOST_DECIMALS = 6
# With these bounds all arithmetic on rules and prices is exact in Python's 28 decimal digits.
LARGEST_NUMBER = Decimal(LARGEST_AMOUNT)

Untouched = Literal["untouched"]
PriceBefore = Literal["before"]
UNTOUCHED: Untouched = "untouched"
PRICE_BEFORE: PriceBefore = "before"

_DIGITS = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?")
_ENDING = re.compile(r"[0-9]{0,3}(\.[0-9]{1,3})?")
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt _].*)?", re.DOTALL)
_SUCH_AS = "such as 2026-05-04T02:00:00Z"


def _number(given: object) -> Decimal:
    number = _read(given)
    if number is None:
        raise ValueError("must be a number")
    if not number.is_finite():
        raise ValueError("must be a finite number")
    if abs(number) > LARGEST_NUMBER:
        raise ValueError(f"must lie between -{LARGEST_AMOUNT} and {LARGEST_AMOUNT}")
    if number != round(number, MOST_DECIMALS):
        raise ValueError(f"must have at most {MOST_DECIMALS} decimals")
    return number


def _read(given: object) -> Decimal | None:
    """A float is the decimal that it is written as."""
    match given:
        case bool():
            return None
        case int() | Decimal():
            return Decimal(given)
        case float():
            return Decimal(repr(given))
        case str():
            return Decimal(given) if _DIGITS.fullmatch(given) else None
        case _:
            return None


def _shown(number: Decimal) -> int | float:
    """So that 10, 10.0 and "10" are written alike."""
    return int(number) if number == int(number) else float(number)


def _amount(given: object) -> int:
    number = _number(given)
    if number != int(number):
        raise ValueError("must be a whole number of minor units, such as 1299 for 12.99")
    if number < 0:
        raise ValueError("must be at least 0")
    return int(number)


def _currency(text: str) -> str:
    if not is_currency(text):
        raise ValueError("must be a currency of three capital letters, such as EUR")
    return text


def some(given: object) -> object:
    """Checked before the entries are: pydantic counts only those that are well."""
    entries = cast("list[object]", given) if isinstance(given, list | tuple) else [given]
    if not 0 < len(entries) <= MOST_NAMES:
        raise ValueError(f"must have 1 to {MOST_NAMES} entries")
    return cast("object", given)


def _names(given: object) -> object:
    """One text is a list of one; each is kept once, without the blanks around it."""
    if isinstance(given, str):
        return _names([given])
    if not isinstance(given, list | tuple):
        return given
    entries = [entry.strip() if isinstance(entry, str) else entry for entry in cast("list[object]", given)]
    if any(entry == "" for entry in entries):
        raise ValueError("must not hold an empty text")
    return list(dict.fromkeys(entries)) if all(isinstance(entry, str) for entry in entries) else entries


def _compare_at(given: object) -> object:
    if given is None or (isinstance(given, str) and given in {UNTOUCHED, PRICE_BEFORE}):
        return given
    try:
        return _amount(given)
    except ValueError:
        raise ValueError(
            'must be null to clear it, a whole number of minor units to set it, or "before" for the price so far'
        ) from None


def _ending(given: object) -> object:
    if given is None:
        return None
    if not isinstance(given, str) or not given or not _ENDING.fullmatch(given):
        raise ValueError('must be how prices end, as a text such as ".99"')
    return given.removeprefix("0") if given.startswith("0.") else given


def _written_out(given: object) -> object:
    """Pydantic takes bare numbers, and texts of them, for seconds or milliseconds since 1970."""
    if isinstance(given, datetime) or (isinstance(given, str) and _ISO.fullmatch(given)):
        return given
    raise ValueError(f"must be a date and time with its time zone, {_SUCH_AS}")


def _in_utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(f"must say its time zone, {_SUCH_AS}")
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the calendar") from None


Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
Exact = Annotated[Decimal, PlainSerializer(_shown, when_used="json")]
Number = Annotated[Exact, BeforeValidator(_number)]
Amount = Annotated[int, BeforeValidator(_amount)]
Currency = Annotated[str, AfterValidator(_currency)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names), BeforeValidator(some)]
CompareAt = Annotated[int | Untouched | PriceBefore | None, BeforeValidator(_compare_at)]
Ending = Annotated[str | None, BeforeValidator(_ending)]
ZonedInstant = Annotated[Instant, AfterValidator(_in_utc), BeforeValidator(_written_out)]
