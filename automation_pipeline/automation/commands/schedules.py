"""`automation schedules`: configure what runs, and when."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from automation_pipeline import bootstrap
from automation_pipeline.automation.commands.runs import get_run, is_good, watch_run
from automation_pipeline.automation.models.schedules import (
    CatchUp,
    FicheSelection,
    OccurrenceShown,
    Schedule,
    ScheduleType,
    ShortMonths,
    parse_selection,
)
from automation_pipeline.automation.queries.due import decided_occurrences
from automation_pipeline.automation.queries.schedules import get_schedule, list_schedules
from automation_pipeline.automation.rules.schedules import (
    next_due,
    occurrences_after,
    parse_start,
    schedule_document,
)
from automation_pipeline.automation.runs import manual_run_key, request_run
from automation_pipeline.automation.schedules import (
    ScheduleBackfill,
    backfill_schedule,
    create_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    skip_next,
    update_schedule,
)
from automation_pipeline.automation.selection import SelectionPreview, preview_schedule
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import Document, every, operation
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    confirm,
    iso_seconds,
    minute,
    print_facts,
    print_json,
    print_result,
    print_table,
    read_json_object,
    say,
    show_one,
)
from automation_pipeline.cli.progress import Here, Timeout, follows, waiting
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.storage.database import Session

app = command_group("Manage schedules: what runs, and when.")

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
COMING = 3
MAX_NAMED = 20
PATH = "/api/automation/schedules"

ScheduleId = Annotated[
    int,
    typer.Argument(
        min=1, max=LARGEST_ID, help="The schedule's id, as `automation schedules list` shows it."
    ),
]
ScheduleFile = Annotated[
    Path, typer.Option("--file", "-f", help="JSON file of the schedule; - reads standard input.")
]
ChangesFile = Annotated[
    Path,
    typer.Option(
        "--file", "-f", help="JSON file of the fields that change; - reads standard input."
    ),
]


@operation(f"POST {PATH}")
def new_schedule(services: Services, given: Document) -> Schedule:
    return create_schedule(
        given,
        database=services.database,
        clock=services.clock,
        webhook_origins=services.settings.webhook_allowed_origins,
    )


@operation(f"GET {PATH}")
def schedules(
    session: Session, *, include_inactive: bool, limit: int, offset: int
) -> Sequence[Schedule]:
    return list_schedules(session, include_inactive=include_inactive, limit=limit, offset=offset)


@operation(f"GET {PATH}/{{schedule_id}}")
def schedule(session: Session, schedule_id: int) -> Schedule:
    return get_schedule(session, schedule_id)


@operation(f"PATCH {PATH}/{{schedule_id}}")
def change_schedule(services: Services, schedule_id: int, given: Document) -> Schedule:
    return update_schedule(
        schedule_id,
        given,
        database=services.database,
        clock=services.clock,
        webhook_origins=services.settings.webhook_allowed_origins,
    )


@operation(f"DELETE {PATH}/{{schedule_id}}")
def remove_schedule(services: Services, schedule_id: int) -> None:
    delete_schedule(schedule_id, database=services.database)


@operation(f"POST {PATH}/{{schedule_id}}/pause")
def stop_schedule(services: Services, schedule_id: int, reason: str | None) -> Schedule:
    return pause_schedule(
        schedule_id, database=services.database, clock=services.clock, reason=reason
    )


@operation(f"POST {PATH}/{{schedule_id}}/resume")
def restart_schedule(services: Services, schedule_id: int) -> Schedule:
    return resume_schedule(schedule_id, database=services.database, clock=services.clock)


@dataclass(frozen=True)
class FiledRun:
    run_id: int


@operation("POST /api/automation/trigger")
def file_run(
    services: Services, schedule_id: int, override_fiche_selection: FicheSelection | None
) -> FiledRun:
    run = request_run(
        schedule_id,
        database=services.database,
        clock=services.clock,
        override=override_fiche_selection,
        lost_after_seconds=services.settings.automation_lost_after_seconds,
    )
    return FiledRun(run.id)


@dataclass(frozen=True)
class SkippedTime:
    skipped: datetime


@operation(f"POST {PATH}/{{schedule_id}}/skip-next")
def skip_next_occurrence(services: Services, schedule_id: int) -> SkippedTime:
    return SkippedTime(skip_next(schedule_id, database=services.database, clock=services.clock))


@operation(f"GET {PATH}/{{schedule_id}}/occurrences")
def occurrences_of(session: Session, schedule_id: int, limit: int) -> Sequence[OccurrenceShown]:
    get_schedule(session, schedule_id)
    return decided_occurrences(session, schedule_id, limit)


@operation(f"GET {PATH}/{{schedule_id}}/preview")
def selection_of(services: Services, schedule_id: int) -> SelectionPreview:
    with services.database.reading() as session:
        key = get_schedule(session, schedule_id).external_api_key
    return services.run(
        preview_schedule(
            schedule_id,
            database=services.database,
            source=services.crm_with(key),
            clock=services.clock,
            semaphore=services.sales_list_semaphore,
            default_max_recordings=services.settings.automation_max_recordings_per_fiche,
        )
    )


@operation(f"POST {PATH}/{{schedule_id}}/backfill")
def file_days(
    services: Services, schedule_id: int, *, from_: date, to: date, dry_run: bool
) -> ScheduleBackfill:
    return backfill_schedule(
        schedule_id, from_, to, database=services.database, clock=services.clock, dry_run=dry_run
    )


@app.command()
def create(*, file: ScheduleFile, as_json: AsJson = False) -> None:
    """Store a new schedule from the JSON that the HTTP API takes. For example, every night, for
    yesterday's sales:

    {"name": "Nightly", "scheduleType": "DAILY", "timeOfDay": "02:00", "timezone": "Europe/Paris",
    "ficheSelection": {"mode": "date_range", "dateRange": "yesterday"}}

    All other fields have defaults; `show ID --json` shows them. An error names its field.
    """
    _show(new_schedule(read_json_object(file)), as_json=as_json)


@app.command("list")
def list_(
    *,
    include_inactive: Annotated[
        bool, typer.Option("--include-inactive", help="Show paused schedules too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the schedules, newest first."""
    found = every(schedules, by="offset", include_inactive=include_inactive)
    if as_json:
        print_json({"schedules": [_document(one) for one in found]})
    else:
        SCHEDULES.print(found)


@app.command()
def show(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show one schedule and its next occurrences."""
    _show(schedule(schedule_id), as_json=as_json)


@app.command()
def update(schedule_id: ScheduleId, *, file: ChangesFile, as_json: AsJson = False) -> None:
    """Change the fields that the file names. Null clears a field; a selection is replaced whole.

    For example: echo '{"timeOfDay": "03:30"}' | automation schedules update 3 --file -
    """
    _show(change_schedule(schedule_id, read_json_object(file)), as_json=as_json)


@app.command()
def delete(
    schedule_id: ScheduleId,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a schedule. Its runs with their outcomes, logs and audits stay readable."""
    if not yes:
        found = schedule(schedule_id)
        question = (
            f"Delete schedule {found.id}, {found.name}, and all of its {found.total_runs} runs?"
        )
        confirm(question, f"delete schedule {found.id}")
    remove_schedule(schedule_id)
    print_result(
        {"id": str(schedule_id), "deleted": True},
        f"Schedule {schedule_id} is deleted.",
        as_json=as_json,
    )


@app.command()
def pause(
    schedule_id: ScheduleId,
    *,
    reason: Annotated[
        str | None, typer.Option(help="The reason, which is stored with the schedule.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start no more runs of a schedule until it is resumed. An active run continues."""
    paused = stop_schedule(schedule_id, reason)
    print_result(_document(paused), f"Schedule {schedule_id} is paused.", as_json=as_json)


@app.command()
def resume(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Resume a paused schedule. Due times during the pause do not run."""
    resumed = restart_schedule(schedule_id)
    print_result(_document(resumed), f"Schedule {schedule_id} is active.", as_json=as_json)


@app.command("run-now")
def run_now(
    schedule_id: ScheduleId,
    *,
    selection: Annotated[
        Path | None, typer.Option(help="JSON file of a fiche selection for this run only.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run to its end.")] = False,
    timeout: Timeout = None,
    here: Here = False,
    as_json: AsJson = False,
) -> None:
    """Request a run. Dagster's daemon starts it within seconds.

    With --wait a bar shows each phase, and the exit code is 1 unless the run ends completed or
    partial. A selection is as in the schedule, for example {"mode": "manual", "ficheIds":
    ["1900417"]}.
    """
    wait = follows("schedules run-now", wait=wait, timeout=timeout, here=here)
    override = None if selection is None else parse_selection(read_json_object(selection))
    run_id = file_run(schedule_id, override).run_id
    if wait:
        with waiting([manual_run_key(run_id)], timeout=timeout, here=here) as waits:
            run = watch_run(run_id, quiet=as_json, waits=waits)
    else:
        run = get_run(run_id)
    if as_json:
        print_json({"run_id": str(run_id), "schedule_id": str(schedule_id), "status": run.status})
    elif not wait:
        say(f"Run {run_id} is requested: `automation runs show {run_id}` shows its status.")
    if wait and not is_good(run):
        raise typer.Exit(1)


@app.command("skip-next")
def skip_next_(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Skip the next occurrence; a second call also skips the one after it."""
    due_at = skip_next_occurrence(schedule_id).skipped
    local = wall_clock(due_at, schedule(schedule_id))
    document = {"id": str(schedule_id), "skipped": iso_seconds(due_at)}
    print_result(document, f"Schedule {schedule_id} does not run on {local}.", as_json=as_json)


@app.command("next")
def next_(
    schedule_id: ScheduleId,
    *,
    after: Annotated[
        str | None, typer.Option(help="Start from this ISO instant instead of now.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """List the coming occurrences, in the schedule's time zone and in UTC."""
    start = bootstrap.services().clock.now() if after is None else _instant(after)
    found = schedule(schedule_id)
    coming = list(islice(occurrences_after(found, start), count))
    if as_json:
        print_json({"occurrences": [iso_seconds(at) for at in coming]})
    elif found.schedule_type is ScheduleType.MANUAL:
        say("A MANUAL schedule runs only on request: `automation schedules run-now`.")
    else:
        print_coming(found, coming)


@app.command()
def occurrences(
    schedule_id: ScheduleId,
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the last due times with the run of each, or the reason for none."""
    found = schedule(schedule_id)
    decided = occurrences_of(schedule_id, limit)
    if as_json:
        print_json({"occurrences": [_occurrence_document(one) for one in decided]})
        return
    Columns[OccurrenceShown](
        {
            f"due, {found.timezone}": lambda one: wall_clock(one.due_at, found),
            "run": lambda one: one.run_id,
            "status": lambda one: one.run_status,
            "not run because": lambda one: one.not_run_because,
        }
    ).print(decided)


@app.command()
def preview(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show what a run would select and drop now, and why. The preview writes nothing."""
    show_one(selection_of(schedule_id), _print_preview, as_json=as_json)


@app.command()
def backfill(
    schedule_id: ScheduleId,
    *,
    first: Annotated[
        datetime, typer.Option("--from", formats=["%Y-%m-%d"], help="The first day of sales.")
    ],
    last: Annotated[
        datetime, typer.Option("--to", formats=["%Y-%m-%d"], help="The last day of sales.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the days without filing runs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """File one run per day of a range, each day once. Repeating the command files what is
    missing."""
    filed = file_days(schedule_id, from_=first.date(), to=last.date(), dry_run=dry_run)
    show_one(filed, _print_backfill, as_json=as_json)


def _document(found: Schedule) -> Document:
    return schedule_document(found, bootstrap.services().clock.now())


def _show(found: Schedule, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(found))
    else:
        print_schedule(found)


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"--after is not an ISO instant such as 2026-03-29T01:00:00Z: {text}"
        ) from None
    try:
        return parse_start(instant)
    except ValueError as error:
        raise InvalidInputError(f"--after {error}: {text}") from None


def _occurrence_document(one: OccurrenceShown) -> Document:
    return {
        "dueAt": iso_seconds(one.due_at),
        "runId": None if one.run_id is None else str(one.run_id),
        "runStatus": one.run_status,
        "notRunBecause": one.not_run_because,
        "decidedAt": iso_seconds(one.decided_at),
    }


def _print_preview(shown: SelectionPreview) -> None:
    named = ", ".join(shown.fiches[:MAX_NAMED]) + (" ..." if len(shown.fiches) > MAX_NAMED else "")
    dropped = ", ".join(f"{why} {count}" for why, count in shown.counts.items() if count)
    print_facts(
        {
            "schedule": shown.schedule_id,
            "days": ", ".join(shown.days) or None,
            "days not read": "; ".join(f"{one.date}: {one.error}" for one in shown.unread_days)
            or None,
            "candidates": shown.candidates,
            "selected": f"{shown.selected}: {named}"
            if shown.selected
            else f"0 ({shown.empty_reason})",
            "dropped": dropped or "none",
            "audit configurations": ", ".join(map(str, shown.audit_configs)) or "none",
        }
    )
    rows = [
        (one.fiche_id, how, one.reason, one.why)
        for how, fiches in (("dropped", shown.dropped), ("ignored", shown.ignored))
        for one in fiches
    ]
    if rows:
        print_table(("fiche", "would be", "reason", "why"), rows)


def _print_backfill(backfill: ScheduleBackfill) -> None:
    filed = "would be filed" if backfill.dry_run else "filed"
    print_table(
        ("day", "run", "status", ""),
        (
            (
                day.day.isoformat(),
                day.run_id,
                day.status,
                filed if day.filed else "is excluded" if day.excluded else "has its run",
            )
            for day in backfill.days
        ),
    )


def _next(found: Schedule) -> str:
    try:
        return minute(next_due(found, bootstrap.services().clock.now()))
    except InvalidInputError:
        return "never: see `show`"


SCHEDULES = Columns[Schedule](
    {
        "id": lambda one: one.id,
        "name": lambda one: one.name,
        "type": lambda one: one.schedule_type,
        "next (UTC)": _next,
        "last run (UTC)": lambda one: minute(one.last_run_at),
        "last status": lambda one: one.last_run_status,
        "runs": lambda one: one.total_runs,
    }
)


def print_schedule(found: Schedule) -> None:
    state = "active" if found.is_active else "paused"
    receivers = ", ".join(filter(None, [found.webhook_url, *found.notify_emails]))
    print_facts(
        {
            "schedule": f"{found.id}  {found.name}",
            "description": found.description,
            "type": f"{found.schedule_type}, {state}, {found.timezone}",
            "paused because": found.paused_reason,
            "when": _when(found),
            "selection": found.fiche_selection.model_dump_json(
                by_alias=True, exclude_defaults=True
            ),
            "steps": _steps(found),
            "on errors": _on_errors(found),
            "after an outage": _after_an_outage(found),
            "during a run": None
            if found.overlap_policy is OverlapPolicy.SKIP
            else found.overlap_policy,
            "excluded days": ", ".join(found.excluded_on) or None,
            "notifies": receivers or None,
            "last run": found.last_run_at
            and f"{minute(found.last_run_at)} UTC ({found.last_run_status})",
            "runs": f"{found.total_runs} in total, {found.failed_runs} failed",
        }
    )
    if not found.is_active or found.schedule_type is ScheduleType.MANUAL:
        return
    now = bootstrap.services().clock.now()
    try:
        print_coming(found, list(islice(occurrences_after(found, now), COMING)))
    except InvalidInputError as error:
        say(f"It is never due: {error}")


def print_coming(found: Schedule, coming: Iterable[datetime]) -> None:
    """In the schedule's time zone and in UTC; skipped occurrences are marked."""
    skipped = found.skip_due_at
    rows = (
        (wall_clock(at, found), minute(at), "skipped" if skipped and at <= skipped else "")
        for at in coming
    )
    print_table((found.timezone, "UTC", ""), rows)


def wall_clock(instant: datetime, found: Schedule) -> str:
    """In the schedule's time zone, or in UTC if the zone is not valid."""
    try:
        timezone = zone(found.timezone)
    except InvalidInputError:
        timezone = UTC
    return f"{instant.astimezone(timezone):%a %d %b %Y %H:%M %Z}"


def _when(found: Schedule) -> str | None:
    jitter = f", up to {found.jitter_seconds} s later" if found.jitter_seconds else ""
    at = f"at {found.time_of_day}{jitter}"
    match found.schedule_type:
        case ScheduleType.MANUAL:
            return None
        case ScheduleType.DAILY:
            return f"every day {at}"
        case ScheduleType.WEEKLY:
            return f"every {WEEKDAYS[found.day_of_week or 0]} {at}"
        case ScheduleType.MONTHLY:
            return f"on day {found.day_of_month} of the month {at}{_short_months(found)}"
        case ScheduleType.CRON:
            return f"{found.cron_expression}{jitter}"


def _short_months(found: Schedule) -> str:
    if (found.day_of_month or 0) <= 28:
        return ""
    if found.short_months is ShortMonths.LAST_DAY:
        return "; in a shorter month on its last day"
    return "; not in a shorter month"


def _after_an_outage(schedule: Schedule) -> str:
    match schedule.catch_up:
        case CatchUp.SKIP:
            return "skips missed due times"
        case CatchUp.LATEST:
            return "runs the latest missed due time"
        case CatchUp.ALL:
            return f"runs all missed due times, at most {schedule.catch_up_limit}"


def _steps(found: Schedule) -> str:
    stages = ["details"]
    if found.run_transcription:
        stages.append(f"transcription ({found.transcription_priority} priority)")
    if found.run_audits:
        named = [str(config) for config in found.specific_audit_configs]
        by = (["the automatic configurations"] if found.use_automatic_audits else []) + named
        stages.append(f"audits by {', '.join(by) or 'no configuration'}")
    return ", ".join(stages)


def _on_errors(found: Schedule) -> str:
    words = ["continues" if found.continue_on_error else "stops after the step"]
    if found.retry_failed:
        words.append(f"retries {found.max_retries} times")
    if found.pause_after_failures:
        words.append(
            f"is paused after {found.pause_after_failures} failed runs in a row, {found.failures_in_a_row} so far"
        )
    return ", ".join(words)
