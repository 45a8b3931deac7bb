"""A variant as the shop tells of it, and the fields of it that a rule may ask about."""

from dataclasses import dataclass
from enum import StrEnum

from automation_pipeline.pricing.domain.money import Price


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Amounts are in `currency`. `cost` is what the shop pays for it; None where the shop does not say."""

    variant_id: str
    product_id: str
    currency: str
    amount: int | None
    compare_at: int | None = None
    cost: int | None = None
    sku: str | None = None
    barcode: str | None = None
    variant_title: str | None = None
    title: str | None = None
    handle: str | None = None
    vendor: str | None = None
    product_type: str | None = None
    tags: tuple[str, ...] = ()
    inventory: int | None = None
    is_active: bool = True

    @property
    def price(self) -> Price | None:
        return None if self.amount is None else Price(self.amount, self.currency, self.compare_at)


class VariantField(StrEnum):
    """What a selector may ask about by name. Anything else is refused: no column is reached by its name."""

    SKU = "sku"
    BARCODE = "barcode"
    VARIANT_TITLE = "variantTitle"
    TITLE = "title"
    HANDLE = "handle"
    VENDOR = "vendor"
    PRODUCT_TYPE = "productType"
    INVENTORY = "inventory"
    ON_SALE = "onSale"


NUMBER_FIELDS = frozenset({VariantField.INVENTORY})
FLAG_FIELDS = frozenset({VariantField.ON_SALE})


def text_of(variant: Variant, field: VariantField) -> str | None:
    return {
        VariantField.SKU: variant.sku,
        VariantField.BARCODE: variant.barcode,
        VariantField.VARIANT_TITLE: variant.variant_title,
        VariantField.TITLE: variant.title,
        VariantField.HANDLE: variant.handle,
        VariantField.VENDOR: variant.vendor,
        VariantField.PRODUCT_TYPE: variant.product_type,
    }[field]


def is_on_sale(variant: Variant) -> bool:
    return variant.amount is not None and variant.compare_at is not None and variant.compare_at > variant.amount
