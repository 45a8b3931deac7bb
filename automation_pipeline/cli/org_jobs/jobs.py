"""`automation org-jobs list|show|log|queues|types`: the jobs of organisations, and how their queues stand. What can be
done about jobs is in job_deeds.py."""

from typing import Annotated
from uuid import UUID

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.listing import Limit, Offset, one_more, say, say_more
from automation_pipeline.cli.org_jobs.arguments import AfterId, JobId, OfOrg
from automation_pipeline.cli.org_jobs.job_page import print_job, print_jobs, print_moves
from automation_pipeline.cli.org_jobs.queue_page import print_queues, print_types
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.org_jobs.domain.org_job import JobFilter
from automation_pipeline.org_jobs.domain.states import RunState


def list_(
    *,
    org: OfOrg = None,
    status: Annotated[RunState | None, typer.Option(case_sensitive=False, help="Only those that stand so.")] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Only those of this type.")] = None,
    schedule: Annotated[UUID | None, typer.Option(help="Only those of this schedule.")] = None,
    server: Annotated[int | None, typer.Option(min=1, max=LARGEST_ID, help="Only those about this server.")] = None,
    backfill: Annotated[int | None, typer.Option(min=1, max=LARGEST_ID, help="Only those of this backfill.")] = None,
    limit: Limit = 20,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the jobs, newest first. For example: automation org-jobs list --org acme --status failed"""
    chosen = JobFilter(
        org_id=org,
        status=status,
        type=job_type,
        schedule_id=None if schedule is None else str(schedule),
        server_instance_id=server,
        batch_id=backfill,
    )
    found = desk().org_jobs.jobs.listed(chosen, one_more(limit, offset))
    if as_json:
        print_json({"jobs": [as_document(job) for job in found[:limit]], "more": len(found) > limit})
        return
    print_jobs(found[:limit])
    say_more(found, limit, offset)


def show(job_id: JobId, *, as_json: AsJson = False) -> None:
    """Show how a job stands, with all of its attempts. For example: automation org-jobs show 7"""
    job = desk().org_jobs.jobs.get(job_id)
    if as_json:
        print_json(as_document(job))
    else:
        print_job(job)


def log(job_id: JobId, *, limit: Limit = 100, after: AfterId = 0, as_json: AsJson = False) -> None:
    """Show every move of a job's runs, oldest first. For example: automation org-jobs log 7"""
    found = desk().org_jobs.jobs.log(job_id, limit=limit + 1, after_id=after)
    if as_json:
        print_json({"log": [as_document(move) for move in found[:limit]], "more": len(found) > limit})
        return
    print_moves(found[:limit])
    if len(found) > limit:
        say(f"There are more: --after {found[limit - 1].id} shows the next.")


def queues(*, org: OfOrg = None, as_json: AsJson = False) -> None:
    """Tell how many jobs of each organisation wait and are at work. For example: automation org-jobs queues"""
    found = desk().org_jobs.jobs.queues(org)
    if as_json:
        print_json({"queues": [as_document(one) for one in found]})
    else:
        print_queues(found)


def types(*, as_json: AsJson = False) -> None:
    """List what jobs can be done, by whom, and how long each may take; --json tells what their payloads hold.

    For example: automation org-jobs types
    """
    found = desk().org_jobs.jobs.types()
    if as_json:
        print_json({"types": [as_document(one) for one in found]})
    else:
        print_types(found)
