"""Permits of semaphores in Redis: a sorted set per semaphore, of holders by the end of their permit."""

import asyncio
import uuid
from dataclasses import dataclass

import redis

from automation_pipeline.locks.redis_connection import RedisScript

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

    async def acquire(self, name: str, limit: int, owner: str, ttl_seconds: float) -> "RedisPermit | None":
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
