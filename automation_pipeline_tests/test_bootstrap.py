"""What the settings select: rate limits and permits on Redis if it is configured, else in the
database."""

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
    services_of_settings = services(tmp_path)
    assert isinstance(services_of_settings.rate_limiter, DatabaseRateLimiter)
    assert isinstance(services_of_settings.permits, DatabasePermits)
    assert isinstance(services_of_settings._shared_limiter.limiter, DatabaseRateLimiter)


def test_the_database_takes_over_during_an_outage_of_redis(tmp_path: Path) -> None:
    services_of_settings = services(tmp_path, redis_url="redis://127.0.0.1:9/0")
    assert isinstance(services_of_settings.rate_limiter, RedisRateLimiter)
    assert isinstance(services_of_settings.permits, FailoverPermits)
    assert isinstance(services_of_settings._shared_limiter.limiter, FailoverRateLimiter)


def test_schedules_with_the_same_key_share_one_crm_client(tmp_path: Path) -> None:
    services_of_settings = services(
        tmp_path, fiche_api_base_url="http://127.0.0.1:9", fiche_api_auth_token="own"
    )
    first, again = (
        services_of_settings.crm_with(SecretStr("one")),
        services_of_settings.crm_with(SecretStr("one")),
    )
    assert first is again
    assert first is not services_of_settings.crm_with(SecretStr("other"))
    assert services_of_settings.crm_with(None) is services_of_settings.crm
