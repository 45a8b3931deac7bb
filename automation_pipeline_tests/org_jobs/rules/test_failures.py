"""What an error makes of an attempt: its code, and whether another attempt can help."""

from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline.org_jobs.models.jobs import end_of_error, is_retryable
from automation_pipeline_tests.tables import every_case


@every_case(
    ("error", "code", "is_retried"),
    [
        (TransientError("It is busy."), "FAILED", True),
        (ConflictError("It has a run."), "CONFLICT", True),
        (NotFoundError("It is gone."), "NOT_FOUND", False),
        (InvalidInputError("It is wrong."), "VALIDATION", False),
        (PermanentError("It is not configured."), "UNSUPPORTED", False),
        (AutomationError("It failed."), "FAILED", True),
    ],
)
def test_the_kind_of_an_error_says_whether_it_is_tried_again(
    error: AutomationError, code: str, *, is_retried: bool
) -> None:
    end = end_of_error(error)
    assert (end.status, end.error_code, end.error, end.result) == ("failed", code, str(error), None)
    assert is_retryable(end.error_code) is is_retried


def test_fields_are_told_and_secrets_are_not() -> None:
    error = InvalidInputError(
        "Refused", (("payload.a", "is wrong"), ("payload.b", "token=hunter2hunter2"))
    )
    assert end_of_error(error).error == "Refused: payload.a: is wrong; payload.b: token=[masked]"
