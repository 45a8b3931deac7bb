"""Organisation jobs in Dagster: launches, metadata and alerts."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

import dagster as dg

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.core.webhooks import DeliveryPolicy
from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.days import counts_table
from automation_pipeline.orchestration.heartbeat import worker_name
from automation_pipeline.orchestration.job_registry import REQUEST_TAG, TERMINATED
from automation_pipeline.orchestration.metadata import table
from automation_pipeline.orchestration.ops import check_ids, id_in
from automation_pipeline.org_jobs.alerts import deliver_org_alerts, raise_org_alerts
from automation_pipeline.org_jobs.fires import fire_due_schedules
from automation_pipeline.org_jobs.jobs import cancel_job, postpone_job, release_jobs
from automation_pipeline.org_jobs.models.jobs import JOB, OrgJob
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS
from automation_pipeline.org_jobs.models.states import FireOutcome, OrgJobsRunState
from automation_pipeline.org_jobs.queries.jobs import get_job, get_run
from automation_pipeline.org_jobs.queries.queue import job_of_worker
from automation_pipeline.org_jobs.rules.health import Day
from automation_pipeline.org_jobs.runs import follow_jobs, reap_jobs, work_job
from automation_pipeline.org_jobs.schedules import resume_paused_schedules

_ENDS = (OrgJobsRunState.SUCCESS, OrgJobsRunState.FAILED, OrgJobsRunState.CANCELLED)

Page = dict[str, dg.MetadataValue]


def job_page(job: OrgJob) -> Page:
    run = job.runs[-1]
    texts = {
        "job": str(job.id),
        "type": job.type,
        "organisation": job.org_id,
        "status": str(job.status),
        "attempt": f"{run.attempt_no} of {run.max_attempts}",
        "schedule": job.schedule_id,
        "again_at": None if run.next_attempt_at is None else iso(run.next_attempt_at),
        "error": run.error,
    }
    return {name: metadata.text(text) for name, text in texts.items() if text}


def day_page(day: Day) -> Page:
    latency = day.mean_latency_seconds
    tables = {
        "skipped_because": _counts("reason", day.by_skip_reason),
        "jobs_by_state": _counts("state", day.by_state),
        "jobs_by_type": table(("type", "state", "jobs"), sorted(_types(day))),
        "organisations": table(
            (
                "organisation",
                "dispatched",
                "skipped",
                "failed",
                "jobs done",
                "jobs failed",
                "jobs cancelled",
            ),
            (_cells(day, org_id) for org_id in day.organisations),
        ),
    }
    return {
        **{str(one).lower(): metadata.integer(day.by_outcome.get(one, 0)) for one in FireOutcome},
        "jobs": metadata.integer(sum(one.count for one in day.jobs)),
        **({} if latency is None else {"mean_latency_seconds": metadata.real(round(latency, 3))}),
        **{name: metadata.markdown(text) for name, text in tables.items() if text},
    }


def _types(day: Day) -> Iterator[tuple[str, str, int]]:
    counts: dict[tuple[str, str], int] = {}
    for one in day.jobs:
        counts[one.type, one.status] = counts.get((one.type, one.status), 0) + one.count
    return ((type_, state, count) for (type_, state), count in counts.items())


def _cells(day: Day, org_id: str) -> tuple[object, ...]:
    fires = [
        sum(one.count for one in day.fires if (one.org_id, one.outcome) == (org_id, state))
        for state in FireOutcome
    ]
    jobs = [
        sum(one.count for one in day.jobs if (one.org_id, one.status) == (org_id, state))
        for state in _ENDS
    ]
    return org_id, *fires, *jobs


def _counts(of: str, counts: Mapping[str, int]) -> str:
    return counts_table(of, counts) if counts else ""


async def alert_about_jobs(our: Services) -> str:
    settings = our.settings
    url, secret = settings.org_jobs_alert_webhook_url, settings.webhook_secret
    raised = await asyncio.to_thread(
        raise_org_alerts, database=our.database, clock=our.clock, has_webhook=url is not None
    )
    tried = 0
    if url is not None:
        tried = await deliver_org_alerts(
            webhooks=our.webhooks,
            secret=secret.get_secret_value() if secret else None,
            url=url,
            patience=DeliveryPolicy(attempts=settings.webhook_max_attempts),
            database=our.database,
        )
    return f"Raised {len(raised)} alerts; tried {tried} webhooks."


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
        lambda: str(
            reap_jobs(**ground, meter=our.meter, lease_seconds=our.settings.org_jobs_lease_seconds)
        ),
        lambda: f"{follow_jobs(doers=our.job_doers, **ground, meter=our.meter)} ended elsewhere.",
        lambda: (
            f"{len(release_jobs(**ground, limit=our.settings.org_jobs_max_running))} workers asked for."
        ),
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
        return get_job(
            session, get_run(session, run_id, ALL_ORGANISATIONS).job_id, ALL_ORGANISATIONS
        )


def job_run_id_of(run: dg.DagsterRun) -> int | None:
    """None for a run of another job."""
    if run.job_name != JOB:
        return None
    ops = cast("Mapping[str, Any]", run.run_config).get("ops", {})
    return id_in(ops.get(OP, {}).get("config", {}).get("job_run_id"))


def cancel_job_of(run: dg.DagsterRun, services: Services) -> None:
    """Who terminates it in Dagster wants the job to stop; without this it would be tried again. A
    worker beside the one that is at it stops nothing, nor one that another was asked for since."""
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
                within=ALL_ORGANISATIONS,
                database=database,
                clock=clock,
                actor=_TERMINATED_BY,
                reason=TERMINATED,
                at_once=True,
            )


def put_off_job_of(run: dg.DagsterRun, reason: str, services: Services) -> None:
    """After a Dagster run that failed for good before it began; not one that was launched by
    hand."""
    run_id, request = job_run_id_of(run), run.tags.get(REQUEST_TAG)
    if run_id is not None and request is not None:
        postpone_job(
            run_id, reason, request=request, database=services.database, clock=services.clock
        )
