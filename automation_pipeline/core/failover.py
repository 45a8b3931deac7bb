"""A rate limiter that has a second place to ask when the first one does not answer."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from automation_pipeline.core.coordination import Rate, RateLimiter, reserve
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.logs import log

_log = log(__name__)


@dataclass
class FailoverRateLimiter:
    """Asks `second` while `first` is out, and looks after a while whether it is back. Processes notice an outage one by
    one, so for that moment the cap may be met twice; the provider's own refusal is the net below."""

    first: RateLimiter
    second: RateLimiter
    look_again_seconds: float = 15.0
    monotonic: Callable[[], float] = time.monotonic
    _out_until: float = 0.0

    def reserve(self, key: str, rate: Rate, *, max_wait_seconds: float | None = None) -> float | None:
        if self.monotonic() >= self._out_until:
            try:
                return self.first.reserve(key, rate, max_wait_seconds=max_wait_seconds)
            except AutomationError as error:
                self._note_outage(error)
        return self.second.reserve(key, rate, max_wait_seconds=max_wait_seconds)

    async def reserve_soon(self, key: str, rate: Rate) -> float | None:
        if self.monotonic() >= self._out_until:
            try:
                return await reserve(self.first, key, rate)
            except AutomationError as error:
                self._note_outage(error)
        return await reserve(self.second, key, rate)

    def _note_outage(self, error: AutomationError) -> None:
        _log.warning("Rate limits are kept in the database for now: %s", error)
        self._out_until = self.monotonic() + self.look_again_seconds
