"""`automation org-jobs list|show|log|queues|create|cancel|retry|watch`, and the output of jobs."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer
from rich.text import Text

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.operations import Document, operation
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    Limit,
    Offset,
    compact,
    json_line,
    minute,
    one_line,
    print_facts,
    print_json,
    print_result,
    say,
    screen,
    second,
    show_one,
    show_page,
)
from automation_pipeline.cli.progress import LaunchWait, progress_bars
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
    chosen_org,
    given_fields,
    org_write_context,
    read_payload,
)
from automation_pipeline.org_jobs.commands.organisations import check_org, organisation
from automation_pipeline.org_jobs.jobs import cancel_job, request_job, retry_job
from automation_pipeline.org_jobs.models.jobs import (
    ENDED_RUN_STATES,
    Attempt,
    BackoffType,
    JobFilter,
    JobMove,
    OrgJob,
    OrgJobRun,
    OrgJobsRunState,
    Performer,
    QueueCounts,
)
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.jobs import get_job, list_jobs, queues, transitions_of
from automation_pipeline.storage.database import Session

JOBS = "/api/org-jobs"
NO_AGENT = (
    "The agent of its server's host has not started it: `automation org-jobs hosts list` shows "
    "whether the agent is running"
)
JOB_COLOURS = {
    OrgJobsRunState.SUCCESS: "green",
    OrgJobsRunState.FAILED: "red",
    OrgJobsRunState.CANCELLED: "yellow",
    OrgJobsRunState.RUNNING: "cyan",
    OrgJobsRunState.PENDING: "",
}


@operation(f"POST {JOBS}", query=["org"])
def new_job(services: Services, given: Document, *, org: str | None) -> OrgJob:
    return request_job(
        given,
        org_id=chosen_org(services, org),
        call_origins=services.settings.org_jobs_https_allowed_origins,
        **org_write_context(services),
    )


@operation(f"GET {JOBS}")
def jobs(
    session: Session,
    *,
    org: str | None,
    status: OrgJobsRunState | None,
    type: str | None,  # noqa: A002  the name of the parameter
    schedule: str | None,
    server: int | None,
    batch: int | None,
    limit: int,
    offset: int,
) -> Sequence[OrgJob]:
    chosen = JobFilter(
        org_id=org,
        status=status,
        type=type,
        schedule_id=schedule,
        server_instance_id=server,
        batch_id=batch,
    )
    return list_jobs(session, ALL_ORGANISATIONS, chosen=chosen, limit=limit, offset=offset)


@operation(f"GET {JOBS}/{{job_id}}")
def job(session: Session, job_id: int) -> OrgJob:
    return get_job(session, job_id, ALL_ORGANISATIONS)


@operation(f"POST {JOBS}/{{job_id}}/cancel")
def cancel_stored_job(
    services: Services, job_id: int, *, reason: str | None, at_once: bool
) -> OrgJob:
    return cancel_job(job_id, reason=reason, at_once=at_once, **org_write_context(services))


@operation(f"POST {JOBS}/{{job_id}}/retry")
def retry_stored_job(services: Services, job_id: int) -> OrgJob:
    return retry_job(job_id, **org_write_context(services))


@operation(f"GET {JOBS}/{{job_id}}/log")
def moves_of_job(session: Session, job_id: int, *, limit: int, after: int) -> Sequence[JobMove]:
    return transitions_of(session, job_id, ALL_ORGANISATIONS, limit, after)


@operation(f"GET {JOBS}/queues")
def queues_of(services: Services, *, org: str | None) -> Sequence[QueueCounts]:
    with services.database.reading() as session:
        return queues(session, OrgScope(org), services.clock.now())


def wait_for_job(job_id: int, *, as_json: bool) -> None:
    """Print how a job ended; exit 1 unless it succeeded."""
    ended = follow_job(job_id, quiet=as_json)
    if as_json:
        print_json({"job_id": str(job_id), "status": ended.status, "job": as_document(ended)})
    else:
        for sentence in filter(None, [outcome(ended), error_line(ended)]):
            say(sentence)
    if ended.status is not OrgJobsRunState.SUCCESS:
        raise typer.Exit(1)


def follow_job(job_id: int, *, quiet: bool) -> OrgJob:
    """Follow a job to its end, without a time limit."""
    found = job(job_id)

    def waiting_reason() -> NotStartedError | None:
        if organisation(found.org_id).suspended_at is not None:
            resume = f"`automation org-jobs orgs resume {found.org_id}` ends that"
            return NotStartedError(
                "SUSPENDED", f"Organisation {found.org_id} is suspended: {resume}"
            )
        return NotStartedError("NO_AGENT", NO_AGENT) if found.performer is Performer.AGENT else None

    waits = LaunchWait(why=waiting_reason)
    continues = f"Job {job_id} continues. `automation org-jobs show {job_id}` shows its status."
    with progress_bars(continues, quiet=quiet) as progress:
        line = progress.add_task(status_line(found), total=None)
        while found.status not in ENDED_RUN_STATES:
            progress.update(line, description=status_line(found))
            waits.pause(has_started=_has_started_or_waits(found))
            found = job(job_id)
        progress.update(line, description=status_line(found))
    return found


def _has_started_or_waits(found: OrgJob) -> bool:
    """A job waits in its queue while the organisation runs its maximum number of jobs."""
    newest = found.runs[-1]
    if newest.started_at is not None or newest.attempts or newest.lease_owner is not None:
        return True
    [queue] = queues_of(org=found.org_id)
    return queue.running + queue.claimed >= queue.max_running


def list_(
    *,
    org: OfOrg = None,
    status: Annotated[
        OrgJobsRunState | None,
        typer.Option(case_sensitive=False, help="Only jobs with this status."),
    ] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")] = None,
    schedule: Annotated[UUID | None, typer.Option(help="Only jobs of this schedule.")] = None,
    server: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Only jobs on this server.")
    ] = None,
    backfill: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Only jobs of this backfill.")
    ] = None,
    limit: Limit = 20,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the jobs, newest first. For example: automation org-jobs list --org acme --status
    failed"""
    check_org(org)
    found = jobs(
        org=org,
        status=status,
        type=job_type,
        schedule=schedule and str(schedule),
        server=server,
        batch=backfill,
        limit=limit + 1,
        offset=offset,
    )
    show_page("jobs", found, JOB_COLUMNS.print, limit=limit, offset=offset, as_json=as_json)


def show(job_id: JobId, *, as_json: AsJson = False) -> None:
    """Show the status of a job and all of its attempts. For example: automation org-jobs show 7"""
    show_one(job(job_id), print_job, as_json=as_json)


def log(job_id: JobId, *, limit: Limit = 100, after: AfterId = 0, as_json: AsJson = False) -> None:
    """Show every state change of a job's runs, oldest first. For example: automation org-jobs log 7"""
    found = moves_of_job(job_id, limit=limit + 1, after=after)
    show_page("log", found, print_moves, limit=limit, as_json=as_json)


def queues_(*, org: OfOrg = None, as_json: AsJson = False) -> None:
    """Show the number of waiting and running jobs per organisation. For example: automation org-jobs queues"""
    check_org(org)
    found = queues_of(org=org)
    if as_json:
        print_json({"queues": [as_document(one) for one in found]})
    else:
        QUEUES.print(found)


def create(
    *,
    job_type: Annotated[
        str | None,
        typer.Option("--type", help="The type of job; `automation org-jobs types` lists them."),
    ] = None,
    payload: Payload = None,
    server: Annotated[
        int | None,
        typer.Option(
            "--server", min=1, max=LARGEST_ID, help="The id of the server that the job works on."
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option("--priority", metavar="N", help="From 1, the most urgent, to 9. Default: 5."),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option("--retries", metavar="N", help="The number of retries after a failure."),
    ] = None,
    backoff_ms: Annotated[
        int | None, typer.Option("--backoff-ms", metavar="MS", help="The delay before a retry.")
    ] = None,
    backoff: Annotated[
        BackoffType | None,
        typer.Option(
            "--backoff",
            case_sensitive=False,
            help="Whether further delays stay the same or double.",
        ),
    ] = None,
    org: Org = None,
    file: File = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Request a job without a schedule. For example:

    automation org-jobs create --type RCON --server 3 --payload '{"command": "save-all"}' --wait"""
    policy = compact(maxRetries=retries, backoffMs=backoff_ms, backoffType=backoff)
    flags = compact(
        type=job_type,
        payload=None if payload is None else read_payload(payload),
        serverInstanceId=None if server is None else str(server),
        priority=priority,
        retryPolicy=policy or None,
    )
    created = new_job(given_fields(file, flags), org=org)
    _print_requested(created, f"Job {created.id} is requested", wait=wait, as_json=as_json)


def cancel(
    job_id: JobId,
    *,
    reason: Reason = None,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="End the job at once, without waiting for its worker.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Cancel a job. A running job is asked to stop.

    For example: automation org-jobs cancel 7 --reason "Wrong server"
    """
    stopped = cancel_stored_job(job_id, reason=reason, at_once=at_once)
    print_result(as_document(stopped), outcome(stopped), as_json=as_json)


def retry(job_id: JobId, *, wait: Wait = False, as_json: AsJson = False) -> None:
    """Retry a job that failed or was cancelled. For example: automation org-jobs retry 7 --wait"""
    repeated = retry_stored_job(job_id)
    _print_requested(repeated, f"Job {job_id} is requested again", wait=wait, as_json=as_json)


def watch(job_id: JobId, *, as_json: AsJson = False) -> None:
    """Follow a job to its end, with a progress line; exit 1 unless it succeeds.

    For example: automation org-jobs watch 7
    """
    wait_for_job(job_id, as_json=as_json)


def _print_requested(requested: OrgJob, what: str, *, wait: bool, as_json: bool) -> None:
    if wait:
        wait_for_job(requested.id, as_json=as_json)
        return
    document = {
        "job_id": str(requested.id),
        "status": requested.status,
        "job": as_document(requested),
    }
    sentence = f"{what}: `automation org-jobs watch {requested.id}` follows it."
    print_result(document, sentence, as_json=as_json)


def status_line(job: OrgJob) -> str:
    """For example: running, attempt 2 of 3, 40 %: copying the world."""
    run = job.runs[-1]
    parts = [_state(run)]
    if run.max_attempts > 1 and (run.attempt_no > 1 or run.started_at is not None):
        parts.append(f"attempt {run.attempt_no} of {run.max_attempts}")
    if run.cancel_requested_at is not None and run.finished_at is None:
        parts.append("asked to stop")
    if run.status is OrgJobsRunState.RUNNING:
        parts.append(progress_of(run) or "")
    return ", ".join(filter(None, parts))


def progress_of(run: OrgJobRun) -> str | None:
    """The progress that the agent reports."""
    progress = run.progress or {}
    percent, message = progress.get("percent"), progress.get("message")
    shown = [f"{percent:g} %"] if isinstance(percent, float | int) else []
    shown += [one_line(str(message))] if message else []
    return ": ".join(shown) or None


def error_line(job: OrgJob) -> str | None:
    """Why its newest run failed or was cancelled."""
    run = job.runs[-1]
    return joined(run.error_code, run.error or run.cancel_reason) or None


def joined(*reasons: str | None) -> str:
    return one_line(": ".join(reason for reason in reasons if reason))


def _state(run: OrgJobRun) -> str:
    if run.status is not OrgJobsRunState.PENDING:
        return run.status
    if run.attempts and run.next_attempt_at is not None:
        return f"waits for a retry, {second(run.next_attempt_at)}"
    return "claimed, not started" if run.lease_owner is not None else "waiting"


def print_job(job: OrgJob) -> None:
    run = job.runs[-1]
    error = error_line(job) if job.status is OrgJobsRunState.FAILED else None
    is_running = run.status is OrgJobsRunState.RUNNING
    cancel = f"requested {second(run.cancel_requested_at)} by {run.cancelled_by}"
    print_facts(
        {
            "job": f"{job.id}  {job.type}",
            "organisation": job.org_id,
            "status": _coloured(job),
            "server": job.server_instance_id,
            "payload": json_line(job.payload) if job.payload else None,
            "schedule": job.schedule_id,
            "due time": second(job.scheduled_for),
            "backfill": job.batch_id,
            "created": f"{second(job.created_at)} by {job.created_by}",
            "expires": second(job.expires_at) if run.status is OrgJobsRunState.PENDING else None,
            "started": second(run.started_at),
            "deadline": second(run.deadline_at) if is_running else None,
            "last report": second(run.progress_at) if is_running else None,
            "cancel": joined(cancel, run.cancel_reason) if run.cancel_requested_at else None,
            "ended": second(run.finished_at),
            "result": json_line(run.result) if run.result else None,
            "log": run.log_ref,
            "error": Text(error, "red") if error else None,
        }
    )
    attempts = [(number, one) for number, a in enumerate(job.runs, 1) for one in a.attempts]
    if attempts:
        screen.print()
        ATTEMPTS.print(attempts)
    if job.status not in ENDED_RUN_STATES:
        commands = (
            "Follow it: `automation org-jobs watch {0}`; stop it: `automation org-jobs cancel {0}`."
        )
        say(commands.format(job.id))
    elif job.status is not OrgJobsRunState.SUCCESS:
        say(f"Retry it: `automation org-jobs retry {job.id}`.")


def print_moves(moves: Sequence[JobMove]) -> None:
    for move in moves:
        why = f": {one_line(move.reason)}" if move.reason else ""
        moved = f"{move.from_state} -> {move.to_state}"
        say(f"{move.at:%Y-%m-%d %H:%M:%S}  run {move.run_id}  {moved}  by {move.actor}{why}")


def outcome(job: OrgJob) -> str:
    return f"Job {job.id}, {job.type}: {status_line(job)}."


def _coloured(job: OrgJob) -> Text:
    return Text(status_line(job), JOB_COLOURS[job.status])


def _why(one: Attempt) -> str:
    again = f" (tried again {minute(one.retry_at)} UTC)" if one.retry_at else ""
    late = "; a late report exists" if one.late_report else ""
    return f"{joined(one.error_code, one.error)}{again}{late}"


def _queue_state(one: QueueCounts) -> Text:
    if one.suspended_at is not None:
        return Text("suspended", "red")
    if one.maintenance_until:
        return Text(f"in service; maintenance until {minute(one.maintenance_until)}", "yellow")
    return Text("in service", "green")


JOB_COLUMNS = Columns[OrgJob](
    {
        "id": lambda one: one.id,
        "organisation": lambda one: one.org_id,
        "type": lambda one: one.type,
        "server": lambda one: one.server_instance_id,
        "status": _coloured,
        "created (UTC)": lambda one: minute(one.created_at),
        "by": lambda one: one.created_by,
        "why": error_line,
    },
    texts={"type", "status", "by", "why"},
)
ATTEMPTS = Columns[tuple[int, Attempt]](
    {
        "run": lambda row: row[0],
        "attempt": lambda row: row[1].attempt_no,
        "started (UTC)": lambda row: row[1].started_at and f"{row[1].started_at:%Y-%m-%d %H:%M:%S}",
        "ended (UTC)": lambda row: f"{row[1].finished_at:%Y-%m-%d %H:%M:%S}",
        "status": lambda row: Text(row[1].status, JOB_COLOURS[row[1].status]),
        "by": lambda row: row[1].owner,
        "why": lambda row: _why(row[1]),
    },
    texts={"by", "why"},
)
QUEUES = Columns[QueueCounts](
    {
        "organisation": lambda one: one.org_id,
        "state": _queue_state,
        "waiting": lambda one: one.waiting,
        "to be retried": lambda one: one.retrying,
        "claimed": lambda one: one.claimed,
        "running": lambda one: one.running,
        "at once": lambda one: one.max_running,
        "oldest (UTC)": lambda one: minute(one.oldest_waiting_at),
    },
    texts={"state"},
)
