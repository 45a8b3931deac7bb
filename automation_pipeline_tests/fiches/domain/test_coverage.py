"""Coverage of a day: shares over what the CRM knows, and when they are good enough."""

from automation_pipeline.fiches.domain.coverage import COVERAGE_CHECKS, Coverage, judge_coverage
from automation_pipeline_tests.tables import every_case


@every_case(
    ("coverage", "share", "not_found_share", "verdicts"),
    [
        (Coverage(0, 0, 0), 1.0, 0.0, (True, True)),
        (Coverage(100, 100, 0), 1.0, 0.0, (True, True)),
        (Coverage(100, 95, 5), 1.0, 0.05, (True, True)),
        (Coverage(100, 95, 0), 0.95, 0.0, (True, True)),
        (Coverage(100, 94, 0), 0.94, 0.0, (False, True)),
        (Coverage(100, 94, 6), 1.0, 0.06, (True, False)),
        (Coverage(10, 0, 0), 0.0, 0.0, (False, True)),
        (Coverage(10, 0, 10), 1.0, 1.0, (True, False)),
    ],
)
def test_the_shares_and_their_verdicts(
    coverage: Coverage, share: float, not_found_share: float, verdicts: tuple[bool, ...]
) -> None:
    assert (coverage.share, coverage.not_found_share) == (share, not_found_share)
    findings = judge_coverage(coverage, asked=True)
    assert tuple(finding.check for finding in findings) == COVERAGE_CHECKS
    assert tuple(finding.passed for finding in findings) == verdicts


@every_case("coverage", [Coverage(0, 0, 0), Coverage(3, 3, 0)])
def test_a_day_that_was_never_asked_for_passes_nothing(coverage: Coverage) -> None:
    findings = judge_coverage(coverage, asked=False)
    assert tuple(finding.check for finding in findings) == COVERAGE_CHECKS
    assert [(finding.passed, finding.grave, finding.says) for finding in findings] == [
        (False, True, "The day was never asked for.")
    ] * 2


def test_the_kinds_add_up() -> None:
    assert Coverage(10, 6, 1).without_details == 3
