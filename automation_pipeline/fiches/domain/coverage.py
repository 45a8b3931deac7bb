"""How the fiches of a day stand, and whether that is good enough."""

from dataclasses import dataclass

from automation_pipeline.fiches.domain.days import Finding, never_asked

ENOUGH = 0.95
TOO_MANY_NOT_FOUND = 0.05

COVERAGE_CHECKS = ("coverage", "not_found_share")


@dataclass(frozen=True)
class Coverage:
    """The three kinds add up to `fiches`."""

    fiches: int
    with_details: int
    not_found: int

    @property
    def without_details(self) -> int:
        return self.fiches - self.with_details - self.not_found

    @property
    def share(self) -> float:
        """Of the fiches that the CRM knows, those whose details are here; a day without any is complete."""
        known = self.fiches - self.not_found
        return self.with_details / known if known else 1.0

    @property
    def not_found_share(self) -> float:
        return self.not_found / self.fiches if self.fiches else 0.0


def judge_coverage(coverage: Coverage, *, asked: bool) -> tuple[Finding, ...]:
    """One finding a check. Without a sales list (`asked`), that no details are missing says nothing."""
    if not asked:
        return never_asked(COVERAGE_CHECKS)
    says = f"{coverage.with_details} of {coverage.fiches} fiches have their details; {coverage.not_found} not found."
    return (
        Finding("coverage", coverage.share >= ENOUGH, says),
        Finding("not_found_share", coverage.not_found_share <= TOO_MANY_NOT_FOUND, says),
    )
