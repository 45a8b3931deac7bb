"""Amounts of money as the shop says them: decimal texts with as many places as the currency has."""

import re
from decimal import Decimal

PLACES = 2
# The currencies with another number of places that a shop may have.
_PLACES = {"JPY": 0, "KRW": 0, "CLP": 0, "VND": 0, "XOF": 0, "KWD": 3, "BHD": 3, "TND": 3}
MOST = Decimal(10) ** 8
_AMOUNT = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_CURRENCY = re.compile(r"[A-Z]{3}")


def places_of(currency: str) -> int:
    return _PLACES.get(currency, PLACES)


def is_currency(text: object) -> bool:
    return isinstance(text, str) and _CURRENCY.fullmatch(text) is not None


def amount_of(value: object) -> Decimal | None:
    """The amount in a text or a number, however many places it has; None where there is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value)
    return Decimal(text) if _AMOUNT.fullmatch(text) else None


def in_places(amount: Decimal, places: int) -> Decimal:
    """With exactly that many places; what does not fit is rounded to even."""
    return amount.quantize(Decimal(1).scaleb(-places))


def fits(amount: Decimal, places: int) -> bool:
    return in_places(amount, places) == amount


def said(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"
