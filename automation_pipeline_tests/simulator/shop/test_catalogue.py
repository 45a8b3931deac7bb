"""The catalogue of the simulated shop: it depends on the seed, and contains usual and unusual prices."""

from decimal import Decimal

from automation_pipeline.simulator.shop.catalogue import (
    MOST_VARIANTS,
    Sizes,
    size_fault,
    variants_of_seed,
)
from automation_pipeline_tests.cases import every_case


def test_a_catalogue_depends_on_seed_and_sizes() -> None:
    sizes = Sizes(40, 3)
    assert list(variants_of_seed(7, sizes)) == list(variants_of_seed(7, sizes))
    assert [one.price for one in variants_of_seed(7, sizes)] != [
        one.price for one in variants_of_seed(8, sizes)
    ]


def test_more_products_do_not_change_the_first_ones() -> None:
    assert list(variants_of_seed(7, Sizes(90, 3)))[:120] == list(variants_of_seed(7, Sizes(40, 3)))


def test_the_catalogue_has_varied_products_and_prices() -> None:
    variants = list(variants_of_seed(7, Sizes(400, 3)))
    assert [one.sku for one in variants] == [
        f"SKU-{product_number}" for product_number in range(1, 1201)
    ]
    assert {one.product.status for one in variants} == {"ACTIVE", "DRAFT", "ARCHIVED"}
    usual = [one.price for one in variants if Decimal("1.99") <= one.price <= Decimal("299.99")]
    assert len(usual) > 1150
    assert len({price % 1 for price in usual}) > 5
    assert Decimal("0.00") in {one.price for one in variants}
    assert 200 < sum(one.compare_at is not None for one in variants) < 400
    assert 950 < sum(one.unit_cost is not None for one in variants) < 1100


@every_case(("currency", "decimals"), [("EUR", 2), ("JPY", 0), ("KWD", 3)])
def test_amounts_have_the_decimal_places_of_their_currency(currency: str, decimals: int) -> None:
    for one in variants_of_seed(7, Sizes(40, 3, currency)):
        for amount in (one.price, one.compare_at, one.unit_cost):
            assert amount is None or amount.as_tuple().exponent == -decimals


@every_case(
    ("products", "variants", "is_valid"),
    [
        (0, 1, True),
        (1, 2048, True),
        (50_000, 4, True),
        (50_000, 5, False),
        (-1, 1, False),
        (1, 0, False),
        (1, 2049, False),
    ],
)
def test_a_catalogue_has_a_maximum_size(products: int, variants: int, is_valid: bool) -> None:
    assert (size_fault(products, variants) is None) is is_valid
    assert not is_valid or products * variants <= MOST_VARIANTS
