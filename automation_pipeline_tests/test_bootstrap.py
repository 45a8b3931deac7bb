"""What the settings choose: rate limits and permits on Redis where it is configured, in the
database elsewhere."""

from pathlib import Path

from pydantic import SecretStr

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


def test_the_database_takes_over_during_an_outage_of_redis(tmp_path: Path) -> None:
    made = services(tmp_path, redis_url="redis://127.0.0.1:9/0")
    assert isinstance(made.rate_limiter, RedisRateLimiter)
    assert isinstance(made.permits, FailoverPermits)
    assert isinstance(made._shared_limiter.limiter, FailoverRateLimiter)


def test_schedules_with_the_same_key_share_one_crm_client(tmp_path: Path) -> None:
    made = services(tmp_path, fiche_api_base_url="http://127.0.0.1:9", fiche_api_auth_token="own")
    first, again = made.crm_with(SecretStr("one")), made.crm_with(SecretStr("one"))
    assert first is again
    assert first is not made.crm_with(SecretStr("other"))
    assert made.crm_with(None) is made.crm
