"""`automation schedules`: what is run, and when."""

import threading
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from automation_pipeline import bootstrap
from automation_pipeline.automation.domain.schedule import Schedule, cron_of, parse_selection
from automation_pipeline.automation.stages.create_schedule import create_schedule
from automation_pipeline.automation.stages.request_run import request_run
from automation_pipeline.automation.store.schedules import get_schedule, list_schedules
from automation_pipeline.cli.following import follow_run
from automation_pipeline.cli.output import (
    AsJson,
    as_document,
    print_facts,
    print_json,
    print_table,
    read_json_object,
    screen,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.core.schedule_times import occurrences
from automation_pipeline.core.wall_clock import zone

app = typer.Typer(help="Configure what is run, and when.", no_args_is_help=True)

FIRST_YEAR, LAST_YEAR = 1970, 2999

ScheduleId = Annotated[
    int, typer.Argument(min=1, max=LARGEST_ID, help="The schedule's id, as `automation schedules list` shows it.")
]


@app.command()
def create(
    *,
    file: Annotated[Path, typer.Option("--file", "-f", help="JSON file of the schedule; - reads standard input.")],
    as_json: AsJson = False,
) -> None:
    """Store a new schedule from the JSON that the HTTP API takes."""
    services = bootstrap.services()
    schedule = create_schedule(read_json_object(file), database=services.database, clock=services.clock)
    _show(schedule, as_json=as_json)


@app.command("list")
def list_(
    *,
    include_inactive: Annotated[bool, typer.Option("--include-inactive", help="Show paused schedules too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the schedules, newest first."""
    with bootstrap.services().database.reading() as session:
        schedules = list_schedules(session, include_inactive=include_inactive)
    if as_json:
        print_json({"schedules": [as_document(schedule) for schedule in schedules]})
        return
    print_table(
        ("id", "name", "type", "selection", "last run", "last status", "runs"),
        (
            (
                s.id,
                s.name,
                s.schedule_type,
                s.fiche_selection.mode,
                _minute(s.last_run_at),
                s.last_run_status,
                s.total_runs,
            )
            for s in schedules
        ),
    )


@app.command()
def show(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show one schedule."""
    with bootstrap.services().database.reading() as session:
        schedule = get_schedule(session, schedule_id)
    _show(schedule, as_json=as_json)


@app.command("next")
def next_(
    schedule_id: ScheduleId,
    *,
    after: Annotated[str | None, typer.Option(help="Start from this ISO instant instead of now.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """List the coming occurrences, in the schedule's time zone and in UTC."""
    services = bootstrap.services()
    start = services.clock.now() if after is None else _instant(after)
    with services.database.reading() as session:
        schedule = get_schedule(session, schedule_id)
    cron, place = cron_of(schedule), zone(schedule.timezone)
    coming = [] if cron is None else list(islice(occurrences(cron, place, start), count))
    if as_json:
        print_json({"occurrences": [f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for at in coming]})
    elif cron is None:
        screen.print("A MANUAL schedule runs only when it is asked to: `automation schedules run-now`.")
    else:
        print_table(
            (schedule.timezone, "UTC"),
            ((f"{at.astimezone(place):%a %d %b %Y %H:%M %Z}", f"{at:%Y-%m-%d %H:%M}") for at in coming),
        )


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
        run = follow_run(run.id, services, pause=threading.Event(), quiet=as_json)
    if as_json:
        print_json({"run_id": str(run.id), "schedule_id": str(schedule_id), "status": run.status})
    elif not wait:
        screen.print(f"Run {run.id} is requested: `automation runs show {run.id}` tells how it stands.")
    if wait and run.status not in {"completed", "partial"}:
        raise typer.Exit(1)


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"--after is not an ISO instant such as 2026-03-29T01:00:00Z: {text}") from None
    if not FIRST_YEAR <= instant.year <= LAST_YEAR:
        raise InvalidInputError(f"--after must lie between the years {FIRST_YEAR} and {LAST_YEAR}: {text}")
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _minute(instant: datetime | None) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC" if instant else ""


def _show(schedule: Schedule, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(schedule))
        return
    print_facts(
        {
            "schedule": f"{schedule.id}  {schedule.name}",
            "type": f"{schedule.schedule_type}, {'active' if schedule.is_active else 'paused'}, {schedule.timezone}",
            "selection": schedule.fiche_selection.model_dump_json(by_alias=True, exclude_defaults=True),
            "last run": schedule.last_run_at and f"{_minute(schedule.last_run_at)} ({schedule.last_run_status})",
            "runs": f"{schedule.total_runs} in all, {schedule.failed_runs} failed",
        }
    )
