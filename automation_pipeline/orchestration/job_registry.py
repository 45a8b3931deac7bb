"""Every job of this package: its module, how a request becomes its run, and what to close when a
run fails. Sensors derive their job lists from here."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import dagster as dg

from automation_pipeline.automation.models.runs import AUTOMATION_JOB
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import (
    InfrastructureError,
    PermanentError,
    TransientError,
    sentence_of,
)
from automation_pipeline.storage.run_requests import NewRunRequest, mark_refused, mark_taken

REQUEST_TAG = "automation/request_key"
# The number of the Dagster run of a request, from 1.
LAUNCH_TAG = "automation/launch"


def take_request(context: dg.OpExecutionContext, services: Services) -> None:
    key = context.run.tags.get(REQUEST_TAG)
    if key:
        with services.database.transaction() as session:
            mark_taken(session, key, context.run_id)


def refuse_request(run: dg.DagsterRun, reason: str, services: Services) -> bool:
    """False: the run was not launched for a request."""
    key = run.tags.get(REQUEST_TAG)
    if key:
        with services.database.transaction() as session:
            mark_refused(session, key, reason)
    return bool(key)


@contextmanager
def recorded_refusal(
    context: dg.OpExecutionContext, services: Services, *, last_try: bool
) -> Generator[None]:
    """Refuse the request with the error when the work cannot start, without waiting for a sensor.
    On the last try this includes transient errors: the step then fails with the error itself
    instead of a count of retries."""
    try:
        yield
    except PermanentError as error:
        refuse_request(context.run, sentence_of(error), services)
        raise
    except TransientError as error:
        if not last_try:
            raise
        if not isinstance(error, InfrastructureError):
            refuse_request(context.run, sentence_of(error), services)
        raise PermanentError(sentence_of(error)) from error


TERMINATED = "The run was terminated in Dagster"


@dataclass(frozen=True)
class RegisteredJob:
    """`module` is the module of `automation_pipeline.defs` that defines the job, and `first_op` the
    op that takes the configuration of a request. `on_failure` closes the work of a permanently
    failed run, with the reason. `on_termination` closes the work of a terminated run; the default
    is `on_failure`. Both are `module:function` in this folder, because loading the definitions must
    not import them."""

    name: str
    module: str
    first_op: str
    on_failure: str | None = None
    on_termination: str | None = None

    def definition(self) -> dg.JobDefinition:
        return getattr(import_module(f"automation_pipeline.defs.{self.module}"), self.name)


# The watchdog and `finalise_run` close automation runs; the sweeps of the packages continue
# enrichments, reconciliations and reruns.
JOBS = {
    job.name: job
    for job in (
        RegisteredJob(AUTOMATION_JOB, "automation", "open_run"),
        RegisteredJob(
            "transcribe_fiche",
            "transcription",
            "transcribe",
            "fiche_jobs:fail_transcription_of",
        ),
        RegisteredJob("audit_fiche", "audits", "audit", "fiche_jobs:fail_audit_of"),
        RegisteredJob("audit_rerun", "audits", "rerun"),
        RegisteredJob("sales_range_fetch", "fiches", "fetch_days", "fiche_jobs:fail_range_of"),
        RegisteredJob(
            "rule_run",
            "pricing",
            "work_rule_run",
            "pricing:postpone_run_of",
            "pricing:cancel_run_of",
        ),
        RegisteredJob("rule_reconciliation", "pricing", "reconcile"),
        RegisteredJob("company_enrichment", "enrichment", "work_company_enrichment"),
        RegisteredJob(
            "org_job",
            "org_jobs",
            "work_org_job",
            "org_jobs:postpone_job_of",
            "org_jobs:cancel_job_of",
        ),
        RegisteredJob("housekeeping", "housekeeping", "keep_house_tidy"),
    )
}


def function_at(reference: str) -> Callable[..., object]:
    module, name = reference.split(":")
    return getattr(import_module(f"automation_pipeline.orchestration.{module}"), name)


def config_of(run: dg.DagsterRun) -> Mapping[str, Any]:
    """The config of the run's first op."""
    ops = cast("Mapping[str, Any]", run.run_config).get("ops", {})
    return ops.get(JOBS[run.job_name].first_op, {}).get("config", {})


def job_definitions() -> list[dg.JobDefinition]:
    return [job.definition() for job in JOBS.values()]


def run_request(filed: NewRunRequest) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=filed.run_key,
        job_name=filed.job,
        run_config={"ops": {JOBS[filed.job].first_op: {"config": dict(filed.config)}}},
        tags={**filed.tags, REQUEST_TAG: filed.key, LAUNCH_TAG: str(filed.launch)},
    )


def close_failed(run: dg.DagsterRun, reason: str, services: Services) -> bool:
    """Close the work of a permanently failed run. False: it was not launched for a request."""
    job = JOBS.get(run.job_name)
    if job is not None and job.on_failure is not None:
        function_at(job.on_failure)(run, reason, services)
    return refuse_request(run, reason, services)


def close_terminated(run: dg.DagsterRun, services: Services) -> bool:
    """Close the work of a run that a user terminated. False: it was not launched for a request."""
    job = JOBS.get(run.job_name)
    if job is None or job.on_termination is None:
        return close_failed(run, TERMINATED, services)
    requested = refuse_request(run, TERMINATED, services)
    function_at(job.on_termination)(run, services)
    return requested
