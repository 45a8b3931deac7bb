"""The way to Redis: one client, scripts that run there at once or not at all, errors a person can read."""

import re
from typing import Any, cast

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from automation_pipeline.core.errors import AutomationError, GroundError, PermanentError

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 5.0

# A wrong password is a ConnectionError to redis-py, yet it does not pass by itself.
_REFUSALS = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
_SILENCE = (exceptions.ConnectionError, exceptions.TimeoutError)
# What Redis says while it starts, fails over, is full or busy. What it says of a command inside a script comes after
# the script's own place, so the code is not always the first word.
_PASSING = re.compile(r"\b(LOADING|READONLY|MASTERDOWN|OOM|MISCONF|BUSY|NOSCRIPT|CLUSTERDOWN|TRYAGAIN)\b.*")
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
    """A client that never repeats a command by itself: one whose answer was lost may have been obeyed.

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
        except (*_SILENCE, exceptions.ResponseError) as error:
            raise _understood(error) from error


def _understood(error: exceptions.RedisError) -> AutomationError:
    said = _sentence(error)
    if isinstance(error, _REFUSALS):
        return PermanentError(f"Redis refuses us: {said}.")
    if any(words in said for words in _NO_SUCH_DATABASE):
        return PermanentError(f"REDIS_URL names a database that this Redis does not have: {said}.")
    if passing := _PASSING.search(said):
        return GroundError(f"Redis cannot serve us now: {passing[0]}.")
    if isinstance(error, _PASSING_KINDS):
        return GroundError(f"Redis cannot serve us now: {said}.")
    if isinstance(error, _SILENCE):
        return GroundError(f"Redis does not answer: {said}.")
    return PermanentError(f"Redis refuses us: {said}.")


def _sentence(error: exceptions.RedisError) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
