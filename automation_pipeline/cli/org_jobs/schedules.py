"""`automation org-jobs schedules`: what is done for an organisation, and when. What can be done about one is in
schedule_deeds.py, its times in schedule_times.py and schedule_history.py, its look in schedule_page.py."""

from typing import Annotated

import typer

from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.desk.org_jobs_ports import OrgJobsDesk
from automation_pipeline.cli.listing import Limit, Offset, one_more, say, say_more
from automation_pipeline.cli.org_jobs import schedule_deeds, schedule_history, schedule_times
from automation_pipeline.cli.org_jobs.arguments import (
    File,
    OfOrg,
    Org,
    ScheduleId,
    Yes,
    ask,
    changed_fields,
    given_fields,
)
from automation_pipeline.cli.org_jobs.schedule_flags import ScheduleFlags, with_schedule_flags
from automation_pipeline.cli.org_jobs.schedule_page import LAST_FIRES, print_schedule, print_schedules
from automation_pipeline.cli.output import AsJson, print_json
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.org_jobs.domain.org_schedule import OrgSchedule
from automation_pipeline.org_jobs.domain.states import ScheduleState
from automation_pipeline.org_jobs.store.schedules import ScheduleFilter

app = typer.Typer(help="Say what is done for an organisation, and when.", no_args_is_help=True)


@app.command()
@with_schedule_flags
def create(*, file: File = None, org: Org = None, flags: ScheduleFlags, as_json: AsJson = False) -> None:
    """Store a new schedule, by flags or from the JSON that the HTTP API takes. For example, every working day at two:

    automation org-jobs schedules create --name Backups --cron "0 2 * * 1-5" --timezone Europe/Paris --type SAVE_BACKUP
    --server 3 --window 22:00-06:00

    Everything else has a default, which `show` tells. A fault is told by the name of its field.
    """
    our = desk().org_jobs
    _show(our, our.schedules.create(given_fields(file, flags.document()), org), as_json=as_json)


@app.command("list")
def list_(
    *,
    org: OfOrg = None,
    state: Annotated[
        ScheduleState | None, typer.Option(case_sensitive=False, help="Only those that are in this state.")
    ] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Only those that make jobs of this type.")] = None,
    server: Annotated[int | None, typer.Option(min=1, max=LARGEST_ID, help="Only those about this server.")] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", help="Only those with this in their name.")] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the schedules, newest first. For example: automation org-jobs schedules list --org acme --state paused"""
    chosen = ScheduleFilter(org_id=org, state=state, job_type=job_type, server_instance_id=server, q=query)
    found = desk().org_jobs.schedules.listed(chosen, one_more(limit, offset))
    if as_json:
        print_json({"schedules": [as_document(one) for one in found[:limit]], "more": len(found) > limit})
        return
    print_schedules(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show one schedule: its state, when it is due next, what became of its last times, and its counters.

    For example: automation org-jobs schedules show 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d
    """
    our = desk().org_jobs
    _show(our, our.schedules.get(str(schedule_id)), as_json=as_json)


@app.command()
@with_schedule_flags
def update(
    schedule_id: ScheduleId,
    *,
    file: File = None,
    flags: ScheduleFlags,
    as_json: AsJson = False,
) -> None:
    """Change a schedule, by flags or by the fields of a file; null in the file clears a field. A new time counts from
    now: what was due and not begun is left out. With the `updatedAt` that was shown in the file, nothing is changed
    that somebody else has changed meanwhile.

    For example: automation org-jobs schedules update 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --cron "30 3 * * *"
    """
    our = desk().org_jobs
    patch = changed_fields(file, flags.document())
    if flags.retry_policy:
        patch["retryPolicy"] = {**_retry_policy(our.schedules.get(str(schedule_id))), **flags.retry_policy}
    _show(our, our.schedules.update(str(schedule_id), patch), as_json=as_json)


@app.command()
def delete(schedule_id: ScheduleId, *, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a schedule. Its jobs stay, and those at work go on.

    For example: automation org-jobs schedules delete 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --yes
    """
    our = desk().org_jobs.schedules
    key = str(schedule_id)
    if not yes:
        ask(f"Delete schedule {key}, {our.get(key).name}?", f"delete schedule {key}")
    our.delete(key)
    if as_json:
        print_json({"id": key, "deleted": True})
    else:
        say(f"Schedule {key} is deleted.")


def _retry_policy(schedule: OrgSchedule) -> dict[str, object]:
    return {} if schedule.retry_policy is None else as_document(schedule.retry_policy)


def _show(our: OrgJobsDesk, schedule: OrgSchedule, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(schedule))
    else:
        print_schedule(schedule, our.schedules.fires(schedule.id, limit=LAST_FIRES))


for name, deed in schedule_deeds.DEEDS.items():
    app.command(name)(deed)
for name, look in (schedule_times.LOOKS | schedule_history.LOOKS).items():
    app.command(name)(look)
