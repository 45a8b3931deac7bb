"""The Redis client: semaphore permits and rate limits, each operation one atomic script."""

import asyncio
import re
import uuid
from dataclasses import dataclass
from typing import Any, cast

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from automation_pipeline.core.coordination import Rate
from automation_pipeline.core.errors import AutomationError, InfrastructureError, PermanentError

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 5.0

# redis-py makes a wrong password a ConnectionError, although another attempt cannot help.
_REFUSALS = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)
# Error codes while Redis starts, fails over, is full or busy. An error inside a script begins with
# the position in the script, so the code is not always the first word.
_TRANSIENT_CODES = re.compile(
    r"\b(LOADING|READONLY|MASTERDOWN|OOM|MISCONF|BUSY|NOSCRIPT|CLUSTERDOWN|TRYAGAIN)\b.*"
)
_TRANSIENT_ERRORS = (
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.NoScriptError,
    exceptions.OutOfMemoryError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
)
_NO_SUCH_DATABASE = ("DB index is out of range", "invalid DB index")


def connect(url: str) -> redis.Redis:
    """A client that never repeats a command, because a command whose answer is lost may have run.

    redis-py replaces a connection that died while idle before it sends a command.
    """
    try:
        return redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]  its **kwargs are bare
            url,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            protocol=2,
        )
    except ValueError:
        raise PermanentError("REDIS_URL is not the address of a Redis server.") from None


class RedisScript:
    """A Lua script, which Redis runs atomically. redis-py loads it again if Redis no longer has it."""

    def __init__(self, client: redis.Redis, lua: str) -> None:
        self._script = client.register_script(lua)

    def __call__(self, key: str, *arguments: str | float) -> object:
        try:
            return cast(object, cast(Any, self._script)(keys=[key], args=arguments))
        except (exceptions.RedisError, ValueError) as error:
            raise _to_domain_error(error) from error


def _to_domain_error(error: exceptions.RedisError | ValueError) -> AutomationError:
    lines = str(error).strip().splitlines()
    text = lines[0].rstrip(".") if lines else type(error).__name__
    if isinstance(error, _REFUSALS):
        return PermanentError(f"Redis refuses us: {text}.")
    if any(words in text for words in _NO_SUCH_DATABASE):
        return PermanentError(f"REDIS_URL names a database that this Redis does not have: {text}.")
    if code := _TRANSIENT_CODES.search(text):
        return InfrastructureError(f"Redis cannot serve us now: {code[0]}.")
    if isinstance(error, _TRANSIENT_ERRORS):
        return InfrastructureError(f"Redis cannot serve us now: {text}.")
    if isinstance(error, exceptions.ResponseError):
        return PermanentError(f"Redis refuses us: {text}.")
    # Silence, or bytes that are not the protocol of Redis, such as the error page of a proxy.
    return InfrastructureError(f"Redis does not answer: {text}.")


_NOW = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
"""
_ACQUIRE = f"""{_NOW}
local limit, ttl = tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= limit then return 0 end
redis.call('ZADD', KEYS[1], now + ttl, ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(ttl * 2000))
return 1
"""
# XX: a heartbeat after the release must not take the permit again.
_EXTEND = f"""{_NOW}
redis.call('ZADD', KEYS[1], 'XX', now + tonumber(ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[2]) * 2000))
return 1
"""
_RELEASE = "return redis.call('ZREM', KEYS[1], ARGV[1])"


class RedisPermits:
    def __init__(self, client: redis.Redis) -> None:
        self._acquire = RedisScript(client, _ACQUIRE)
        self._extend = RedisScript(client, _EXTEND)
        self._release = RedisScript(client, _RELEASE)

    async def acquire(
        self, name: str, limit: int, owner: str, ttl_seconds: float
    ) -> "RedisPermit | None":
        key, holder = f"automation:semaphore:{name}", f"{owner}/{uuid.uuid4().hex}"
        is_free = await asyncio.to_thread(self._acquire, key, holder, limit, ttl_seconds)
        return RedisPermit(self._extend, self._release, key, holder) if is_free == 1 else None


@dataclass(frozen=True)
class RedisPermit:
    extend_script: RedisScript
    release_script: RedisScript
    key: str
    holder: str

    async def extend(self, ttl_seconds: float) -> None:
        await asyncio.to_thread(self.extend_script, self.key, self.holder, ttl_seconds)

    async def release(self) -> None:
        """Completes even if the task is cancelled."""
        await asyncio.shield(asyncio.to_thread(self.release_script, self.key, self.holder))


# The value is GCRA's theoretical arrival time, the time up to which starts are reserved. `%.17g`
# keeps all digits (Lua prints 14). The key expires at that time, since an idle key equals no key.
_RESERVE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local interval, credit, max_wait = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local begins = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local wait = begins - credit - now
if max_wait and wait > max_wait then return false end
local idle_in = begins + interval - now
redis.call('SET', KEYS[1], string.format('%.17g', begins + interval), 'PX', math.ceil(idle_in * 1000))
return string.format('%.17g', math.max(0, wait))
"""


class RedisRateLimiter:
    def __init__(self, client: redis.Redis) -> None:
        self._reserve = RedisScript(client, _RESERVE)

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        interval = rate.interval_seconds
        credit = (rate.burst - 1) * interval
        max_wait = "" if max_wait_seconds is None else max_wait_seconds
        wait = self._reserve(f"automation:rate:{key}", interval, credit, max_wait)
        return None if wait is None else float(cast(str, wait))
