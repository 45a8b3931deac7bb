"""What the settings choose: rate limits and permits on Redis where it is configured, in the
database elsewhere."""

from pathlib import Path

from automation_pipeline.bootstrap import Services
from automation_pipeline.clients.redis import RedisRateLimiter
from automation_pipeline.core.coordination import FailoverPermits, FailoverRateLimiter
from automation_pipeline.core.settings import Settings
from automation_pipeline.storage.claims import DatabasePermits
from automation_pipeline.storage.rate_limits import DatabaseRateLimiter


def services(folder: Path, **settings: str) -> Services:
    return Services(Settings(database_url=f"sqlite:///{folder / 'test.db'}", **settings))


def test_without_redis_the_database_bounds_calls(tmp_path: Path) -> None:
    made = services(tmp_path)
    assert isinstance(made.rate_limiter, DatabaseRateLimiter)
    assert isinstance(made.permits, DatabasePermits)
    assert isinstance(made._shared_limiter.limiter, DatabaseRateLimiter)


def test_with_redis_the_database_takes_over_when_redis_is_away(tmp_path: Path) -> None:
    made = services(tmp_path, redis_url="redis://127.0.0.1:9/0")
    assert isinstance(made.rate_limiter, RedisRateLimiter)
    assert isinstance(made.permits, FailoverPermits)
    assert isinstance(made._shared_limiter.limiter, FailoverRateLimiter)
