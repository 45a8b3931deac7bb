"""Which prices a rule allows itself: multiples of a unit, or those with an ending such as .99."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from automation_pipeline.pricing.domain.money import half_up


class Round(StrEnum):
    NONE = "none"
    UP = "up"
    DOWN = "down"
    NEAREST = "nearest"


@dataclass(frozen=True)
class Lattice:
    """The prices `first`, `first + step`, `first + 2 * step`, and so on, in minor units."""

    step: int
    first: int = 0

    def holds(self, amount: int) -> bool:
        return amount >= self.first and (amount - self.first) % self.step == 0


def multiples(precision: int, decimals: int) -> Lattice:
    """`precision` counts decimals of the major unit; finer than the smallest coin is the smallest coin."""
    return Lattice(10 ** max(decimals - precision, 0))


def with_ending(ending: str, decimals: int) -> Lattice | None:
    """The prices that end so. None where the currency has none: its decimals must be said, and no more of them."""
    whole, _, cents = ending.partition(".")
    if bool(cents) != bool(decimals) or len(cents) > decimals:
        return None
    return Lattice(step=10 ** (len(whole) + decimals), first=int(whole + cents.ljust(decimals, "0")))


_WAYS: dict[Round, Callable[[Decimal], int]] = {
    Round.UP: math.ceil,
    Round.DOWN: math.floor,
    Round.NEAREST: lambda steps: math.floor(steps + Decimal("0.5")),
}


def rounded(exact: Decimal, way: Round, lattice: Lattice) -> int:
    """Of two prices as near, the higher. An amount that is no price is not rounded, so that it does not become one.
    Where the lattice has no price below, rounding down keeps the exact price, cut to the smallest coin."""
    if way is Round.NONE or exact <= 0:
        return half_up(exact)
    steps = _WAYS[way]((exact - lattice.first) / lattice.step)
    if steps < 0 and way is Round.DOWN:
        return math.floor(exact)
    return lattice.first + lattice.step * max(steps, 0)
