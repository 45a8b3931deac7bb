"""`automation runs`: list, show, follow, cancel, retry."""

import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Annotated, cast

import typer
from rich.text import Text

from automation_pipeline.automation.commands import report_page as run_report
from automation_pipeline.automation.models.runs import (
    FicheOutcome,
    LogEntry,
    OutcomeStatus,
    Phase,
    PhaseLength,
    Run,
    RunFilter,
    RunNotification,
    RunStatus,
)
from automation_pipeline.automation.queries.run_details import RunDetails, run_details_document
from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.ports import Client
from automation_pipeline.cli.groups import command_group
from automation_pipeline.cli.output import (
    AsJson,
    consent,
    one_line,
    print_facts,
    print_json,
    print_table,
    screen,
)
from automation_pipeline.cli.progress import POLL_SECONDS, watch_run
from automation_pipeline.core.events import LogLevel
from automation_pipeline.core.json_model import LARGEST_ID, as_document

COLOURS = {
    OutcomeStatus.SUCCESSFUL: "green",
    OutcomeStatus.FAILED: "red",
    OutcomeStatus.IGNORED: "yellow",
    OutcomeStatus.PENDING: "cyan",
}
MAX_NAMED = 5
# What a bug leaves behind is for those who read the database.
HIDDEN_DETAILS = {"stack"}
# The days that the CRM did not give are told as the run's trouble.
SHOWN_ELSEWHERE = {"revalidation_failures"}


def print_run(story: RunDetails) -> None:
    run = story.run
    print_facts(
        {
            "run": f"{run.id} of schedule {run.schedule_id}, {run.trigger}{_origin(run)}",
            "status": f"{run.status} ({run.phase})" if run.phase else run.status,
            "attempt": run.attempt,
            "queued": f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC",
            "began": run.began_at and f"{run.began_at:%Y-%m-%d %H:%M:%S} UTC",
            "ended": run.completed_at and f"{run.completed_at:%Y-%m-%d %H:%M:%S} UTC",
            "seconds": seconds_of(run),
            "time": _time(story.phases),
            "fiches": conservation(run),
            "work": _work(story),
            "error": run.error_message and Text(run.error_message, "red"),
            "dagster run": run.dagster_run_id,
            **{
                f"selection {name}": words
                for name, words in _detail_lines(run.selection_summary, SHOWN_ELSEWHERE)
            },
            **{f"trouble {name}": words for name, words in _detail_lines(run.error_details)},
            **{f"{status} because": _counts(reasons) for status, reasons in story.reasons.items()},
        }
    )
    _print_notifications(story.notifications)
    print_outcomes(story)


def print_outcomes(story: RunDetails) -> None:
    """A row a fiche, in the order of selection; nothing where nothing is selected."""
    if story.fiches:
        print_table(
            ("fiche", "outcome", "recordings", "reason", "why"), map(_outcome, story.fiches)
        )


def conservation(run: Run) -> str | Text:
    """The law that every selected fiche has ended once; a run that breaks it is a bug, and red."""
    chosen = f"{run.selected_fiches} selected"
    if run.completed_at is None:
        return chosen
    ended = run.successful_fiches + run.failed_fiches + run.ignored_fiches
    counts = f"{run.successful_fiches} successful + {run.failed_fiches} failed + {run.ignored_fiches} ignored"
    if ended == run.selected_fiches:
        return f"{chosen} = {counts}"
    return Text(f"{chosen}, and not {ended} = {counts}", "red")


def seconds_of(run: Run) -> str | None:
    return None if run.duration_ms is None else f"{run.duration_ms / 1000:.1f}"


def _origin(run: Run) -> str:
    return "" if run.retry_of_run_id is None else f" of run {run.retry_of_run_id}"


def _time(phases: Sequence[PhaseLength]) -> str | None:
    """Where it went; to end a run takes none worth telling."""
    told = [length for length in phases if length.phase is not Phase.FINALIZING]
    return ", ".join(f"{length.phase} {length.seconds:.1f} s" for length in told) or None


def _work(story: RunDetails) -> str:
    done = story.progress
    return f"{done.fetched} fetched, {done.transcribed} transcribed, {done.audited} audited by {done.audits} audits"


def _counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in reasons.items())


def _detail_lines(
    details: Mapping[str, object] | None, without: Set[str] = HIDDEN_DETAILS
) -> Iterator[tuple[str, str]]:
    return (
        (name.replace("_", " "), words)
        for name, value in (details or {}).items()
        if name not in without and (words := one_line(_brief(value)))
    )


def _brief(value: object) -> str:
    """JSON in a line, without what says nothing. A long list is counted, and its first entries
    stand for it."""
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


def _print_notifications(rows: Sequence[RunNotification]) -> None:
    if rows:
        print_table(
            ("notified by", "receiver", "delivery", "attempts", "trouble"),
            ((row.channel, row.target, row.status, row.attempts, row.last_error) for row in rows),
        )


def _outcome(fiche: FicheOutcome) -> tuple[object, ...]:
    why = fiche.error or fiche.ignore_reason
    return (
        fiche.fiche_id,
        Text(fiche.status, COLOURS[fiche.status]),
        fiche.recordings_count,
        fiche.reason,
        why,
    )


app = command_group("See what became of the runs; cancel one, or run again what failed.")
app.command("report")(run_report.report)

RunId = Annotated[
    int,
    typer.Argument(min=1, max=LARGEST_ID, help="The run's id, as `automation runs list` shows it."),
]


@app.command("list")
def list_(
    *,
    schedule: Annotated[
        int | None, typer.Option(min=1, max=LARGEST_ID, help="Only the runs of this schedule.")
    ] = None,
    status: Annotated[
        list[RunStatus] | None, typer.Option(help="Only runs that stand so; may be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 20,
    offset: Annotated[
        int, typer.Option(min=0, max=1_000_000_000, help="Leave out the newest so many.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first."""
    chosen = RunFilter(schedule, status or ())
    runs = open_client().runs.listed(chosen, limit=limit, offset=offset)
    if as_json:
        print_json({"runs": [as_document(run) for run in runs]})
        return
    print_table(
        ("id", "schedule", "status", "started (UTC)", "seconds", "fiches", "ok", "failed", "ignored"),
        (
            (r.id, r.schedule_id, r.status, f"{r.started_at:%Y-%m-%d %H:%M}", seconds_of(r),
             r.selected_fiches, r.successful_fiches, r.failed_fiches, r.ignored_fiches)
            for r in runs
        ),
    )  # fmt: skip


@app.command()
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show one run: how it stands, what it chose, and the outcome of every fiche."""
    story = open_client().runs.story(run_id)
    if as_json:
        print_json(run_details_document(story))
    else:
        print_run(story)


@app.command()
def logs(
    run_id: RunId,
    *,
    level: Annotated[
        LogLevel, typer.Option(help="Leave out what is less urgent.")
    ] = LogLevel.DEBUG,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the run wrote down, oldest first."""
    rows = _log_lines(run_id, level, open_client(), follow=follow)
    if as_json:
        print_json({"logs": [as_document(row) for row in rows]})
        return
    for row in rows:
        screen.print(
            f"{row.timestamp:%H:%M:%S}  {row.level:<7}  {row.message}",
            highlight=False,
            markup=False,
        )


@app.command()
def watch(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Follow a run to its end, phase by phase; exit 1 unless it ends completed or partial."""
    _watch(run_id, open_client(), as_json=as_json)


@app.command()
def cancel(
    run_id: RunId,
    *,
    reason: Annotated[str | None, typer.Option(help="Why; it stays with the run.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Cancel a run that waits or works: its unfinished fiches are ignored. Dagster stops within
    seconds."""
    client = open_client()
    is_over = client.runs.get(run_id).completed_at is not None
    if not (yes or is_over or consent(f"Cancel run {run_id}?", f"cancel run {run_id}")):
        typer.echo(f"Run {run_id} goes on.", err=True)
        raise typer.Exit(1)
    run = client.runs.cancel(run_id, reason)
    if as_json:
        print_json({"run_id": str(run.id), "status": run.status, "error": run.error_message})
    else:
        _print_sentence(
            f"Run {run_id} is cancelled: {run.successful_fiches} fiches were done, {run.failed_fiches} failed, "
            f"{run.ignored_fiches} are ignored."
        )


@app.command()
def retry(
    run_id: RunId,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the new run to its end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask for a new run over the fiches that this one failed on or, if it was cancelled, did not
    finish."""
    client = open_client()
    run = client.runs.retry(run_id)
    if wait:
        _watch(run.id, client, as_json=as_json)
    elif as_json:
        print_json({"run_id": str(run.id), "retry_of_run_id": str(run_id), **_where(run)})
    else:
        _print_sentence(
            f"Run {run.id} is requested, for what failed in run {run_id}: `automation runs watch {run.id}` follows it."
        )


def _watch(run_id: int, client: Client, *, as_json: bool) -> None:
    run = watch_run(run_id, client, pause=threading.Event(), quiet=as_json)
    story = client.runs.story(run_id)
    if as_json:
        print_json({"run_id": str(run_id), **run_details_document(story)})
    else:
        print_run(story)
    if run.status not in {RunStatus.COMPLETED, RunStatus.PARTIAL}:
        raise typer.Exit(1)


def _log_lines(run_id: int, level: LogLevel, client: Client, *, follow: bool) -> Iterator[LogEntry]:
    """Each row once; with `follow` those too that the run is still to write."""
    seen, pause = 0, threading.Event()
    while True:
        is_over = client.runs.get(run_id).completed_at is not None
        rows = client.runs.logs(run_id, level, seen)
        yield from rows
        if is_over or not follow:
            return
        seen = rows[-1].id if rows else seen
        pause.wait(POLL_SECONDS)


def _where(run: Run) -> dict[str, str]:
    return {"schedule_id": str(run.schedule_id), "status": run.status}


def _print_sentence(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)
