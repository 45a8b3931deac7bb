"""Redis: connection, semaphore permits and rate limits, each operation one atomic script."""

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

# A wrong password is a ConnectionError to redis-py, yet it does not pass by itself.
_REFUSALS = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)
_SILENCE = (exceptions.ConnectionError, exceptions.TimeoutError)
# What Redis says while it starts, fails over, is full or busy. What it says of a command inside a
# script comes after the script's own place, so the code is not always the first word.
_PASSING = re.compile(
    r"\b(LOADING|READONLY|MASTERDOWN|OOM|MISCONF|BUSY|NOSCRIPT|CLUSTERDOWN|TRYAGAIN)\b.*"
)
_PASSING_KINDS = (
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.NoScriptError,
    exceptions.OutOfMemoryError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
)
_NO_SUCH_DATABASE = ("DB index is out of range", "invalid DB index")


def connect(url: str) -> redis.Redis:
    """A client that never repeats a command by itself: one whose answer was lost may have been
    obeyed.

    A connection that died while it was idle is noticed and replaced before a command is sent, so
    this costs little.
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
    """A Lua script: Redis runs it as one step, and is told its text again when it forgot it."""

    def __init__(self, client: redis.Redis, lua: str) -> None:
        self._script = client.register_script(lua)

    def __call__(self, key: str, *arguments: str | float) -> object:
        try:
            return cast(object, cast(Any, self._script)(keys=[key], args=arguments))
        except (*_SILENCE, exceptions.ResponseError) as error:
            raise _understood(error) from error


def _understood(error: exceptions.RedisError) -> AutomationError:
    said = _sentence(error)
    if isinstance(error, _REFUSALS):
        return PermanentError(f"Redis refuses us: {said}.")
    if any(words in said for words in _NO_SUCH_DATABASE):
        return PermanentError(f"REDIS_URL names a database that this Redis does not have: {said}.")
    if passing := _PASSING.search(said):
        return InfrastructureError(f"Redis cannot serve us now: {passing[0]}.")
    if isinstance(error, _PASSING_KINDS):
        return InfrastructureError(f"Redis cannot serve us now: {said}.")
    if isinstance(error, _SILENCE):
        return InfrastructureError(f"Redis does not answer: {said}.")
    return PermanentError(f"Redis refuses us: {said}.")


def _sentence(error: exceptions.RedisError) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


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
# XX: a beat that comes after the release gives nothing back.
_EXTEND = f"""{_NOW}
redis.call('ZADD', KEYS[1], 'XX', now + tonumber(ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[2]) * 2000))
return 1
"""
_RELEASE = "return redis.call('ZREM', KEYS[1], ARGV[1])"


class RedisPermits:
    """`client` comes from `redis_connection.connect`."""

    def __init__(self, client: redis.Redis) -> None:
        self._acquire = RedisScript(client, _ACQUIRE)
        self._extend = RedisScript(client, _EXTEND)
        self._release = RedisScript(client, _RELEASE)

    async def acquire(
        self, name: str, limit: int, owner: str, ttl_seconds: float
    ) -> "RedisPermit | None":
        key, holder = f"automation:semaphore:{name}", f"{owner}/{uuid.uuid4().hex}"
        is_given = await asyncio.to_thread(self._acquire, key, holder, limit, ttl_seconds)
        return RedisPermit(self._extend, self._release, key, holder) if is_given == 1 else None


@dataclass(frozen=True)
class RedisPermit:
    extend_script: RedisScript
    release_script: RedisScript
    key: str
    holder: str

    async def extend(self, ttl_seconds: float) -> None:
        await asyncio.to_thread(self.extend_script, self.key, self.holder, ttl_seconds)

    async def release(self) -> None:
        """Also if the task is cancelled meanwhile."""
        await asyncio.shield(asyncio.to_thread(self.release_script, self.key, self.holder))


# The value is GCRA's theoretical arrival time: the second up to which starts are already reserved,
# with all its digits (Lua would print 14). The key ends when it is reached: an idle key and no key
# are the same.
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
    """`client` comes from `redis_connection.connect`."""

    def __init__(self, client: redis.Redis) -> None:
        self._reserve = RedisScript(client, _RESERVE)

    def reserve(
        self, key: str, rate: Rate, *, max_wait_seconds: float | None = None
    ) -> float | None:
        interval = rate.interval_seconds
        credit = (rate.burst - 1) * interval
        most = "" if max_wait_seconds is None else max_wait_seconds
        wait = self._reserve(f"automation:rate:{key}", interval, credit, most)
        return None if wait is None else float(cast(str, wait))
