"""Tests of formatted prices and percentages."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.pricing.commands.rendering import (
    amount,
    change,
    compare_at_change,
    percent,
)
from automation_pipeline.pricing.models.shop import PriceDocument
from automation_pipeline_tests.cases import every_case

AMOUNTS = st.integers(min_value=0, max_value=10**12)


@every_case(
    ("before", "after", "currency", "text", "colour"),
    [
        (1999, 1799, "EUR", "-10.0 %  -2.00 EUR", "red"),
        (1999, 2199, "EUR", "+10.0 %  +2.00 EUR", "green"),
        (1000, 1000, "EUR", "+0.0 %  0.00 EUR", ""),
        (0, 500, "EUR", "+5.00 EUR", "green"),
        (500, 0, "JPY", "-100.0 %  -500 JPY", "red"),
        (1_000_000, 999_999, "EUR", "-<0.1 %  -0.01 EUR", "red"),
        (1_000_000, 1_000_001, "KWD", "+<0.1 %  +0.001 KWD", "green"),
    ],
)
def test_a_change_is_shown_as_percentage_and_amount(
    before: int, after: int, currency: str, text: str, colour: str
) -> None:
    result = change(before, after, currency)
    assert (result.plain, result.style) == (text, colour)


@given(before=AMOUNTS, after=AMOUNTS)
def test_the_percentage_has_the_sign_of_the_change(before: int, after: int) -> None:
    result = percent(before, after)
    if result is None:
        assert before == 0
    else:
        assert result[0] == ("-" if after < before else "+")
        assert (result == "+0.0 %") == (before == after)


@every_case(
    ("was", "becomes", "is_written", "text"),
    [
        (None, 1999, True, "- -> 19.99 EUR"),
        (2499, None, True, "24.99 EUR -> -"),
        (2499, 2499, True, "24.99 EUR (as it was)"),
        (2499, 2499, False, ""),
    ],
)
def test_the_compare_at_price_is_shown_if_the_rule_writes_it(
    was: int | None, becomes: int | None, is_written: bool, text: str
) -> None:
    before = PriceDocument(unit_amount=1999, currency="EUR", compare_at=was)
    after = PriceDocument(unit_amount=1799, currency="EUR", compare_at=becomes)
    assert compare_at_change(before, after, is_written=is_written) == text


def test_a_missing_amount_is_shown_as_a_dash() -> None:
    assert [amount(None, "EUR"), amount(0, "EUR")] == ["-", "0.00 EUR"]
