"""Jobs, queues and job types on a screen."""

import json
from collections.abc import Iterable

from rich.text import Text

from automation_pipeline.cli.output import (
    minute,
    one_line,
    print_facts,
    print_fitted_table,
    say,
    screen,
)
from automation_pipeline.org_jobs.commands.arguments import second
from automation_pipeline.org_jobs.models.jobs import (
    Attempt,
    JobMove,
    OrgJob,
    OrgJobRun,
    QueueCounts,
)
from automation_pipeline.org_jobs.models.states import ENDED_RUN_STATES, OrgJobsRunState


def status_line(job: OrgJob) -> str:
    """Such as: running, attempt 2 of 3, 40 %: copying the world."""
    run = job.runs[-1]
    said = [_state(run)]
    if run.max_attempts > 1 and (run.attempt_no > 1 or run.started_at is not None):
        said.append(f"attempt {run.attempt_no} of {run.max_attempts}")
    if run.cancel_requested_at is not None and run.finished_at is None:
        said.append("asked to stop")
    how_far = progress_of(run) if run.status is OrgJobsRunState.RUNNING else None
    if how_far:
        said.append(how_far)
    return ", ".join(said)


def progress_of(run: OrgJobRun) -> str | None:
    """How far an agent says that it is."""
    progress = run.progress or {}
    percent, message = progress.get("percent"), progress.get("message")
    said = [
        f"{percent:g} %" if isinstance(percent, float | int) else "",
        one_line(str(message)) if message else "",
    ]
    return ": ".join(filter(None, said)) or None


def error_line(job: OrgJob) -> str | None:
    """Why its newest run failed, or was stopped."""
    run = job.runs[-1]
    told = [run.error_code, run.error or run.cancel_reason]
    return one_line(": ".join(words for words in told if words)) or None


def _state(run: OrgJobRun) -> str:
    if run.status is not OrgJobsRunState.PENDING:
        return run.status
    if run.attempts and run.next_attempt_at is not None:
        return f"waits to be tried again, {second(run.next_attempt_at)}"
    return "taken, not begun" if run.lease_owner is not None else "waiting"


JOB_COLOURS = {
    OrgJobsRunState.SUCCESS: "green",
    OrgJobsRunState.FAILED: "red",
    OrgJobsRunState.CANCELLED: "yellow",
    OrgJobsRunState.RUNNING: "cyan",
    OrgJobsRunState.PENDING: "",
}


def print_jobs(jobs: Iterable[OrgJob]) -> None:
    print_fitted_table(
        ("id", "organisation", "type", "server", "status", "made (UTC)", "by", "why"),
        (
            (
                j.id,
                j.org_id,
                j.type,
                j.server_instance_id,
                _coloured(j),
                minute(j.created_at),
                j.created_by,
                error_line(j),
            )
            for j in jobs
        ),
        texts={"type", "status", "by", "why"},
    )


def print_job(job: OrgJob) -> None:
    run = job.runs[-1]
    print_facts(
        {
            "job": f"{job.id}  {job.type}",
            "organisation": job.org_id,
            "status": _coloured(job),
            "server": job.server_instance_id,
            "payload": json.dumps(job.payload, ensure_ascii=False) if job.payload else None,
            "schedule": job.schedule_id,
            "stands for": second(job.scheduled_for),
            "backfill": job.batch_id,
            "made": f"{second(job.created_at)} by {job.created_by}",
            "expires": second(job.expires_at) if run.status is OrgJobsRunState.PENDING else None,
            "began": second(run.started_at),
            "must end": second(run.deadline_at) if run.status is OrgJobsRunState.RUNNING else None,
            "heard of": second(run.progress_at) if run.status is OrgJobsRunState.RUNNING else None,
            "stop": _stop(run),
            "ended": second(run.finished_at),
            "result": json.dumps(run.result, ensure_ascii=False) if run.result else None,
            "log": run.log_ref,
            "trouble": _trouble(job),
        }
    )
    attempts = [
        (number, one) for number, a_run in enumerate(job.runs, start=1) for one in a_run.attempts
    ]
    if attempts:
        screen.print()
        print_fitted_table(
            ("run", "attempt", "began (UTC)", "ended (UTC)", "status", "by", "why"),
            (_attempt(number, one) for number, one in attempts),
            texts={"by", "why"},
        )
    step = _next_step(job)
    if step:
        say(step)


def print_moves(moves: Iterable[JobMove]) -> None:
    for move in moves:
        why = f": {one_line(move.reason)}" if move.reason else ""
        moved = f"{move.from_state} -> {move.to_state}"
        say(f"{move.at:%Y-%m-%d %H:%M:%S}  run {move.run_id}  {moved}  by {move.actor}{why}")


def outcome(job: OrgJob) -> str:
    return f"Job {job.id}, {job.type}: {status_line(job)}."


def _coloured(job: OrgJob) -> Text:
    return Text(status_line(job), JOB_COLOURS[job.status])


def _stop(run: OrgJobRun) -> str | None:
    if run.cancel_requested_at is None:
        return None
    why = f": {one_line(run.cancel_reason)}" if run.cancel_reason else ""
    return f"asked for {second(run.cancel_requested_at)} by {run.cancelled_by}{why}"


def _trouble(job: OrgJob) -> Text | None:
    told = error_line(job) if job.status is OrgJobsRunState.FAILED else None
    return Text(told, "red") if told else None


def _attempt(number: int, one: Attempt) -> tuple[object, ...]:
    told = [one.error_code, one.error and one_line(one.error)]
    again = f" (tried again {minute(one.retry_at)} UTC)" if one.retry_at else ""
    late = "; more was said after it was given up" if one.late_report else ""
    return (
        number,
        one.attempt_no,
        one.started_at and f"{one.started_at:%Y-%m-%d %H:%M:%S}",
        f"{one.finished_at:%Y-%m-%d %H:%M:%S}",
        Text(one.status, JOB_COLOURS[one.status]),
        one.owner,
        f"{': '.join(words for words in told if words)}{again}{late}",
    )


def _next_step(job: OrgJob) -> str | None:
    if job.status not in ENDED_RUN_STATES:
        return f"Follow it: `automation org-jobs watch {job.id}`; stop it: `automation org-jobs cancel {job.id}`."
    if job.status is OrgJobsRunState.SUCCESS:
        return None
    return f"Do it once more: `automation org-jobs retry {job.id}`."


def print_queues(queues: Iterable[QueueCounts]) -> None:
    columns = (
        "organisation",
        "state",
        "waiting",
        "to be retried",
        "taken",
        "running",
        "at once",
        "oldest (UTC)",
    )
    print_fitted_table(columns, map(_queue, queues), texts={"state"})


def _queue(one: QueueCounts) -> tuple[object, ...]:
    counts = (one.waiting, one.retrying, one.claimed, one.running, one.max_running)
    return (one.org_id, _queue_state(one), *counts, minute(one.oldest_waiting_at))


def _queue_state(one: QueueCounts) -> Text:
    if one.suspended_at is not None:
        return Text("suspended", "red")
    maintenance = f"in service; maintenance until {minute(one.maintenance_until)}"
    return Text(maintenance, "yellow") if one.maintenance_until else Text("in service", "green")
