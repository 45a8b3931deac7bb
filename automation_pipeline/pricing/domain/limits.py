"""The limits a rule keeps, for one variant: the maximum change first; margin, floor and ceiling always hold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from automation_pipeline.pricing.domain.outcome import Clamp
from automation_pipeline.pricing.domain.transform import Transform

_HUNDRED = Decimal(100)


@dataclass(frozen=True)
class Limits:
    """Bounds in minor units. None: no such bound."""

    lowest_change: int | None
    highest_change: int | None
    margin: int | None
    floor: int | None
    ceiling: int | None

    @property
    def conflict(self) -> bool:
        return self.margin is not None and self.ceiling is not None and self.margin > self.ceiling


def limits_of(transform: Transform, before: int, cost: int | None) -> Limits:
    """Bounds are drawn inwards to whole units. From zero no change can be measured in percent."""
    share = transform.max_change_percent
    change = None if share is None or before == 0 else before * share / _HUNDRED
    margin = transform.margin_over_cost_percent
    return Limits(
        lowest_change=None if change is None else max(math.ceil(before - change), 0),
        highest_change=None if change is None else math.floor(before + change),
        margin=None if margin is None or cost is None else math.ceil(cost * (_HUNDRED + margin) / _HUNDRED),
        floor=transform.floor,
        ceiling=transform.ceiling,
    )


def within(limits: Limits, amount: int) -> tuple[int, Sequence[Clamp]]:
    """The amount inside all limits, and the limits that moved it, in order."""
    moved: list[Clamp] = []
    for name, bound, is_lower in (
        ("maxChange", limits.lowest_change, True),
        ("maxChange", limits.highest_change, False),
        ("margin", limits.margin, True),
        ("floor", limits.floor, True),
        ("ceiling", limits.ceiling, False),
    ):
        if bound is not None and (amount < bound if is_lower else amount > bound):
            amount = bound
            moved.append(Clamp(name, bound))
    return amount, moved


def exceeds_change(limits: Limits, amount: int) -> bool:
    lowest, highest = limits.lowest_change, limits.highest_change
    return (lowest is not None and amount < lowest) or (highest is not None and amount > highest)
