"""A provider's cap: the calls per minute that all callers share."""

import math
import time
from collections import deque
from collections.abc import Callable

WINDOW_SECONDS = 60.0
MAX_PER_MINUTE = 1_000_000


class Cap:
    """A sliding minute. Only admitted calls count; without a cap (0) nothing is counted, so
    a cap set later starts with an empty minute, while a changed one keeps the calls already
    counted."""

    def __init__(self, per_minute: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._admitted: deque[float] = deque()

    def forget(self) -> None:
        """Forget the calls of the last minute; the cap stays."""
        self._admitted.clear()

    def seconds_to_wait(self) -> int:
        """0 when the call is admitted, otherwise the whole seconds until the next call may be
        admitted."""
        now = self._clock()
        while self._admitted and now - self._admitted[0] >= WINDOW_SECONDS:
            self._admitted.popleft()
        if not self.per_minute:
            self._admitted.clear()
            return 0
        if len(self._admitted) < self.per_minute:
            self._admitted.append(now)
            return 0
        return max(1, math.ceil(self._admitted[-self.per_minute] + WINDOW_SECONDS - now))
