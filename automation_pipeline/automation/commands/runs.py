"""`automation runs`: list, show, follow, cancel, retry."""

import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.text import Text

from automation_pipeline.automation.commands.report import run_page
from automation_pipeline.automation.models.runs import (
    FicheOutcome,
    LogEntry,
    OutcomeStatus,
    Phase,
    Run,
    RunFilter,
    RunNotification,
    RunStatus,
)
from automation_pipeline.automation.queries.ledger import outcomes_within
from automation_pipeline.automation.queries.reports import parse_report, report_document, run_report
from automation_pipeline.automation.queries.run_details import (
    RunDetails,
    RunProgress,
    find_runs,
    logs_after,
    run_details,
)
from automation_pipeline.automation.runs import cancel_run, manual_run_key, retry_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli import progress
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.operations import Document, every, operation
from automation_pipeline.cli.output import (
    AsJson,
    Columns,
    consent,
    minute,
    one_line,
    print_facts,
    print_json,
    print_result,
    say,
    second,
)
from automation_pipeline.cli.progress import LaunchWait, progress_bars
from automation_pipeline.core.access import EVERYTHING
from automation_pipeline.core.errors import InvalidInputError, NotFoundError, PermanentError
from automation_pipeline.core.events import LogLevel
from automation_pipeline.core.files import write_whole
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.core.settings import load_settings
from automation_pipeline.storage.database import Session

app = command_group("Show runs; cancel one, or retry its failed fiches.")

COLOURS = {
    OutcomeStatus.SUCCESSFUL: "green",
    OutcomeStatus.FAILED: "red",
    OutcomeStatus.IGNORED: "yellow",
    OutcomeStatus.PENDING: "cyan",
}
MAX_NAMED = 5
PATH = "/api/automation/runs"

RunId = Annotated[
    int,
    typer.Argument(min=1, max=LARGEST_ID, help="The run's id, as `automation runs list` shows it."),
]


@operation("GET /api/automation[/schedules/{schedule_id}]/runs")
def runs(
    session: Session,
    schedule_id: int | None,
    *,
    status: Sequence[RunStatus],
    limit: int,
    offset: int,
) -> Sequence[Run]:
    return find_runs(session, RunFilter(schedule_id, status), limit=limit, offset=offset)


@operation(f"GET {PATH}/{{run_id}}")
def get_run(session: Session, run_id: int) -> RunDetails:
    return run_details(session, run_id)


@operation(f"GET {PATH}/{{run_id}}/fiches")
def fiches_of(session: Session, run_id: int, *, limit: int, offset: int) -> Sequence[FicheOutcome]:
    return outcomes_within(session, run_id, EVERYTHING, status=None, limit=limit, offset=offset)


@operation(f"GET {PATH}/{{run_id}}/logs")
def logs_of(
    session: Session, run_id: int, *, level: LogLevel, after: int, limit: int
) -> Sequence[LogEntry]:
    return logs_after(session, run_id, after, level, limit=limit)


@operation(f"GET {PATH}/{{run_id}}/report")
def get_report(session: Session, run_id: int) -> Document:
    return report_document(run_report(session, run_id))


@operation(f"POST {PATH}/{{run_id}}/cancel")
def end_run(services: Services, run_id: int, reason: str | None) -> Run:
    return cancel_run(run_id, reason=reason, database=services.database, clock=services.clock)


@dataclass(frozen=True)
class Retry:
    run_id: int
    schedule_id: int


@operation(f"POST {PATH}/{{run_id}}/retry")
def file_retry(services: Services, run_id: int) -> Retry:
    run = retry_run(run_id, database=services.database, clock=services.clock)
    return Retry(run.id, run.schedule_id)


@app.command()
def report(
    run_id: RunId,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file for the page; `-`: standard output.",
            show_default="reports folder",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one page about a run: its counters, why fiches failed, the results of its audits and
    their quotations."""
    page = run_page(parse_report(get_report(run_id)))
    if str(output) == "-":
        sys.stdout.write(page)
        return
    path = output or Path(load_settings().automation_reports_dir) / f"run-{run_id}.html"
    try:
        write_whole(path, page.encode())
    except PermanentError as error:
        raise InvalidInputError(str(error)) from None
    document = {"runId": str(run_id), "file": str(path)}
    print_result(document, f"The report of run {run_id} is {path}.", as_json=as_json)


@app.command("list")
def list_(
    *,
    schedule: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Only the runs of this schedule.")
    ] = None,
    status: Annotated[
        list[RunStatus] | None, typer.Option(help="Only runs with this status; may be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 20,
    offset: Annotated[
        int, typer.Option(min=0, max=1_000_000_000, help="Skip the newest rows.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first."""
    try:
        found = runs(schedule, status=status or (), limit=limit, offset=offset)
    except NotFoundError:  # this command treats an unknown schedule as one without runs
        found = list[Run]()
    if as_json:
        print_json({"runs": [as_document(run) for run in found]})
    else:
        RUNS.print(found)


@app.command()
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show one run: its status, its selection, and the outcome of every fiche."""
    _show(get_run(run_id), as_json=as_json)


@app.command()
def logs(
    run_id: RunId,
    *,
    level: Annotated[LogLevel, typer.Option(help="The lowest level to show.")] = LogLevel.DEBUG,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue until the run has ended.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the log of a run, oldest first."""
    lines = _log_lines(run_id, level, follow=follow)
    if as_json:
        print_json({"logs": [as_document(line) for line in lines]})
        return
    for line in lines:
        say(f"{line.timestamp:%H:%M:%S}  {line.level:<7}  {line.message}")


@app.command()
def watch(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Follow a run to its end, phase by phase; exit 1 unless it ends completed or partial."""
    _watch(run_id, as_json=as_json)


@app.command()
def cancel(
    run_id: RunId,
    *,
    reason: Annotated[
        str | None, typer.Option(help="The reason, which is stored with the run.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Cancel a waiting or active run; its unfinished fiches are ignored. Dagster stops within
    seconds."""
    is_over = get_run(run_id).completed_at is not None
    if not (yes or is_over or consent(f"Cancel run {run_id}?", f"cancel run {run_id}")):
        typer.echo(f"Run {run_id} continues.", err=True)
        raise typer.Exit(1)
    run = end_run(run_id, reason)
    print_result(
        {"run_id": str(run.id), "status": run.status, "error": run.error_message},
        f"Run {run_id} is cancelled: {run.successful_fiches} fiches were done, {run.failed_fiches} failed, "
        f"{run.ignored_fiches} are ignored.",
        as_json=as_json,
    )


@app.command()
def retry(
    run_id: RunId,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the new run to its end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Request a new run over the fiches that failed in this run or, if it was cancelled, did not
    finish."""
    filed = file_retry(run_id)
    if wait:
        _watch(filed.run_id, as_json=as_json)
        return
    print_result(
        {
            "run_id": str(filed.run_id),
            "retry_of_run_id": str(run_id),
            "schedule_id": str(filed.schedule_id),
            "status": get_run(filed.run_id).status,
        },
        f"Run {filed.run_id} is requested, for the failed fiches of run {run_id}: "
        f"`automation runs watch {filed.run_id}` follows it.",
        as_json=as_json,
    )


def _watch(run_id: int, *, as_json: bool) -> None:
    run = watch_run(run_id, quiet=as_json, waits=LaunchWait([manual_run_key(run_id)]))
    _show(run, as_json=as_json, run_id=str(run_id))
    if not is_good(run):
        raise typer.Exit(1)


def _show(run: RunDetails, *, as_json: bool, **first: object) -> None:
    fiches = list(every(fiches_of, by="offset", run_id=run.id))
    if as_json:
        print_json({**first, **as_document(run), "fiches": [*map(as_document, fiches)]})
    else:
        print_run(run, fiches)


def is_good(run: Run) -> bool:
    return run.status in {RunStatus.COMPLETED, RunStatus.PARTIAL}


def watch_run(run_id: int, *, quiet: bool, waits: LaunchWait) -> RunDetails:
    """Follow a run with a bar per phase, and return the ended run."""
    continues = f"Run {run_id} continues. `automation runs show {run_id}` shows its status."
    run = get_run(run_id)
    with progress_bars(continues, quiet=quiet) as bars:
        tasks = [bars.add_task("waiting for Dagster", total=None)]
        while True:
            for number, (label, done, total) in enumerate(phase_bars(run, run.progress)):
                if number == len(tasks):
                    tasks.append(bars.add_task(label, total=None))
                bars.update(tasks[number], description=label, completed=done, total=total)
            if run.completed_at is not None:
                return run
            waits.pause(has_started=run.status is not RunStatus.PENDING)
            run = get_run(run_id)


def phase_bars(run: Run, done: RunProgress) -> list[tuple[str, int, int | None]]:
    """The label of each phase, the number of its processed fiches, and the total, or None while it
    is unknown."""
    if run.phase is None:
        return []
    is_selected = run.phase is not Phase.SELECTION or run.completed_at is not None
    selected = run.selected_fiches if is_selected else None
    to_work = done.to_work if done.to_work or run.completed_at else None
    return [
        ("selection", selected or 0, selected),
        ("fetching", done.fetched, selected),
        ("transcribing", done.transcribed, to_work),
        (f"auditing ({done.audits} audits)", done.audited, to_work),
    ]


def _log_lines(run_id: int, level: LogLevel, *, follow: bool) -> Iterator[LogEntry]:
    """Each line once; with `follow`, also the lines that the run has not written yet."""
    last_id = 0
    while True:
        is_over = get_run(run_id).completed_at is not None
        for line in every(logs_of, start=last_id, run_id=run_id, level=level):
            yield line
            last_id = line.id
        if is_over or not follow:
            return
        progress.pause()


def print_run(run: RunDetails, fiches: Sequence[FicheOutcome]) -> None:
    origin = "" if run.retry_of_run_id is None else f" of run {run.retry_of_run_id}"
    # The last phase is too short to show.
    phases = [one for one in run.phases if one.phase is not Phase.FINALIZING]
    done = run.progress
    is_active = run.phase is not None and run.completed_at is None
    status = f"{run.status} ({run.phase})" if is_active else run.status
    print_facts(
        {
            "run": f"{run.id} of schedule {run.schedule_id}, {run.trigger}{origin}",
            "status": status,
            "attempt": run.attempt,
            "queued": second(run.started_at),
            "began": second(run.began_at),
            "ended": second(run.completed_at),
            "seconds": _seconds(run),
            "time": ", ".join(f"{one.phase} {one.seconds:.1f} s" for one in phases) or None,
            "fiches": _conservation(run),
            "work": f"{done.fetched} fetched, {done.transcribed} transcribed, "
            f"{done.audited} audited by {done.audits} audits",
            "error": run.error_message and Text(run.error_message, "red"),
            "dagster run": run.dagster_run_id,
            # `unread_days` is shown among the errors of the run.
            **_detail_lines("selection", run.selection_summary, {"revalidation_failures"}),
            **_detail_lines("errors", run.error_details),
            **{f"{status} because": _brief(reasons) for status, reasons in run.reasons.items()},
        }
    )
    if run.notifications:
        NOTIFICATIONS.print(run.notifications)
    if fiches:
        OUTCOMES.print(fiches)


def _conservation(run: Run) -> str | Text:
    """Every selected fiche ends exactly once; a run that breaks this law has a bug and is shown in
    red."""
    chosen = f"{run.selected_fiches} selected"
    if run.completed_at is None:
        return chosen
    ended = run.successful_fiches + run.failed_fiches + run.ignored_fiches
    counts = f"{run.successful_fiches} successful + {run.failed_fiches} failed + {run.ignored_fiches} ignored"
    if ended == run.selected_fiches:
        return f"{chosen} = {counts}"
    return Text(f"{chosen}, and not {ended} = {counts}", "red")


def _seconds(run: Run) -> str | None:
    return None if run.duration_ms is None else f"{run.duration_ms / 1000:.1f}"


def _detail_lines(
    title: str, details: Mapping[str, object] | None, without: Set[str] = frozenset()
) -> dict[str, str]:
    return {
        f"{title} {name.replace('_', ' ')}": words
        for name, value in (details or {}).items()
        if name not in without and (words := one_line(_brief(value)))
    }


def _brief(value: object) -> str:
    """JSON in one line, without empty values. For a long list: its length and first entries."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return ", ".join(f"{name} {_brief(entry)}" for name, entry in entries if entry)
    if isinstance(value, list):
        listed = cast("Sequence[object]", value)
        named = "; ".join(_brief(entry) for entry in listed[:MAX_NAMED])
        return f"{len(listed)}: {named}; ..." if len(listed) > MAX_NAMED else named
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


RUNS = Columns[Run](
    {
        "id": lambda run: run.id,
        "schedule": lambda run: run.schedule_id,
        "status": lambda run: run.status,
        "started (UTC)": lambda run: minute(run.started_at),
        "seconds": _seconds,
        "fiches": lambda run: run.selected_fiches,
        "ok": lambda run: run.successful_fiches,
        "failed": lambda run: run.failed_fiches,
        "ignored": lambda run: run.ignored_fiches,
    }
)
NOTIFICATIONS = Columns[RunNotification](
    {
        "notified by": lambda one: one.channel,
        "receiver": lambda one: one.target,
        "delivery": lambda one: one.status,
        "attempts": lambda one: one.attempts,
        "error": lambda one: one.last_error,
    }
)
OUTCOMES = Columns[FicheOutcome](
    {
        "fiche": lambda one: one.fiche_id,
        "outcome": lambda one: Text(one.status, COLOURS[one.status]),
        "recordings": lambda one: one.recordings_count,
        "reason": lambda one: one.reason,
        "why": lambda one: one.error or one.ignore_reason,
    }
)
