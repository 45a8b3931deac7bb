"""Follow a run to its end, with a bar for a person to watch."""

import threading

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from automation_pipeline.automation.domain.run import Run, Tally
from automation_pipeline.automation.store.ledger import tally
from automation_pipeline.automation.store.runs import get_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.output import screen

POLL_SECONDS = 0.5


def follow_run(run_id: int, services: Services, *, pause: threading.Event, quiet: bool) -> Run:
    """The ended run. Waits as long as it takes; Ctrl-C stops the watching, not the run."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen, disable=quiet) as progress:
        bar = progress.add_task(f"run {run_id}: waiting for Dagster", total=None)
        while True:
            run, standing = _look(run_id, services)
            ended = standing.successful + standing.failed + standing.ignored
            label = f"run {run_id}: {run.phase or run.status}"
            progress.update(bar, description=label, completed=ended, total=standing.selected or None)
            if run.completed_at is not None:
                return run
            pause.wait(POLL_SECONDS)


def _look(run_id: int, services: Services) -> tuple[Run, Tally]:
    with services.database.reading() as session:
        run = get_run(session, run_id)
        return run, tally(session, run_id, run.selected_fiches)
