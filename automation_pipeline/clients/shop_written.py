"""A write to the shop as it goes over the wire, and what the answer says of each price in it."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import BeforeValidator, JsonValue

from automation_pipeline.clients.elevenlabs_payloads import NotedText
from automation_pipeline.clients.shop_payloads import PricedPayload, Wire, variant_gid
from automation_pipeline.pricing.domain.failures import Failure, Signal, classified
from automation_pipeline.pricing.domain.money import Price, format_amount
from automation_pipeline.pricing.domain.shop_calls import PriceWrite

_PLACE = re.compile(r"[0-9]{1,4}")
_SILENT = classified(Signal(lost=True), "The shop does not say what became of this price.")
_DIFFERENT = classified(Signal(lost=True), "The shop tells another price than the one that was written.")


def write_input(write: PriceWrite) -> dict[str, object]:
    """A compare-at price that is not sent stays as it is; one that is null is cleared."""
    amount, currency, compare_at = write.price.unit_amount, write.price.currency, write.price.compare_at
    sent: dict[str, object] = {"id": variant_gid(write.variant_id), "price": format_amount(amount, currency)}
    if write.writes_compare_at:
        sent["compareAtPrice"] = None if compare_at is None else format_amount(compare_at, currency)
    return sent


def _place(field: JsonValue) -> int | None:
    """Of `["variants", "3", "price"]` the 3: the complaint is about the fourth variant that was sent."""
    path = [str(step) for step in field if isinstance(step, str | int)] if isinstance(field, list) else []
    places = (place for name, place in pairwise(path) if name == "variants" and _PLACE.fullmatch(place))
    return next((int(place) for place in places), None)


class UserErrorPayload(Wire):
    field: Annotated[int | None, BeforeValidator(_place)] = None
    message: NotedText = None
    code: NotedText = None

    def to_failure(self, shown: Callable[[str], str]) -> Failure:
        said = ", ".join(shown(text) for text in (self.message, self.code) if text) or "it says no reason"
        return classified(Signal(user_error=True, code=self.code), f"The shop refuses the price: {said}.")


class UpdatePayload(Wire):
    product_variants: list[PricedPayload] | None = None
    user_errors: list[UserErrorPayload] | None = None

    def to_written(self, writes: Sequence[PriceWrite], shown: Callable[[str], str]) -> dict[str, Price | Failure]:
        """A complaint about a variant outweighs that it is listed; one about none is about all that are not listed
        with the price that was asked for."""
        told = self._told({write.variant_id: write.price.currency for write in writes})
        errors = self.user_errors or []
        general = next((error for error in errors if error.field is None or error.field >= len(writes)), None)
        about_all = general.to_failure(shown) if general else None
        written = {write.variant_id: _outcome(write, told.get(write.variant_id), about_all) for write in writes}
        for error in reversed(errors):
            if error.field is not None and error.field < len(writes):
                written[writes[error.field].variant_id] = error.to_failure(shown)
        return written

    def _told(self, currencies: Mapping[str, str]) -> dict[str, Price]:
        listed = ((each.id, each) for each in self.product_variants or [] if each.id in currencies)
        told = {key: each.to_price(currencies[key]) for key, each in listed if key is not None}
        return {variant_id: price for variant_id, price in told.items() if price is not None}


def _outcome(write: PriceWrite, told: Price | None, about_all: Failure | None) -> Price | Failure:
    """A variant is also listed with the price that it had before."""
    if told and write.price.stands_as(told, with_compare_at=write.writes_compare_at):
        return told
    return about_all or (_DIFFERENT if told else _SILENT)


class WritePayload(Wire):
    product_variants_bulk_update: UpdatePayload
