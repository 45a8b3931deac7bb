"""Where permits and rate limits can live, by address: the contract runs on each, also from other
processes."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
import redis

from automation_pipeline.clients.redis import RedisPermits, RedisRateLimiter, connect
from automation_pipeline.core.coordination import Permits, RateLimiter
from automation_pipeline.storage.claims import DatabasePermits
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.rate_limits import DatabaseRateLimiter

# Widens the suite's own `database_kind` by Redis.
on_every_place = pytest.mark.parametrize(
    "database_kind",
    ["sqlite", *(pytest.param(kind, marks=pytest.mark.services) for kind in ("postgres", "redis"))],
    indirect=True,
)


def address(kind: str, request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("redis_url" if kind == "redis" else "database_url")


@contextmanager
def permits_at(url: str) -> Generator[Permits]:
    with _opened(url) as place:
        yield DatabasePermits(place) if isinstance(place, Database) else RedisPermits(place)


@contextmanager
def limiter_at(url: str) -> Generator[RateLimiter]:
    with _opened(url) as place:
        yield DatabaseRateLimiter(place) if isinstance(place, Database) else RedisRateLimiter(place)


@contextmanager
def _opened(url: str) -> Generator[Database | redis.Redis]:
    if url.startswith("redis"):
        client = connect(url)
        try:
            yield client
        finally:
            client.close()
        return
    database = Database(url)
    try:
        yield database
    finally:
        database.dispose()
