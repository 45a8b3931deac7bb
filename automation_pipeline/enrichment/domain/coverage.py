"""How the companies stand as a whole, and whether that is good enough."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from automation_pipeline.enrichment.domain.states import EnrichmentStatus

MOST_FAILED = 0.1
LEAST_SAMPLE = 20
# Within that time the sweep has found what is too old.
GRACE = timedelta(hours=1)
AGES: Mapping[str, timedelta] = {
    "up to a day": timedelta(days=1),
    "up to a week": timedelta(days=7),
    "up to 30 days": timedelta(days=30),
}
OLDER = "older"
COVERAGE, FRESHNESS = "coverage", "freshness"


@dataclass(frozen=True)
class Judgement:
    """`grave`: an invariant does not hold."""

    check: str
    passed: bool
    says: str
    grave: bool = False


@dataclass(frozen=True, kw_only=True)
class CompanyCoverage:
    """`ages` of the snapshots. `unexplained`: failed without a word; `overdue`: SUCCESS, and older than that lasts."""

    statuses: Mapping[EnrichmentStatus, int] = field(default_factory=dict[EnrichmentStatus, int])
    ages: Mapping[str, int] = field(default_factory=dict[str, int])
    masked: int = 0
    unexplained: int = 0
    overdue: int = 0

    @property
    def enriched(self) -> int:
        return sum(self.statuses.values())

    @property
    def companies(self) -> int:
        return sum(self.ages.values())

    @property
    def failed(self) -> int:
        return self.statuses.get(EnrichmentStatus.FAILED, 0)


def judge_companies(coverage: CompanyCoverage) -> Iterator[Judgement]:
    share = coverage.failed / coverage.enriched if coverage.enriched else 0.0
    is_much = share > MOST_FAILED and coverage.enriched >= LEAST_SAMPLE
    told = f"{coverage.failed} of {coverage.enriched} enrichments have failed ({share:.0%})"
    if coverage.unexplained:
        told = f"{coverage.unexplained} have failed without an error; {told}"
    passed = not is_much and not coverage.unexplained
    yield Judgement(COVERAGE, passed, f"{told}.", grave=bool(coverage.unexplained))
    old = f"{coverage.overdue} companies are SUCCESS and older than that lasts: does the sensor sweep_enrichments run?"
    yield Judgement(FRESHNESS, not coverage.overdue, old if coverage.overdue else "Nothing is SUCCESS for too long.")
