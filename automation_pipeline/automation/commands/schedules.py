"""`automation schedules`: configure what runs, and when."""

import threading
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from automation_pipeline.automation.commands.schedule_page import (
    ScheduleId,
    occurrence_document,
    print_coming,
    print_occurrences,
    print_schedule,
    print_schedules,
    wall_clock,
)
from automation_pipeline.automation.documents import schedule_document
from automation_pipeline.automation.models.schedules import Schedule, ScheduleType
from automation_pipeline.automation.models.selections import parse_selection
from automation_pipeline.automation.rules.due import occurrences_after, parse_start
from automation_pipeline.automation.runs import manual_run_key
from automation_pipeline.automation.schedules import ScheduleBackfill
from automation_pipeline.automation.selection import SelectionPreview
from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.ports import Client
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import (
    AsJson,
    consent,
    iso_seconds,
    print_facts,
    print_json,
    print_table,
    read_json_object,
    screen,
)
from automation_pipeline.cli.progress import Here, Timeout, follows, waiting, watch_run
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import as_document

MAX_NAMED = 20


def preview(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show what a run would select and drop now, and why. Nothing is written."""
    shown = open_client().schedules.preview(schedule_id)
    if as_json:
        print_json(as_document(shown))
    else:
        _print_preview(shown)


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
        bool, typer.Option("--dry-run", help="Show the days, and file nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """File one run per day of a range, each day once. Repeating the command files what is
    missing."""
    made = open_client().schedules.backfill(schedule_id, first.date(), last.date(), dry_run=dry_run)
    if as_json:
        print_json(as_document(made))
    else:
        _print_backfill(made)


def _print_preview(shown: SelectionPreview) -> None:
    named = ", ".join(shown.fiches[:MAX_NAMED]) + (" ..." if len(shown.fiches) > MAX_NAMED else "")
    print_facts(
        {
            "schedule": str(shown.schedule_id),
            "days": ", ".join(shown.days) or None,
            "days not read": "; ".join(f"{one.date}: {one.error}" for one in shown.unread_days)
            or None,
            "candidates": str(shown.candidates),
            "selected": f"{shown.selected}: {named}"
            if shown.selected
            else f"0 ({shown.empty_reason})",
            "dropped": ", ".join(f"{why} {count}" for why, count in shown.counts.items() if count)
            or "none",
            "audit configurations": ", ".join(map(str, shown.audit_configs)) or "none",
        }
    )
    left_out = [("dropped", one) for one in shown.dropped] + [
        ("ignored", one) for one in shown.ignored
    ]
    if left_out:
        print_table(
            ("fiche", "would be", "reason", "why"),
            ((one.fiche_id, how, one.reason, one.why) for how, one in left_out),
        )


def _print_backfill(made: ScheduleBackfill) -> None:
    filed = "would be filed" if made.dry_run else "filed"
    print_table(
        ("day", "run", "status", ""),
        (
            (day.day.isoformat(), day.run_id, day.status, filed if day.filed else "has its run")
            for day in made.days
        ),
    )


def skip_next_(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Leave out the next occurrence; said again, the one after it too."""
    client = open_client()
    due_at = client.schedules.skip_next(schedule_id)
    schedule = client.schedules.get(schedule_id)
    if as_json:
        print_json({"id": str(schedule_id), "skipped": iso_seconds(due_at)})
    else:
        _print_sentence(f"Schedule {schedule_id} is not run on {wall_clock(due_at, schedule)}.")


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
    client = open_client()
    start = client.clock.now() if after is None else _instant(after)
    schedule = client.schedules.get(schedule_id)
    coming = list(islice(occurrences_after(schedule, start), count))
    if as_json:
        print_json({"occurrences": [iso_seconds(at) for at in coming]})
    elif schedule.schedule_type is ScheduleType.MANUAL:
        _print_sentence(
            "A MANUAL schedule runs only when it is asked to: `automation schedules run-now`."
        )
    else:
        print_coming(schedule, coming)


def occurrences(
    schedule_id: ScheduleId,
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the last due times: the run of each, or why there was none."""
    client = open_client()
    schedule = client.schedules.get(schedule_id)
    decided = client.schedules.occurrences(schedule_id, limit)
    if as_json:
        print_json({"occurrences": [occurrence_document(one) for one in decided]})
    else:
        print_occurrences(schedule, decided)


def _print_sentence(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)


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


app = command_group("Configure what is run, and when.")

app.command("skip-next")(skip_next_)
app.command("next")(next_)
app.command("occurrences")(occurrences)
app.command("preview")(preview)
app.command("backfill")(backfill)

ScheduleFile = Annotated[
    Path, typer.Option("--file", "-f", help="JSON file of the schedule; - reads standard input.")
]
ChangesFile = Annotated[
    Path,
    typer.Option(
        "--file", "-f", help="JSON file of the fields that change; - reads standard input."
    ),
]


@app.command()
def create(*, file: ScheduleFile, as_json: AsJson = False) -> None:
    """Store a new schedule from the JSON that the HTTP API takes. For example, every night, for
    yesterday's sales:

    {"name": "Nightly", "scheduleType": "DAILY", "timeOfDay": "02:00", "timezone": "Europe/Paris",
    "ficheSelection": {"mode": "date_range", "dateRange": "yesterday"}}

    Everything else has a default; `show ID --json` tells all fields. A fault is told by the name of
    its field.
    """
    client = open_client()
    _print_or_dump(client.schedules.create(read_json_object(file)), client, as_json=as_json)


@app.command("list")
def list_(
    *,
    include_inactive: Annotated[
        bool, typer.Option("--include-inactive", help="Show paused schedules too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the schedules, newest first."""
    client = open_client()
    schedules = client.schedules.listed(include_inactive=include_inactive)
    now = client.clock.now()
    if as_json:
        print_json({"schedules": [schedule_document(schedule, now) for schedule in schedules]})
    else:
        print_schedules(schedules, now)


@app.command()
def show(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show one schedule and its next occurrences."""
    client = open_client()
    _print_or_dump(client.schedules.get(schedule_id), client, as_json=as_json)


@app.command()
def update(schedule_id: ScheduleId, *, file: ChangesFile, as_json: AsJson = False) -> None:
    """Change the fields that the file names. Null clears a field; a selection is replaced whole.

    For example: echo '{"timeOfDay": "03:30"}' | automation schedules update 3 --file -
    """
    client = open_client()
    _print_or_dump(
        client.schedules.update(schedule_id, read_json_object(file)), client, as_json=as_json
    )


@app.command()
def delete(
    schedule_id: ScheduleId,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a schedule. Its runs, their outcomes, logs and audits stay readable."""
    client = open_client()
    if not yes:
        _confirm_deletion(client.schedules.get(schedule_id))
    client.schedules.delete(schedule_id)
    if as_json:
        print_json({"id": str(schedule_id), "deleted": True})
    else:
        _print_sentence(f"Schedule {schedule_id} is deleted.")


@app.command()
def pause(
    schedule_id: ScheduleId,
    *,
    reason: Annotated[str | None, typer.Option(help="Why, for whoever looks at it later.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start no more runs of a schedule until it is resumed. A run that is at work goes on."""
    client = open_client()
    _print_change(client.schedules.pause(schedule_id, reason), "is paused", client, as_json=as_json)


@app.command()
def resume(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Take a paused schedule into use again. What fell due during the pause is not run."""
    client = open_client()
    _print_change(client.schedules.resume(schedule_id), "is active", client, as_json=as_json)


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
    """Ask for a run. Dagster's daemon starts it within seconds.

    With --wait a bar shows each phase, and the exit code is 1 unless the run ends completed or
    partial. A selection is as in the schedule, for example {"mode": "manual", "ficheIds":
    ["1900417"]}.
    """
    wait = follows("schedules run-now", wait=wait, timeout=timeout, here=here)
    client = open_client()
    override = None if selection is None else parse_selection(read_json_object(selection))
    run = client.schedules.request_run(schedule_id, override)
    if wait:
        with waiting(client, [manual_run_key(run.id)], timeout=timeout, here=here) as waits:
            run = watch_run(run.id, client, pause=threading.Event(), quiet=as_json, waits=waits)
    if as_json:
        print_json({"run_id": str(run.id), "schedule_id": str(schedule_id), "status": run.status})
    elif not wait:
        screen.print(
            f"Run {run.id} is requested: `automation runs show {run.id}` tells how it stands."
        )
    if wait and run.status not in {"completed", "partial"}:
        raise typer.Exit(1)


def _confirm_deletion(schedule: Schedule) -> None:
    question = f"Delete schedule {schedule.id}, {schedule.name}, and all of its {schedule.total_runs} runs?"
    if not consent(question, f"delete schedule {schedule.id}"):
        raise typer.Abort


def _print_or_dump(schedule: Schedule, client: Client, *, as_json: bool) -> None:
    now = client.clock.now()
    if as_json:
        print_json(schedule_document(schedule, now))
    else:
        print_schedule(schedule, now)


def _print_change(schedule: Schedule, how: str, client: Client, *, as_json: bool) -> None:
    if as_json:
        print_json(schedule_document(schedule, client.clock.now()))
    else:
        _print_sentence(f"Schedule {schedule.id} {how}.")
