"""What goes wrong outside while a caller waits is told as that, whether another attempt could help or not."""

from collections.abc import Generator
from contextlib import contextmanager

from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OutsideError,
)
from automation_pipeline.storage.database import DatabaseNotReadyError, DatabaseTroubleError

_OURS = (
    NotFoundError,
    ConflictError,
    InvalidInputError,
    DatabaseTroubleError,
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
        raise OutsideError(str(error)) from error
