"""The shop's catalogue and prices as they come over the wire, turned into the values of `pricing.domain`.

Ids are digits for us and gids outside. What comes of a write is in `shop_written`, of a refusal in `shop_refusals`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.pricing.domain.money import LARGEST_AMOUNT, Price, is_currency, parse_amount
from automation_pipeline.pricing.domain.shop_calls import Page
from automation_pipeline.pricing.domain.variant import Variant

MOST_IN_STOCK = 10**12
LONGEST_CURSOR = 2000

_DIGITS = re.compile(r"[1-9][0-9]{0,19}")
_PRODUCT, _VARIANT = "gid://shopify/Product/", "gid://shopify/ProductVariant/"


def product_gid(product_id: str) -> str:
    return _PRODUCT + product_id


def variant_gid(variant_id: str) -> str:
    return _VARIANT + variant_id


def _digits_after(kind: str) -> Callable[[str], str]:
    def digits(gid: str) -> str:
        if not (gid.startswith(kind) and _DIGITS.fullmatch(gid.removeprefix(kind))):
            raise ValueError("it is no such id")
        return gid.removeprefix(kind)

    return digits


def _currency(text: str) -> str:
    if not is_currency(text):
        raise ValueError("it is no currency")
    return text


def _without_nul(text: str) -> str:
    return text.replace("\0", "")


def _filled(text: str | None) -> str | None:
    return (text or "").strip() or None


Text: TypeAlias = Annotated[str, AfterValidator(_without_nul)]
MaybeText: TypeAlias = Annotated[Text | None, AfterValidator(_filled)]
ProductId: TypeAlias = Annotated[str, AfterValidator(_digits_after(_PRODUCT))]
VariantId: TypeAlias = Annotated[str, AfterValidator(_digits_after(_VARIANT))]
Currency: TypeAlias = Annotated[str, AfterValidator(_currency)]


class Wire(BaseModel):
    """Types are taken at their word; fields that we do not read are left out."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, alias_generator=to_camel)


class ShopPayload(Wire):
    currency_code: Currency


class WhoPayload(Wire):
    shop: ShopPayload


class PageInfoPayload(Wire):
    has_next_page: bool
    end_cursor: Annotated[str, Field(max_length=LONGEST_CURSOR)] | None = None


class MoneyPayload(Wire):
    amount: str
    currency_code: str


class InventoryItemPayload(Wire):
    unit_cost: MoneyPayload | None = None


class ProductPayload(Wire):
    id: ProductId
    status: str
    title: MaybeText = None
    handle: MaybeText = None
    vendor: MaybeText = None
    product_type: MaybeText = None
    tags: list[Text] = []


class _PriceTag(Wire):
    price: str | None = None
    compare_at_price: str | None = None

    def to_price(self, currency: str) -> Price | None:
        amount = _amount(self.price, currency)
        return None if amount is None else Price(amount, currency, _amount(self.compare_at_price, currency))


class PricedPayload(_PriceTag):
    """Without an id it is something other than a variant."""

    id: VariantId | None = None


class VariantPayload(_PriceTag):
    id: VariantId
    product: ProductPayload
    sku: MaybeText = None
    barcode: MaybeText = None
    title: MaybeText = None
    inventory_quantity: Annotated[int, Field(ge=-MOST_IN_STOCK, le=MOST_IN_STOCK)] | None = None
    inventory_item: InventoryItemPayload | None = None

    def to_variant(self, currency: str) -> Variant:
        product = self.product
        return Variant(
            variant_id=self.id,
            product_id=product.id,
            currency=currency,
            amount=_amount(self.price, currency),
            compare_at=_amount(self.compare_at_price, currency),
            cost=self._cost(currency),
            sku=self.sku,
            barcode=self.barcode,
            variant_title=self.title,
            title=product.title,
            handle=product.handle,
            vendor=product.vendor,
            product_type=product.product_type,
            tags=tuple(product.tags),
            inventory=self.inventory_quantity,
            is_active=product.status == "ACTIVE",
        )

    def _cost(self, currency: str) -> int | None:
        """One in another currency says nothing that can be compared."""
        cost = self.inventory_item.unit_cost if self.inventory_item else None
        return _amount(cost.amount, currency) if cost and cost.currency_code == currency else None


class VariantsPayload(Wire):
    page_info: PageInfoPayload
    nodes: list[VariantPayload]


class CataloguePayload(Wire):
    shop: ShopPayload
    product_variants: VariantsPayload

    def to_page(self, asked_after: str | None) -> Page:
        variants = tuple(node.to_variant(self.shop.currency_code) for node in self.product_variants.nodes)
        info = self.product_variants.page_info
        if info.has_next_page and info.end_cursor in {None, "", asked_after}:
            raise InvalidInputError("The page does not say where the next one begins.")
        return Page(variants, info.end_cursor if info.has_next_page else None)


class PricesPayload(Wire):
    shop: ShopPayload
    nodes: list[PricedPayload | None]

    def to_prices(self, variant_ids: Sequence[str]) -> Mapping[str, Price]:
        asked, currency = set(variant_ids), self.shop.currency_code
        told = {node.id: node.to_price(currency) for node in self.nodes if node and node.id in asked and node.id}
        return {variant_id: price for variant_id, price in told.items() if price is not None}


def _amount(text: str | None, currency: str) -> int | None:
    if text is None:
        return None
    amount = parse_amount(text, currency)
    if not 0 <= amount <= LARGEST_AMOUNT:
        raise InvalidInputError("An amount is out of all reason.")
    return amount
