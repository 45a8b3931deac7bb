"""Retries: back-off, Retry-After headers, transient statuses, and the retry loop."""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import TypeVar

from automation_pipeline.core.errors import TransientError

MINIMUM_WAIT_SECONDS = 1.0
# Client errors that another attempt may avoid.
TRANSIENT_STATUSES = frozenset({408, 425, 429})


def is_transient_status(status: int) -> bool:
    return status in TRANSIENT_STATUSES or status >= 500


# Nine digits are 31 years. Larger numbers would overflow a datetime.
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]+)?")


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Exponential waits. With a multiplier of 1 they are constant. `jitter` is the largest share of
    the wait that is added or subtracted."""

    base_seconds: float
    cap_seconds: float
    multiplier: float = 2.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.base_seconds < math.inf and 0 <= self.cap_seconds < math.inf):
            raise ValueError("The base and the cap of a back-off must be finite and not negative.")
        if not (1 <= self.multiplier < math.inf and 0 <= self.jitter <= 1):
            raise ValueError(
                "A back-off needs a multiplier of at least 1 and a jitter between 0 and 1."
            )

    def delay(self, n: int, random: Random) -> float:
        """Seconds before the n-th retry, counted from 1. They are between zero and the cap."""
        if n < 1:
            raise ValueError("Retries are counted from 1.")
        nominal = self._nominal(n)
        spread = self.jitter * nominal
        return min(max(nominal + random.uniform(-spread, spread), 0.0), self.cap_seconds)

    def wait(self, n: int, retry_after: float | None, random: Random) -> float:
        """Seconds before the n-th retry of a call whose response had a Retry-After: the larger of
        both waits. Jitter spreads callers that got the same Retry-After."""
        own = self.delay(n, random)
        if retry_after is None or retry_after <= 0:
            return own
        return max(retry_after + random.uniform(0, self.jitter * self._nominal(n)), own)

    def _nominal(self, n: int) -> float:
        if self.base_seconds == 0:
            return 0.0
        try:
            return min(self.base_seconds * float(self.multiplier) ** (n - 1), self.cap_seconds)
        except OverflowError:
            return self.cap_seconds


def retry_after_seconds(header: str | None, now: datetime) -> float | None:
    """The wait that a Retry-After header asks for, at least one second; None if it cannot be read."""
    text = (header or "").strip()
    if _SECONDS.fullmatch(text):
        return max(float(text), MINIMUM_WAIT_SECONDS)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # The oldest of the three HTTP date formats names no zone; the standard says it is UTC.
    wait = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    return max(wait.total_seconds(), MINIMUM_WAIT_SECONDS)


Result = TypeVar("Result")


@dataclass(frozen=True)
class Retrying:
    """Makes at most `attempts` calls. Between them it waits for the larger of the Retry-After and
    the back-off. It raises an error with a Retry-After above `longest_wait_seconds` at once."""

    attempts: int
    backoff: Backoff
    longest_wait_seconds: float = 60.0
    random: Random = field(default_factory=Random)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def call(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        for failures in range(1, self.attempts):
            try:
                return await attempt()
            except TransientError as error:
                retry_after = error.retry_after_seconds
                if retry_after is not None and retry_after > self.longest_wait_seconds:
                    raise
                wait = self.backoff.wait(failures, retry_after, self.random)
                await self.sleep(min(wait, self.longest_wait_seconds))
        return await attempt()
