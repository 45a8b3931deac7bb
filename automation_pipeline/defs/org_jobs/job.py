"""The job `org_job`: do an organisation's job, as far as this system does it itself."""

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.config import StrictConfig
from automation_pipeline.orchestration.failures import others_at_it, verdicts
from automation_pipeline.orchestration.requests import take_request
from automation_pipeline.orchestration.resource import ServicesResource


class OrgJobConfig(StrictConfig):
    """Which run of a job is worked on."""

    job_run_id: int = Field(
        description="Work on this run of a job: `automation org-jobs show` lists a job's runs. Where it has ended, "
        "waits for its turn, or somebody else works on it, nothing is done."
    )


@dg.op
def work_org_job(
    context: dg.OpExecutionContext, config: OrgJobConfig, services: ServicesResource
) -> None:
    """One attempt. A job that failed is an outcome, not an error: its own policy says when it is
    tried again."""
    from automation_pipeline.orchestration.org_jobs import job_page, work_on
    from automation_pipeline.org_jobs.queries.claims import JobRunBusyError

    our = services.get()
    with verdicts(), others_at_it(context, JobRunBusyError):
        take_request(context, our)
        job = work_on(config.job_run_id, context, our)
        context.add_output_metadata(job_page(job))


@dg.job(
    tags={
        "dagster/retry_strategy": "ALL_STEPS",
        "dagster/max_retries": "0",
        "dagster/max_runtime": "18000",
    },
    description="Does one attempt at a job of an organisation. Green: the result of the attempt is recorded, "
    "also a failure. Red: it could not be recorded.",
)
def org_job() -> None:
    work_org_job()
