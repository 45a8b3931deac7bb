"""`automation runs`: what became of them, fiche by fiche; watch one, cancel it, or run again what failed."""

import threading
from collections.abc import Iterator
from typing import Annotated

import typer

from automation_pipeline.automation.domain.run import Run, RunStatus
from automation_pipeline.automation.domain.run_record import LogEntry
from automation_pipeline.automation.store.run_story import story_document
from automation_pipeline.cli import run_outcomes, run_report
from automation_pipeline.cli.desk.chosen import desk
from automation_pipeline.cli.desk.ports import Desk
from automation_pipeline.cli.following import POLL_SECONDS, watch_run
from automation_pipeline.cli.output import AsJson, consent, print_json, print_table, screen
from automation_pipeline.core.json_model import LARGEST_ID, as_document
from automation_pipeline.core.notes import LogLevel

app = typer.Typer(help="See what became of the runs; cancel one, or run again what failed.", no_args_is_help=True)
app.command("report")(run_report.report)

RunId = Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="The run's id, as `automation runs list` shows it.")]


@app.command("list")
def list_(
    *,
    schedule: Annotated[int | None, typer.Option(min=1, max=LARGEST_ID, help="Only the runs of this schedule.")] = None,
    status: Annotated[list[RunStatus] | None, typer.Option(help="Only runs that stand so; may be repeated.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 20,
    offset: Annotated[int, typer.Option(min=0, max=1_000_000_000, help="Leave out the newest so many.")] = 0,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first."""
    runs = desk().runs.listed(schedule_id=schedule, statuses=status or (), limit=limit, offset=offset)
    if as_json:
        print_json({"runs": [as_document(run) for run in runs]})
        return
    print_table(
        ("id", "schedule", "status", "started (UTC)", "seconds", "fiches", "ok", "failed", "ignored"),
        (
            (r.id, r.schedule_id, r.status, f"{r.started_at:%Y-%m-%d %H:%M}", run_outcomes.seconds_of(r),
             r.selected_fiches, r.successful_fiches, r.failed_fiches, r.ignored_fiches)
            for r in runs
        ),
    )  # fmt: skip


@app.command()
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show one run: how it stands, what it chose, and the outcome of every fiche."""
    story = desk().runs.story(run_id)
    if as_json:
        print_json(story_document(story))
    else:
        run_outcomes.show(story)


@app.command()
def logs(
    run_id: RunId,
    *,
    level: Annotated[LogLevel, typer.Option(help="Leave out what is less urgent.")] = LogLevel.DEBUG,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the run wrote down, oldest first."""
    rows = _written(run_id, level, desk(), follow=follow)
    if as_json:
        print_json({"logs": [as_document(row) for row in rows]})
        return
    for row in rows:
        screen.print(f"{row.timestamp:%H:%M:%S}  {row.level:<7}  {row.message}", highlight=False, markup=False)


@app.command()
def watch(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Follow a run to its end, phase by phase; exit 1 unless it ends completed or partial."""
    _watch(run_id, desk(), as_json=as_json)


@app.command()
def cancel(
    run_id: RunId,
    *,
    reason: Annotated[str | None, typer.Option(help="Why; it stays with the run.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Cancel a run that waits or works: its unfinished fiches are ignored. Dagster stops within seconds."""
    our = desk()
    is_over = our.runs.get(run_id).completed_at is not None
    if not (yes or is_over or consent(f"Cancel run {run_id}?", f"cancel run {run_id}")):
        typer.echo(f"Run {run_id} goes on.", err=True)
        raise typer.Exit(1)
    run = our.runs.cancel(run_id, reason)
    if as_json:
        print_json({"run_id": str(run.id), "status": run.status, "error": run.error_message})
    else:
        _say(
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
    """Ask for a new run over the fiches that this one failed on or, if it was cancelled, did not finish."""
    our = desk()
    run = our.runs.retry(run_id)
    if wait:
        _watch(run.id, our, as_json=as_json)
    elif as_json:
        print_json({"run_id": str(run.id), "retry_of_run_id": str(run_id), **_where(run)})
    else:
        _say(
            f"Run {run.id} is requested, for what failed in run {run_id}: `automation runs watch {run.id}` follows it."
        )


def _watch(run_id: int, our: Desk, *, as_json: bool) -> None:
    run = watch_run(run_id, our, pause=threading.Event(), quiet=as_json)
    story = our.runs.story(run_id)
    if as_json:
        print_json({"run_id": str(run_id), **story_document(story)})
    else:
        run_outcomes.show(story)
    if run.status not in {RunStatus.COMPLETED, RunStatus.PARTIAL}:
        raise typer.Exit(1)


def _written(run_id: int, level: LogLevel, our: Desk, *, follow: bool) -> Iterator[LogEntry]:
    """Each row once; with `follow` those too that the run is still to write."""
    seen, pause = 0, threading.Event()
    while True:
        is_over = our.runs.get(run_id).completed_at is not None
        rows = our.runs.logs(run_id, level, seen)
        yield from rows
        if is_over or not follow:
            return
        seen = rows[-1].id if rows else seen
        pause.wait(POLL_SECONDS)


def _where(run: Run) -> dict[str, str]:
    return {"schedule_id": str(run.schedule_id), "status": run.status}


def _say(sentence: str) -> None:
    screen.print(sentence, markup=False, highlight=False)
