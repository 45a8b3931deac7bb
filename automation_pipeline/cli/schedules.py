"""`automation schedules`: what is run, and when. Due times are in schedule_times.py, the look in schedule_page.py."""

import threading
from pathlib import Path
from typing import Annotated

import typer

from automation_pipeline.automation.domain.documents import schedule_document
from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.domain.selection import parse_selection
from automation_pipeline.automation.stages.request_run import manual_run_key
from automation_pipeline.cli import schedule_plans, schedule_times
from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.desk.ports import Desk
from automation_pipeline.cli.following import watch_run
from automation_pipeline.cli.output import AsJson, consent, print_json, read_json_object, screen
from automation_pipeline.cli.schedule_page import (
    ScheduleId,
    print_schedule,
    print_schedules,
)
from automation_pipeline.cli.waiting import Here, Timeout, follows, waiting

app = typer.Typer(help="Configure what is run, and when.", no_args_is_help=True)

app.command("skip-next")(schedule_times.skip_next_)
app.command("next")(schedule_times.next_)
app.command("occurrences")(schedule_times.occurrences)
app.command("preview")(schedule_plans.preview)
app.command("backfill")(schedule_plans.backfill)

ScheduleFile = Annotated[Path, typer.Option("--file", "-f", help="JSON file of the schedule; - reads standard input.")]
ChangesFile = Annotated[
    Path, typer.Option("--file", "-f", help="JSON file of the fields that change; - reads standard input.")
]


@app.command()
def create(*, file: ScheduleFile, as_json: AsJson = False) -> None:
    """Store a new schedule from the JSON that the HTTP API takes. For example, every night, for yesterday's sales:

    {"name": "Nightly", "scheduleType": "DAILY", "timeOfDay": "02:00", "timezone": "Europe/Paris",
    "ficheSelection": {"mode": "date_range", "dateRange": "yesterday"}}

    Everything else has a default; `show ID --json` tells all fields. A fault is told by the name of its field.
    """
    our = desk()
    _show(our.schedules.create(read_json_object(file)), our, as_json=as_json)


@app.command("list")
def list_(
    *,
    include_inactive: Annotated[bool, typer.Option("--include-inactive", help="Show paused schedules too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the schedules, newest first."""
    our = desk()
    schedules = our.schedules.listed(include_inactive=include_inactive)
    now = our.clock.now()
    if as_json:
        print_json({"schedules": [schedule_document(schedule, now) for schedule in schedules]})
    else:
        print_schedules(schedules, now)


@app.command()
def show(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show one schedule and its next occurrences."""
    our = desk()
    _show(our.schedules.get(schedule_id), our, as_json=as_json)


@app.command()
def update(schedule_id: ScheduleId, *, file: ChangesFile, as_json: AsJson = False) -> None:
    """Change the fields that the file names. Null clears a field; a selection is replaced whole.

    For example: echo '{"timeOfDay": "03:30"}' | automation schedules update 3 --file -
    """
    our = desk()
    _show(our.schedules.update(schedule_id, read_json_object(file)), our, as_json=as_json)


@app.command()
def delete(
    schedule_id: ScheduleId,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a schedule. Its runs, their outcomes, logs and audits stay readable."""
    our = desk()
    if not yes:
        _ask_whether_to_delete(our.schedules.get(schedule_id))
    our.schedules.delete(schedule_id)
    if as_json:
        print_json({"id": str(schedule_id), "deleted": True})
    else:
        _say(f"Schedule {schedule_id} is deleted.")


@app.command()
def pause(
    schedule_id: ScheduleId,
    *,
    reason: Annotated[str | None, typer.Option(help="Why, for whoever looks at it later.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start no more runs of a schedule until it is resumed. A run that is at work goes on."""
    our = desk()
    _tell(our.schedules.pause(schedule_id, reason), "is paused", our, as_json=as_json)


@app.command()
def resume(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Take a paused schedule into use again. What fell due during the pause is not run."""
    our = desk()
    _tell(our.schedules.resume(schedule_id), "is active", our, as_json=as_json)


@app.command("run-now")
def run_now(
    schedule_id: ScheduleId,
    *,
    selection: Annotated[Path | None, typer.Option(help="JSON file of a fiche selection for this run only.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run to its end.")] = False,
    timeout: Timeout = None,
    here: Here = False,
    as_json: AsJson = False,
) -> None:
    """Ask for a run. Dagster's daemon starts it within seconds.

    With --wait a bar shows each phase, and the exit code is 1 unless the run ends completed or partial. A selection
    is as in the schedule, for example {"mode": "manual", "ficheIds": ["1900417"]}.
    """
    wait = follows("schedules run-now", wait=wait, timeout=timeout, here=here)
    our = desk()
    override = None if selection is None else parse_selection(read_json_object(selection))
    run = our.schedules.request_run(schedule_id, override)
    if wait:
        with waiting(our, [manual_run_key(run.id)], timeout=timeout, here=here) as waits:
            run = watch_run(run.id, our, pause=threading.Event(), quiet=as_json, waits=waits)
    if as_json:
        print_json({"run_id": str(run.id), "schedule_id": str(schedule_id), "status": run.status})
    elif not wait:
        screen.print(f"Run {run.id} is requested: `automation runs show {run.id}` tells how it stands.")
    if wait and run.status not in {"completed", "partial"}:
        raise typer.Exit(1)


def _ask_whether_to_delete(schedule: Schedule) -> None:
    question = f"Delete schedule {schedule.id}, {schedule.name}, and all of its {schedule.total_runs} runs?"
    if not consent(question, f"delete schedule {schedule.id}"):
        raise typer.Abort


def _show(schedule: Schedule, our: Desk, *, as_json: bool) -> None:
    now = our.clock.now()
    if as_json:
        print_json(schedule_document(schedule, now))
    else:
        print_schedule(schedule, now)


def _tell(schedule: Schedule, how: str, our: Desk, *, as_json: bool) -> None:
    if as_json:
        print_json(schedule_document(schedule, our.clock.now()))
    else:
        _say(f"Schedule {schedule.id} {how}.")


def _say(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)
