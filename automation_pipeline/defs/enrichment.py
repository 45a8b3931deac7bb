"""Company enrichment: the job, the asset and sensors."""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.orchestration.days import check_result
from automation_pipeline.orchestration.job_registry import take_request
from automation_pipeline.orchestration.ops import (
    CRASH_RETRIES,
    ServicesResource,
    StrictConfig,
    dagster_errors,
    every,
    job_tags,
)


class CompanyEnrichmentConfig(StrictConfig):
    """Which job to work on, or the company to create one for: exactly one of job_id and siren."""

    job_id: int | None = Field(
        default=None, description="Work on this job. Nothing happens if it has another worker."
    )
    siren: str | None = Field(
        default=None,
        description='Enrich this company, for example "552032534". Nothing happens if its data is fresh.',
    )
    force: bool = Field(
        default=False, description="With siren: enrich the company again even if its data is fresh."
    )


@dg.op
def work_company_enrichment(
    context: dg.OpExecutionContext, config: CompanyEnrichmentConfig, services: ServicesResource
) -> None:
    """Call each register in turn and store its answer. The op fails when the enrichment ends as
    FAILED."""
    from automation_pipeline.enrichment.models import EnrichmentStatus
    from automation_pipeline.orchestration.enrichment import (
        job_metadata,
        job_to_work,
        work_job,
    )

    system = services.get()
    with dagster_errors():
        take_request(context, system)
        job_id = job_to_work(config.model_dump(), context, system)
        if job_id is None:
            context.log.info("The stored company is fresh, so no register was called.")
            return
        job = system.run(work_job(job_id, context, system))
        context.add_output_metadata(job_metadata(job))
        if job.status is EnrichmentStatus.FAILED:
            raise PermanentError(
                f"The enrichment of {job.company_siren} failed: {job.enrichment_error}."
            )


@dg.job(
    tags=job_tags(max_runtime_seconds=1_800),
    description="Looks one company up in the French registers. Green: SUCCESS, PARTIAL, or postponed until a "
    "register can be called again. Red: FAILED.",
)
def company_enrichment() -> None:
    work_company_enrichment()


@dg.asset(group_name="enrichment", retry_policy=CRASH_RETRIES)
def companies(services: ServicesResource) -> dg.MaterializeResult:
    """The stored companies with their current enrichment status."""
    from automation_pipeline.enrichment.queries.requests import coverage_of
    from automation_pipeline.enrichment.sources import source_statuses
    from automation_pipeline.orchestration.enrichment import companies_metadata

    system = services.get()
    now, freshness = system.clock.now(), system.registries.options.freshness
    with dagster_errors(), system.database.reading() as session:
        coverage, sources = coverage_of(session, now, freshness), source_statuses(session)
    return dg.MaterializeResult(metadata=companies_metadata(coverage, [*sources.values()], now))


CHECKS = {
    "coverage": "Few companies have failed, and each failure has a reason.",
    "freshness": "No company counts as fresh for longer than its freshness lasts.",
}


@dg.multi_asset_check(
    specs=[
        dg.AssetCheckSpec(name, asset=companies, description=text) for name, text in CHECKS.items()
    ]
)
def companies_checks(services: ServicesResource) -> Iterator[dg.AssetCheckResult]:
    """Few companies have failed, each with a reason, and no company counts as SUCCESS past its
    freshness."""
    from automation_pipeline.enrichment.queries.requests import coverage_of
    from automation_pipeline.enrichment.rules.evaluation import evaluate_coverage

    system = services.get()
    freshness = system.registries.options.freshness
    with system.database.reading() as session:
        coverage = coverage_of(session, system.clock.now(), freshness)
    for finding in evaluate_coverage(coverage):
        yield check_result("companies", finding)


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(60),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Marks stale companies, refreshes due ones within the quotas of the registers, and requests "
    "workers for lost and postponed jobs.",
)
def sweep_enrichments(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.enrichment.models import NOT_CONFIGURED, is_configured
    from automation_pipeline.enrichment.sweep import sweep_enrichments as sweep

    system = services.get()
    if not is_configured(system.registries.sources):
        return dg.SkipReason(NOT_CONFIGURED)
    report = sweep(registries=system.registries, database=system.database, clock=system.clock)
    system.metering.flush()
    return dg.SkipReason(str(report))
