"""The audits of the fiches sold on a day, and their checks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from automation_pipeline.fiches.models.days import DayFinding
from automation_pipeline.fiches.rules import never_requested

MIN_AUDITED = 0.95
MAX_STEPS_FAILED = 0.05
MAX_REMOVED = 0.10
AUDIT_CHECKS = ("every_fiche_audited", "steps_judged", "evidence_holds")
NOT_CONFIGURED = (
    "No active audit configuration runs automatically, so nothing was audited: import one that has runAutomatically "
    "with `automation audit-configs import`."
)


@dataclass(frozen=True)
class FailingPoint:
    """A control point that was `failing` times ABSENT or PARTIEL, of the `judged` times that it applied."""

    step: str
    point: str
    failing: int
    judged: int

    @property
    def share(self) -> float:
        return _share(self.failing, self.judged)


@dataclass(frozen=True, kw_only=True)
class DayAudits:
    """The audits of each fiche with a transcript by each of the automatic `configs`.

    Scores, citations and control points are those of completed audits. `failures` counts the other
    audits by the reason why they have no grade.
    """

    configs: int
    fiches: int
    audited: int = 0
    by_niveau: Mapping[str, int]
    mean_score: float | None = None
    non_compliant: int = 0
    failures: Mapping[str, int]
    steps: int = 0
    steps_failed: int = 0
    citations: int = 0
    citations_removed: int = 0
    failing_points: tuple[FailingPoint, ...] = ()

    @property
    def wanted(self) -> int:
        return self.fiches * self.configs

    @property
    def coverage(self) -> float:
        return self.audited / self.wanted if self.wanted else 1.0

    @property
    def non_compliant_share(self) -> float:
        return _share(self.non_compliant, self.audited)

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


def judge_audits(day: DayAudits, *, asked: bool) -> tuple[DayFinding, ...]:
    """One finding per check. Without a sales list of the day (`asked`), no check has a result."""
    if not asked:
        return never_requested(AUDIT_CHECKS)
    every_fiche, steps, evidence = AUDIT_CHECKS
    failed, removed = (
        _share(day.steps_failed, day.steps),
        _share(day.citations_removed, day.citations),
    )
    return (
        _every_fiche_audited(every_fiche, day),
        DayFinding(
            steps,
            failed <= MAX_STEPS_FAILED,
            f"{day.steps_failed} of {day.steps} steps have no answer of the model.",
        ),
        DayFinding(
            evidence,
            removed <= MAX_REMOVED,
            f"{day.citations_removed} of {day.citations} quotations were removed: they are too short or are "
            "not in the transcript.",
        ),
    )


def without_fiche_id(error: str, fiche_id: str) -> str:
    """The reason of a failure in the same words for every fiche."""
    return re.sub(rf"\b([Ff]iche) {re.escape(fiche_id)}\b", r"\1", error)


def _every_fiche_audited(check: str, day: DayAudits) -> DayFinding:
    if not day.configs:
        return DayFinding(check, passed=False, message=NOT_CONFIGURED)
    by = f"{day.configs} automatic configuration" + ("s" if day.configs > 1 else "")
    return DayFinding(
        check,
        day.coverage >= MIN_AUDITED,
        (
            f"{day.audited} of {day.wanted} audits are there: {day.fiches} fiches with a transcript by {by}."
        ),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
