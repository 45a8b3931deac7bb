"""Prices land on what they may be, on the side that was asked for."""

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.pricing.models.transforms import (
    Lattice,
    Round,
    multiples,
    rounded,
    with_ending,
)
from automation_pipeline_tests.tables import every_case


@every_case(
    ("exact", "way", "lattice", "result"),
    [
        ("502.5", Round.NONE, multiples(2, 2), 503),
        ("502.5", Round.NEAREST, multiples(2, 2), 503),
        ("502.4", Round.UP, multiples(2, 2), 503),
        ("502.6", Round.DOWN, multiples(2, 2), 502),
        ("666.67", Round.NEAREST, multiples(0, 2), 700),
        ("650", Round.NEAREST, multiples(0, 2), 700),
        ("641", Round.NEAREST, multiples(1, 2), 640),
        ("1299", Round.NEAREST, multiples(0, 0), 1299),
        ("1299.4", Round.NEAREST, multiples(2, 0), 1299),
        ("1234", Round.NEAREST, multiples(0, 3), 1000),
        ("-1000", Round.UP, multiples(0, 2), -1000),
    ],
)
def test_a_price_is_rounded_to_its_unit(
    exact: str, way: Round, lattice: Lattice, result: int
) -> None:
    assert rounded(Decimal(exact), way, lattice) == result


@every_case(
    ("exact", "way", "ending", "result"),
    [
        (1234, Round.NEAREST, ".99", 1199),
        (1201, Round.NEAREST, ".99", 1199),
        (1249, Round.NEAREST, ".99", 1299),
        (1250, Round.NEAREST, ".99", 1299),
        (1299, Round.UP, ".99", 1299),
        (1300, Round.UP, ".99", 1399),
        (1298, Round.DOWN, ".99", 1199),
        (30, Round.DOWN, ".99", 30),
        (1234, Round.NEAREST, "9.99", 999),
        (1600, Round.NEAREST, "9.99", 1999),
        (1234, Round.NEAREST, ".9", 1190),
        (1234, Round.UP, ".00", 1300),
        (-500, Round.NEAREST, ".99", -500),
        (0, Round.NEAREST, ".99", 0),
    ],
)
def test_a_price_gets_its_ending(exact: int, way: Round, ending: str, result: int) -> None:
    lattice = with_ending(ending, 2)
    assert lattice is not None
    assert rounded(Decimal(exact), way, lattice) == result


@every_case(
    ("ending", "decimals", "lattice"),
    [
        ("99", 0, Lattice(100, 99)),
        ("9", 0, Lattice(10, 9)),
        (".99", 3, Lattice(1000, 990)),
        (".990", 3, Lattice(1000, 990)),
        (".99", 0, None),
        ("99", 2, None),
        (".990", 2, None),
    ],
)
def test_an_ending_is_said_in_the_decimals_of_its_currency(
    ending: str, decimals: int, lattice: Lattice | None
) -> None:
    assert with_ending(ending, decimals) == lattice


lattices = st.sampled_from(
    [multiples(0, 2), multiples(1, 2), multiples(2, 2), Lattice(100, 99), Lattice(1000, 995)]
)
exacts = st.decimals(-10_000, 1_000_000, places=4)


@given(exacts, st.sampled_from(Round), lattices)
@settings(max_examples=100, deadline=None)
def test_rounding_twice_is_rounding_once(exact: Decimal, way: Round, lattice: Lattice) -> None:
    once = rounded(exact, way, lattice)
    assert rounded(Decimal(once), way, lattice) == once
    assert way is Round.NONE or once <= 0 or lattice.holds(once) or once < lattice.first


@given(exacts, lattices)
@settings(max_examples=100, deadline=None)
def test_rounding_down_never_goes_up(exact: Decimal, lattice: Lattice) -> None:
    assert exact <= 0 or rounded(exact, Round.DOWN, lattice) <= exact


@given(exacts.filter(lambda exact: exact > 1000), lattices)
@settings(max_examples=50, deadline=None)
def test_the_nearest_is_really_the_nearest(exact: Decimal, lattice: Lattice) -> None:
    down, nearest, up = (
        rounded(exact, way, lattice) for way in (Round.DOWN, Round.NEAREST, Round.UP)
    )
    assert down <= exact <= up
    assert nearest == (up if up - exact <= exact - down else down)
