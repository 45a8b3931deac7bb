"""Amounts are whole numbers of a currency's minor units; a shop writes them as decimal texts of its major units."""

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import JsonModel

LARGEST_AMOUNT = 10**12

_WITHOUT_COINS = frozenset(
    {
        "BIF",
        "CLP",
        "DJF",
        "GNF",
        "ISK",
        "JPY",
        "KMF",
        "KRW",
        "PYG",
        "RWF",
        "UGX",
        "UYI",
        "VND",
        "VUV",
        "XAF",
        "XOF",
        "XPF",
    }
)
_IN_THOUSANDTHS = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})
_CURRENCY = re.compile(r"[A-Z]{3}")
_WRITTEN = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")


def is_currency(text: str) -> bool:
    return _CURRENCY.fullmatch(text) is not None


def decimals_of(currency: str) -> int:
    """How many digits stand behind the point: 2 for EUR, 0 for JPY, 3 for KWD."""
    if currency in _WITHOUT_COINS:
        return 0
    return 3 if currency in _IN_THOUSANDTHS else 2


def half_up(number: Decimal) -> int:
    """The nearest whole number; of two as near, the one further from zero."""
    return int(number.to_integral_value(ROUND_HALF_UP))


def parse_amount(text: str, currency: str) -> int:
    """Minor units of what a shop wrote, such as "19.99". Digits that the currency has no coin for are rounded."""
    if not _WRITTEN.fullmatch(text.strip()):
        raise InvalidInputError(f"{text!r} is not an amount of {currency}.")
    return half_up(Decimal(text.strip()).scaleb(decimals_of(currency)))


def format_amount(amount: int, currency: str) -> str:
    """As a shop writes it: "19.99" in EUR, "1299" in JPY."""
    return f"{Decimal(amount).scaleb(-decimals_of(currency)):f}"


def in_words(amount: int, currency: str) -> str:
    return f"{format_amount(amount, currency)} {currency}"


@dataclass(frozen=True)
class Price:
    """What a variant costs. `compare_at` is the price shown struck through; None: none is shown."""

    unit_amount: int
    currency: str
    compare_at: int | None = None

    def stands_as(self, other: "Price", *, with_compare_at: bool) -> bool:
        """Whether the two are one price, the struck-through one only where it is asked about."""
        is_same = (self.unit_amount, self.currency) == (other.unit_amount, other.currency)
        return is_same and (not with_compare_at or self.compare_at == other.compare_at)


class PriceDocument(JsonModel):
    """A price as targets keep it. Stored as `{"unit_amount": 1299, "currency": "USD", "compare_at": null}`."""

    unit_amount: int
    currency: str
    compare_at: int | None = None


def price_document(price: Price) -> dict[str, object]:
    return {"unit_amount": price.unit_amount, "currency": price.currency, "compare_at": price.compare_at}


def price_of(document: object) -> Price:
    kept = PriceDocument.model_validate(document)
    return Price(kept.unit_amount, kept.currency, kept.compare_at)
