"""What becomes of a recording after one provider call."""

from dataclasses import dataclass
from datetime import timedelta
from random import Random

from automation_pipeline.core.errors import AutomationError, GroundError, TransientError
from automation_pipeline.core.retry import Backoff

# A provider, or a host of audio, that asks for more patience than this is not coming back today.
LONGEST_WAIT_SECONDS = 3600.0


@dataclass(frozen=True)
class Knobs:
    """How hard to try, and how many at once. Leases are kept by a heartbeat, a quarter of their length apart."""

    per_minute: int
    max_attempts: int
    backoff: Backoff
    lease_seconds: float
    per_fiche: int
    progress_every: int


@dataclass(frozen=True)
class AgainLater:
    after: timedelta
    error: str


@dataclass(frozen=True)
class GiveUp:
    error: str


def after_error(error: AutomationError, attempts: int, knobs: Knobs, random: Random) -> AgainLater | GiveUp:
    """`attempts` counts the tries so far, the failed one included. The larger of the provider's
    Retry-After and the back-off is waited for. What is nobody's
    failure out there is tried again however often."""
    if isinstance(error, GroundError):
        wait = knobs.backoff.delay(attempts, random)
        return AgainLater(timedelta(seconds=wait), str(error))
    if not isinstance(error, TransientError) or attempts >= knobs.max_attempts:
        return GiveUp(str(error))
    asked = error.retry_after_seconds
    if asked is not None and asked > LONGEST_WAIT_SECONDS:
        return GiveUp(f"{error} The wait it asks for, {asked:.0f} s, is too long.")
    wait = knobs.backoff.wait(attempts, asked, random)
    return AgainLater(timedelta(seconds=wait), str(error))
