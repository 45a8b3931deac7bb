"""The shop's products as a pure function of seed and place: the same seed and the same sizes are
the same catalogue.

A product's id is FIRST_ID and its place, a variant's that of its product and its own place in four
digits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from random import Random

from automation_pipeline.simulator.shop.amounts import in_places, places_of
from automation_pipeline.simulator.shop.words import COLOURS, GOODS, MAKERS, SEASONS, SIZES

FIRST_ID = 7_000_000
IDS_PER_PRODUCT = 10_000
MOST_PRODUCTS, MOST_VARIANTS_PER_PRODUCT, MOST_VARIANTS = 50_000, 2_048, 200_000
LOWEST_CENTS, HIGHEST_CENTS = 199, 29_999
ENDINGS = (99, 99, 99, 90, 95, 50, 0, 49)
ODD_PRICES = (0, 1, 1703, 9999_99)  # in cents; every ODD_EVERY-th variant has one of them
ODD_EVERY = 41
DRAFT_EVERY, ARCHIVED_EVERY = 12, 15


@dataclass(frozen=True, slots=True)
class Product:
    id: int
    title: str
    vendor: str
    product_type: str
    tags: tuple[str, ...]
    status: str


@dataclass(frozen=True, slots=True)
class Variant:
    id: int
    product: Product
    sku: str
    barcode: str
    title: str
    price: Decimal
    compare_at: Decimal | None
    unit_cost: Decimal | None
    inventory: int


@dataclass(frozen=True)
class Sizes:
    """How much the shop sells, and in what money."""

    products: int = 40
    variants_per_product: int = 3
    currency: str = "EUR"


def size_fault(products: int, variants_per_product: int) -> str | None:
    """Why no shop has as many; None when one may."""
    if not 0 <= products <= MOST_PRODUCTS:
        return f"A simulated shop has from 0 to {MOST_PRODUCTS} products, not {products}."
    if not 1 <= variants_per_product <= MOST_VARIANTS_PER_PRODUCT:
        return f"A simulated product has from 1 to {MOST_VARIANTS_PER_PRODUCT} variants, not {variants_per_product}."
    if products * variants_per_product > MOST_VARIANTS:
        return f"A simulated shop has at most {MOST_VARIANTS} variants, not {products * variants_per_product}."
    return None


def drawn(seed: int, sizes: Sizes) -> Iterator[Variant]:
    """All variants by their ids."""
    for place in range(1, sizes.products + 1):
        yield from _variants(Random(f"{seed}/shop/{place}"), place, sizes)


def _variants(rng: Random, place: int, sizes: Sizes) -> Iterator[Variant]:
    product = _product(rng, place)
    cents = _cents(rng)
    for number in range(1, sizes.variants_per_product + 1):
        running = (place - 1) * sizes.variants_per_product + number
        own = cents if rng.random() < 0.7 else _cents(rng)
        if running % ODD_EVERY == 0:
            own = ODD_PRICES[running // ODD_EVERY % len(ODD_PRICES)]
        strikes, costs = rng.random() < 0.25, rng.random() < 0.85
        compared, cost = round(own * rng.uniform(1.1, 1.6)), round(own * rng.uniform(0.3, 0.75))
        yield Variant(
            id=product.id * IDS_PER_PRODUCT + number,
            product=product,
            sku=f"SKU-{running}",
            barcode=f"376{running:010d}",
            title=f"{SIZES[number % len(SIZES)]} / {COLOURS[(place + number) % len(COLOURS)]}",
            price=_money(own, sizes.currency),
            compare_at=_money(compared, sizes.currency) if strikes else None,
            unit_cost=_money(cost, sizes.currency) if costs else None,
            inventory=rng.choice((0, rng.randrange(1, 12), rng.randrange(12, 240))),
        )


def _product(rng: Random, place: int) -> Product:
    name, kind, tags = GOODS[(place - 1) % len(GOODS)]
    archived, draft = place % ARCHIVED_EVERY == 7, place % DRAFT_EVERY == 5
    return Product(
        id=FIRST_ID + place,
        title=f"{name} n° {place}",
        vendor=rng.choice(MAKERS),
        product_type=kind,
        tags=tuple(sorted({*tags, rng.choice(SEASONS)})),
        status="ARCHIVED" if archived else "DRAFT" if draft else "ACTIVE",
    )


def _cents(rng: Random) -> int:
    """Small prices are more frequent than great ones."""
    whole = int(LOWEST_CENTS * (HIGHEST_CENTS / LOWEST_CENTS) ** rng.random()) // 100
    return min(HIGHEST_CENTS, max(LOWEST_CENTS, whole * 100 + rng.choice(ENDINGS)))


def _money(cents: int, currency: str) -> Decimal:
    return in_places(Decimal(cents).scaleb(-2), places_of(currency))
