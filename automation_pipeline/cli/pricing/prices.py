"""Prices as people read them, with what has become of them. Colours are for terminals only, which `screen` knows."""

from decimal import Decimal

from rich.text import Text

from automation_pipeline.pricing.domain.money import PriceDocument, in_words

NOTHING = "-"


def price(document: PriceDocument) -> str:
    return in_words(document.unit_amount, document.currency)


def amount(units: int | None, currency: str) -> str:
    return NOTHING if units is None else in_words(units, currency)


def change(before: int, after: int, currency: str) -> Text:
    """By how much, and by which share of the price before: red when it falls, green when it rises."""
    difference = after - before
    words = f"{'+' if difference > 0 else ''}{in_words(difference, currency)}"
    share = percent(before, after)
    return Text(words if share is None else f"{share}  {words}", _colour(difference))


def percent(before: int, after: int) -> str | None:
    """None from zero, where no share can be told."""
    if before == 0:
        return None
    share = Decimal(after - before) * 100 / before
    told = f"{share:+.1f} %"
    if share and not round(share, 1):
        return f"{'-' if share < 0 else '+'}<0.1 %"
    return told


def compare_at_change(before: PriceDocument, after: PriceDocument, *, is_written: bool) -> str:
    """What becomes of the price shown struck through; nothing where it is left alone."""
    if not is_written:
        return ""
    was, becomes = amount(before.compare_at, before.currency), amount(after.compare_at, after.currency)
    return f"{becomes} (as it was)" if was == becomes else f"{was} -> {becomes}"


def _colour(difference: int) -> str:
    if difference == 0:
        return ""
    return "red" if difference < 0 else "green"
