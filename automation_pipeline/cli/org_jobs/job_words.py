"""How a job stands, in a line of words."""

from automation_pipeline.cli.org_jobs.wall_times import second
from automation_pipeline.cli.output import one_line
from automation_pipeline.org_jobs.domain.org_job import OrgJob, OrgJobRun
from automation_pipeline.org_jobs.domain.states import RunState


def standing(job: OrgJob) -> str:
    """Such as: running, attempt 2 of 3, 40 %: copying the world."""
    run = job.runs[-1]
    said = [_state(run)]
    if run.max_attempts > 1 and (run.attempt_no > 1 or run.started_at is not None):
        said.append(f"attempt {run.attempt_no} of {run.max_attempts}")
    if run.cancel_requested_at is not None and run.finished_at is None:
        said.append("asked to stop")
    how_far = progress_of(run) if run.status is RunState.RUNNING else None
    if how_far:
        said.append(how_far)
    return ", ".join(said)


def progress_of(run: OrgJobRun) -> str | None:
    """How far an agent says that it is."""
    progress = run.progress or {}
    percent, message = progress.get("percent"), progress.get("message")
    said = [f"{percent:g} %" if isinstance(percent, float | int) else "", one_line(str(message)) if message else ""]
    return ": ".join(filter(None, said)) or None


def trouble(job: OrgJob) -> str | None:
    """Why its newest run failed, or was stopped."""
    run = job.runs[-1]
    told = [run.error_code, run.error or run.cancel_reason]
    return one_line(": ".join(words for words in told if words)) or None


def _state(run: OrgJobRun) -> str:
    if run.status is not RunState.PENDING:
        return run.status
    if run.attempts and run.next_attempt_at is not None:
        return f"waits to be tried again, {second(run.next_attempt_at)}"
    return "taken, not begun" if run.lease_owner is not None else "waiting"
