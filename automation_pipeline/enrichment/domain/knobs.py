"""What can be set about enrichment."""

from dataclasses import dataclass, field
from datetime import timedelta

from automation_pipeline.core.retry import Backoff


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """`optional_not_found_counts`: a company that an optional registry does not know is a failure of that source."""

    freshness: timedelta = timedelta(days=30)
    lock_seconds: float = 120.0
    heartbeat_seconds: float = 30.0
    call_seconds: float = 5.0
    max_retries: int = 2
    backoff: Backoff = field(default_factory=lambda: Backoff(base_seconds=0.25, cap_seconds=0.5, jitter=0.2))
    longest_retry_after_seconds: float = 5.0
    sync_seconds: float = 1.1
    cooldown: timedelta = timedelta(minutes=15)
    max_attempts: int = 3
    optional_not_found_counts: bool = True
