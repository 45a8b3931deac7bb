"""Formatting of an error as one line."""

from automation_pipeline.core.errors import InvalidInputError, PermanentError, sentence_of
from automation_pipeline_tests.cases import every_case

MANY = (("f", "x."),) * 51


@every_case(
    ("error", "expected"),
    [
        (
            InvalidInputError("No such check.", (("check", "must be 5m."),)),
            "No such check: check: must be 5m",
        ),
        (InvalidInputError("Invalid rule", (("a", "is b"), ("", "c"))), "Invalid rule: a: is b; c"),
        (InvalidInputError("Say one of them."), "Say one of them."),
        (PermanentError("Two\nlines."), "Two lines."),
        (InvalidInputError("No.", MANY[:50]), "No: " + "; ".join(["f: x"] * 50)),
        (InvalidInputError("No.", MANY), "No: " + "; ".join(["f: x"] * 50) + " (and 1 more)"),
    ],
)
def test_an_error_is_one_line_with_each_field_at_fault(error: Exception, expected: str) -> None:
    assert sentence_of(error) == expected
