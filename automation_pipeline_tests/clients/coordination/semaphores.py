"""The implementations of permits and rate limiters, selected by URL so that child processes can open them."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
import redis

from automation_pipeline.clients.redis import RedisPermits, RedisRateLimiter, connect
from automation_pipeline.core.coordination import Permits, RateLimiter
from automation_pipeline.storage.claims import DatabasePermits
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.rate_limits import DatabaseRateLimiter

# Adds Redis to the `database_kind` fixture.
on_every_backend = pytest.mark.parametrize(
    "database_kind",
    ["sqlite", *(pytest.param(kind, marks=pytest.mark.services) for kind in ("postgres", "redis"))],
    indirect=True,
)


def backend_url(kind: str, request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("redis_url" if kind == "redis" else "database_url")


@contextmanager
def permits_at(url: str) -> Generator[Permits]:
    with _opened(url) as backend:
        yield DatabasePermits(backend) if isinstance(backend, Database) else RedisPermits(backend)


@contextmanager
def limiter_at(url: str) -> Generator[RateLimiter]:
    with _opened(url) as backend:
        yield (
            DatabaseRateLimiter(backend)
            if isinstance(backend, Database)
            else RedisRateLimiter(backend)
        )


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
