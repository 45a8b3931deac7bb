"""The catalogue as it stands: as it was drawn, with what was written and edited since."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from automation_pipeline.simulator.shop.catalogue import Product, Sizes, Variant, drawn


@dataclass(frozen=True)
class PriceThen:
    """A price that a variant had. `by` is who set it: "catalogue", "api" or "hand"."""

    price: Decimal
    compare_at: Decimal | None
    by: str


class Shelves:
    """`written` counts, by variant, what the API wrote."""

    def __init__(self, seed: int, sizes: Sizes) -> None:
        self.sizes = sizes
        self.variants: dict[int, Variant] = {}
        self.products: dict[int, Product] = {}
        self.written: Counter[int] = Counter()
        self._ids: list[int] = []
        self._by_product: dict[int, list[int]] = {}
        self._history: dict[int, list[PriceThen]] = {}
        for variant in drawn(seed, sizes):
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
            self._history[variant_id] = [PriceThen(before.price, before.compare_at, "catalogue")]
        self._history[variant_id].append(PriceThen(price, compare_at, by))
        if by == "api":
            self.written[variant_id] += 1
        self.variants[variant_id] = replace(before, price=price, compare_at=compare_at)
        return self.variants[variant_id]

    def remove(self, variant_id: int) -> None:
        """Its product stays, even with no variant left, and so does its history."""
        self._history[variant_id] = list(self.history(variant_id))
        variant = self.variants.pop(variant_id)
        self._ids.remove(variant_id)
        self._by_product[variant.product.id].remove(variant_id)

    def history(self, variant_id: int) -> Sequence[PriceThen]:
        """All its prices, the first one first; none for a variant that never was."""
        if variant_id in self._history:
            return self._history[variant_id]
        variant = self.variants.get(variant_id)
        return [PriceThen(variant.price, variant.compare_at, "catalogue")] if variant else []


def page(ids: Sequence[int], after: int, first: int) -> tuple[Sequence[int], bool]:
    """The ids behind `after`, and whether there are more."""
    start = bisect_right(ids, after)
    return ids[start : start + first], start + first < len(ids)
