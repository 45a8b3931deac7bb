"""The job `company_enrichment`: ask the registers for one company."""

import dagster as dg
from pydantic import Field

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.orchestration.config import StrictConfig
from automation_pipeline.orchestration.failures import verdicts
from automation_pipeline.orchestration.requests import take_request
from automation_pipeline.orchestration.resource import ServicesResource


class CompanyEnrichmentConfig(StrictConfig):
    """Which job is worked on, or for which company one is made: exactly one of job_id and siren."""

    job_id: int | None = Field(
        default=None, description="Work on this job. Where somebody is at it, nothing is done."
    )
    siren: str | None = Field(
        default=None,
        description='Ask for this company, as in "552032534". Where what is known is fresh, that is all.',
    )
    force: bool = Field(
        default=False, description="With siren: ask for it anew, however fresh what is known is."
    )


@dg.op
def work_company_enrichment(
    context: dg.OpExecutionContext, config: CompanyEnrichmentConfig, services: ServicesResource
) -> None:
    """Ask each register in turn and store its answer. The op fails when the enrichment ends
    FAILED."""
    from automation_pipeline.enrichment.models import EnrichmentStatus
    from automation_pipeline.orchestration.enrichment import (
        EnrichmentLaunch,
        job_page,
        job_to_work,
        worked,
    )

    our = services.get()
    with verdicts():
        take_request(context, our)
        job_id = job_to_work(EnrichmentLaunch(**config.model_dump()), context, our)
        if job_id is None:
            context.log.info("The stored company is fresh, so no register was called.")
            return
        job = our.run(worked(job_id, context, our))
        context.add_output_metadata(job_page(job))
        if job.status is EnrichmentStatus.FAILED:
            raise PermanentError(
                f"The enrichment of {job.company_siren} failed: {job.enrichment_error}."
            )


@dg.job(
    tags={
        "dagster/retry_strategy": "ALL_STEPS",
        "dagster/max_retries": "0",
        "dagster/max_runtime": "1800",
    },
    description="Looks one company up in the French registers. Green: SUCCESS, PARTIAL, or put off until a "
    "register can be called again. Red: FAILED.",
)
def company_enrichment() -> None:
    work_company_enrichment()
