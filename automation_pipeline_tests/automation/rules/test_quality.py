"""When the report of a day is complete."""

from automation_pipeline.automation.queries.reports import evaluate_report
from automation_pipeline_tests.tables import every_case


@every_case(
    ("rows", "audits", "asked", "passed", "says"),
    [
        (3, 3, True, True, "3 rows in the file, 3 audits of the day."),
        (0, 0, True, True, "0 rows in the file, 0 audits of the day."),
        (2, 3, True, False, "2 rows in the file, 3 audits of the day."),
        (None, 0, True, False, "The day has no report."),
        (3, 3, False, False, "The day was never fetched."),
    ],
)
def test_a_report_is_complete_when_it_has_every_audit(
    *, rows: int | None, audits: int, asked: bool, passed: bool, says: str
) -> None:
    finding = evaluate_report(rows, audits, asked=asked)
    assert (finding.passed, finding.message) == (passed, says)
