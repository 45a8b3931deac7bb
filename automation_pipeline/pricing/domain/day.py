"""How the runs that ended on a day went, and whether that is good enough."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from automation_pipeline.fiches.domain.days import Finding
from automation_pipeline.pricing.domain.alerts import LEAST_SAMPLE
from automation_pipeline.pricing.domain.run_result import success_rate
from automation_pipeline.pricing.domain.states import RunState

LEAST_SUCCESS = Decimal("0.97")
MOST_DEAD_LETTERS = 50
NAMED = 5
DAY_CHECKS = ("success_rate", "dead_letters", "no_mismatch", "invariants")


@dataclass(frozen=True, kw_only=True)
class DayRun:
    """`applied` counts what was rolled back since; `failed` not what was cancelled. `has_mismatch`: its last check
    found a price in the shop that is critically different."""

    id: int
    rule_name: str
    project_id: str
    trigger: str
    status: RunState
    finished_at: datetime
    apply_ms: int | None
    applied: int = 0
    failed: int = 0
    dead_letters: int = 0
    has_mismatch: bool = False

    @property
    def success_rate(self) -> Decimal | None:
        return success_rate(self.applied, self.failed)


@dataclass(frozen=True)
class DayRuns:
    """`broken` are the invariants that do not hold, each in a sentence."""

    runs: Sequence[DayRun]
    broken: Sequence[str] = ()

    @property
    def applied(self) -> int:
        return sum(run.applied for run in self.runs)

    @property
    def failed(self) -> int:
        return sum(run.failed for run in self.runs)

    @property
    def dead_letters(self) -> int:
        return sum(run.dead_letters for run in self.runs)

    @property
    def mismatched(self) -> Sequence[int]:
        return [run.id for run in self.runs if run.has_mismatch]

    @property
    def success_rate(self) -> Decimal | None:
        return success_rate(self.applied, self.failed)


def judge_runs(day: DayRuns) -> tuple[Finding, ...]:
    """One finding a check. A day without runs is a good day. Boundaries are strict, as those of alerts."""
    _, letters, mismatch, invariants = DAY_CHECKS
    kept = "Every run keeps its invariants."
    return (
        _succeeded(day),
        Finding(
            letters,
            day.dead_letters <= MOST_DEAD_LETTERS,
            f"{day.dead_letters} failed price changes wait for somebody.",
        ),
        Finding(mismatch, not day.mismatched, _mismatch_words(day), grave=True),
        Finding(invariants, not day.broken, _named(day.broken) or kept, grave=True),
    )


def _succeeded(day: DayRuns) -> Finding:
    rate, tried = day.success_rate, day.applied + day.failed
    if rate is None:
        return Finding(DAY_CHECKS[0], passed=True, says="No price change was tried.")
    is_enough = tried < LEAST_SAMPLE or rate >= LEAST_SUCCESS
    return Finding(DAY_CHECKS[0], is_enough, f"{day.applied} of {tried} price changes succeeded.")


def _mismatch_words(day: DayRuns) -> str:
    runs = [f"run {run_id}" for run_id in day.mismatched]
    if not runs:
        return "No check of the runs found a price that is critically different."
    return f"Prices in the shop are critically different from what was applied: {_named(runs)}."


def _named(texts: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(texts) - NAMED
    return ", ".join(text.rstrip(".") for text in texts[:NAMED]) + (f", and {more} more" if more > 0 else "")
