"""Rate limits in Redis: `core.coordination.RateLimiter` without the database, one script a reservation."""

from typing import cast

import redis

from automation_pipeline.core.coordination import Rate
from automation_pipeline.locks.redis_connection import RedisScript

# The value is GCRA's theoretical arrival time: the second up to which starts are already reserved, with all its
# digits (Lua would print 14). The key ends when it is reached: an idle key and no key are the same.
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

    def reserve(self, key: str, rate: Rate, *, max_wait_seconds: float | None = None) -> float | None:
        interval = rate.interval_seconds
        credit = (rate.burst - 1) * interval
        most = "" if max_wait_seconds is None else max_wait_seconds
        wait = self._reserve(f"automation:rate:{key}", interval, credit, most)
        return None if wait is None else float(cast(str, wait))
