"""What a registry puts up with: so many calls in a window of time, and a ban of those who ask for
more."""

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable

Clock = Callable[[], float]


class Window:
    """A sliding one, for each client. Only calls let in take a place; a `limit` of 0 is none and
    counts nothing."""

    def __init__(self, limit: int, seconds: float, clock: Clock = time.monotonic) -> None:
        self.limit, self.seconds = limit, seconds
        self._clock = clock
        self._taken: defaultdict[str, deque[float]] = defaultdict(deque[float])

    def forget(self) -> None:
        self._taken.clear()

    def take(self, client: str = "") -> float:
        """0 takes a place; anything else is the seconds after which the next one is free."""
        if not self.limit:
            self._taken.pop(client, None)
            return 0.0
        taken = self._current(client)
        if len(taken) >= self.limit:
            return taken[-self.limit] + self.seconds - self._clock()
        taken.append(self._clock())
        return 0.0

    def left(self, client: str = "") -> int:
        return max(0, self.limit - len(self._current(client)))

    def empty_in(self, client: str = "") -> float:
        """The seconds after which all of them are free."""
        taken = self._current(client)
        return taken[-1] + self.seconds - self._clock() if taken else 0.0

    def _current(self, client: str) -> deque[float]:
        taken, now = self._taken[client], self._clock()
        while taken and taken[0] + self.seconds <= now:
            taken.popleft()
        return taken


class Bans:
    """Who asked for too much is not answered for `seconds`; to ask meanwhile makes it no longer."""

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        self.seconds = seconds
        self.count = 0
        self._clock = clock
        self._since: dict[str, float] = {}

    def forget(self) -> None:
        self.count = 0
        self._since.clear()

    def ban(self, client: str) -> None:
        self.count += 1
        self._since[client] = self._clock()

    def is_banned(self, client: str) -> bool:
        since = self._since.get(client)
        return since is not None and self._clock() < since + self.seconds


def whole(seconds: float) -> int:
    """As a Retry-After has it: who waits so long has waited enough."""
    return max(1, math.ceil(seconds))
