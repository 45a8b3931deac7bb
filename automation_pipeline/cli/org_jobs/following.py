"""Follow a job to its end, with a line for a person to watch. Ctrl-C stops the watching, not the job."""

import sys
import threading

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from automation_pipeline.cli.desk.ports import Desk
from automation_pipeline.cli.following import POLL_SECONDS
from automation_pipeline.cli.listing import say
from automation_pipeline.cli.org_jobs.job_page import outcome
from automation_pipeline.cli.org_jobs.job_words import standing, trouble
from automation_pipeline.cli.output import print_json, screen
from automation_pipeline.cli.waiting import Waiting
from automation_pipeline.core.json_model import as_document
from automation_pipeline.core.launching import NothingBeginsError
from automation_pipeline.org_jobs.domain.job_type import Performer
from automation_pipeline.org_jobs.domain.org_job import OrgJob
from automation_pipeline.org_jobs.domain.states import ENDED_RUN_STATES, RunState

NO_AGENT = "The agent of its server's host has not begun it: `automation org-jobs hosts list` shows whether it works"


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
    jobs = desk.org_jobs.jobs
    job = jobs.get(job_id)
    waits = Waiting(desk, why=lambda: _why_nothing_begins(job, desk))
    try:
        with _line(quiet=quiet) as progress:
            line = progress.add_task(standing(job), total=None)
            while job.status not in ENDED_RUN_STATES:
                progress.update(line, description=standing(job))
                waits.look(begun=_has_begun(job) or _waits_in_its_queue(job, desk))
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


def _why_nothing_begins(job: OrgJob, desk: Desk) -> NothingBeginsError | None:
    organisation = desk.org_jobs.organisations.get(job.org_id)
    if organisation.suspended_at is not None:
        resume = f"`automation org-jobs orgs resume {job.org_id}` ends that"
        return NothingBeginsError("SUSPENDED", f"Organisation {job.org_id} is suspended: {resume}")
    return NothingBeginsError("NO_AGENT", NO_AGENT) if job.performer is Performer.AGENT else None


def _waits_in_its_queue(job: OrgJob, desk: Desk) -> bool:
    """As many of the organisation's jobs are at work as may be: nothing is missing."""
    [queue] = desk.org_jobs.jobs.queues(job.org_id)
    return queue.running + queue.claimed >= queue.max_running


def _line(*, quiet: bool) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    return Progress(*columns, console=screen, disable=quiet)
