"""How often and how long after a failure a job is tried again, and whether another try can help at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random
from zoneinfo import ZoneInfo

from pydantic import Field, StrictBool, StrictInt

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.execution_window import ExecutionWindow
from automation_pipeline.core.json_model import JsonModel, parse
from automation_pipeline.core.retry import Backoff

LONGEST_SECONDS = 3600.0
JITTER = 0.1
NOT_RETRYABLE = frozenset({"VALIDATION", "NOT_FOUND", "UNSUPPORTED", "EXPIRED"})

# Codes of our own.
STALE, TIME_LIMIT, EXPIRED, UNSUPPORTED, FAILED = "STALE", "TIME_LIMIT", "EXPIRED", "UNSUPPORTED", "FAILED"


class BackoffType(StrEnum):
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class RetryPolicy(JsonModel):
    """After the first attempt there are `max_retries` more. Exponential waits double, up to an hour."""

    max_retries: StrictInt = Field(default=2, ge=0, le=10)
    backoff_ms: StrictInt = Field(default=2000, ge=0, le=3_600_000)
    backoff_type: BackoffType = BackoffType.FIXED
    jitter: StrictBool = Field(default=False, description="Spread the waits by a tenth, to either side.")

    @property
    def attempts(self) -> int:
        return self.max_retries + 1

    def wait_seconds(self, failures: int, random: Random) -> float:
        """Before the next attempt, after so many that failed."""
        backoff = Backoff(
            base_seconds=self.backoff_ms / 1000,
            cap_seconds=LONGEST_SECONDS,
            multiplier=2 if self.backoff_type is BackoffType.EXPONENTIAL else 1,
            jitter=JITTER if self.jitter else 0,
        )
        return backoff.delay(failures, random)


def stored_policy(document: Mapping[str, object]) -> RetryPolicy:
    """One that is beyond the bounds of today tries nothing again, and keeps nothing else from being done."""
    try:
        return parse(RetryPolicy, document, "Invalid retry policy")
    except InvalidInputError:
        return RetryPolicy(max_retries=0)


@dataclass(frozen=True)
class StartWindow:
    """When attempts may begin."""

    window: ExecutionWindow
    zone: ZoneInfo

    def first_at(self, instant: datetime) -> datetime:
        return self.window.clamp(instant, self.zone)


def retry_at(
    policy: RetryPolicy, failures: int, now: datetime, window: StartWindow | None, random: Random
) -> datetime | None:
    """When it is tried again after so many failures: within the window, or when the next one opens. None: never."""
    if failures >= policy.attempts:
        return None
    wanted = now + timedelta(seconds=policy.wait_seconds(failures, random))
    return wanted if window is None else window.first_at(wanted)


def is_retryable(error_code: str | None) -> bool:
    return error_code not in NOT_RETRYABLE
