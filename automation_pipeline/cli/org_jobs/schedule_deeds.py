"""What can be done about a schedule: paused and resumed, run or left out once, and its past done again."""

from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.listing import say
from automation_pipeline.cli.org_jobs.arguments import (
    Payload,
    Reason,
    ScheduleId,
    Wait,
    read_instant,
    read_payload,
)
from automation_pipeline.cli.org_jobs.backfill_page import print_backfill
from automation_pipeline.cli.org_jobs.following import followed_to_its_end
from automation_pipeline.cli.org_jobs.schedule_page import next_due
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.core.instants import iso
from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.domain.backfill import MOST_AT_ONCE, Behaviour
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule


def pause(
    schedule_id: ScheduleId,
    *,
    reason: Reason = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="ISO", help="It is resumed by itself at this instant.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make no more jobs of a schedule until it is resumed. One that is at work goes on.

    For example: automation org-jobs schedules pause 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --reason "Disk is full"
    --until 2026-07-01T08:00:00Z
    """
    end = None if until is None else read_instant("--until", until)
    schedule = desk().org_jobs.schedules.pause(str(schedule_id), reason=reason, until=end)
    until_then = f" until {end:%Y-%m-%d %H:%M %Z}" if end else ""
    _tell(schedule, f"is paused{until_then}.", as_json=as_json)


def resume(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Take a paused schedule into use again. What fell due meanwhile is not done.

    For example: automation org-jobs schedules resume 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d
    """
    schedule = desk().org_jobs.schedules.resume(str(schedule_id))
    _tell(schedule, f"is {schedule.state}, due {next_due(schedule)}.", as_json=as_json)


def run_now(
    schedule_id: ScheduleId,
    *,
    payload: Payload = None,
    ignore_window: Annotated[
        bool, typer.Option("--ignore-window", help="Start now, even outside of its execution window.")
    ] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Make a job of a schedule now, once more than its plan says; a paused one can be run so too.

    For example: automation org-jobs schedules run-now 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --wait
    """
    our = desk()
    given = None if payload is None else read_payload(payload)
    asked = our.org_jobs.schedules.run_now(str(schedule_id), payload=given, ignore_window=ignore_window)
    if wait:
        followed_to_its_end(asked.job_id, our, as_json=as_json)
        return
    if not as_json:
        say(f"Job {asked.job_id} is asked for: `automation org-jobs watch {asked.job_id}` follows it.")
        return
    job = our.org_jobs.jobs.get(asked.job_id)
    print_json(
        {
            "job_id": str(asked.job_id),
            "fire_id": str(asked.fire_id),
            "schedule_id": str(schedule_id),
            "status": job.status,
            "job": as_document(job),
        }
    )


def skip_next(schedule_id: ScheduleId, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Leave out the next due time, and tell others why; `keep-next` takes that back.

    For example: automation org-jobs schedules skip-next 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --reason "Tournament"
    """
    schedule = desk().org_jobs.schedules.skip_next(str(schedule_id), reason)
    _tell(schedule, f"leaves out {next_due(schedule)}.", as_json=as_json)


def keep_next(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Do not leave out the next due time after all.

    For example: automation org-jobs schedules keep-next 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d
    """
    schedule = desk().org_jobs.schedules.keep_next(str(schedule_id))
    _tell(schedule, f"is due {next_due(schedule)} as planned.", as_json=as_json)


def backfill(
    schedule_id: ScheduleId,
    *,
    from_: Annotated[str, typer.Option("--from", metavar="ISO", help="The first instant of the period.")],
    until: Annotated[str, typer.Option("--until", metavar="ISO", help="The last one.")],
    behaviour: Annotated[
        Behaviour | None,
        typer.Option("--behaviour", case_sensitive=False, help="Which times that were decided upon are done again."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, max=MOST_AT_ONCE, help="Where there are more, none is made.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make the jobs of a past period, one for each time that was due. For example, look first:

    automation org-jobs schedules backfill 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --from 2026-05-01T00:00:00Z
    --until 2026-05-04T00:00:00Z --behaviour failed --dry-run
    """
    given: dict[str, object] = {
        "from": iso(read_instant("--from", from_)),
        "until": iso(read_instant("--until", until)),
        "behaviour": behaviour,
        "limit": limit,
        "dryRun": dry_run,
    }
    said = {name: value for name, value in given.items() if value is not None}
    made = desk().org_jobs.schedules.backfill(str(schedule_id), said)
    if as_json:
        print_json(as_document(made))
    else:
        print_backfill(made)


DEEDS = {
    "pause": pause,
    "resume": resume,
    "run-now": run_now,
    "skip-next": skip_next,
    "keep-next": keep_next,
    "backfill": backfill,
}


def _tell(schedule: OrgSchedule, how: str, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(schedule))
    else:
        say(f"Schedule {schedule.id}, {schedule.name}, {how}")
