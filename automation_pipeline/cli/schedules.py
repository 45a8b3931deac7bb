"""`automation schedules`: what is run, and when. Due times are in schedule_times.py, the look in schedule_page.py."""

import threading
from pathlib import Path
from typing import Annotated

import typer

from automation_pipeline import bootstrap
from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.domain.selection import parse_selection
from automation_pipeline.automation.stages.create_schedule import create_schedule
from automation_pipeline.automation.stages.delete_schedule import delete_schedule
from automation_pipeline.automation.stages.pause_schedule import pause_schedule
from automation_pipeline.automation.stages.request_run import request_run
from automation_pipeline.automation.stages.resume_schedule import resume_schedule
from automation_pipeline.automation.stages.update_schedule import update_schedule
from automation_pipeline.automation.store.schedules import get_schedule, list_schedules
from automation_pipeline.cli import schedule_times
from automation_pipeline.cli.following import watch_run
from automation_pipeline.cli.output import AsJson, consent, print_json, read_json_object, screen
from automation_pipeline.cli.schedule_page import (
    ScheduleId,
    print_schedule,
    print_schedules,
    schedule_document,
)

app = typer.Typer(help="Configure what is run, and when.", no_args_is_help=True)

app.command("skip-next")(schedule_times.skip_next_)
app.command("next")(schedule_times.next_)
app.command("occurrences")(schedule_times.occurrences)

ScheduleFile = Annotated[Path, typer.Option("--file", "-f", help="JSON file of the schedule; - reads standard input.")]
ChangesFile = Annotated[
    Path, typer.Option("--file", "-f", help="JSON file of the fields that change; - reads standard input.")
]


@app.command()
def create(*, file: ScheduleFile, as_json: AsJson = False) -> None:
    """Store a new schedule from the JSON that the HTTP API takes."""
    services = bootstrap.services()
    schedule = create_schedule(
        read_json_object(file),
        database=services.database,
        clock=services.clock,
        webhook_origins=services.settings.webhook_allowed_origins,
    )
    _show(schedule, as_json=as_json)


@app.command("list")
def list_(
    *,
    include_inactive: Annotated[bool, typer.Option("--include-inactive", help="Show paused schedules too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the schedules, newest first."""
    services = bootstrap.services()
    with services.database.reading() as session:
        schedules = list_schedules(session, include_inactive=include_inactive)
    now = services.clock.now()
    if as_json:
        print_json({"schedules": [schedule_document(schedule, now) for schedule in schedules]})
    else:
        print_schedules(schedules, now)


@app.command()
def show(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show one schedule and its next occurrences."""
    _show(_stored(schedule_id), as_json=as_json)


@app.command()
def update(schedule_id: ScheduleId, *, file: ChangesFile, as_json: AsJson = False) -> None:
    """Change the fields that the file names. Null clears a field; a selection is replaced whole."""
    services = bootstrap.services()
    patch = read_json_object(file)
    schedule = update_schedule(
        schedule_id,
        patch,
        database=services.database,
        clock=services.clock,
        webhook_origins=services.settings.webhook_allowed_origins,
    )
    _show(schedule, as_json=as_json)


@app.command()
def delete(
    schedule_id: ScheduleId,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a schedule with its runs, their outcomes and logs. Its audits stay."""
    if not yes:
        _ask_whether_to_delete(_stored(schedule_id))
    delete_schedule(schedule_id, database=bootstrap.services().database)
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
    services = bootstrap.services()
    schedule = pause_schedule(schedule_id, database=services.database, clock=services.clock, reason=reason)
    _tell(schedule, "is paused", as_json=as_json)


@app.command()
def resume(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Take a paused schedule into use again. What fell due during the pause is not run."""
    services = bootstrap.services()
    schedule = resume_schedule(schedule_id, database=services.database, clock=services.clock)
    _tell(schedule, "is active", as_json=as_json)


@app.command("run-now")
def run_now(
    schedule_id: ScheduleId,
    *,
    selection: Annotated[Path | None, typer.Option(help="JSON file of a fiche selection for this run only.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run to its end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask for a run. Dagster's daemon starts it within seconds."""
    services = bootstrap.services()
    override = None if selection is None else parse_selection(read_json_object(selection))
    run = request_run(schedule_id, database=services.database, clock=services.clock, override=override)
    if wait:
        run = watch_run(run.id, services, pause=threading.Event(), quiet=as_json)
    if as_json:
        print_json({"run_id": str(run.id), "schedule_id": str(schedule_id), "status": run.status})
    elif not wait:
        screen.print(f"Run {run.id} is requested: `automation runs show {run.id}` tells how it stands.")
    if wait and run.status not in {"completed", "partial"}:
        raise typer.Exit(1)


def _stored(schedule_id: int) -> Schedule:
    with bootstrap.services().database.reading() as session:
        return get_schedule(session, schedule_id)


def _ask_whether_to_delete(schedule: Schedule) -> None:
    question = f"Delete schedule {schedule.id}, {schedule.name}, and all of its {schedule.total_runs} runs?"
    if not consent(question, f"delete schedule {schedule.id}"):
        raise typer.Abort


def _show(schedule: Schedule, *, as_json: bool) -> None:
    now = bootstrap.services().clock.now()
    if as_json:
        print_json(schedule_document(schedule, now))
    else:
        print_schedule(schedule, now)


def _tell(schedule: Schedule, how: str, *, as_json: bool) -> None:
    if as_json:
        print_json(schedule_document(schedule, bootstrap.services().clock.now()))
    else:
        _say(f"Schedule {schedule.id} {how}.")


def _say(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)
