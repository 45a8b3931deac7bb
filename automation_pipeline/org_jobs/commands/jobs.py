"""`automation org-jobs list|show|log|queues|types|create|cancel|retry|watch`."""

import sys
import threading
from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.ports import Client
from automation_pipeline.cli.client.progress import POLL_SECONDS, LaunchWait
from automation_pipeline.cli.output import (
    AsJson,
    Limit,
    Offset,
    one_more,
    print_json,
    say,
    say_more,
    screen,
)
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.core.launching import NotStartedError
from automation_pipeline.org_jobs.commands.arguments import (
    AfterId,
    File,
    JobId,
    OfOrg,
    Org,
    Payload,
    Reason,
    Wait,
    given_fields,
    read_payload,
)
from automation_pipeline.org_jobs.commands.job_pages import (
    error_line,
    outcome,
    print_job,
    print_jobs,
    print_moves,
    print_queues,
    status_line,
)
from automation_pipeline.org_jobs.models.jobs import BackoffType, JobFilter, OrgJob, Performer
from automation_pipeline.org_jobs.models.states import ENDED_RUN_STATES, OrgJobsRunState

NO_AGENT = "The agent of its server's host has not begun it: `automation org-jobs hosts list` shows whether it works"


def followed_to_its_end(job_id: int, client: Client, *, as_json: bool) -> None:
    """Tells how it has ended; exit 1 unless it succeeded."""
    job = follow_job(job_id, client, pause=threading.Event(), quiet=as_json)
    if as_json:
        print_json({"job_id": str(job_id), "status": job.status, "job": as_document(job)})
    else:
        say(outcome(job))
        told = error_line(job)
        if told:
            say(told)
    if job.status is not OrgJobsRunState.SUCCESS:
        raise typer.Exit(1)


def follow_job(job_id: int, client: Client, *, pause: threading.Event, quiet: bool) -> OrgJob:
    """The job once it has ended, however long that takes."""
    jobs = client.org_jobs.jobs
    job = jobs.get(job_id)
    waits = LaunchWait(client, why=lambda: _why_nothing_begins(job, client))
    try:
        with _line(quiet=quiet) as progress:
            line = progress.add_task(status_line(job), total=None)
            while job.status not in ENDED_RUN_STATES:
                progress.update(line, description=status_line(job))
                waits.look(begun=_has_begun(job) or _waits_in_its_queue(job, client))
                pause.wait(POLL_SECONDS)
                job = jobs.get(job_id)
            progress.update(line, description=status_line(job))
    except KeyboardInterrupt:
        sys.stderr.write(
            f"Job {job_id} goes on without us: `automation org-jobs show {job_id}` tells how it stands.\n"
        )
        raise
    return job


def _has_begun(job: OrgJob) -> bool:
    newest = job.runs[-1]
    return newest.started_at is not None or bool(newest.attempts) or newest.lease_owner is not None


def _why_nothing_begins(job: OrgJob, client: Client) -> NotStartedError | None:
    organisation = client.org_jobs.organisations.get(job.org_id)
    if organisation.suspended_at is not None:
        resume = f"`automation org-jobs orgs resume {job.org_id}` ends that"
        return NotStartedError("SUSPENDED", f"Organisation {job.org_id} is suspended: {resume}")
    return NotStartedError("NO_AGENT", NO_AGENT) if job.performer is Performer.AGENT else None


def _waits_in_its_queue(job: OrgJob, client: Client) -> bool:
    """As many of the organisation's jobs are at work as may be: nothing is missing."""
    [queue] = client.org_jobs.jobs.queues(job.org_id)
    return queue.running + queue.claimed >= queue.max_running


def _line(*, quiet: bool) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    return Progress(*columns, console=screen, disable=quiet)


def list_(
    *,
    org: OfOrg = None,
    status: Annotated[
        OrgJobsRunState | None, typer.Option(case_sensitive=False, help="Only those that stand so.")
    ] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Only those of this type.")] = None,
    schedule: Annotated[UUID | None, typer.Option(help="Only those of this schedule.")] = None,
    server: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Only those about this server.")
    ] = None,
    backfill: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Only those of this backfill.")
    ] = None,
    limit: Limit = 20,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the jobs, newest first. For example: automation org-jobs list --org acme --status
    failed"""
    chosen = JobFilter(
        org_id=org,
        status=status,
        type=job_type,
        schedule_id=None if schedule is None else str(schedule),
        server_instance_id=server,
        batch_id=backfill,
    )
    found = open_client().org_jobs.jobs.listed(chosen, one_more(limit, offset))
    if as_json:
        print_json(
            {"jobs": [as_document(job) for job in found[:limit]], "more": len(found) > limit}
        )
        return
    print_jobs(found[:limit])
    say_more(found, limit, offset)


def show(job_id: JobId, *, as_json: AsJson = False) -> None:
    """Show how a job stands, with all of its attempts. For example: automation org-jobs show 7"""
    job = open_client().org_jobs.jobs.get(job_id)
    if as_json:
        print_json(as_document(job))
    else:
        print_job(job)


def log(job_id: JobId, *, limit: Limit = 100, after: AfterId = 0, as_json: AsJson = False) -> None:
    """Show every move of a job's runs, oldest first. For example: automation org-jobs log 7"""
    found = open_client().org_jobs.jobs.log(job_id, limit=limit + 1, after_id=after)
    if as_json:
        print_json(
            {"log": [as_document(move) for move in found[:limit]], "more": len(found) > limit}
        )
        return
    print_moves(found[:limit])
    if len(found) > limit:
        say(f"There are more: --after {found[limit - 1].id} shows the next.")


def queues(*, org: OfOrg = None, as_json: AsJson = False) -> None:
    """Tell how many jobs of each organisation wait and are at work. For example: automation
    org-jobs queues"""
    found = open_client().org_jobs.jobs.queues(org)
    if as_json:
        print_json({"queues": [as_document(one) for one in found]})
    else:
        print_queues(found)


def create(
    *,
    job_type: Annotated[
        str | None,
        typer.Option("--type", help="What is done; `automation org-jobs types` lists them."),
    ] = None,
    payload: Payload = None,
    server: Annotated[
        int | None,
        typer.Option("--server", min=1, max=LARGEST_ID, help="The server it is about, by its id."),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option("--priority", metavar="N", help="From 1, done first, to 9. Default: 5."),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option("--retries", metavar="N", help="How often it is tried again when it fails."),
    ] = None,
    backoff_ms: Annotated[
        int | None, typer.Option("--backoff-ms", metavar="MS", help="How long after that.")
    ] = None,
    backoff: Annotated[
        BackoffType | None,
        typer.Option(
            "--backoff", case_sensitive=False, help="Whether further waits are as long, or double."
        ),
    ] = None,
    org: Org = None,
    file: File = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Make a job without a schedule. For example:

    automation org-jobs create --type RCON --server 3 --payload '{"command": "save-all"}' --wait
    """
    policy = _said({"maxRetries": retries, "backoffMs": backoff_ms, "backoffType": backoff})
    fields = {
        "type": job_type,
        "payload": None if payload is None else read_payload(payload),
        "serverInstanceId": None if server is None else str(server),
        "priority": priority,
        "retryPolicy": policy or None,
    }
    client = open_client()
    job = client.org_jobs.jobs.create(given_fields(file, _said(fields)), org)
    _asked(job, client, f"Job {job.id} is asked for", wait=wait, as_json=as_json)


def cancel(
    job_id: JobId,
    *,
    reason: Reason = None,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Do not wait for whoever is at work on it to stop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Stop a job: one that waits is given up, one that is at work is asked to stop.

    For example: automation org-jobs cancel 7 --reason "Wrong server"
    """
    job = open_client().org_jobs.jobs.cancel(job_id, reason=reason, at_once=at_once)
    if as_json:
        print_json(as_document(job))
    else:
        say(outcome(job))


def retry(job_id: JobId, *, wait: Wait = False, as_json: AsJson = False) -> None:
    """Do a job once more that has failed or was cancelled. For example: automation org-jobs retry 7
    --wait"""
    client = open_client()
    job = client.org_jobs.jobs.retry(job_id)
    _asked(job, client, f"Job {job.id} is done again", wait=wait, as_json=as_json)


def watch(job_id: JobId, *, as_json: AsJson = False) -> None:
    """Follow a job to its end, with a line that tells how far it is; exit 1 unless it succeeds.

    For example: automation org-jobs watch 7
    """
    followed_to_its_end(job_id, open_client(), as_json=as_json)


def _asked(job: OrgJob, client: Client, what: str, *, wait: bool, as_json: bool) -> None:
    if wait:
        followed_to_its_end(job.id, client, as_json=as_json)
    elif as_json:
        print_json({"job_id": str(job.id), "status": job.status, "job": as_document(job)})
    else:
        say(f"{what}: `automation org-jobs watch {job.id}` follows it.")


def _said(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
