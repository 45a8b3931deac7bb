"""The way to Redis: one client, scripts that run there at once or not at all, errors a person can read."""

from typing import Any, cast

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from automation_pipeline.core.errors import PermanentError, TransientError

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 5.0

# A wrong password is a ConnectionError to redis-py, yet it does not pass by itself.
_REFUSALS = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
# What Redis says while it starts, fails over or is full.
_PASSING = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.NoScriptError,
    exceptions.OutOfMemoryError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
)


def connect(url: str) -> redis.Redis:
    """A client that never repeats a command by itself: one whose answer was lost may have taken the lease already.

    A connection that died while it was idle is noticed and replaced before a command is sent, so this costs little.
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
        except _REFUSALS as error:
            raise PermanentError(f"Redis refuses us: {_sentence(error)}.") from error
        except _PASSING as error:
            raise TransientError(f"Redis does not answer: {_sentence(error)}.") from error


def _sentence(error: exceptions.RedisError) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
