"""The asset `companies`: how many are known, how well and since when, and how the sources stand."""

from collections.abc import Iterator

import dagster as dg

from automation_pipeline.enrichment.rules.evaluation import COVERAGE, FRESHNESS
from automation_pipeline.orchestration.failures import CRASH_RETRIES, verdicts
from automation_pipeline.orchestration.resource import ServicesResource


@dg.asset(group_name="enrichment", retry_policy=CRASH_RETRIES)
def companies(services: ServicesResource) -> dg.MaterializeResult:
    """Companies by the French registers, as they stand now."""
    from automation_pipeline.enrichment.queries.maintenance import coverage_of
    from automation_pipeline.enrichment.queries.views import source_views
    from automation_pipeline.orchestration.enrichment import companies_page

    our = services.get()
    now, knobs = our.clock.now(), our.registries.knobs
    with verdicts(), our.database.reading() as session:
        coverage, sources = coverage_of(session, now, knobs.freshness), source_views(session, now)
    return dg.MaterializeResult(metadata=companies_page(coverage, sources))


CHECKS = {
    COVERAGE: "Few companies have failed, and each failure has a reason.",
    FRESHNESS: "No company counts as fresh for longer than its freshness lasts.",
}


@dg.multi_asset_check(
    specs=[
        dg.AssetCheckSpec(name, asset=companies, description=text) for name, text in CHECKS.items()
    ]
)
def companies_checks(services: ServicesResource) -> Iterator[dg.AssetCheckResult]:
    """Few have failed, each with a reason; nothing is SUCCESS for longer than that lasts."""
    from automation_pipeline.enrichment.queries.maintenance import coverage_of
    from automation_pipeline.enrichment.rules.evaluation import evaluate_coverage
    from automation_pipeline.orchestration.enrichment import judged

    our = services.get()
    with our.database.reading() as session:
        coverage = coverage_of(session, our.clock.now(), our.registries.knobs.freshness)
    for finding in evaluate_coverage(coverage):
        yield judged("companies", finding)
