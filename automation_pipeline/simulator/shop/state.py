"""The state of the shop: catalogue, bucket of points, and counted calls."""

import time
from collections import Counter
from collections.abc import Callable

from automation_pipeline.simulator.shop.catalogue import Catalogue, Sizes

MAXIMUM, RESTORE_RATE = 2000.0, 100.0


class Bucket:
    """A leaky bucket of points. `lowest` is the lowest level so far, `spent` the points that were charged and not
    returned, and `throttled` the number of refused calls."""

    def __init__(
        self,
        maximum: float = MAXIMUM,
        restore_rate: float = RESTORE_RATE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.maximum, self.restore_rate = maximum, restore_rate
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Fill the bucket and reset its counters; maximum and rate stay."""
        self._level = self.lowest = self.maximum
        self._settled_at = self._clock()
        self.spent, self.throttled = 0.0, 0

    def set_maximum(self, maximum: float) -> None:
        """Set the maximum and fill the bucket; the counters stay."""
        self.level()
        self.maximum = self._level = self.lowest = maximum

    def set_restore_rate(self, restore_rate: float) -> None:
        self.level()
        self.restore_rate = restore_rate

    def level(self) -> float:
        now = self._clock()
        self._level = min(self.maximum, self._level + (now - self._settled_at) * self.restore_rate)
        self._settled_at = now
        return self._level

    def take(self, points: float) -> bool:
        """Charge the points. Return False, and charge none, if there are too few."""
        if self.level() < points:
            self.throttled += 1
            return False
        self._level -= points
        self.spent += points
        self.lowest = min(self.lowest, self._level)
        return True

    def give_back(self, points: float) -> None:
        self._level = min(self.maximum, self.level() + points)
        self.spent -= points


class ShopState:
    """`calls` counts the calls that reached the shop, including throttled ones."""

    def __init__(self, seed: int, sizes: Sizes, bucket: Bucket | None = None) -> None:
        self._seed = seed
        self.bucket = bucket or Bucket()
        self.catalogue = Catalogue(seed, sizes)
        self.calls: Counter[str] = Counter()

    @property
    def sizes(self) -> Sizes:
        return self.catalogue.sizes

    def resize(self, sizes: Sizes) -> None:
        """A different size creates a new catalogue; the same size keeps its prices."""
        if sizes != self.sizes:
            self.catalogue = Catalogue(self._seed, sizes)

    def reset(self) -> None:
        """Reset prices, counts and spent points. Sizes, maximum and rate stay."""
        self.catalogue = Catalogue(self._seed, self.sizes)
        self.bucket.reset()
        self.calls.clear()
