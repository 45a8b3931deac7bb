"""Errors carry their verdict: whether another attempt can help. It is decided where the failure is
understood."""


class AutomationError(Exception):
    """A failure we understand. Its text is one plain sentence that an operator can act on;
    `outside`, where there is one, is what strangers are told instead."""

    outside: str | None = None


class TransientError(AutomationError):
    """Another attempt may succeed."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class InfrastructureError(TransientError):
    """What all work stands on, the database or Redis, cannot do it now. That says nothing about the
    work which it was for: no outcome is made of it, and it is done again later."""


class PermanentError(AutomationError):
    """Another attempt would fail the same way."""


class NotFoundError(PermanentError):
    """The thing asked for does not exist."""


class ConflictError(PermanentError):
    """The thing asked for exists in a state that forbids the request."""


class RequestFailedError(PermanentError):
    """What was asked for came to nothing, for this reason."""


class UpstreamError(PermanentError):
    """Somebody outside answered that it cannot be done, or with something that makes no sense."""


class InvalidInputError(PermanentError):
    """What the caller gave cannot be accepted; `fields` says where and why."""

    def __init__(self, message: str, fields: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.fields = fields


# A caller can send as many faults as values: so many are named, the others are counted.
MOST_FAULTS = 50


def with_rest(sentence: str, faults: int) -> str:
    """The sentence, with a count of the faults that are not named."""
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
