"""The id that ties together what one wish of the outside sets off: HTTP request, Dagster run, calls of providers."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import uuid4

# On a Dagster run.
CORRELATION_TAG = "automation/correlation_id"

_USABLE = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_current: ContextVar[str | None] = ContextVar("correlation_id", default=None)


def correlation_id() -> str | None:
    return _current.get()


def usable_id(given: str | None) -> str:
    """What was given, when it can stand in headers, tags and logs; else a new one."""
    return given if given and _USABLE.fullmatch(given) else uuid4().hex


@contextmanager
def correlated(with_id: str | None) -> Generator[None]:
    """None keeps the one that there is."""
    token = _current.set(with_id or _current.get())
    try:
        yield
    finally:
        _current.reset(token)
