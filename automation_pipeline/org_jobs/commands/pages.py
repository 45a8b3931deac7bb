"""Text output of schedules, fires, backfills and the audit log."""

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
from automation_pipeline.org_jobs.commands.jobs import JOB_COLOURS, joined
from automation_pipeline.org_jobs.models.jobs import (
    BackoffType,
    BatchState,
    FireOutcome,
    MisfirePolicy,
    RetryPolicy,
    ScheduleState,
)
from automation_pipeline.org_jobs.models.organisations import AuditEntry
from automation_pipeline.org_jobs.models.schedules import OrgSchedule, ScheduleFire
from automation_pipeline.org_jobs.rules.due import Backfill, BackfillTime, OrgJobsLeftOut

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
            "why": lambda one: joined(one.skip_reason, one.error, one.note),
        },
        texts={"why"},
    ).print(fires)


def _job(fire: ScheduleFire) -> Text | None:
    """The job of a fire with its status."""
    if fire.job_id is None or fire.job_status is None:
        return None
    return Text(f"{fire.job_id} {fire.job_status}", JOB_COLOURS[fire.job_status])


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
    pause = one_line(s.pause_reason) if s.pause_reason else "no reason given"
    pause += f"; it is resumed {minute(s.paused_until)} UTC" if s.paused_until else ""
    skip = f": {one_line(s.skip_next_run_reason)}" if s.skip_next_run_reason else ""
    last_job = f"job {s.last_run_job_id}, " if s.last_run_job_id else ""
    print_facts(
        {
            "schedule": f"{s.id}  {s.name}",
            "description": s.description and one_line(s.description),
            "organisation": s.org_id,
            "state": _state(s),
            "paused because": pause if s.state is ScheduleState.PAUSED else None,
            "due": cadence(s),
            "window": window(s),
            "next": next_due(s),
            "skipped": Text(f"the next due time{skip}", "yellow") if s.skip_next_run else None,
            "job": f"{s.job_type} {json_line(s.payload) if s.payload else ''}".strip(),
            "server": s.server_instance_id,
            "priority": s.priority,
            "retries": retries(s),
            "policies": failure_policies(s),
            "last job": s.last_run_at
            and f"{last_job}{minute(s.last_run_at)} UTC: {s.last_run_status}",
            "counters": _counts(s),
            "created": f"{minute(s.created_at)} UTC by {s.created_by}",
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
        "next (UTC)": lambda one: (
            one.next_run_at
            and f"{minute(one.next_run_at)}{', skipped' if one.skip_next_run else ''}"
        ),
        "last": lambda one: one.last_run_status,
        "runs": _counts,
    },
    texts={"name", "cron", "type", "runs"},
)


BACKFILL_COLOURS = {
    BatchState.RUNNING: "cyan",
    BatchState.COMPLETED: "green",
    BatchState.COMPLETED_WITH_FAILURES: "red",
    BatchState.CANCELLED: "yellow",
}

WHY = {
    None: "",
    OrgJobsLeftOut.DISPATCHED: "skipped: it has a job",
    OrgJobsLeftOut.AT_WORK: "skipped: its job has not ended",
    OrgJobsLeftOut.STILL_DUE: "skipped: its schedule is about to dispatch it",
}


def print_backfill(b: Backfill) -> None:
    if b.dry_run:
        if b.times:
            TIMES.print(b.times)
            screen.print()
        jobs = counted(b.total, "job")
        say(f"{jobs} would be created. This is a dry run: omit --dry-run to create them.")
        return
    print_facts(
        {
            "backfill": b.id,
            "organisation": b.org_id,
            "schedule": b.schedule_id,
            "status": _status(b),
            "period": f"{_period(b)} UTC, repeated: {b.behaviour}",
            "jobs": _jobs_by_state(b),
            "created": f"{minute(b.created_at)} UTC by {b.created_by}",
            "ended": b.finished_at and f"{minute(b.finished_at)} UTC",
        }
    )
    if b.status is BatchState.RUNNING:
        say(f"See its jobs: `automation org-jobs list --backfill {b.id}`.")
        say(f"Stop it: `automation org-jobs backfills cancel {b.id}`.")


def _status(b: Backfill) -> Text:
    return Text("") if b.status is None else Text(b.status, BACKFILL_COLOURS[b.status])


def _period(b: Backfill) -> str:
    return f"{minute(b.from_at)} to {minute(b.until_at)}"


def _jobs_by_state(b: Backfill) -> str:
    states = ("pending", "running", "success", "failed", "cancelled")
    counts = [f"{count} {state}" for state in states if (count := getattr(b, state))]
    return f"{b.total} = {' + '.join(counts)}" if counts else str(b.total)


def _changes(entry: AuditEntry) -> str:
    """The changed fields, each with its old and new value."""
    before, after = entry.before or {}, entry.after or {}
    changes: list[str] = []
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            values = [json_line(fields[name]) for fields in (before, after) if name in fields]
            changes.append(f"{name}: {' -> '.join(values)}")
    return ", ".join(changes)


ENTRIES = Columns[AuditEntry](
    {
        "id": lambda one: one.id,
        "at (UTC)": lambda one: minute(one.at),
        "organisation": lambda one: one.org_id,
        "who": lambda one: one.actor,
        "did": lambda one: one.action,
        "to": lambda one: f"{one.entity} {one.entity_id}",
        "change": _changes,
        "why": lambda one: one.reason,
    },
    texts={"who", "to", "change", "why"},
)
BACKFILL_COLUMNS = Columns[Backfill](
    {
        "id": lambda one: one.id,
        "organisation": lambda one: one.org_id,
        "schedule": lambda one: one.schedule_id,
        "status": _status,
        "period (UTC)": _period,
        "created (UTC)": lambda one: minute(one.created_at),
        "jobs": _jobs_by_state,
    },
    texts={"jobs"},
)
TIMES = Columns[BackfillTime](
    {
        "due (UTC)": lambda one: minute(one.scheduled_for),
        "starts (UTC)": lambda one: minute(one.effective_for),
        "": lambda one: WHY[one.left_out],
    },
    texts=(),
)
