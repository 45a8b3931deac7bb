"""The shop's bucket of points as we reckon it between its answers, so that no call comes before its points are there.

What is promised is taken at once: several processes share one tank, and wait one after the other.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from automation_pipeline.pricing.domain.shop_calls import Bucket

# What a shop has that has not told of itself yet: the smallest plan.
UNHEARD = Bucket(available=1000, maximum=1000, restore_rate=50)
# Answers come in another order than calls: so much of the bucket is left alone.
SPARE_SHARE = 0.03
# Promises of processes that were killed take no more than this from those that are at work.
MOST_PENDING_SHARE = 0.5
# They are forgotten when nothing was heard for so long.
FORGOTTEN_AFTER = timedelta(seconds=60)


@dataclass(frozen=True)
class Tank:
    """`available` is what is left at `measured_at` once every promise is kept, and may be less than nothing;
    `pending` is what is promised to calls that were not heard of yet; `heard_at` is when the shop last told."""

    available: float
    maximum: float
    restore_rate: float
    pending: float
    measured_at: datetime
    heard_at: datetime | None = None


def unheard(now: datetime) -> Tank:
    return Tank(UNHEARD.available, UNHEARD.maximum, UNHEARD.restore_rate, 0.0, now)


def promised(tank: Tank, cost: float, now: datetime) -> tuple[Tank, float]:
    """The tank with `cost` taken out, and in how many seconds the call may go."""
    filled = _filled(tank, now)
    if now - tank.measured_at > FORGOTTEN_AFTER:
        filled = replace(filled, pending=0.0)
    left = filled.available - cost
    lacking = max(_spare(filled) - left, 0.0)
    return replace(filled, available=left, pending=filled.pending + cost), lacking / filled.restore_rate


def returned(tank: Tank, cost: float, now: datetime) -> Tank:
    """A promise that is not wanted any more."""
    filled = _filled(tank, now)
    return replace(filled, available=filled.available + cost, pending=max(filled.pending - cost, 0.0))


def heard(tank: Tank, cost: float, told: Bucket | None, *, since: datetime, now: datetime) -> Tank:
    """After the answer to a call of that cost, which had its turn at `since`. What the shop tells is taken for the
    truth, less the other promises; but it may have been on its way for long: if another answer was heard meanwhile,
    it is not believed that there is more than we reckon."""
    filled = _filled(tank, now)
    pending = min(max(tank.pending - cost, 0.0), MOST_PENDING_SHARE * tank.maximum)
    if told is None or told.restore_rate <= 0 or told.maximum <= 0:
        return replace(filled, pending=pending)
    left = told.available - pending
    if tank.heard_at is not None and tank.heard_at > since:
        left = min(left, filled.available)
    return Tank(left, told.maximum, told.restore_rate, pending, now, heard_at=now)


def _spare(tank: Tank) -> float:
    return SPARE_SHARE * tank.maximum


def _filled(tank: Tank, now: datetime) -> Tank:
    seconds = max((now - tank.measured_at).total_seconds(), 0.0)
    return replace(tank, available=min(tank.available + seconds * tank.restore_rate, tank.maximum), measured_at=now)
