"""Leases in Redis: `core.coordination.Leases` without the database. Every instant is the Redis server's own."""

from typing import cast

import redis

from automation_pipeline.core.coordination import Holder, Lease
from automation_pipeline.locks.redis_connection import RedisScript

# How long the last token of a key is remembered after its lease. Tokens follow the clock, so this only matters when
# the server's clock is set back; what Redis forgets, by this or by a restart, time has overtaken.
REMEMBER_SECONDS = 86_400

# One hash a key: owner, token, expires_at (microseconds). It outlives the lease, so that its token is not forgotten.
_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""
_HOLD = """
local function hold_for(seconds)
    redis.call('HSET', KEYS[1], 'expires_at', string.format('%.0f', now + seconds * 1000000))
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', (seconds + REMEMBER) * 1000))
end
""".replace("REMEMBER", str(REMEMBER_SECONDS))

_ACQUIRE = f"""{_NOW}{_HOLD}
local row = redis.call('HMGET', KEYS[1], 'token', 'expires_at')
if row[2] and tonumber(row[2]) > now then return false end
local token = math.max((tonumber(row[1]) or 0) + 1, math.floor(now / 1000))
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', string.format('%.0f', token))
hold_for(tonumber(ARGV[2]))
return token
"""

# To extend is to compare and hold on; to release is the same with no time left.
_SET_EXPIRY = f"""{_NOW}{_HOLD}
local row = redis.call('HMGET', KEYS[1], 'token', 'expires_at')
if not row[1] or row[1] ~= ARGV[1] or tonumber(row[2]) <= now then return 0 end
hold_for(tonumber(ARGV[2]))
return 1
"""

_HOLDER = f"""{_NOW}
local row = redis.call('HMGET', KEYS[1], 'owner', 'token', 'expires_at')
if not row[3] or tonumber(row[3]) <= now then return false end
return {{row[1], row[2], string.format('%.0f', tonumber(row[3]) - now)}}
"""


class RedisLeases:
    """`client` comes from `redis_connection.connect`."""

    def __init__(self, client: redis.Redis) -> None:
        self._acquire = RedisScript(client, _ACQUIRE)
        self._set_expiry = RedisScript(client, _SET_EXPIRY)
        self._holder = RedisScript(client, _HOLDER)

    def acquire(self, key: str, owner: str, ttl_seconds: float) -> Lease | None:
        token = self._acquire(_name(key), owner, ttl_seconds)
        return Lease(key, owner, token) if isinstance(token, int) else None

    def extend(self, lease: Lease, ttl_seconds: float) -> bool:
        return self._set_expiry(_name(lease.key), lease.token, ttl_seconds) == 1

    def release(self, lease: Lease) -> bool:
        return self._set_expiry(_name(lease.key), lease.token, 0) == 1

    def holder(self, key: str) -> Holder | None:
        row = self._holder(_name(key))
        if row is None:
            return None
        owner, token, microseconds_left = cast(list[str], row)
        return Holder(owner, int(token), int(microseconds_left) / 1_000_000)


def _name(key: str) -> str:
    return f"automation:lease:{key}"
