"""`automation org-jobs schedules`."""

from typing import Annotated

import typer

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.ports import OrgJobsClient
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import (
    AsJson,
    Limit,
    Offset,
    iso_seconds,
    one_more,
    print_fitted_table,
    print_json,
    say,
    say_more,
    screen,
)
from automation_pipeline.core.clock import iso
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.org_jobs.commands.arguments import (
    After,
    AfterId,
    File,
    OfOrg,
    Org,
    Payload,
    Reason,
    ScheduleId,
    Wait,
    Yes,
    ask,
    changed_fields,
    given_fields,
    read_instant,
    read_payload,
)
from automation_pipeline.org_jobs.commands.backfills import print_backfill
from automation_pipeline.org_jobs.commands.jobs import followed_to_its_end
from automation_pipeline.org_jobs.commands.records import print_entries
from automation_pipeline.org_jobs.commands.schedule_flags import ScheduleFlags, with_schedule_flags
from automation_pipeline.org_jobs.commands.schedule_pages import (
    LAST_FIRES,
    next_due,
    print_fires,
    print_schedule,
    print_schedules,
)
from automation_pipeline.org_jobs.models.schedules import OrgSchedule
from automation_pipeline.org_jobs.models.states import ScheduleState
from automation_pipeline.org_jobs.queries.schedules import ScheduleFilter
from automation_pipeline.org_jobs.rules.backfills import MOST_AT_ONCE, Behaviour
from automation_pipeline.org_jobs.rules.previews import (
    DEFAULT_COUNT,
    MOST_RUNS,
    ComingRun,
    SchedulePreview,
)

Count = Annotated[int, typer.Option("--count", min=1, max=MOST_RUNS, help="How many.")]


def next_(
    schedule_id: ScheduleId,
    *,
    after: After = None,
    count: Count = DEFAULT_COUNT,
    as_json: AsJson = False,
) -> None:
    """List when a schedule is due next, on its wall clock and in UTC, with what moves its times.

    For example: automation org-jobs schedules next 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --after
    2026-03-28T12:00:00Z
    """
    start = None if after is None else read_instant("--after", after)
    _show_times(
        open_client().org_jobs.schedules.coming(str(schedule_id), count=count, after=start),
        as_json=as_json,
    )


@with_schedule_flags
def preview(
    *,
    file: File = None,
    after: After = None,
    count: Count = DEFAULT_COUNT,
    flags: ScheduleFlags,
    org: Org = None,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a schedule, or when it would be due. Nothing is stored.

    For example: automation org-jobs schedules preview --name Pings --type HTTPS_CALL
    --payload '{"url": "https://example.com/ping"}' --cron "30 2 * * *" --timezone Europe/Paris
    """
    start = None if after is None else read_instant("--after", after)
    fields = given_fields(file, flags.document())
    _show_times(
        open_client().org_jobs.schedules.preview(fields, org, count=count, after=start),
        as_json=as_json,
    )


TIMES_COMMANDS = {"next": next_, "preview": preview}


def _show_times(told: SchedulePreview, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "occurrences": [iso_seconds(run.effective_for) for run in told.runs],
                **as_document(told),
            }
        )
        return
    say(f"{told.in_words} ({told.timezone}).")
    if told.note:
        say(told.note)
    if told.runs:
        screen.print()
        print_fitted_table((told.timezone, "UTC", "note"), map(_run, told.runs), texts={"note"})


def _run(run: ComingRun) -> tuple[object, ...]:
    left_out = "It is left out: somebody wants that." if run.is_skipped else ""
    return (
        run.local_time,
        f"{run.effective_for:%Y-%m-%d %H:%M}",
        " ".join(filter(None, [left_out, run.note])),
    )


def fires(
    schedule_id: ScheduleId, *, limit: Limit = 20, after: AfterId = 0, as_json: AsJson = False
) -> None:
    """List the due times of a schedule: the job of each, or why there was none.

    For example: automation org-jobs schedules fires 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --limit 50
    """
    client = open_client().org_jobs.schedules
    found = client.fires(str(schedule_id), limit=limit + 1, after_id=after)
    if as_json:
        print_json(
            {"fires": [as_document(fire) for fire in found[:limit]], "more": len(found) > limit}
        )
        return
    print_fires(found[:limit], client.get(str(schedule_id)).timezone)
    if len(found) > limit:
        say(f"There are more: --after {found[limit - 1].id} shows the next.")


def log(
    schedule_id: ScheduleId, *, limit: Limit = 50, after: AfterId = 0, as_json: AsJson = False
) -> None:
    """Tell who changed a schedule, when, and why.

    For example: automation org-jobs schedules log 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d
    """
    found = open_client().org_jobs.schedules.log(str(schedule_id), limit=limit + 1, after_id=after)
    if as_json:
        print_json(
            {"log": [as_document(entry) for entry in found[:limit]], "more": len(found) > limit}
        )
        return
    print_entries(found[:limit])
    if len(found) > limit:
        say(f"There are more: --after {found[limit - 1].id} shows the next.")


HISTORY_COMMANDS = {"fires": fires, "log": log}


def pause(
    schedule_id: ScheduleId,
    *,
    reason: Reason = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="ISO", help="It is resumed by itself at this instant."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make no more jobs of a schedule until it is resumed. One that is at work goes on.

    For example: automation org-jobs schedules pause 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --reason
    "Disk is full"
    --until 2026-07-01T08:00:00Z
    """
    end = None if until is None else read_instant("--until", until)
    schedule = open_client().org_jobs.schedules.pause(str(schedule_id), reason=reason, until=end)
    until_then = f" until {end:%Y-%m-%d %H:%M %Z}" if end else ""
    _tell(schedule, f"is paused{until_then}.", as_json=as_json)


def resume(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Take a paused schedule into use again. What fell due meanwhile is not done.

    For example: automation org-jobs schedules resume 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d
    """
    schedule = open_client().org_jobs.schedules.resume(str(schedule_id))
    _tell(schedule, f"is {schedule.state}, due {next_due(schedule)}.", as_json=as_json)


def run_now(
    schedule_id: ScheduleId,
    *,
    payload: Payload = None,
    ignore_window: Annotated[
        bool,
        typer.Option("--ignore-window", help="Start now, even outside of its execution window."),
    ] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Make a job of a schedule now, once more than its plan says; a paused one can be run so too.

    For example: automation org-jobs schedules run-now 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --wait
    """
    client = open_client()
    given = None if payload is None else read_payload(payload)
    asked = client.org_jobs.schedules.run_now(
        str(schedule_id), payload=given, ignore_window=ignore_window
    )
    if wait:
        followed_to_its_end(asked.job_id, client, as_json=as_json)
        return
    if not as_json:
        say(
            f"Job {asked.job_id} is asked for: `automation org-jobs watch {asked.job_id}` follows it."
        )
        return
    job = client.org_jobs.jobs.get(asked.job_id)
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

    For example: automation org-jobs schedules skip-next 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d
    --reason "Tournament"
    """
    schedule = open_client().org_jobs.schedules.skip_next(str(schedule_id), reason)
    _tell(schedule, f"leaves out {next_due(schedule)}.", as_json=as_json)


def keep_next(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Do not leave out the next due time after all.

    For example: automation org-jobs schedules keep-next 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d
    """
    schedule = open_client().org_jobs.schedules.keep_next(str(schedule_id))
    _tell(schedule, f"is due {next_due(schedule)} as planned.", as_json=as_json)


def backfill(
    schedule_id: ScheduleId,
    *,
    from_: Annotated[
        str, typer.Option("--from", metavar="ISO", help="The first instant of the period.")
    ],
    until: Annotated[str, typer.Option("--until", metavar="ISO", help="The last one.")],
    behaviour: Annotated[
        Behaviour | None,
        typer.Option(
            "--behaviour",
            case_sensitive=False,
            help="Which times that were decided upon are done again.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, max=MOST_AT_ONCE, help="Where there are more, none is made."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be done, and do nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the jobs of a past period, one for each time that was due. For example, look first:

    automation org-jobs schedules backfill 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --from
    2026-05-01T00:00:00Z
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
    made = open_client().org_jobs.schedules.backfill(str(schedule_id), said)
    if as_json:
        print_json(as_document(made))
    else:
        print_backfill(made)


ACTIONS = {
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


app = command_group("Say what is done for an organisation, and when.")


@app.command()
@with_schedule_flags
def create(
    *, file: File = None, org: Org = None, flags: ScheduleFlags, as_json: AsJson = False
) -> None:
    """Store a new schedule, by flags or from the JSON that the HTTP API takes. For example, every
    working day at two:

    automation org-jobs schedules create --name Backups --cron "0 2 * * 1-5" --timezone Europe/Paris
    --type SAVE_BACKUP
    --server 3 --window 22:00-06:00

    Everything else has a default, which `show` tells. A fault is told by the name of its field.
    """
    client = open_client().org_jobs
    _show(
        client, client.schedules.create(given_fields(file, flags.document()), org), as_json=as_json
    )


@app.command("list")
def list_(
    *,
    org: OfOrg = None,
    state: Annotated[
        ScheduleState | None,
        typer.Option(case_sensitive=False, help="Only those that are in this state."),
    ] = None,
    job_type: Annotated[
        str | None, typer.Option("--type", help="Only those that make jobs of this type.")
    ] = None,
    server: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Only those about this server.")
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Only those with this in their name.")
    ] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the schedules, newest first. For example: automation org-jobs schedules list --org acme
    --state paused"""
    chosen = ScheduleFilter(
        org_id=org, state=state, job_type=job_type, server_instance_id=server, q=query
    )
    found = open_client().org_jobs.schedules.listed(chosen, one_more(limit, offset))
    if as_json:
        print_json(
            {"schedules": [as_document(one) for one in found[:limit]], "more": len(found) > limit}
        )
        return
    print_schedules(found[:limit])
    say_more(found, limit, offset)


@app.command()
def show(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show one schedule: its state, when it is due next, what became of its last times, and its
    counters.

    For example: automation org-jobs schedules show 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d
    """
    client = open_client().org_jobs
    _show(client, client.schedules.get(str(schedule_id)), as_json=as_json)


@app.command()
@with_schedule_flags
def update(
    schedule_id: ScheduleId,
    *,
    file: File = None,
    flags: ScheduleFlags,
    as_json: AsJson = False,
) -> None:
    """Change a schedule, by flags or by the fields of a file; null in the file clears a field. A
    new time counts from now: what was due and not begun is left out. With the `updatedAt` that was
    shown in the file, nothing is changed that somebody else has changed meanwhile.

    For example: automation org-jobs schedules update 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --cron
    "30 3 * * *"
    """
    client = open_client().org_jobs
    patch = changed_fields(file, flags.document())
    if flags.retry_policy:
        patch["retryPolicy"] = {
            **_retry_policy(client.schedules.get(str(schedule_id))),
            **flags.retry_policy,
        }
    _show(client, client.schedules.update(str(schedule_id), patch), as_json=as_json)


@app.command()
def delete(schedule_id: ScheduleId, *, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a schedule. Its jobs stay, and those at work go on.

    For example: automation org-jobs schedules delete 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --yes
    """
    client = open_client().org_jobs.schedules
    key = str(schedule_id)
    if not yes:
        ask(f"Delete schedule {key}, {client.get(key).name}?", f"delete schedule {key}")
    client.delete(key)
    if as_json:
        print_json({"id": key, "deleted": True})
    else:
        say(f"Schedule {key} is deleted.")


def _retry_policy(schedule: OrgSchedule) -> dict[str, object]:
    return {} if schedule.retry_policy is None else as_document(schedule.retry_policy)


def _show(client: OrgJobsClient, schedule: OrgSchedule, *, as_json: bool) -> None:
    if as_json:
        print_json(as_document(schedule))
    else:
        print_schedule(schedule, client.schedules.fires(schedule.id, limit=LAST_FIRES))


for name, deed in ACTIONS.items():
    app.command(name)(deed)
for name, look in (TIMES_COMMANDS | HISTORY_COMMANDS).items():
    app.command(name)(look)
