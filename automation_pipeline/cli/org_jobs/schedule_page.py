"""Schedules on a screen: the state, when it is due next, what became of its last times, and its counters."""

import json
from collections.abc import Iterable, Sequence

from rich.text import Text

from automation_pipeline.cli.fitted_tables import print_fitted_table
from automation_pipeline.cli.listing import counted, minute, say
from automation_pipeline.cli.org_jobs.fires_page import print_fires
from automation_pipeline.cli.org_jobs.schedule_words import cadence, next_steps, on_trouble, retries, window
from automation_pipeline.cli.org_jobs.wall_times import wall_and_utc
from automation_pipeline.cli.output import one_line, print_facts, screen
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule, ScheduleFire
from automation_pipeline.org_jobs.domain.states import ScheduleState

LAST_FIRES = 5
COLOURS = {
    ScheduleState.ACTIVE: "green",
    ScheduleState.PAUSED: "yellow",
    ScheduleState.INVALID_CRON: "red",
    ScheduleState.COMPLETED: "",
}


def print_schedules(schedules: Iterable[OrgSchedule]) -> None:
    print_fitted_table(
        ("id", "organisation", "name", "type", "cron", "state", "next (UTC)", "last", "runs"),
        (
            (s.id, s.org_id, s.name, s.job_type, f"{s.cron_expression} {s.timezone}", _state(s), _next(s),
             s.last_run_status, _counts(s))
            for s in schedules
        ),
        texts={"name", "cron", "type", "runs"},
    )  # fmt: skip


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
            "left out": _left_out(s),
            "does": f"{s.job_type} {json.dumps(s.payload, ensure_ascii=False) if s.payload else ''}".strip(),
            "server": s.server_instance_id,
            "priority": s.priority,
            "tries again": retries(s),
            "in trouble": on_trouble(s),
            "last job": _last_job(s),
            "counters": _counts(s),
            "made": f"{minute(s.created_at)} UTC by {s.created_by}",
            "changed": None if s.updated_at == s.created_at else f"{minute(s.updated_at)} UTC, version {s.version}",
        }
    )
    if fires:
        screen.print()
        print_fires(fires, s.timezone)
    for step in next_steps(s):
        say(step)


def next_due(schedule: OrgSchedule) -> str:
    """In words: on the wall clock of its place and in UTC; later than the cron says where it waits for its window."""
    due, nominal = schedule.next_run_at, schedule.next_scheduled_for
    if due is None:
        return "never, as it is"
    said = wall_and_utc(due, schedule.timezone)
    is_moved = minute(nominal) != minute(due)
    return f"{said}, for {minute(nominal)} UTC" if is_moved else said


def _state(s: OrgSchedule) -> Text:
    off = "" if s.enabled or s.state is not ScheduleState.PAUSED else ", disabled"
    return Text(f"{s.state}{off}", COLOURS[s.state])


def _why_paused(s: OrgSchedule) -> str | None:
    if s.state is not ScheduleState.PAUSED:
        return None
    why = one_line(s.pause_reason) if s.pause_reason else "nobody said why"
    return f"{why}; it is resumed {minute(s.paused_until)} UTC" if s.paused_until else why


def _left_out(s: OrgSchedule) -> Text | None:
    if not s.skip_next_run:
        return None
    why = f": {one_line(s.skip_next_run_reason)}" if s.skip_next_run_reason else ""
    return Text(f"the next time{why}", "yellow")


def _last_job(s: OrgSchedule) -> str | None:
    if s.last_run_at is None:
        return None
    job = f"job {s.last_run_job_id}, " if s.last_run_job_id else ""
    return f"{job}{minute(s.last_run_at)} UTC: {s.last_run_status}"


def _next(s: OrgSchedule) -> str:
    skipped = ", left out" if s.skip_next_run else ""
    return f"{minute(s.next_run_at)}{skipped}"


def _counts(s: OrgSchedule) -> Text:
    told = [counted(s.run_count, "job"), f"{s.failure_count} failed"]
    if s.consecutive_failures:
        told.append(f"{s.consecutive_failures} in a row")
    return Text(", ".join(told), "red" if s.consecutive_failures else "")
