"""What a schedule says of itself, in words, and what is to be typed next about it."""

from collections.abc import Iterator

from automation_pipeline.cli.listing import counted, minute
from automation_pipeline.core.execution_window import WindowPolicy
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule
from automation_pipeline.org_jobs.domain.policies import MisfirePolicy, OverlapPolicy
from automation_pipeline.org_jobs.domain.retry_policy import BackoffType, RetryPolicy
from automation_pipeline.org_jobs.domain.states import ScheduleState

SCHEDULES = "automation org-jobs schedules"
OVERLAPS = {
    OverlapPolicy.SKIP: "a time is left out while the last job is at work",
    OverlapPolicy.BUFFER_ONE: "one job waits for the last one",
    OverlapPolicy.BUFFER_ALL: "jobs wait in line for the last one",
    OverlapPolicy.CANCEL_OTHER: "the last job is asked to stop, and waited for",
    OverlapPolicy.TERMINATE_OTHER: "the last job is ended at once",
    OverlapPolicy.ALLOW_ALL: "jobs run side by side",
}
MISFIRES = {
    MisfirePolicy.SKIP: "what was missed is left out",
    MisfirePolicy.FIRE_ONCE: "the newest of what was missed is done",
    MisfirePolicy.FIRE_ALL: "the newest ten of what was missed are done",
}


def cadence(s: OrgSchedule) -> str:
    said = [f"{s.cron_expression}, {s.timezone}"]
    if s.jitter_s:
        said.append(f"up to {s.jitter_s} s later")
    if s.start_at:
        said.append(f"from {minute(s.start_at)} UTC")
    if s.end_at:
        said.append(f"until {minute(s.end_at)} UTC")
    if s.excluded_on:
        said.append(f"not on {', '.join(map(str, s.excluded_on))}")
    return ", ".join(said)


def window(s: OrgSchedule) -> str | None:
    if s.execution_window_start is None:
        return None
    outside = "what is due outside waits for it" if s.window_policy is WindowPolicy.CLAMP else "nothing is due outside"
    cutoff = f", nothing starts in its last {counted(s.latest_start_cutoff_min, 'minute')}"
    until = cutoff if s.latest_start_cutoff_min else ""
    return f"{s.execution_window_start} to {s.execution_window_end}{until}; {outside}"


def retries(s: OrgSchedule) -> str:
    policy = s.retry_policy or RetryPolicy()
    if not policy.max_retries:
        return "never"
    doubling = ", then double" if policy.backoff_type is BackoffType.EXPONENTIAL else ""
    times = "once" if policy.max_retries == 1 else f"{policy.max_retries} times"
    return f"{times}, after {policy.backoff_ms / 1000:g} s{doubling}"


def on_trouble(s: OrgSchedule) -> str:
    said = [OVERLAPS[s.overlap_policy], f"after more than {s.misfire_grace_s} s {MISFIRES[s.misfire_policy]}"]
    if s.skip_if_offline:
        said.append("a time is left out while the agent is away")
    if s.auto_pause_after:
        said.append(f"paused after {counted(s.auto_pause_after, 'failure')} in a row")
    return "; ".join(said)


def next_steps(s: OrgSchedule) -> Iterator[str]:
    if s.state is ScheduleState.PAUSED:
        yield f"Take it into use again: `{SCHEDULES} resume {s.id}`."
    if s.state is ScheduleState.INVALID_CRON:
        yield f"Its cron or its time zone is good for nothing: `{SCHEDULES} update {s.id} --cron ... --timezone ...`."
    if s.skip_next_run:
        yield f"Do not leave out the next time: `{SCHEDULES} keep-next {s.id}`."
    if s.consecutive_failures and s.last_run_job_id:
        yield f"See what failed: `automation org-jobs show {s.last_run_job_id}`."
