"""Organisation jobs: the job, the asset and sensors."""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from automation_pipeline.orchestration.days import DAYS, check_result, check_specs, day_of, span_of
from automation_pipeline.orchestration.job_registry import take_request
from automation_pipeline.orchestration.ops import (
    CRASH_RETRIES,
    ServicesResource,
    StrictConfig,
    dagster_errors,
    every,
    job_tags,
    wait_for_other_worker,
)


class OrgJobConfig(StrictConfig):
    """Which run of a job to work on."""

    job_run_id: int = Field(
        description="Work on this run of a job: `automation org-jobs show` lists a job's runs. Nothing happens if "
        "it has ended, waits in the queue, or has another worker."
    )


@dg.op
def work_org_job(
    context: dg.OpExecutionContext, config: OrgJobConfig, services: ServicesResource
) -> None:
    """Make one attempt. A failed job is an outcome, not an error: its own policy schedules the next
    attempt."""
    from automation_pipeline.orchestration.org_jobs import job_metadata, work_on
    from automation_pipeline.org_jobs.queries.attempts import JobRunBusyError

    system = services.get()
    with dagster_errors(), wait_for_other_worker(context, JobRunBusyError):
        take_request(context, system)
        job = work_on(config.job_run_id, context, system)
        context.add_output_metadata(job_metadata(job))


@dg.job(
    tags=job_tags(),
    description="Makes one attempt at a job of an organisation. Green: the result of the attempt is recorded, "
    "even if it is a failure. Red: the result could not be recorded.",
)
def org_job() -> None:
    work_org_job()


@dg.asset(partitions_def=DAYS, group_name="org_jobs", retry_policy=CRASH_RETRIES)
def org_job_outcomes(
    context: dg.AssetExecutionContext, services: ServicesResource
) -> dg.MaterializeResult:
    """The due times decided on the day and the jobs that ended on it, for all organisations."""
    from automation_pipeline.orchestration.org_jobs import day_metadata
    from automation_pipeline.org_jobs.queries.health import day_of_jobs

    system = services.get()
    with dagster_errors(), system.database.reading() as session:
        day = day_of_jobs(session, *span_of(day_of(context)), system.clock.now())
    return dg.MaterializeResult(metadata=day_metadata(day))


@dg.multi_asset_check(specs=check_specs(org_job_outcomes))
def org_job_outcomes_checks(
    context: dg.AssetCheckExecutionContext, services: ServicesResource
) -> Iterator[dg.AssetCheckResult]:
    """Every due time created its job, no due schedule lacks a decision, and every cron expression
    is valid."""
    from automation_pipeline.org_jobs.queries.health import day_of_jobs
    from automation_pipeline.org_jobs.rules.health import judge_day

    system = services.get()
    with system.database.reading() as session:
        day = day_of_jobs(session, *span_of(day_of(context)), system.clock.now())
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
    description="Requests workers for queued organisation jobs, follows the jobs of agents, and ends jobs "
    "whose worker is lost.",
)
def org_job_queue(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.org_jobs import process_queue

    return dg.SkipReason(process_queue(services.get()))


@dg.sensor(
    target=None,
    minimum_interval_seconds=every(60),
    default_status=RUNNING,
    description="Raises alerts about organisation schedules and jobs, and delivers them to the webhooks by severity.",
)
def org_job_alerts(services: ServicesResource) -> dg.SkipReason:
    from automation_pipeline.orchestration.housekeeping import tick_alerts
    from automation_pipeline.org_jobs.queries.health import ORG_ALERTS

    return dg.SkipReason(tick_alerts(ORG_ALERTS, "org_jobs", services.get()))
