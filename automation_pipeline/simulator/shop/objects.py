"""The shop's objects, field by field as the schema has them."""

from automation_pipeline.simulator.shop.amounts import said
from automation_pipeline.simulator.shop.catalogue import Product, Variant
from automation_pipeline.simulator.shop.gids import PRODUCT, VARIANT, gid

Fields = dict[str, object]
SHOP_NAME = "Maison du Simulateur"


class Costing(Fields):
    """An object inside another that costs a point where it is asked for."""


def shop_fields(currency: str) -> Fields:
    return {"__typename": "Shop", "id": gid("Shop", 1), "name": SHOP_NAME, "currencyCode": currency}


def product_fields(product: Product) -> Costing:
    return Costing(
        {
            "__typename": PRODUCT,
            "id": gid(PRODUCT, product.id),
            "title": product.title,
            "handle": f"produit-{product.id}",
            "vendor": product.vendor,
            "productType": product.product_type,
            "tags": product.tags,
            "status": product.status,
        }
    )


def variant_fields(variant: Variant, currency: str) -> Fields:
    cost = (
        None
        if variant.unit_cost is None
        else {"amount": said(variant.unit_cost), "currencyCode": currency}
    )
    return {
        "__typename": VARIANT,
        "id": gid(VARIANT, variant.id),
        "sku": variant.sku,
        "barcode": variant.barcode,
        "title": variant.title,
        "displayName": f"{variant.product.title} - {variant.title}",
        "price": said(variant.price),
        "compareAtPrice": said(variant.compare_at),
        "inventoryQuantity": variant.inventory,
        "inventoryItem": Costing(
            {"id": gid("InventoryItem", variant.id), "sku": variant.sku, "unitCost": cost}
        ),
        "product": product_fields(variant.product),
    }
