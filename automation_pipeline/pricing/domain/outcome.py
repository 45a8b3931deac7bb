"""What a rule makes of one variant: the price before and after, how it came about, or why nothing becomes of it."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from automation_pipeline.core.json_model import JsonModel
from automation_pipeline.pricing.domain.field_rules import Exact
from automation_pipeline.pricing.domain.money import Price
from automation_pipeline.pricing.domain.transform import Operation
from automation_pipeline.pricing.domain.variant import Variant


class Skip(StrEnum):
    """Why a rule leaves a variant alone. Keys are kept for good; the words are in `why`."""

    NOT_ACTIVE = "not_active"
    NO_PRICE = "no_price"
    ZERO_PRICE = "zero_price"
    OTHER_CURRENCY = "other_currency"
    NO_COMPARE_AT = "no_compare_at"
    NO_COST = "no_cost"
    NO_SUCH_ENDING = "no_such_ending"
    LIMITS_CONFLICT = "limits_conflict"
    NO_PRICE_LEFT = "no_price_left"
    NO_CHANGE = "no_change"

    @property
    def why(self) -> str:
        return _WHY[self]


_WHY = {
    Skip.NOT_ACTIVE: "Its product is not on sale in the shop.",
    Skip.NO_PRICE: "It has no price.",
    Skip.ZERO_PRICE: "Its price is zero, and the rule does not allow zero.",
    Skip.OTHER_CURRENCY: "It is priced in another currency than the rule.",
    Skip.NO_COMPARE_AT: "It has no compare-at price to start from.",
    Skip.NO_COST: "The shop does not say what it costs, so its margin cannot be kept.",
    Skip.NO_SUCH_ENDING: "No price in its currency ends as the rule wants.",
    Skip.LIMITS_CONFLICT: "Its margin needs more than the rule's ceiling allows.",
    Skip.NO_PRICE_LEFT: "The rule would leave no price above zero.",
    Skip.NO_CHANGE: "The rule changes nothing about it.",
}


class Warn(StrEnum):
    """What a person should look at before approving. The words are in `words`."""

    ENDING_LOST = "ending_lost"
    CHANGE_OVER_MAXIMUM = "change_over_maximum"
    CHANGE_NOT_MEASURED = "change_not_measured"
    COMPARE_AT_NOT_ABOVE = "compare_at_not_above"
    BELOW_COST = "below_cost"
    DIRECTION_REVERSED = "direction_reversed"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    Warn.ENDING_LOST: "A limit, or a price below the smallest with that ending, overrides the rounding.",
    Warn.CHANGE_OVER_MAXIMUM: "The floor, the ceiling or the margin forces a larger change than the rule's maximum.",
    Warn.CHANGE_NOT_MEASURED: "From a price of zero the maximum change cannot be measured: it was not applied.",
    Warn.COMPARE_AT_NOT_ABOVE: "The compare-at price is not above the price: the shop shows no reduction.",
    Warn.BELOW_COST: "The price lies below the cost.",
    Warn.DIRECTION_REVERSED: "Rounding or a limit turned a discount into an increase, or an increase into a discount.",
}


@dataclass(frozen=True)
class Clamp:
    """A limit that moved the price: to `bound`."""

    limit: str
    bound: int

    def __str__(self) -> str:
        return f"{self.limit}:{self.bound}"


class Constraints(JsonModel):
    """The limits of one variant in minor units, and those that moved its price, in the order in which they did."""

    floor: int | None
    ceiling: int | None
    lowest_change: int | None
    highest_change: int | None
    margin: int | None
    applied: tuple[str, ...]


class Trace(JsonModel):
    """What each part of the rule did to one price."""

    operation: Operation
    input_price: int
    intermediate_price: Exact
    rounded_price: int
    constraints: Constraints
    final_price: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`after` is there exactly if nothing was skipped. The compare-at price is written only if the rule touches it."""

    variant: Variant
    before: Price | None
    after: Price | None = None
    writes_compare_at: bool = False
    trace: Trace | None = None
    warnings: tuple[Warn, ...] = ()
    skipped: Skip | None = None


@dataclass(frozen=True)
class Drawn:
    """A price on its way: after the operation, after the rounding."""

    start: int
    exact: Decimal
    rounded: int
