"""Jobs on a screen: how each stands, its runs and attempts, and everything that moved."""

import json
from collections.abc import Iterable

from rich.text import Text

from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import minute, say
from automation_pipeline.cli.org_jobs.job_words import standing, trouble
from automation_pipeline.cli.org_jobs.wall_times import second
from automation_pipeline.cli.output import one_line, print_facts, screen
from automation_pipeline.org_jobs.domain.org_job import Attempt, JobMove, OrgJob, OrgJobRun
from automation_pipeline.org_jobs.domain.states import ENDED_RUN_STATES, RunState

COLOURS = {
    RunState.SUCCESS: "green",
    RunState.FAILED: "red",
    RunState.CANCELLED: "yellow",
    RunState.RUNNING: "cyan",
    RunState.PENDING: "",
}


def print_jobs(jobs: Iterable[OrgJob]) -> None:
    print_fitted_table(
        ("id", "organisation", "type", "server", "status", "made (UTC)", "by", "why"),
        (
            (j.id, j.org_id, j.type, j.server_instance_id, _coloured(j), minute(j.created_at), j.created_by, trouble(j))
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
            "expires": second(job.expires_at) if run.status is RunState.PENDING else None,
            "began": second(run.started_at),
            "must end": second(run.deadline_at) if run.status is RunState.RUNNING else None,
            "heard of": second(run.progress_at) if run.status is RunState.RUNNING else None,
            "stop": _stop(run),
            "ended": second(run.finished_at),
            "result": json.dumps(run.result, ensure_ascii=False) if run.result else None,
            "log": run.log_ref,
            "trouble": _trouble(job),
        }
    )
    attempts = [(number, one) for number, a_run in enumerate(job.runs, start=1) for one in a_run.attempts]
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
    return f"Job {job.id}, {job.type}: {standing(job)}."


def _coloured(job: OrgJob) -> Text:
    return Text(standing(job), COLOURS[job.status])


def _stop(run: OrgJobRun) -> str | None:
    if run.cancel_requested_at is None:
        return None
    why = f": {one_line(run.cancel_reason)}" if run.cancel_reason else ""
    return f"asked for {second(run.cancel_requested_at)} by {run.cancelled_by}{why}"


def _trouble(job: OrgJob) -> Text | None:
    told = trouble(job) if job.status is RunState.FAILED else None
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
        Text(one.status, COLOURS[one.status]),
        one.owner,
        f"{': '.join(words for words in told if words)}{again}{late}",
    )


def _next_step(job: OrgJob) -> str | None:
    if job.status not in ENDED_RUN_STATES:
        return f"Follow it: `automation org-jobs watch {job.id}`; stop it: `automation org-jobs cancel {job.id}`."
    if job.status is RunState.SUCCESS:
        return None
    return f"Do it once more: `automation org-jobs retry {job.id}`."
