"""Schedules on a screen: lists, details, coming and decided occurrences."""

from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from itertools import islice
from typing import Annotated

import typer

from automation_pipeline.automation.models.schedules import Schedule, ScheduleType, ShortMonths
from automation_pipeline.automation.queries.due import Occurrence
from automation_pipeline.automation.rules.due import next_due, occurrences_after
from automation_pipeline.cli.output import iso_seconds, print_facts, print_table, screen
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.core.scheduling.zones import zone

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
COMING = 3

ScheduleId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The schedule's id, as `automation schedules list` shows it."
    ),
]


def print_schedules(schedules: Iterable[Schedule], now: datetime) -> None:
    print_table(
        ("id", "name", "type", "next (UTC)", "last run (UTC)", "last status", "runs"),
        (
            (
                s.id,
                s.name,
                s.schedule_type,
                _next(s, now),
                _minute(s.last_run_at),
                s.last_run_status,
                s.total_runs,
            )
            for s in schedules
        ),
    )


def print_schedule(schedule: Schedule, now: datetime) -> None:
    print_facts(
        {
            "schedule": f"{schedule.id}  {schedule.name}",
            "description": schedule.description,
            "type": f"{schedule.schedule_type}, {'active' if schedule.is_active else 'paused'}, {schedule.timezone}",
            "paused because": schedule.paused_reason,
            "when": _when(schedule),
            "selection": schedule.fiche_selection.model_dump_json(
                by_alias=True, exclude_defaults=True
            ),
            "stages": _steps(schedule),
            "on errors": _on_errors(schedule),
            "after an outage": f"{schedule.catch_up} of the occurrences missed, {schedule.catch_up_limit} at most",
            "told to": ", ".join(filter(None, [schedule.webhook_url, *schedule.notify_emails]))
            or None,
            "last run": schedule.last_run_at
            and f"{_minute(schedule.last_run_at)} UTC ({schedule.last_run_status})",
            "runs": f"{schedule.total_runs} in all, {schedule.failed_runs} failed",
        }
    )
    if schedule.is_active and schedule.schedule_type is not ScheduleType.MANUAL:
        try:
            print_coming(schedule, list(islice(occurrences_after(schedule, now), COMING)))
        except InvalidInputError as error:
            screen.print(f"It is never due: {error}", markup=False, highlight=False)


def print_coming(schedule: Schedule, coming: Iterable[datetime]) -> None:
    """In the wall clock of the place and in UTC; those that are left out say so."""
    skipped = schedule.skip_due_at
    rows = (
        (
            wall_clock(at, schedule),
            f"{at:%Y-%m-%d %H:%M}",
            "skipped" if skipped and at <= skipped else "",
        )
        for at in coming
    )
    print_table((schedule.timezone, "UTC", ""), rows)


def print_occurrences(schedule: Schedule, occurrences: Iterable[Occurrence]) -> None:
    print_table(
        (f"due, {schedule.timezone}", "run", "status", "not run because"),
        (
            (wall_clock(o.due_at, schedule), o.run_id, o.run_status, o.not_run_because)
            for o in occurrences
        ),
    )


def occurrence_document(occurrence: Occurrence) -> dict[str, object]:
    return {
        "dueAt": iso_seconds(occurrence.due_at),
        "runId": None if occurrence.run_id is None else str(occurrence.run_id),
        "runStatus": occurrence.run_status,
        "notRunBecause": occurrence.not_run_because,
        "decidedAt": iso_seconds(occurrence.decided_at),
    }


def wall_clock(instant: datetime, schedule: Schedule) -> str:
    return f"{instant.astimezone(_zone(schedule)):%a %d %b %Y %H:%M %Z}"


def _zone(schedule: Schedule) -> tzinfo:
    try:
        return zone(schedule.timezone)
    except InvalidInputError:
        return UTC


def _next(schedule: Schedule, now: datetime) -> str:
    try:
        return _minute(next_due(schedule, now))
    except InvalidInputError:
        return "never: see `show`"


def _when(schedule: Schedule) -> str | None:
    at = f"at {schedule.time_of_day}{_jitter(schedule)}"
    match schedule.schedule_type:
        case ScheduleType.MANUAL:
            return None
        case ScheduleType.DAILY:
            return f"every day {at}"
        case ScheduleType.WEEKLY:
            return f"every {WEEKDAYS[schedule.day_of_week or 0]} {at}"
        case ScheduleType.MONTHLY:
            return f"on day {schedule.day_of_month} of the month {at}{_short_months(schedule)}"
        case ScheduleType.CRON:
            return f"{schedule.cron_expression}{_jitter(schedule)}"


def _jitter(schedule: Schedule) -> str:
    return f", up to {schedule.jitter_seconds} s later" if schedule.jitter_seconds else ""


def _short_months(schedule: Schedule) -> str:
    if (schedule.day_of_month or 0) <= 28:
        return ""
    last_day = schedule.short_months is ShortMonths.LAST_DAY
    return (
        "; a shorter month has it on its last day" if last_day else "; a shorter month is left out"
    )


def _steps(schedule: Schedule) -> str:
    stages = ["details"]
    if schedule.run_transcription:
        stages.append(f"transcription ({schedule.transcription_priority} priority)")
    if schedule.run_audits:
        named = [str(config) for config in schedule.specific_audit_configs]
        by = (["the automatic ones"] if schedule.use_automatic_audits else []) + named
        stages.append(f"audits by {', '.join(by) or 'no configuration'}")
    return ", ".join(stages)


def _on_errors(schedule: Schedule) -> str:
    said = ["goes on" if schedule.continue_on_error else "stops after the stage"]
    if schedule.retry_failed:
        said.append(f"tries again {schedule.max_retries} times")
    if schedule.pause_after_failures:
        so_far = schedule.failures_in_a_row
        said.append(
            f"is paused after {schedule.pause_after_failures} failed runs in a row, {so_far} so far"
        )
    return ", ".join(said)


def _minute(instant: datetime | None) -> str:
    return f"{instant:%Y-%m-%d %H:%M}" if instant else ""
