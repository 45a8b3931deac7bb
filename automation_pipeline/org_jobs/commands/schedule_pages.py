"""Text output of schedules and their fires."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from automation_pipeline.cli.output import (
    Columns,
    counted,
    json_line,
    minute,
    one_line,
    print_facts,
    say,
    screen,
)
from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.timing import WindowPolicy
from automation_pipeline.org_jobs.commands.arguments import wall, wall_and_utc
from automation_pipeline.org_jobs.commands.jobs import JOB_COLOURS
from automation_pipeline.org_jobs.models.jobs import BackoffType, RetryPolicy
from automation_pipeline.org_jobs.models.schedules import OrgSchedule, ScheduleFire
from automation_pipeline.org_jobs.models.states import (
    FireOutcome,
    MisfirePolicy,
    ScheduleState,
)

FIRE_COLOURS = {
    FireOutcome.DISPATCHED: "green",
    FireOutcome.SKIPPED: "yellow",
    FireOutcome.FAILED: "red",
}


def print_fires(fires: Sequence[ScheduleFire], timezone: str) -> None:
    Columns[ScheduleFire](
        {
            f"due, {timezone}": lambda one: wall(one.scheduled_for, timezone),
            "decided (UTC)": lambda one: minute(one.fired_at),
            "by": lambda one: one.trigger,
            "outcome": lambda one: Text(one.outcome, FIRE_COLOURS[one.outcome]),
            "job": _job,
            "why": _why,
        },
        texts={"why"},
    ).print(fires)


def _job(fire: ScheduleFire) -> Text | None:
    """The job of a fire with its status."""
    if fire.job_id is None:
        return None
    status = fire.job_status
    return Text(
        f"{fire.job_id}" if status is None else f"{fire.job_id} {status}",
        JOB_COLOURS[status] if status else "",
    )


def _why(fire: ScheduleFire) -> str:
    reasons = [fire.skip_reason, fire.error, fire.note]
    return one_line(": ".join(words for words in reasons if words))


SCHEDULES = "automation org-jobs schedules"
OVERLAPS = {
    OverlapPolicy.SKIP: "a due time is skipped while the previous job runs",
    OverlapPolicy.BUFFER_ONE: "one job waits for the previous one",
    OverlapPolicy.BUFFER_ALL: "jobs wait in line for the previous one",
    OverlapPolicy.CANCEL_OTHER: "the previous job is asked to stop, and the new one waits",
    OverlapPolicy.TERMINATE_OTHER: "the previous job is ended at once",
    OverlapPolicy.ALLOW_ALL: "jobs run concurrently",
}
MISFIRES = {
    MisfirePolicy.SKIP: "missed due times are skipped",
    MisfirePolicy.FIRE_ONCE: "the newest missed due time is run",
    MisfirePolicy.FIRE_ALL: "the newest ten missed due times are run",
}


def cadence(s: OrgSchedule) -> str:
    parts = [f"{s.cron_expression}, {s.timezone}"]
    if s.jitter_s:
        parts.append(f"up to {s.jitter_s} s later")
    if s.start_at:
        parts.append(f"from {minute(s.start_at)} UTC")
    if s.end_at:
        parts.append(f"until {minute(s.end_at)} UTC")
    if s.excluded_on:
        parts.append(f"not on {', '.join(map(str, s.excluded_on))}")
    return ", ".join(parts)


def window(s: OrgSchedule) -> str | None:
    if s.execution_window_start is None:
        return None
    outside = (
        "jobs due outside wait for it"
        if s.window_policy is WindowPolicy.CLAMP
        else "jobs due outside are skipped"
    )
    cutoff = f", no job starts in its last {counted(s.latest_start_cutoff_min, 'minute')}"
    until = cutoff if s.latest_start_cutoff_min else ""
    return f"{s.execution_window_start} to {s.execution_window_end}{until}; {outside}"


def retries(s: OrgSchedule) -> str:
    policy = s.retry_policy or RetryPolicy()
    if not policy.max_retries:
        return "never"
    doubling = ", then double" if policy.backoff_type is BackoffType.EXPONENTIAL else ""
    times = "once" if policy.max_retries == 1 else f"{policy.max_retries} times"
    return f"{times}, after {policy.backoff_ms / 1000:g} s{doubling}"


def failure_policies(s: OrgSchedule) -> str:
    parts = [
        OVERLAPS[s.overlap_policy],
        f"after more than {s.misfire_grace_s} s {MISFIRES[s.misfire_policy]}",
    ]
    if s.skip_if_offline:
        parts.append("a due time is skipped while the agent is offline")
    if s.auto_pause_after:
        parts.append(f"paused after {counted(s.auto_pause_after, 'failure')} in a row")
    return "; ".join(parts)


def next_steps(s: OrgSchedule) -> Iterator[str]:
    if s.state is ScheduleState.PAUSED:
        yield f"Resume it: `{SCHEDULES} resume {s.id}`."
    if s.state is ScheduleState.INVALID_CRON:
        yield f"Correct its cron or its time zone: `{SCHEDULES} update {s.id} --cron ... --timezone ...`."
    if s.skip_next_run:
        yield f"Keep the next due time: `{SCHEDULES} keep-next {s.id}`."
    if s.consecutive_failures and s.last_run_job_id:
        yield f"See what failed: `automation org-jobs show {s.last_run_job_id}`."


LAST_FIRES = 5
SCHEDULE_COLOURS = {
    ScheduleState.ACTIVE: "green",
    ScheduleState.PAUSED: "yellow",
    ScheduleState.INVALID_CRON: "red",
    ScheduleState.COMPLETED: "",
}


def print_schedule(schedule: OrgSchedule, fires: Sequence[ScheduleFire]) -> None:
    s = schedule
    print_facts(
        {
            "schedule": f"{s.id}  {s.name}",
            "description": s.description and one_line(s.description),
            "organisation": s.org_id,
            "state": _state(s),
            "paused because": _why_paused(s),
            "due": cadence(s),
            "window": window(s),
            "next": next_due(s),
            "skipped": _skipped_next(s),
            "does": f"{s.job_type} {json_line(s.payload) if s.payload else ''}".strip(),
            "server": s.server_instance_id,
            "priority": s.priority,
            "tries again": retries(s),
            "in trouble": failure_policies(s),
            "last job": _last_job(s),
            "counters": _counts(s),
            "made": f"{minute(s.created_at)} UTC by {s.created_by}",
            "changed": None
            if s.updated_at == s.created_at
            else f"{minute(s.updated_at)} UTC, version {s.version}",
        }
    )
    if fires:
        screen.print()
        print_fires(fires, s.timezone)
    for step in next_steps(s):
        say(step)


def next_due(schedule: OrgSchedule) -> str:
    """The next start on the schedule's wall clock and in UTC; later than the due time if it waits
    for its window."""
    due, nominal = schedule.next_run_at, schedule.next_scheduled_for
    if due is None:
        return "never"
    parts = wall_and_utc(due, schedule.timezone)
    is_moved = minute(nominal) != minute(due)
    return f"{parts}, for {minute(nominal)} UTC" if is_moved else parts


def _state(s: OrgSchedule) -> Text:
    off = "" if s.enabled or s.state is not ScheduleState.PAUSED else ", disabled"
    return Text(f"{s.state}{off}", SCHEDULE_COLOURS[s.state])


def _why_paused(s: OrgSchedule) -> str | None:
    if s.state is not ScheduleState.PAUSED:
        return None
    why = one_line(s.pause_reason) if s.pause_reason else "no reason given"
    return f"{why}; it is resumed {minute(s.paused_until)} UTC" if s.paused_until else why


def _skipped_next(s: OrgSchedule) -> Text | None:
    if not s.skip_next_run:
        return None
    why = f": {one_line(s.skip_next_run_reason)}" if s.skip_next_run_reason else ""
    return Text(f"the next due time{why}", "yellow")


def _last_job(s: OrgSchedule) -> str | None:
    if s.last_run_at is None:
        return None
    job = f"job {s.last_run_job_id}, " if s.last_run_job_id else ""
    return f"{job}{minute(s.last_run_at)} UTC: {s.last_run_status}"


def _next(s: OrgSchedule) -> str:
    skipped = ", skipped" if s.skip_next_run else ""
    return f"{minute(s.next_run_at)}{skipped}"


def _counts(s: OrgSchedule) -> Text:
    reasons = [counted(s.run_count, "job"), f"{s.failure_count} failed"]
    if s.consecutive_failures:
        reasons.append(f"{s.consecutive_failures} in a row")
    return Text(", ".join(reasons), "red" if s.consecutive_failures else "")


SCHEDULE_COLUMNS = Columns[OrgSchedule](
    {
        "id": lambda one: one.id,
        "organisation": lambda one: one.org_id,
        "name": lambda one: one.name,
        "type": lambda one: one.job_type,
        "cron": lambda one: f"{one.cron_expression} {one.timezone}",
        "state": _state,
        "next (UTC)": _next,
        "last": lambda one: one.last_run_status,
        "runs": _counts,
    },
    texts={"name", "cron", "type", "runs"},
)
