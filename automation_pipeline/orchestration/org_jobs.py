"""Organisation jobs in Dagster: launches and metadata.

A worker's step imports only what an attempt needs: the functions for sensors and assets import
their dependencies locally.
"""
# ruff: noqa: PLC0415

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.orchestration.job_registry import REQUEST_TAG, TERMINATED, config_of
from automation_pipeline.orchestration.ops import (
    Metadata,
    as_metadata,
    check_ids,
    counts_table,
    id_in,
    owner_of,
    table,
)
from automation_pipeline.org_jobs.models.jobs import FireOutcome, OrgJob, OrgJobsRunState
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS
from automation_pipeline.org_jobs.queries.jobs import get_job, get_run
from automation_pipeline.org_jobs.queries.queue import job_of_worker

if TYPE_CHECKING:
    from automation_pipeline.org_jobs.rules.health import Day

_ENDS = (OrgJobsRunState.SUCCESS, OrgJobsRunState.FAILED, OrgJobsRunState.CANCELLED)


def work_on(run_id: int, context: dg.OpExecutionContext, services: Services) -> OrgJob:
    """The job after one attempt, or unchanged if the run must not start."""
    from automation_pipeline.org_jobs.runs import work_job

    check_ids(job_run_id=run_id)
    services.run(
        work_job(
            run_id,
            runners=services.job_runners,
            lease_seconds=services.settings.org_jobs_lease_seconds,
            database=services.database,
            clock=services.clock,
            meter=services.meter,
            owner=owner_of(context.run),
            dagster_run_id=context.run_id,
        )
    )
    with services.database.reading() as session:
        job_id = get_run(session, run_id, ALL_ORGANISATIONS).job_id
        return get_job(session, job_id, ALL_ORGANISATIONS)


def job_metadata(job: OrgJob) -> Metadata:
    run = job.runs[-1]
    return as_metadata(
        {
            "job": str(job.id),
            "type": job.type,
            "organisation": job.org_id,
            "status": job.status,
            "attempt": f"{run.attempt_no} of {run.max_attempts}",
            "schedule": job.schedule_id,
            "again_at": None if run.next_attempt_at is None else iso(run.next_attempt_at),
            "error": run.error,
        }
    )


def day_metadata(day: "Day") -> Metadata:
    types, cells = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for fires in day.fires:
        cells[fires.org_id, fires.outcome] += fires.count
    for jobs in day.jobs:
        cells[jobs.org_id, jobs.status] += jobs.count
        types[jobs.type, jobs.status] += jobs.count
    states = (*FireOutcome, *_ENDS)
    columns = ("dispatched", "skipped", "failed", "jobs done", "jobs failed", "jobs cancelled")
    by_org = [(org, *(cells[org, state] for state in states)) for org in day.organisations]
    by_type = sorted((type_, state, count) for (type_, state), count in types.items())
    latency = day.mean_latency_seconds
    return as_metadata(
        {
            **{str(one).lower(): day.by_outcome.get(one, 0) for one in FireOutcome},
            "jobs": sum(one.count for one in day.jobs),
            "mean_latency_seconds": None if latency is None else float(round(latency, 3)),
            "skipped_because": counts_table("reason", day.by_skip_reason),
            "jobs_by_state": counts_table("state", day.by_state),
            "jobs_by_type": table(("type", "state", "jobs"), by_type),
            "organisations": table(("organisation", *columns), by_org),
        }
    )


def dispatch_due(services: Services) -> str:
    from automation_pipeline.org_jobs.fires import fire_due_schedules
    from automation_pipeline.org_jobs.schedules import resume_paused_schedules

    resumed = resume_paused_schedules(database=services.database, clock=services.clock)
    report = fire_due_schedules(
        database=services.database, clock=services.clock, meter=services.meter
    )
    services.metering.flush()
    return f"Resumed {len(resumed)}. {report}" if resumed else str(report)


def process_queue(services: Services) -> str:
    """Each of the three steps runs even if another fails; the first error is raised at the end."""
    from automation_pipeline.org_jobs.jobs import release_jobs
    from automation_pipeline.org_jobs.runs import follow_jobs, reap_jobs

    database, clock, settings = services.database, services.clock, services.settings

    def reap() -> str:
        lease = settings.org_jobs_lease_seconds
        return str(
            reap_jobs(database=database, clock=clock, meter=services.meter, lease_seconds=lease)
        )

    def follow() -> str:
        ended = follow_jobs(
            runners=services.job_runners, database=database, clock=clock, meter=services.meter
        )
        return f"{ended} agent jobs ended."

    def release() -> str:
        runs = release_jobs(database=database, clock=clock, limit=settings.org_jobs_max_running)
        return f"Requested {len(runs)} workers."

    steps: tuple[Callable[[], str], ...] = (reap, follow, release)
    reports: list[str] = []
    faults: list[Exception] = []
    for step in steps:
        try:
            reports.append(step())
        except Exception as error:  # noqa: BLE001  it is raised below
            faults.append(error)
    services.metering.flush()
    if faults:
        raise faults[0]
    return " ".join(reports)


def job_run_id_of(run: dg.DagsterRun) -> int | None:
    return id_in(config_of(run).get("job_run_id"))


def cancel_job_of(run: dg.DagsterRun, services: Services) -> None:
    """Cancel the job of a terminated worker; otherwise it would be retried. A worker that has lost
    its claim on the run cancels nothing."""
    from automation_pipeline.org_jobs.jobs import cancel_job

    run_id = job_run_id_of(run)
    if run_id is None:
        return
    database, clock = services.database, services.clock
    ids = {run.run_id, run.root_run_id or run.run_id}
    with database.reading() as session:
        job_id = job_of_worker(session, run_id, run.tags.get(REQUEST_TAG), ids)
    if job_id is not None:
        with suppress(ConflictError, NotFoundError):  # the job has ended or was deleted
            cancel_job(
                job_id,
                within=ALL_ORGANISATIONS,
                database=database,
                clock=clock,
                actor="dagster",
                reason=TERMINATED,
                at_once=True,
            )


def postpone_job_of(run: dg.DagsterRun, reason: str, services: Services) -> None:
    """Postpone the job of a Dagster run that failed permanently before it started. Nothing happens
    for a manually launched run."""
    from automation_pipeline.org_jobs.jobs import postpone_job

    run_id, request = job_run_id_of(run), run.tags.get(REQUEST_TAG)
    if run_id is not None and request is not None:
        postpone_job(
            run_id, reason, request=request, database=services.database, clock=services.clock
        )
