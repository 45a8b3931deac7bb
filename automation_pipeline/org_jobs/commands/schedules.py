"""`automation org-jobs schedules`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import Document, operation
from automation_pipeline.cli.output import (
    AsJson,
    Limit,
    Offset,
    compact,
    confirm,
    iso_seconds,
    minute,
    print_fitted_table,
    print_json,
    print_result,
    say,
    screen,
    show_one,
    show_page,
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
    ScheduleFlags,
    ScheduleId,
    Wait,
    Yes,
    changed_fields,
    chosen_org,
    default_org,
    given_fields,
    org_write_context,
    read_instant,
    read_payload,
    with_schedule_flags,
)
from automation_pipeline.org_jobs.commands.jobs import job, wait_for_job
from automation_pipeline.org_jobs.commands.organisations import check_org
from automation_pipeline.org_jobs.commands.pages import (
    ENTRIES,
    LAST_FIRES,
    SCHEDULE_COLUMNS,
    next_due,
    print_backfill,
    print_fires,
    print_schedule,
)
from automation_pipeline.org_jobs.fires import backfill_schedule
from automation_pipeline.org_jobs.models.jobs import ScheduleState
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, AuditEntry
from automation_pipeline.org_jobs.models.schedules import Dispatched, OrgSchedule, ScheduleFire
from automation_pipeline.org_jobs.queries.organisations import audit_log
from automation_pipeline.org_jobs.queries.schedules import (
    ScheduleFilter,
    fires_of,
    get_schedule,
    list_schedules,
)
from automation_pipeline.org_jobs.rules.due import MOST_AT_ONCE, Backfill, Behaviour
from automation_pipeline.org_jobs.rules.schedules import DEFAULT_COUNT, MOST_RUNS, SchedulePreview
from automation_pipeline.org_jobs.schedules import (
    coming_runs,
    create_schedule,
    delete_schedule,
    keep_next_run,
    pause_schedule,
    preview_schedule,
    resume_schedule,
    run_schedule_now,
    skip_next_run,
    update_schedule,
)
from automation_pipeline.storage.database import Session

app = command_group("Manage schedules: the jobs of an organisation and when they run.")

PATH = "/api/org-schedules"
ONE = f"{PATH}/{{schedule_id}}"
Count = Annotated[int, typer.Option("--count", min=1, max=MOST_RUNS, help="How many.")]


@operation(f"POST {PATH}", query=["org"])
def new_schedule(services: Services, given: Document, *, org: str | None) -> OrgSchedule:
    return create_schedule(
        given,
        org_id=chosen_org(services, org),
        call_origins=services.settings.org_jobs_https_allowed_origins,
        **org_write_context(services),
    )


@operation(f"GET {PATH}")
def schedules(
    session: Session,
    *,
    org: str | None,
    state: ScheduleState | None,
    job_type: str | None,
    server: int | None,
    q: str | None,
    limit: int,
    offset: int,
) -> Sequence[OrgSchedule]:
    chosen = ScheduleFilter(
        org_id=org, state=state, job_type=job_type, server_instance_id=server, q=q
    )
    return list_schedules(session, ALL_ORGANISATIONS, chosen=chosen, limit=limit, offset=offset)


@operation(f"GET {ONE}")
def schedule(session: Session, schedule_id: str) -> OrgSchedule:
    return get_schedule(session, schedule_id, ALL_ORGANISATIONS)


@operation(f"PATCH {ONE}")
def change_schedule(services: Services, schedule_id: str, given: Document) -> OrgSchedule:
    return update_schedule(
        schedule_id,
        given,
        call_origins=services.settings.org_jobs_https_allowed_origins,
        **org_write_context(services),
    )


@operation(f"DELETE {ONE}")
def remove_schedule(services: Services, schedule_id: str) -> None:
    delete_schedule(schedule_id, **org_write_context(services))


@operation(f"POST {ONE}/pause")
def pause_stored_schedule(
    services: Services, schedule_id: str, *, reason: str | None, until: datetime | None
) -> OrgSchedule:
    return pause_schedule(schedule_id, reason=reason, until=until, **org_write_context(services))


@operation(f"POST {ONE}/resume")
def resume_stored_schedule(services: Services, schedule_id: str) -> OrgSchedule:
    return resume_schedule(schedule_id, **org_write_context(services))


@operation(f"POST {ONE}/skip-next")
def skip_next_due_time(services: Services, schedule_id: str, reason: str | None) -> OrgSchedule:
    return skip_next_run(schedule_id, reason=reason, **org_write_context(services))


@operation(f"DELETE {ONE}/skip-next")
def keep_next_due_time(services: Services, schedule_id: str) -> OrgSchedule:
    return keep_next_run(schedule_id, **org_write_context(services))


@operation(f"POST {ONE}/run-now")
def run_stored_schedule(
    services: Services, schedule_id: str, *, payload: Document | None, ignore_window: bool
) -> Dispatched:
    return run_schedule_now(
        schedule_id,
        payload=payload,
        ignore_window=ignore_window,
        call_origins=services.settings.org_jobs_https_allowed_origins,
        **org_write_context(services),
    )


@operation(f"POST {ONE}/backfill")
def backfill_stored_schedule(services: Services, schedule_id: str, given: Document) -> Backfill:
    return backfill_schedule(
        schedule_id,
        given,
        call_origins=services.settings.org_jobs_https_allowed_origins,
        **org_write_context(services),
    )


@operation(f"GET {ONE}/next")
def coming(
    services: Services, schedule_id: str, *, count: int, after: datetime | None
) -> SchedulePreview:
    return coming_runs(
        schedule_id,
        within=ALL_ORGANISATIONS,
        database=services.database,
        clock=services.clock,
        count=count,
        after=after,
    )


@operation(f"POST {PATH}/preview", query=["org", "count", "after"])
def times_of(
    services: Services, given: Document, *, org: str | None, count: int, after: datetime | None
) -> SchedulePreview:
    return preview_schedule(
        given,
        org_id=default_org(services, org),
        database=services.database,
        count=count,
        after=after or services.clock.now(),
        call_origins=services.settings.org_jobs_https_allowed_origins,
    )


@operation(f"GET {ONE}/fires")
def fires_of_schedule(
    session: Session, schedule_id: str, *, limit: int, after: int = 0, newest: bool = True
) -> Sequence[ScheduleFire]:
    return fires_of(session, schedule_id, ALL_ORGANISATIONS, limit, after, newest_first=newest)


@operation(f"GET {ONE}/log")
def log_of_schedule(
    session: Session, schedule_id: str, *, limit: int, after: int, newest: bool = True
) -> Sequence[AuditEntry]:
    get_schedule(session, schedule_id, ALL_ORGANISATIONS)
    return audit_log(
        session,
        ALL_ORGANISATIONS,
        entity="schedule",
        entity_id=schedule_id,
        limit=limit,
        after_id=after,
        newest_first=newest,
    )


@app.command()
@with_schedule_flags
def create(
    *, file: File = None, org: Org = None, flags: ScheduleFlags, as_json: AsJson = False
) -> None:
    """Store a new schedule, by flags or from the JSON that the HTTP API takes. For example, every
    weekday at two:

    automation org-jobs schedules create --name Backups --cron "0 2 * * 1-5" --timezone Europe/Paris
    --type SAVE_BACKUP --server 3 --window 22:00-06:00

    The other fields have defaults, which `show` prints. Errors name their fields."""
    _show(new_schedule(given_fields(file, flags.document()), org=org), as_json=as_json)


@app.command("list")
def list_(
    *,
    org: OfOrg = None,
    state: Annotated[
        ScheduleState | None,
        typer.Option(case_sensitive=False, help="Only schedules in this state."),
    ] = None,
    job_type: Annotated[
        str | None, typer.Option("--type", help="Only schedules with jobs of this type.")
    ] = None,
    server: Annotated[
        int | None,
        typer.Option(min=1, max=LARGEST_ID, help="Only schedules with jobs on this server."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option("--query", "-q", help="Only schedules whose name contains this text."),
    ] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List the schedules, newest first. For example: automation org-jobs schedules list --org acme
    --state paused"""
    check_org(org)
    found = schedules(
        org=org,
        state=state,
        job_type=job_type,
        server=server,
        q=query,
        limit=limit + 1,
        offset=offset,
    )
    show_page(
        "schedules", found, SCHEDULE_COLUMNS.print, limit=limit, offset=offset, as_json=as_json
    )


@app.command()
def show(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Show one schedule: its state, next due time, last results and counters.

    For example: automation org-jobs schedules show 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d"""
    _show(schedule(str(schedule_id)), as_json=as_json)


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
    new cron counts from now: due times that have not been dispatched are dropped. If the file
    contains the `updatedAt` from `show`, the command fails when another user has changed the
    schedule since.

    For example: automation org-jobs schedules update 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --cron
    "30 3 * * *"
    """
    patch = changed_fields(file, flags.document())
    if flags.retry_policy:
        policy = schedule(str(schedule_id)).retry_policy
        stored = {} if policy is None else as_document(policy)
        patch["retryPolicy"] = {**stored, **flags.retry_policy}
    _show(change_schedule(str(schedule_id), patch), as_json=as_json)


@app.command()
def delete(schedule_id: ScheduleId, *, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a schedule. Its jobs stay, and running jobs continue.

    For example: automation org-jobs schedules delete 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --yes"""
    key = str(schedule_id)
    if not yes:
        confirm(f"Delete schedule {key}, {schedule(key).name}?", f"delete schedule {key}")
    remove_schedule(key)
    print_result({"id": key, "deleted": True}, f"Schedule {key} is deleted.", as_json=as_json)


@app.command()
def pause(
    schedule_id: ScheduleId,
    *,
    reason: Reason = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="ISO", help="Resume it automatically at this instant."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pause a schedule until it is resumed. A running job continues.

    For example: automation org-jobs schedules pause 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --reason
    "Disk is full" --until 2026-07-01T08:00:00Z"""
    end = None if until is None else read_instant("--until", until)
    paused = pause_stored_schedule(str(schedule_id), reason=reason, until=end)
    until_then = f" until {end:%Y-%m-%d %H:%M %Z}" if end else ""
    _print_change(paused, f"is paused{until_then}.", as_json=as_json)


@app.command()
def resume(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Resume a paused schedule. Due times during the pause are not run.

    For example: automation org-jobs schedules resume 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d"""
    resumed = resume_stored_schedule(str(schedule_id))
    _print_change(resumed, f"is {resumed.state}, due {next_due(resumed)}.", as_json=as_json)


@app.command("run-now")
def run_now(
    schedule_id: ScheduleId,
    *,
    payload: Payload = None,
    ignore_window: Annotated[
        bool,
        typer.Option("--ignore-window", help="Start now, even outside the execution window."),
    ] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Request a job of a schedule now, in addition to its due times; also for a paused schedule.

    For example: automation org-jobs schedules run-now 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --wait"""
    given = None if payload is None else read_payload(payload)
    created = run_stored_schedule(str(schedule_id), payload=given, ignore_window=ignore_window)
    if wait:
        wait_for_job(created.job_id, as_json=as_json)
        return
    if not as_json:
        say(
            f"Job {created.job_id} is requested: `automation org-jobs watch {created.job_id}` follows it."
        )
        return
    requested = job(created.job_id)
    print_json(
        {
            "job_id": str(created.job_id),
            "fire_id": str(created.fire_id),
            "schedule_id": str(schedule_id),
            "status": requested.status,
            "job": as_document(requested),
        }
    )


@app.command("skip-next")
def skip_next(schedule_id: ScheduleId, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Skip the next due time, with a reason; `keep-next` reverts it.

    For example: automation org-jobs schedules skip-next 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d
    --reason "Tournament"
    """
    changed = skip_next_due_time(str(schedule_id), reason)
    _print_change(changed, f"skips {next_due(changed)}.", as_json=as_json)


@app.command("keep-next")
def keep_next(schedule_id: ScheduleId, *, as_json: AsJson = False) -> None:
    """Undo `skip-next`: keep the next due time.

    For example: automation org-jobs schedules keep-next 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d"""
    changed = keep_next_due_time(str(schedule_id))
    _print_change(changed, f"is due {next_due(changed)} as planned.", as_json=as_json)


@app.command()
def backfill(
    schedule_id: ScheduleId,
    *,
    from_: Annotated[
        str, typer.Option("--from", metavar="ISO", help="The first instant of the period.")
    ],
    until: Annotated[
        str, typer.Option("--until", metavar="ISO", help="The last instant of the period.")
    ],
    behaviour: Annotated[
        Behaviour | None,
        typer.Option(
            "--behaviour",
            case_sensitive=False,
            help="Which decided due times are repeated.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            max=MOST_AT_ONCE,
            help="With more jobs than this, the command fails and creates none.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the jobs that would be created, and create none."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Request the jobs of a past period, one per due time. For example, as a dry run:

    automation org-jobs schedules backfill 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --from
    2026-05-01T00:00:00Z --until 2026-05-04T00:00:00Z --behaviour failed --dry-run"""
    given: dict[str, object] = {
        "from": iso(read_instant("--from", from_)),
        "until": iso(read_instant("--until", until)),
        "dryRun": dry_run,
        **compact(behaviour=behaviour, limit=limit),
    }
    show_one(backfill_stored_schedule(str(schedule_id), given), print_backfill, as_json=as_json)


@app.command("next")
def next_(
    schedule_id: ScheduleId,
    *,
    after: After = None,
    count: Count = DEFAULT_COUNT,
    as_json: AsJson = False,
) -> None:
    """List the next due times of a schedule, on its wall clock and in UTC, with the reason for each
    delay.

    For example: automation org-jobs schedules next 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --after
    2026-03-28T12:00:00Z"""
    start = None if after is None else read_instant("--after", after)
    _show_times(coming(str(schedule_id), count=count, after=start), as_json=as_json)


@app.command()
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
    """Check a schedule and show its due times. Nothing is stored.

    For example: automation org-jobs schedules preview --name Pings --type HTTPS_CALL --payload
    '{"url": "https://example.com/ping"}' --cron "30 2 * * *" --timezone Europe/Paris"""
    start = None if after is None else read_instant("--after", after)
    fields = given_fields(file, flags.document())
    _show_times(times_of(fields, org=org, count=count, after=start), as_json=as_json)


@app.command()
def fires(
    schedule_id: ScheduleId, *, limit: Limit = 20, after: AfterId = 0, as_json: AsJson = False
) -> None:
    """List the due times of a schedule with their jobs, or the reason why there is no job.

    For example: automation org-jobs schedules fires 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d --limit 50"""
    key = str(schedule_id)
    found = fires_of_schedule(key, limit=limit + 1, after=after)
    timezone = "UTC" if as_json else schedule(key).timezone
    show_page(
        "fires",
        found,
        lambda shown: print_fires(shown, timezone),
        limit=limit,
        as_json=as_json,
    )


@app.command()
def log(
    schedule_id: ScheduleId, *, limit: Limit = 50, after: AfterId = 0, as_json: AsJson = False
) -> None:
    """Show the changes of a schedule: who, when and why.

    For example: automation org-jobs schedules log 5f0c2a4e-8d0b-4c39-9d57-0f3a4f1c2b6d"""
    found = log_of_schedule(str(schedule_id), limit=limit + 1, after=after)
    show_page("log", found, ENTRIES.print, limit=limit, as_json=as_json)


def _show(found: OrgSchedule, *, as_json: bool) -> None:
    show_one(
        found,
        lambda one: print_schedule(one, fires_of_schedule(one.id, limit=LAST_FIRES)),
        as_json=as_json,
    )


def _print_change(changed: OrgSchedule, how: str, *, as_json: bool) -> None:
    sentence = f"Schedule {changed.id}, {changed.name}, {how}"
    print_result(as_document(changed), sentence, as_json=as_json)


def _show_times(found: SchedulePreview, *, as_json: bool) -> None:
    if as_json:
        occurrences = [iso_seconds(run.effective_for) for run in found.runs]
        print_json({"occurrences": occurrences, **as_document(found)})
        return
    say(f"{found.in_words} ({found.timezone}).")
    if found.note:
        say(found.note)
    if found.runs:
        screen.print()
        rows = [(run.local_time, minute(run.effective_for), run.note or "") for run in found.runs]
        print_fitted_table((found.timezone, "UTC", "note"), rows, texts={"note"})
