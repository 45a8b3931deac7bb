"""Products and prices of the shop, drawn from a seed, with ids, currencies and later changes."""

import base64
import binascii
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random

# Name, type and tags.
GOODS = (
    ("Pull col rond en laine mérinos", "Pulls", ("femme", "hiver", "laine")),
    ("Chemise en lin lavé", "Chemises", ("homme", "été", "lin")),
    ("Marinière rayée", "T-shirts", ("mixte", "coton", "iconique")),
    ("Jean droit taille haute", "Pantalons", ("femme", "denim")),
    ("Robe midi fleurie", "Robes", ("femme", "été")),
    ("Trench imperméable", "Manteaux", ("mixte", "pluie")),
    ("Baskets en cuir", "Chaussures", ("mixte", "cuir")),
    ("Espadrilles tressées", "Chaussures", ("été", "fait-main")),
    ("Sac cabas en toile", "Sacs", ("accessoire", "coton")),
    ("Écharpe en alpaga", "Accessoires", ("hiver", "accessoire")),
    ("Bougie parfumée figuier", "Maison", ("maison", "cadeau")),
    ("Coffret de savons de Marseille", "Beauté", ("beauté", "cadeau")),
    ("Huile d'olive vierge extra", "Épicerie", ("épicerie", "bio")),
    ("Couteau pliant en olivier", "Cuisine", ("cuisine", "fait-main")),
    ("Cocotte en fonte émaillée", "Cuisine", ("cuisine", "maison")),
    ("Plaid en coton gaufré", "Maison", ("maison", "coton")),
)
MAKERS = (
    "Maison Lavigne",
    "Atelier Kerouan",
    "Les Filles du Port",
    "Bastide & Fils",
    "Côte Sauvage",
    "Petit Jour",
)
COLOURS = (
    "bleu nuit",
    "écru",
    "terracotta",
    "vert sauge",
    "moutarde",
    "noir",
    "bordeaux",
    "rose poudré",
)
SIZES = ("XS", "S", "M", "L", "XL", "XXL", "Unique", "Grand modèle")
SEASONS = ("nouveauté", "soldes", "permanent", "fin-de-série")


DECIMALS = 2
# Currencies whose number of decimal places is not two.
_DECIMALS = {"JPY": 0, "KRW": 0, "CLP": 0, "VND": 0, "XOF": 0, "KWD": 3, "BHD": 3, "TND": 3}
MOST = Decimal(10) ** 8
_AMOUNT = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_CURRENCY = re.compile(r"[A-Z]{3}")


def decimals_of(currency: str) -> int:
    return _DECIMALS.get(currency, DECIMALS)


def is_currency(text: object) -> bool:
    return isinstance(text, str) and _CURRENCY.fullmatch(text) is not None


def amount_of(value: object) -> Decimal | None:
    """The amount in a text or a number, or None."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value)
    return Decimal(text) if _AMOUNT.fullmatch(text) else None


def with_decimals(amount: Decimal, decimals: int) -> Decimal:
    """Rounded to that number of decimal places, half to even."""
    return amount.quantize(Decimal(1).scaleb(-decimals))


def fits(amount: Decimal, decimals: int) -> bool:
    return with_decimals(amount, decimals) == amount


def amount_text(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"


PRODUCT, VARIANT = "Product", "ProductVariant"
_GID = re.compile(r"gid://shopify/([A-Za-z]{1,60})/([0-9]{1,18})(\?.*)?")


class NoGidError(ValueError):
    """The text is not a global id."""


def gid(kind: str, number: int) -> str:
    return f"gid://shopify/{kind}/{number}"


def parts_of(text: str) -> tuple[str, int]:
    """The kind and the number of a global id."""
    found = _GID.fullmatch(text)
    if found is None:
        raise NoGidError(f"Invalid global id '{text[:100]}'")
    return found[1], int(found[2])


def number_of(text: str, kind: str) -> int | None:
    """The number of a global id, or None for an id of another kind."""
    actual_kind, number = parts_of(text)
    return number if actual_kind == kind else None


def cursor(number: int) -> str:
    return base64.urlsafe_b64encode(f"after:{number}".encode()).decode()


def number_of_cursor(cursor: str) -> int | None:
    try:
        word, _, number = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
    except (ValueError, binascii.Error):
        return None
    return (
        int(number)
        if word == "after" and number.isascii() and number.isdecimal() and len(number) < 20
        else None
    )


FIRST_ID = 7_000_000
IDS_PER_PRODUCT = 10_000
MOST_PRODUCTS, MOST_VARIANTS_PER_PRODUCT, MOST_VARIANTS = 50_000, 2_048, 200_000
LOWEST_CENTS, HIGHEST_CENTS = 199, 29_999
ENDINGS = (99, 99, 99, 90, 95, 50, 0, 49)
# In cents, for every variant whose number is a multiple of ODD_EVERY.
ODD_PRICES = (
    0,
    1,
    1703,
    9999_99,
)
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
    """The size of the catalogue, and its currency."""

    products: int = 40
    variants_per_product: int = 3
    currency: str = "EUR"


def size_fault(products: int, variants_per_product: int) -> str | None:
    """The reason why a size is invalid, or None."""
    if not 0 <= products <= MOST_PRODUCTS:
        return f"A simulated shop has from 0 to {MOST_PRODUCTS} products, not {products}."
    if not 1 <= variants_per_product <= MOST_VARIANTS_PER_PRODUCT:
        return f"A simulated product has from 1 to {MOST_VARIANTS_PER_PRODUCT} variants, not {variants_per_product}."
    if products * variants_per_product > MOST_VARIANTS:
        return f"A simulated shop has at most {MOST_VARIANTS} variants, not {products * variants_per_product}."
    return None


def variants_of_seed(seed: int, sizes: Sizes) -> Iterator[Variant]:
    """All variants by their ids."""
    for product_number in range(1, sizes.products + 1):
        yield from _variants(Random(f"{seed}/shop/{product_number}"), product_number, sizes)


def _variants(rng: Random, product_number: int, sizes: Sizes) -> Iterator[Variant]:
    product = _product(rng, product_number)
    cents = _cents(rng)
    for number in range(1, sizes.variants_per_product + 1):
        running = (product_number - 1) * sizes.variants_per_product + number
        own = cents if rng.random() < 0.7 else _cents(rng)
        if running % ODD_EVERY == 0:
            own = ODD_PRICES[running // ODD_EVERY % len(ODD_PRICES)]
        has_compare_at, has_cost = rng.random() < 0.25, rng.random() < 0.85
        compared, cost = round(own * rng.uniform(1.1, 1.6)), round(own * rng.uniform(0.3, 0.75))
        yield Variant(
            id=product.id * IDS_PER_PRODUCT + number,
            product=product,
            sku=f"SKU-{running}",
            barcode=f"376{running:010d}",
            title=f"{SIZES[number % len(SIZES)]} / {COLOURS[(product_number + number) % len(COLOURS)]}",
            price=_money(own, sizes.currency),
            compare_at=_money(compared, sizes.currency) if has_compare_at else None,
            unit_cost=_money(cost, sizes.currency) if has_cost else None,
            inventory=rng.choice((0, rng.randrange(1, 12), rng.randrange(12, 240))),
        )


def _product(rng: Random, product_number: int) -> Product:
    name, kind, tags = GOODS[(product_number - 1) % len(GOODS)]
    archived, draft = product_number % ARCHIVED_EVERY == 7, product_number % DRAFT_EVERY == 5
    return Product(
        id=FIRST_ID + product_number,
        title=f"{name} n° {product_number}",
        vendor=rng.choice(MAKERS),
        product_type=kind,
        tags=tuple(sorted({*tags, rng.choice(SEASONS)})),
        status="ARCHIVED" if archived else "DRAFT" if draft else "ACTIVE",
    )


def _cents(rng: Random) -> int:
    """Low prices are more frequent than high ones."""
    whole = int(LOWEST_CENTS * (HIGHEST_CENTS / LOWEST_CENTS) ** rng.random()) // 100
    return min(HIGHEST_CENTS, max(LOWEST_CENTS, whole * 100 + rng.choice(ENDINGS)))


def _money(cents: int, currency: str) -> Decimal:
    return with_decimals(Decimal(cents).scaleb(-2), decimals_of(currency))


@dataclass(frozen=True)
class PastPrice:
    """A price that a variant had. `by` says who set it: "catalogue", "api" or "hand"."""

    price: Decimal
    compare_at: Decimal | None
    by: str


class Catalogue:
    """Products, variants and the history of their prices. `written` counts the API's writes by variant."""

    def __init__(self, seed: int, sizes: Sizes) -> None:
        self.sizes = sizes
        self.variants: dict[int, Variant] = {}
        self.products: dict[int, Product] = {}
        self.written: Counter[int] = Counter()
        self._ids: list[int] = []
        self._by_product: dict[int, list[int]] = {}
        self._history: dict[int, list[PastPrice]] = {}
        for variant in variants_of_seed(seed, sizes):
            self.variants[variant.id] = variant
            self.products[variant.product.id] = variant.product
            self._by_product.setdefault(variant.product.id, []).append(variant.id)
            self._ids.append(variant.id)

    def ids(self) -> Sequence[int]:
        return self._ids

    def ids_of(self, product_id: int) -> Sequence[int]:
        return self._by_product.get(product_id, ())

    def price(
        self, variant_id: int, price: Decimal, compare_at: Decimal | None, by: str
    ) -> Variant:
        before = self.variants[variant_id]
        if variant_id not in self._history:
            self._history[variant_id] = [PastPrice(before.price, before.compare_at, "catalogue")]
        self._history[variant_id].append(PastPrice(price, compare_at, by))
        if by == "api":
            self.written[variant_id] += 1
        self.variants[variant_id] = replace(before, price=price, compare_at=compare_at)
        return self.variants[variant_id]

    def remove(self, variant_id: int) -> None:
        """Remove a variant. Its history and its product stay, even if the product has no other variant."""
        self._history[variant_id] = list(self.history(variant_id))
        variant = self.variants.pop(variant_id)
        self._ids.remove(variant_id)
        self._by_product[variant.product.id].remove(variant_id)

    def history(self, variant_id: int) -> Sequence[PastPrice]:
        """All prices of a variant, oldest first; empty for an unknown variant."""
        if variant_id in self._history:
            return self._history[variant_id]
        variant = self.variants.get(variant_id)
        return [PastPrice(variant.price, variant.compare_at, "catalogue")] if variant else []


def page(ids: Sequence[int], after: int, first: int) -> tuple[Sequence[int], bool]:
    """The ids that follow `after`, and whether there are more."""
    start = bisect_right(ids, after)
    return ids[start : start + first], start + first < len(ids)
