"""What can be done about jobs: made without a schedule, stopped, tried again, followed to their end."""

from collections.abc import Mapping
from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.desk.ports import Desk
from automation_pipeline.cli.listing import say
from automation_pipeline.cli.org_jobs.arguments import (
    File,
    JobId,
    Org,
    Payload,
    Reason,
    Wait,
    given_fields,
    read_payload,
)
from automation_pipeline.cli.org_jobs.following import followed_to_its_end
from automation_pipeline.cli.org_jobs.job_page import outcome
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.org_jobs.domain.org_job import OrgJob
from automation_pipeline.org_jobs.domain.retry_policy import BackoffType


def create(
    *,
    job_type: Annotated[
        str | None, typer.Option("--type", help="What is done; `automation org-jobs types` tells them all.")
    ] = None,
    payload: Payload = None,
    server: Annotated[
        int | None, typer.Option("--server", min=1, max=LARGEST_ID, help="The server it is about, by its id.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", help="From 1, done first, to 9. Default: 5.")
    ] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", metavar="N", help="How often it is tried again when it fails.")
    ] = None,
    backoff_ms: Annotated[int | None, typer.Option("--backoff-ms", metavar="MS", help="How long after that.")] = None,
    backoff: Annotated[
        BackoffType | None,
        typer.Option("--backoff", case_sensitive=False, help="Whether further waits are as long, or double."),
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
    our = desk()
    job = our.org_jobs.jobs.create(given_fields(file, _said(fields)), org)
    _asked(job, our, f"Job {job.id} is asked for", wait=wait, as_json=as_json)


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
    job = desk().org_jobs.jobs.cancel(job_id, reason=reason, at_once=at_once)
    if as_json:
        print_json(as_document(job))
    else:
        say(outcome(job))


def retry(job_id: JobId, *, wait: Wait = False, as_json: AsJson = False) -> None:
    """Do a job once more that has failed or was cancelled. For example: automation org-jobs retry 7 --wait"""
    our = desk()
    job = our.org_jobs.jobs.retry(job_id)
    _asked(job, our, f"Job {job.id} is done again", wait=wait, as_json=as_json)


def watch(job_id: JobId, *, as_json: AsJson = False) -> None:
    """Follow a job to its end, with a line that tells how far it is; exit 1 unless it succeeds.

    For example: automation org-jobs watch 7
    """
    followed_to_its_end(job_id, desk(), as_json=as_json)


def _asked(job: OrgJob, our: Desk, what: str, *, wait: bool, as_json: bool) -> None:
    if wait:
        followed_to_its_end(job.id, our, as_json=as_json)
    elif as_json:
        print_json({"job_id": str(job.id), "status": job.status, "job": as_document(job)})
    else:
        say(f"{what}: `automation org-jobs watch {job.id}` follows it.")


def _said(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
