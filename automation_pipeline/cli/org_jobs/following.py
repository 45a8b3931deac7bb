"""Follow a job to its end, with a line for a person to watch. Ctrl-C stops the watching, not the job."""

import sys
import threading

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from automation_pipeline.cli.desk.ports import Desk
from automation_pipeline.cli.following import NO_DAEMON, PATIENCE, POLL_SECONDS
from automation_pipeline.cli.listing import say
from automation_pipeline.cli.org_jobs.job_page import outcome
from automation_pipeline.cli.org_jobs.job_words import standing, trouble
from automation_pipeline.cli.output import print_json, screen
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.org_job import OrgJob
from automation_pipeline.org_jobs.domain.states import ENDED_RUN_STATES, RunState

NO_AGENT = "Nobody has begun it yet: is the agent of its server's host at work? `automation org-jobs hosts list` tells."


def followed_to_its_end(job_id: int, desk: Desk, *, as_json: bool) -> None:
    """Tells how it has ended; exit 1 unless it succeeded."""
    job = follow_job(job_id, desk, pause=threading.Event(), quiet=as_json)
    if as_json:
        print_json({"job_id": str(job_id), "status": job.status, "job": as_document(job)})
    else:
        say(outcome(job))
        told = trouble(job)
        if told:
            say(told)
    if job.status is not RunState.SUCCESS:
        raise typer.Exit(1)


def follow_job(job_id: int, desk: Desk, *, pause: threading.Event, quiet: bool) -> OrgJob:
    """The job once it has ended, however long that takes."""
    jobs, began_at = desk.org_jobs.jobs, desk.clock.now()
    job, patient = jobs.get(job_id), not quiet
    try:
        with _line(quiet=quiet) as progress:
            line = progress.add_task(standing(job), total=None)
            while job.status not in ENDED_RUN_STATES:
                progress.update(line, description=standing(job))
                if patient and not _has_begun(job) and desk.clock.now() - began_at > PATIENCE:
                    patient = False
                    progress.print(_why_nothing_begins(job, desk), highlight=False, markup=False)
                pause.wait(POLL_SECONDS)
                job = jobs.get(job_id)
            progress.update(line, description=standing(job))
    except KeyboardInterrupt:
        sys.stderr.write(f"Job {job_id} goes on without us: `automation org-jobs show {job_id}` tells how it stands.\n")
        raise
    return job


def _has_begun(job: OrgJob) -> bool:
    newest = job.runs[-1]
    return newest.started_at is not None or bool(newest.attempts) or newest.lease_owner is not None


def _why_nothing_begins(job: OrgJob, desk: Desk) -> str:
    organisation = desk.org_jobs.organisations.get(job.org_id)
    if organisation.suspended_at is not None:
        return f"Organisation {job.org_id} is suspended: `automation org-jobs orgs resume {job.org_id}` ends that."
    [queue] = desk.org_jobs.jobs.queues(job.org_id)
    if queue.running + queue.claimed >= queue.max_running:
        return f"It waits in its queue: {queue.running} jobs of {job.org_id} are at work, as many as may be."
    return NO_AGENT if job.performer is Performer.AGENT else NO_DAEMON


def _line(*, quiet: bool) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    return Progress(*columns, console=screen, disable=quiet)
