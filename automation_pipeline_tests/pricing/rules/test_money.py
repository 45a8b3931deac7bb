"""Amounts are read and written as shops write them, to the coin."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.models.shop import (
    Price,
    decimals_of,
    format_amount,
    is_currency,
    parse_amount,
    price_of,
    price_text,
    round_half_up,
)
from automation_pipeline_tests.tables import every_case


@every_case(("currency", "decimals"), [("EUR", 2), ("JPY", 0), ("KWD", 3), ("ZZZ", 2)])
def test_a_currency_says_how_many_decimals_it_has(currency: str, decimals: int) -> None:
    assert decimals_of(currency) == decimals


@every_case(
    ("text", "currency", "amount"),
    [
        ("19.99", "EUR", 1999),
        ("19.9", "EUR", 1990),
        ("19", "EUR", 1900),
        ("0.00", "EUR", 0),
        ("1299", "JPY", 1299),
        ("1299.00", "JPY", 1299),
        ("1.234", "KWD", 1234),
        (" 5.00 ", "EUR", 500),
        ("10.005", "EUR", 1001),
        ("-3.50", "EUR", -350),
    ],
)
def test_a_shops_text_is_read_to_minor_units(text: str, currency: str, amount: int) -> None:
    assert parse_amount(text, currency) == amount


@every_case("text", ["", "abc", "1,99", "1e3", "NaN", "1_000", "١٢", "--1", "1.", "9" * 40])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not an amount of EUR"):
        parse_amount(text, "EUR")


@given(st.integers(-(10**12), 10**12), st.sampled_from(["EUR", "JPY", "KWD"]))
@settings(max_examples=50, deadline=None)
def test_what_is_written_reads_back_the_same(amount: int, currency: str) -> None:
    assert parse_amount(format_amount(amount, currency), currency) == amount


@every_case(
    ("number", "nearest"),
    [("502.5", 503), ("503.5", 504), ("0.5", 1), ("0.4999", 0), ("-0.5", -1), ("7", 7)],
)
def test_halves_go_up_and_not_to_the_even_one(number: str, nearest: int) -> None:
    assert round_half_up(Decimal(number)) == nearest


def test_amounts_are_shown_with_their_currency() -> None:
    assert (price_text(5, "EUR"), price_text(1299, "JPY"), price_text(1, "KWD")) == (
        "0.05 EUR",
        "1299 JPY",
        "0.001 KWD",
    )


@every_case(("text", "ok"), [("EUR", True), ("eur", False), ("EURO", False), ("", False)])
def test_a_currency_is_three_capital_letters(text: str, *, ok: bool) -> None:
    assert is_currency(text) is ok


def test_prices_are_compared_with_the_struck_through_one_only_where_asked() -> None:
    price, other = Price(1299, "EUR", 1599), Price(1299, "EUR")
    assert price.stands_as(other, with_compare_at=False)
    assert not price.stands_as(other, with_compare_at=True)
    assert not price.stands_as(Price(1299, "USD", 1599), with_compare_at=False)


@every_case("compare_at", [None, 1599])
def test_a_stored_price_reads_back_the_same(compare_at: int | None) -> None:
    price = Price(1299, "USD", compare_at)
    assert vars(price) == {
        "unit_amount": 1299,
        "currency": "USD",
        "compare_at": compare_at,
    }
    assert price_of(vars(price)) == price
