"""productVariantsBulkUpdate: which of the given prices are good, and what is said about the
others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from automation_pipeline.simulator.shop.amounts import MOST, fits, in_places, places_of
from automation_pipeline.simulator.shop.catalogue import Product, Variant
from automation_pipeline.simulator.shop.gids import PRODUCT, VARIANT, number_of
from automation_pipeline.simulator.shop.shelves import Shelves

Given = Mapping[str, object]  # of one variant: what the caller named, and nothing else


@dataclass(frozen=True)
class UserError:
    code: str
    field: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class Written:
    """Without a product there is none; without variants nothing was written."""

    product: Product | None
    variants: Sequence[Variant] | None
    errors: Sequence[UserError]


def write(
    shelves: Shelves, product_gid: str, given: Sequence[Given], *, allow_partial: bool
) -> Written:
    """Raises NoGidError for an id that is none."""
    product = shelves.products.get(number_of(product_gid, PRODUCT) or 0)
    if product is None:
        missing = UserError("PRODUCT_DOES_NOT_EXIST", ("productId",), "Product does not exist")
        return Written(None, None, (missing,))
    places = places_of(shelves.sizes.currency)
    good: dict[int, Given] = {}
    errors: list[UserError] = []
    for index, one in enumerate(given):
        found = _variant_of(shelves, product, one)
        if isinstance(found, int) and found in good:
            found = ("INVALID_INPUT", "id", "Product variant is named twice")
        fault = found if not isinstance(found, int) else _price_fault(one, places)
        if isinstance(found, int) and fault is None:
            good[found] = one
        elif isinstance(fault, tuple):
            code, field, message = fault
            errors.append(UserError(code, ("variants", str(index), field), message))
    if errors and not (allow_partial and good):
        return Written(product, None, errors)
    return Written(
        product,
        [_set(shelves, variant_id, one, places) for variant_id, one in good.items()],
        errors,
    )


Fault = tuple[str, str, str]  # code, field, message


def _variant_of(shelves: Shelves, product: Product, given: Given) -> int | Fault:
    named = given.get("id")
    if not isinstance(named, str):
        return "PRODUCT_VARIANT_ID_MISSING", "id", "Product variant is missing ID attribute"
    variant = shelves.variants.get(number_of(named, VARIANT) or 0)
    if variant is None:
        return "PRODUCT_VARIANT_DOES_NOT_EXIST", "id", "Product variant does not exist"
    if variant.product is not product:
        return "MUST_BE_FOR_THIS_PRODUCT", "id", "Product variant does not belong to the product"
    return variant.id


def _price_fault(given: Given, places: int) -> Fault | None:
    price, compared = given.get("price"), given.get("compareAtPrice")
    if "price" in given and price is None:
        return "BLANK", "price", "Price can't be blank"
    if isinstance(price, Decimal) and price < 0:
        return "NEGATIVE_PRICE_VALUE", "price", "Price must be greater than or equal to 0"
    if isinstance(compared, Decimal) and compared < 0:
        return (
            "GREATER_THAN_OR_EQUAL_TO",
            "compareAtPrice",
            "Compare at price must be greater than or equal to 0",
        )
    for field, amount in (("price", price), ("compareAtPrice", compared)):
        if isinstance(amount, Decimal) and not (amount < MOST and fits(amount, places)):
            return (
                "INVALID_INPUT",
                field,
                f"The amount must be below {MOST:f} and have at most {places} decimals",
            )
    return None


def _set(shelves: Shelves, variant_id: int, given: Given, places: int) -> Variant:
    """What is not named stays; a compare-at price of null is cleared."""
    before = shelves.variants[variant_id]
    price, compared = given.get("price"), given.get("compareAtPrice")
    is_price = isinstance(price, Decimal)
    if not is_price and "compareAtPrice" not in given:
        return before
    compare_at = in_places(compared, places) if isinstance(compared, Decimal) else None
    return shelves.price(
        variant_id,
        in_places(price, places) if is_price else before.price,
        compare_at if "compareAtPrice" in given else before.compare_at,
        "api",
    )
