"""`/_sim/shop`: configures the shop, shows its calls and prices, and changes prices like a
merchant."""

import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from automation_pipeline.simulator.faults import BadRequestError
from automation_pipeline.simulator.shop.catalogue import (
    amount_of,
    amount_text,
    decimals_of,
    fits,
    is_currency,
    size_fault,
    with_decimals,
)
from automation_pipeline.simulator.shop.requests import KINDS
from automation_pipeline.simulator.shop.state import ShopState

MOST_POINTS = 10**9
SETTINGS = ("products", "variants_per_product", "currency", "maximum", "restore_rate")


class ShopControl:
    def __init__(self, shop: ShopState) -> None:
        self._shop = shop

    def routes(self) -> list[Route]:
        return [
            Route("/_sim/shop", self.show, methods=["GET"]),
            Route("/_sim/shop", self.set_up, methods=["PUT"]),
            Route("/_sim/shop/variants", self.edit, methods=["POST"]),
            Route("/_sim/shop/variants/{id}", self.remove, methods=["DELETE"]),
        ]

    async def show(self, request: Request) -> Response:
        variant = request.query_params.get("variant")
        return JSONResponse(self._totals() if variant is None else self._variant(_number(variant)))

    async def set_up(self, request: Request) -> Response:
        """Change the named settings. If one is invalid, none changes. A different size or currency creates a new
        catalogue, and a maximum fills the bucket."""
        given = _object(await request.body(), SETTINGS)
        sizes, bucket = self._shop.sizes, self._shop.bucket
        sizes = replace(
            sizes,
            products=_whole(given, "products", sizes.products),
            variants_per_product=_whole(given, "variants_per_product", sizes.variants_per_product),
            currency=_currency(given, sizes.currency),
        )
        maximum = _points(given, "maximum", bucket.maximum)
        restore_rate = _points(given, "restore_rate", bucket.restore_rate)
        if fault := size_fault(sizes.products, sizes.variants_per_product):
            raise BadRequestError(fault)
        self._shop.resize(sizes)
        bucket.set_restore_rate(restore_rate)
        if "maximum" in given:
            bucket.set_maximum(maximum)
        return JSONResponse(self._settings())

    async def edit(self, request: Request) -> Response:
        """Change the price of a variant. The compare-at price changes only if it is named; null clears it."""
        given = _object(await request.body(), ("id", "price", "compareAtPrice"))
        catalogue = self._shop.catalogue
        variant_id = self._existing(_number(given.get("id")))
        compare_at = catalogue.variants[variant_id].compare_at
        if "compareAtPrice" in given:
            compare_at = (
                None if given["compareAtPrice"] is None else self._amount(given, "compareAtPrice")
            )
        catalogue.price(variant_id, self._amount(given, "price"), compare_at, "hand")
        return JSONResponse(self._variant(variant_id))

    async def remove(self, request: Request) -> Response:
        variant_id = self._existing(_number(request.path_params["id"]))
        self._shop.catalogue.remove(variant_id)
        return JSONResponse({"removed": str(variant_id)})

    def _existing(self, variant_id: int) -> int:
        if variant_id not in self._shop.catalogue.variants:
            raise BadRequestError(f"The shop has no variant {variant_id}.")
        return variant_id

    def _amount(self, given: Mapping[str, object], name: str) -> Decimal:
        decimals = decimals_of(self._shop.sizes.currency)
        amount = amount_of(given.get(name))
        if amount is None or amount < 0 or not fits(amount, decimals):
            raise BadRequestError(
                f"{name!r} must be an amount from 0 with at most {decimals} decimals."
            )
        return with_decimals(amount, decimals)

    def _settings(self) -> dict[str, object]:
        sizes, bucket = self._shop.sizes, self._shop.bucket
        return {
            "products": sizes.products,
            "variants_per_product": sizes.variants_per_product,
            "currency": sizes.currency,
            "maximum": bucket.maximum,
            "restore_rate": bucket.restore_rate,
        }

    def _totals(self) -> dict[str, object]:
        bucket = self._shop.bucket
        return {
            **self._settings(),
            "level": round(bucket.level(), 3),
            "lowest": round(bucket.lowest, 3),
            "spent": bucket.spent,
            "throttled": bucket.throttled,
            "calls": {kind: self._shop.calls[kind] for kind in KINDS},
            "writes": {
                str(variant_id): count for variant_id, count in self._shop.catalogue.written.items()
            },
        }

    def _variant(self, variant_id: int) -> dict[str, object]:
        catalogue = self._shop.catalogue
        history = catalogue.history(variant_id)
        if not history:
            raise BadRequestError(f"The shop never had a variant {variant_id}.")
        return {
            "id": str(variant_id),
            "is_there": variant_id in catalogue.variants,
            "writes": catalogue.written[variant_id],
            "history": [
                {
                    "price": amount_text(then.price),
                    "compareAtPrice": amount_text(then.compare_at),
                    "by": then.by,
                }
                for then in history
            ],
        }


def _object(body: bytes, names: tuple[str, ...]) -> Mapping[str, object]:
    try:
        posted: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError("The body is not valid JSON.") from error
    given = cast("dict[str, object]", posted) if isinstance(posted, dict) else {}
    if not given or set(given) - set(names):
        raise BadRequestError(f"The body must be an object with some of {', '.join(names)}.")
    return given


def _number(given: object) -> int:
    text = str(given)
    if not (
        isinstance(given, str | int) and text.isascii() and text.isdecimal() and len(text) <= 18
    ):
        raise BadRequestError("A variant is named by its number, such as 70000010001.")
    return int(text)


def _whole(given: Mapping[str, object], name: str, now: int) -> int:
    value = given.get(name, now)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequestError(f"{name!r} must be a whole number.")
    return value


def _points(given: Mapping[str, object], name: str, now: float) -> float:
    value = given.get(name, now)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= MOST_POINTS
    ):
        raise BadRequestError(f"{name!r} must be a number of points from 0 to {MOST_POINTS}.")
    return float(value)


def _currency(given: Mapping[str, object], now: str) -> str:
    value = given.get("currency", now)
    if not isinstance(value, str) or not is_currency(value):
        raise BadRequestError("'currency' must be three capital letters, such as EUR.")
    return value
