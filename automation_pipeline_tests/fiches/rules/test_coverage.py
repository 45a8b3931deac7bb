"""Coverage of a day: shares over what the CRM knows, and when they are good enough."""

from automation_pipeline.fiches.models.days import DayCoverage
from automation_pipeline.fiches.rules import COVERAGE_CHECKS, evaluate_coverage
from automation_pipeline_tests.tables import every_case


@every_case(
    ("coverage", "share", "not_found_share", "verdicts"),
    [
        (DayCoverage(0, 0, 0), 1.0, 0.0, (True, True)),
        (DayCoverage(100, 100, 0), 1.0, 0.0, (True, True)),
        (DayCoverage(100, 95, 5), 1.0, 0.05, (True, True)),
        (DayCoverage(100, 95, 0), 0.95, 0.0, (True, True)),
        (DayCoverage(100, 94, 0), 0.94, 0.0, (False, True)),
        (DayCoverage(100, 94, 6), 1.0, 0.06, (True, False)),
        (DayCoverage(10, 0, 0), 0.0, 0.0, (False, True)),
        (DayCoverage(10, 0, 10), 1.0, 1.0, (True, False)),
    ],
)
def test_the_shares_and_their_verdicts(
    coverage: DayCoverage, share: float, not_found_share: float, verdicts: tuple[bool, ...]
) -> None:
    assert (coverage.share, coverage.not_found_share) == (share, not_found_share)
    findings = evaluate_coverage(coverage, asked=True)
    assert tuple(finding.check for finding in findings) == COVERAGE_CHECKS
    assert tuple(finding.passed for finding in findings) == verdicts


@every_case("coverage", [DayCoverage(0, 0, 0), DayCoverage(3, 3, 0)])
def test_a_day_that_was_never_asked_for_passes_nothing(coverage: DayCoverage) -> None:
    findings = evaluate_coverage(coverage, asked=False)
    assert tuple(finding.check for finding in findings) == COVERAGE_CHECKS
    assert [(finding.passed, finding.grave, finding.says) for finding in findings] == [
        (False, True, "The day was never asked for.")
    ] * 2


def test_the_kinds_add_up() -> None:
    assert DayCoverage(10, 6, 1).without_details == 3
