"""The job `company_enrichment`: ask the registers for one company."""

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.config import StrictConfig
from automation_pipeline.orchestration.enrichment import EnrichmentLaunch, job_to_work, worked
from automation_pipeline.orchestration.enrichment_pages import job_page
from automation_pipeline.orchestration.failures import CRASH_RETRIES, verdicts
from automation_pipeline.orchestration.requests import take_request
from automation_pipeline.orchestration.resource import ServicesResource


class CompanyEnrichmentConfig(StrictConfig):
    """Which job is worked on, or for which company one is made: exactly one of job_id and siren."""

    job_id: int | None = Field(default=None, description="Work on this job. Where somebody is at it, nothing is done.")
    siren: str | None = Field(
        default=None, description='Ask for this company, as in "552032534". Where what is known is fresh, that is all.'
    )
    force: bool = Field(default=False, description="With siren: ask for it anew, however fresh what is known is.")


@dg.op(retry_policy=CRASH_RETRIES)
def work_company_enrichment(
    context: dg.OpExecutionContext, config: CompanyEnrichmentConfig, services: ServicesResource
) -> None:
    """Ask source by source, and write what they say. An enrichment that FAILED is an outcome, not an error."""
    our = services.get()
    with verdicts():
        take_request(context, our)
        job_id = job_to_work(EnrichmentLaunch(**config.model_dump()), context, our)
        if job_id is None:
            context.log.info("What is known of the company is fresh: nobody was asked.")
            return
        context.add_output_metadata(job_page(our.run(worked(job_id, context, our))))


@dg.job(tags={"dagster/retry_strategy": "ALL_STEPS", "dagster/max_retries": "3", "dagster/max_runtime": "1800"})
def company_enrichment() -> None:
    work_company_enrichment()
