"""Errors. The type says whether another attempt can help; the code that understands the failure
chooses it."""


class AutomationError(Exception):
    """An expected failure. Its text is one sentence that an operator can act on; callers of the API
    see `public_message` instead if it is set."""

    public_message: str | None = None


class TransientError(AutomationError):
    """Another attempt may succeed."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class InfrastructureError(TransientError):
    """The database or Redis is unavailable. The work gets no outcome and is repeated later."""


class PermanentError(AutomationError):
    """Another attempt would fail the same way."""


class NotFoundError(PermanentError):
    """The requested object does not exist."""


class ConflictError(PermanentError):
    """The state of the object forbids the request."""


class RequestFailedError(PermanentError):
    """The requested work failed, for this reason."""


class UpstreamError(PermanentError):
    """An external system refused, or answered something unusable."""


class InvalidInputError(PermanentError):
    """The input cannot be accepted. `fields` has pairs of a field and its fault."""

    def __init__(self, message: str, fields: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.fields = fields


# A request can contain any number of faults. This many are named; the others are counted.
MOST_FAULTS = 50


def with_rest(sentence: str, faults: int) -> str:
    """The sentence with a count of the faults that are not named."""
    rest = faults - MOST_FAULTS
    return f"{sentence.rstrip('.')} (and {rest} more)" if rest > 0 else sentence


def sentence_of(error: Exception) -> str:
    """The error in one line, with each field at fault."""
    sentence = str(error)
    if isinstance(error, InvalidInputError) and error.fields:
        problems = ((field, problem.rstrip(".")) for field, problem in error.fields[:MOST_FAULTS])
        faults = "; ".join(
            f"{field}: {problem}" if field else problem for field, problem in problems
        )
        sentence = with_rest(f"{sentence.rstrip('.')}: {faults}", len(error.fields))
    return " ".join(sentence.split())
