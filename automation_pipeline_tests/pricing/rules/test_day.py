"""A day of runs is judged by the prices that were applied, what waits for somebody, and what has
changed since."""

from automation_pipeline.pricing.models.history import DayRuns
from automation_pipeline.pricing.models.runs import RuleRun, TargetCounts
from automation_pipeline.pricing.rules.monitoring import DAY_CHECKS, evaluate_day
from automation_pipeline_tests.tables import every_case


def a_day(
    *runs: tuple[int, int], letters: int = 0, mismatched: int = 0, broken: tuple[str, ...] = ()
) -> DayRuns:
    """A day of runs with so many applied and failed targets."""
    made = [
        RuleRun.model_construct(targets=TargetCounts(applied=applied, failed=failed))
        for applied, failed in runs
    ]
    return DayRuns(made, letters, range(1, mismatched + 1), broken)


@every_case(
    ("day", "failed"),
    [
        (a_day(), []),
        (a_day((97, 3)), []),
        (a_day((9699, 301)), ["success_rate"]),
        (a_day((50, 0), (46, 4)), ["success_rate"]),
        (a_day((10, 9)), []),
        (a_day((10, 10)), ["success_rate"]),
        (a_day((0, 19)), []),
        (a_day((1, 0), letters=50), []),
        (a_day((1, 0), letters=51), ["dead_letters"]),
        (a_day((1, 0), mismatched=1), ["no_mismatch"]),
        (a_day((1, 0), broken=("Run 1 is APPLIED and has 2 failed targets.",)), ["invariants"]),
    ],
)
def test_a_day_is_good_or_it_is_said_what_is_not(day: DayRuns, failed: list[str]) -> None:
    found = evaluate_day(day)
    assert tuple(finding.check for finding in found) == DAY_CHECKS
    assert [finding.check for finding in found if not finding.passed] == failed


def test_the_findings_name_the_numbers_and_the_first_of_many() -> None:
    day = a_day(
        *[(2, 1)] * 8, letters=3, mismatched=8, broken=("Run 1 was queued late.", "Run 2 too.")
    )
    named = "run 1, run 2, run 3, run 4, run 5, and 3 more."
    assert [finding.says for finding in evaluate_day(day)] == [
        "16 of 24 price changes succeeded.",
        "3 failed price changes wait for somebody.",
        f"Prices in the shop are critically different from what was applied: {named}",
        "Run 1 was queued late, Run 2 too",
    ]
