"""The leaky bucket of points: a call takes its cost before it is answered, and gets back what it
did not need."""

import time
from collections.abc import Callable

MAXIMUM, RESTORE_RATE = 2000.0, 100.0


class Bucket:
    """`lowest` is the emptiest that it ever was, `spent` what was taken and not given back,
    `throttled` how many calls it refused."""

    def __init__(
        self,
        maximum: float = MAXIMUM,
        restore_rate: float = RESTORE_RATE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.maximum, self.restore_rate = maximum, restore_rate
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Full, and as if never used; maximum and rate stay."""
        self._level = self.lowest = self.maximum
        self._settled_at = self._clock()
        self.spent, self.throttled = 0.0, 0

    def set_maximum(self, maximum: float) -> None:
        """Begins with a full one; what was counted stays."""
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
        """False takes nothing: there are fewer than that."""
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
