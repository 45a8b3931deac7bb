"""The maximum number of calls per minute of a provider, for all callers together."""

import math
import time
from collections import deque
from collections.abc import Callable

WINDOW_SECONDS = 60.0
MAX_PER_MINUTE = 1_000_000


class Cap:
    """A limit for a sliding minute. Only admitted calls count. Without a limit (0) no calls are counted, so that
    a limit that is set later starts with an empty minute. A changed limit keeps the counted calls."""

    def __init__(self, per_minute: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._admitted: deque[float] = deque()

    def reset(self) -> None:
        """Clear the calls of the last minute. The cap stays."""
        self._admitted.clear()

    def seconds_to_wait(self) -> int:
        """Admit a call and return 0, or return the whole seconds until the next call may be admitted."""
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
