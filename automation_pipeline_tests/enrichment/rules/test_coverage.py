"""Whether the companies stand well enough as a whole."""

from automation_pipeline.enrichment.models import EnrichmentStatus as S
from automation_pipeline.enrichment.rules.evaluation import (
    CompanyCoverage,
    CoverageFinding,
    evaluate_coverage,
)
from automation_pipeline_tests.tables import every_case


def judged(**about: object) -> dict[str, CoverageFinding]:
    return {one.check: one for one in evaluate_coverage(CompanyCoverage(**about))}  # type: ignore[arg-type]


@every_case(
    ("success", "failed", "passes"),
    [(0, 0, True), (90, 10, True), (89, 11, False), (0, 19, True), (0, 20, False)],
)
def test_more_than_a_tenth_of_many_may_not_fail(success: int, failed: int, passes: bool) -> None:
    coverage = judged(statuses={S.SUCCESS: success, S.FAILED: failed})["coverage"]
    assert (coverage.passed, coverage.grave) == (passes, False)


def test_a_failure_without_an_error_is_grave() -> None:
    coverage = judged(statuses={S.SUCCESS: 99, S.FAILED: 1}, unexplained=1)["coverage"]
    assert (coverage.passed, coverage.grave) == (False, True)
    assert coverage.says.startswith("1 have failed without an error")


@every_case("overdue", [0, 1])
def test_nothing_may_be_a_success_for_too_long(overdue: int) -> None:
    assert judged(overdue=overdue)["freshness"].passed is not bool(overdue)
