"""`automation runs`: what became of them, fiche by fiche."""

from typing import Annotated

import typer
from rich.text import Text

from automation_pipeline import bootstrap
from automation_pipeline.automation.domain.run import FicheOutcome, OutcomeStatus, Run
from automation_pipeline.automation.store.ledger import outcomes
from automation_pipeline.automation.store.runs import get_run, list_runs, run_logs
from automation_pipeline.automation.tables import LogRow
from automation_pipeline.cli.output import AsJson, as_document, print_facts, print_json, print_table, screen
from automation_pipeline.core.json_model import LARGEST_ID

app = typer.Typer(help="See what became of the runs.", no_args_is_help=True)

RunId = Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="The run's id, as `automation runs list` shows it.")]
COLOURS = {
    OutcomeStatus.SUCCESSFUL: "green",
    OutcomeStatus.FAILED: "red",
    OutcomeStatus.IGNORED: "yellow",
    OutcomeStatus.PENDING: "cyan",
}


@app.command("list")
def list_(
    *,
    schedule: Annotated[int | None, typer.Option(min=1, max=LARGEST_ID, help="Only the runs of this schedule.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 20,
    offset: Annotated[int, typer.Option(min=0, max=1_000_000_000, help="Leave out the newest so many.")] = 0,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest first."""
    with bootstrap.services().database.reading() as session:
        runs = list_runs(session, schedule_id=schedule, limit=limit, offset=offset)
    if as_json:
        print_json({"runs": [as_document(run) for run in runs]})
        return
    print_table(
        ("id", "schedule", "status", "started (UTC)", "seconds", "fiches", "ok", "failed", "ignored"),
        (
            (r.id, r.schedule_id, r.status, f"{r.started_at:%Y-%m-%d %H:%M}", _seconds(r),
             r.selected_fiches, r.successful_fiches, r.failed_fiches, r.ignored_fiches)
            for r in runs
        ),
    )  # fmt: skip


@app.command()
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show one run: how it stands, and the outcome of every fiche."""
    with bootstrap.services().database.reading() as session:
        run, fiches = get_run(session, run_id), outcomes(session, run_id)
    if as_json:
        print_json({**as_document(run), "fiches": [as_document(fiche) for fiche in fiches]})
        return
    counts = f" = {run.successful_fiches} successful + {run.failed_fiches} failed + {run.ignored_fiches} ignored"
    print_facts(
        {
            "run": f"{run.id} of schedule {run.schedule_id}, {run.trigger}",
            "status": f"{run.status} ({run.phase})" if run.phase else run.status,
            "attempt": run.attempt,
            "started": f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC",
            "seconds": _seconds(run),
            "fiches": f"{run.selected_fiches} selected{counts if run.completed_at else ''}",
            "error": run.error_message,
            "dagster run": run.dagster_run_id,
        }
    )
    if fiches:
        print_table(("fiche", "outcome", "recordings", "why"), (_outcome(fiche) for fiche in fiches))


@app.command()
def logs(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show what the run wrote down, oldest first."""
    with bootstrap.services().database.reading() as session:
        get_run(session, run_id)
        rows = run_logs(session, run_id)
    if as_json:
        print_json({"logs": [_log(row) for row in rows]})
        return
    for row in rows:
        screen.print(f"{row.timestamp:%H:%M:%S}  {row.level:<7}  {row.message}", highlight=False, markup=False)


def _log(row: LogRow) -> dict[str, object]:
    return {
        "timestamp": row.timestamp.isoformat(),
        "level": row.level,
        "message": row.message,
        "metadata": row.details,
    }


def _seconds(run: Run) -> str | None:
    return None if run.duration_ms is None else f"{run.duration_ms / 1000:.1f}"


def _outcome(fiche: FicheOutcome) -> tuple[object, ...]:
    colour = COLOURS[fiche.status]
    why = fiche.error or fiche.ignore_reason
    return (fiche.fiche_id, Text(fiche.status, colour), fiche.recordings_count, why)
