"""What an error that was raised makes of an attempt: whether another one can help is in its code."""

from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    sentence_of,
)
from automation_pipeline.core.masking import masked_text
from automation_pipeline.org_jobs.domain.endings import AttemptEnd, failed
from automation_pipeline.org_jobs.domain.retry_policy import FAILED, UNSUPPORTED

VALIDATION, NOT_FOUND, CONFLICT = "VALIDATION", "NOT_FOUND", "CONFLICT"

# The first that it is an instance of. What stands in the way (CONFLICT) may be gone by the next attempt.
_CODES: tuple[tuple[type[AutomationError], str], ...] = (
    (NotFoundError, NOT_FOUND),
    (ConflictError, CONFLICT),
    (InvalidInputError, VALIDATION),
    (PermanentError, UNSUPPORTED),
)


def end_of(error: AutomationError) -> AttemptEnd:
    return failed(masked_text(sentence_of(error)), code_of(error))


def code_of(error: AutomationError) -> str:
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
