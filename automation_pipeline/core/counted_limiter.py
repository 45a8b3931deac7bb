"""A rate limiter that counts how long callers are told to wait for their turn."""

from dataclasses import dataclass

from automation_pipeline.core.coordination import Rate, RateLimiter, reserve
from automation_pipeline.core.meter import Meter


@dataclass(frozen=True)
class CountedRateLimiter:
    """A key is the name of the provider that is waited for, as its calls are counted under."""

    limiter: RateLimiter
    meter: Meter

    def reserve(self, key: str, rate: Rate, *, max_wait_seconds: float | None = None) -> float | None:
        return self._counted(key, self.limiter.reserve(key, rate, max_wait_seconds=max_wait_seconds))

    async def reserve_soon(self, key: str, rate: Rate) -> float | None:
        return self._counted(key, await reserve(self.limiter, key, rate))

    def _counted(self, key: str, wait: float | None) -> float | None:
        if wait:
            self.meter.count("limiter_waits_total", provider=key)
            self.meter.count("limiter_wait_seconds_total", wait, provider=key)
        return wait
