"""Errors and time limits of the systems that a request needs."""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import TypeVar

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    UpstreamError,
)
from automation_pipeline.storage.database import DatabaseNotReadyError, DatabaseUnavailableError

Result = TypeVar("Result")


def done_in_time(work: Coroutine[object, object, Result], services: Services) -> Result:
    """TimeoutError, a 504 to the caller, when it takes longer than any answer may; it is broken off
    then."""
    return asyncio.run(_in_time(services.counted(work), services.settings.api_timeout_seconds))


async def _in_time(work: Coroutine[object, object, Result], seconds: float) -> Result:
    async with asyncio.timeout(seconds):
        return await work


_OURS = (
    NotFoundError,
    ConflictError,
    InvalidInputError,
    DatabaseUnavailableError,
    DatabaseNotReadyError,
)


@contextmanager
def asking_outside() -> Generator[None]:
    """OutsideError for failures of others; ours stay what they are."""
    try:
        yield
    except _OURS:
        raise
    except AutomationError as error:
        raise UpstreamError(str(error)) from error
