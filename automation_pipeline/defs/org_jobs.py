"""Organisation jobs: the job, the asset and sensors."""

import asyncio
from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.days import DAYS, check_result, check_specs, day_of, span_of
from automation_pipeline.orchestration.job_registry import take_request
from automation_pipeline.orchestration.ops import (
    CRASH_RETRIES,
    ServicesResource,
    StrictConfig,
    every,
    others_at_it,
    verdicts,
)


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
    from automation_pipeline.org_jobs.queries.attempts import JobRunBusyError

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


@dg.asset(partitions_def=DAYS, group_name="org_jobs", retry_policy=CRASH_RETRIES)
def org_job_outcomes(
    context: dg.AssetExecutionContext, services: ServicesResource
) -> dg.MaterializeResult:
    """Due times that were decided upon on the day, and jobs that ended on it, of all
    organisations."""
    from automation_pipeline.orchestration.org_jobs import day_page
    from automation_pipeline.org_jobs.queries.health import day_of_jobs

    our = services.get()
    with verdicts(), our.database.reading() as session:
        day = day_of_jobs(session, *span_of(day_of(context)), our.clock.now())
    return dg.MaterializeResult(metadata=day_page(day))


@dg.multi_asset_check(specs=check_specs(org_job_outcomes))
def org_job_outcomes_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> Iterator[dg.AssetCheckResult]:
    """No due time came to nothing, whatever is due is looked at, every schedule can be read."""
    from automation_pipeline.org_jobs.queries.health import day_of_jobs
    from automation_pipeline.org_jobs.rules.health import judge_day

    our = services.get()
    with our.database.reading() as session:
        day = day_of_jobs(session, *span_of(day_of(context)), our.clock.now())
    for finding in judge_day(day):
        yield check_result("org_job_outcomes", finding)


RUNNING = dg.DefaultSensorStatus.RUNNING


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(15),
    default_status=RUNNING,
    description="Creates a job for every organisation schedule that is due, or records why it does not.",
)
def due_org_schedules(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.org_jobs import dispatch_due

    return dg.SkipReason(dispatch_due(services.get()))


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(5),
    default_status=RUNNING,
    description="Requests workers for queued organisation jobs, follows jobs that agents do, and ends jobs "
    "whose worker is lost.",
)
def org_job_queue(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.org_jobs import keep_moving

    return dg.SkipReason(keep_moving(services.get()))


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(60),
    default_status=RUNNING,
    description="Raises alerts about organisation schedules and jobs, and delivers them to the webhook.",
)
def org_job_alerts(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.org_jobs import alert_about_jobs

    our = services.get()
    # A loop of its own: sensors run in threads of one process, where the services' loop may be at
    # work.
    return dg.SkipReason(asyncio.run(our.counted(alert_about_jobs(our))))
