"""Jobs of organisations as Dagster knows them: what a tick does, which run is worked on, and what stops with it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.orchestration.config_ids import check_ids, id_in
from automation_pipeline.orchestration.endings import TERMINATED
from automation_pipeline.orchestration.heartbeat import worker_name
from automation_pipeline.orchestration.requests import REQUEST_TAG
from automation_pipeline.org_jobs.domain.keys import JOB
from automation_pipeline.org_jobs.domain.org_job import OrgJob
from automation_pipeline.org_jobs.domain.tenancy import EVERYWHERE
from automation_pipeline.org_jobs.stages.cancel_job import cancel_job
from automation_pipeline.org_jobs.stages.fire_due_schedules import fire_due_schedules
from automation_pipeline.org_jobs.stages.follow_jobs import follow_jobs
from automation_pipeline.org_jobs.stages.put_off_job import put_off_job
from automation_pipeline.org_jobs.stages.reap_jobs import reap_jobs
from automation_pipeline.org_jobs.stages.release_jobs import release_jobs
from automation_pipeline.org_jobs.stages.resume_paused_schedules import resume_paused_schedules
from automation_pipeline.org_jobs.stages.work_job import work_job
from automation_pipeline.org_jobs.store.job_views import get_job, get_run
from automation_pipeline.org_jobs.store.workers import job_of_worker

OP = "work_org_job"
_TERMINATED_BY = "dagster"


def dispatch_due(our: Services) -> str:
    resumed = resume_paused_schedules(database=our.database, clock=our.clock)
    report = fire_due_schedules(database=our.database, clock=our.clock, meter=our.meter)
    our.metering.flush()
    return f"Resumed {len(resumed)}. {report}" if resumed else str(report)


def keep_moving(our: Services) -> str:
    """What fails in one of the three is told after the others are through."""
    ground = {"database": our.database, "clock": our.clock}
    steps: tuple[Callable[[], str], ...] = (
        lambda: str(reap_jobs(**ground, meter=our.meter, lease_seconds=our.settings.org_jobs_lease_seconds)),
        lambda: f"{follow_jobs(doers=our.job_doers, **ground, meter=our.meter)} ended elsewhere.",
        lambda: f"{len(release_jobs(**ground, limit=our.settings.org_jobs_max_running))} workers asked for.",
    )
    said: list[str] = []
    broken: list[Exception] = []
    for step in steps:
        try:
            said.append(step())
        except Exception as error:  # noqa: BLE001  it is raised below
            broken.append(error)
    our.metering.flush()
    if broken:
        raise broken[0]
    return " ".join(said)


def work_on(run_id: int, context: dg.OpExecutionContext, our: Services) -> OrgJob:
    """The job as it stands after one attempt, or without one where none is to be made."""
    check_ids(job_run_id=run_id)
    our.run(
        work_job(
            run_id,
            doers=our.job_doers,
            lease_seconds=our.settings.org_jobs_lease_seconds,
            database=our.database,
            clock=our.clock,
            meter=our.meter,
            owner=f"{worker_name()}/{context.run_id}",
            dagster_run_id=context.run_id,
        )
    )
    with our.database.reading() as session:
        return get_job(session, get_run(session, run_id, EVERYWHERE).job_id, EVERYWHERE)


def job_run_id_of(run: dg.DagsterRun) -> int | None:
    """None for a run of another job."""
    if run.job_name != JOB:
        return None
    ops = cast("Mapping[str, Any]", run.run_config).get("ops", {})
    return id_in(ops.get(OP, {}).get("config", {}).get("job_run_id"))


def cancel_job_of(run: dg.DagsterRun, services: Services) -> None:
    """Who terminates it in Dagster wants the job to stop; without this it would be tried again. A worker beside the one
    that is at it stops nothing, nor one that another was asked for since."""
    run_id = job_run_id_of(run)
    if run_id is None:
        return
    database, clock = services.database, services.clock
    ids = {run.run_id, run.root_run_id or run.run_id}
    with database.reading() as session:
        job_id = job_of_worker(session, run_id, run.tags.get(REQUEST_TAG), ids)
    if job_id is not None:
        with suppress(ConflictError, NotFoundError):  # it is over, or forgotten
            cancel_job(
                job_id,
                within=EVERYWHERE,
                database=database,
                clock=clock,
                actor=_TERMINATED_BY,
                reason=TERMINATED,
                at_once=True,
            )


def put_off_job_of(run: dg.DagsterRun, reason: str, services: Services) -> None:
    """After a Dagster run that failed for good before it began; not one that was launched by hand."""
    run_id, request = job_run_id_of(run), run.tags.get(REQUEST_TAG)
    if run_id is not None and request is not None:
        put_off_job(run_id, reason, request=request, database=services.database, clock=services.clock)
