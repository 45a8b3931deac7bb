"""`automation transcribe`: ask for transcripts, and watch them come."""

import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, cast

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from automation_pipeline import bootstrap
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.output import AsJson, print_json, screen
from automation_pipeline.core.errors import InvalidInputError, PermanentError
from automation_pipeline.storage.run_requests import refusals
from automation_pipeline.transcription.domain.requests import Requested
from automation_pipeline.transcription.domain.run import Priority, RunStatus, Standing
from automation_pipeline.transcription.stages.request_transcriptions import request_transcriptions
from automation_pipeline.transcription.store.runs import standings

POLL_SECONDS = 0.5


def transcribe(
    fiche_ids: Annotated[list[str], typer.Argument(help="The fiches' ids in the CRM.")],
    *,
    priority: Annotated[Priority, typer.Option(help="Who goes first among waiting recordings.")] = Priority.NORMAL,
    wait: Annotated[bool, typer.Option("--wait", help="Follow to the end; exit 1 unless all is transcribed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Transcribe the recordings of fiches that have no transcript yet. Dagster's daemon starts it within seconds."""
    wrong = [fiche_id for fiche_id in fiche_ids if not fiche_id.isdecimal()]
    if wrong:
        raise InvalidInputError(f"A fiche id is a number, unlike {', '.join(wrong)}.")
    services = bootstrap.services()
    requested = request_transcriptions(
        fiche_ids, priority=priority, batch=False, database=services.database, clock=services.clock
    )
    ended: Mapping[str, Standing] = _follow(requested, services, quiet=as_json) if wait else {}
    if as_json:
        print_json({"transcriptions": [_document(one, ended.get(one.run_id or "")) for one in requested]})
    elif not wait:
        for one in requested:
            screen.print(f"Fiche {one.fiche_id}: run {one.run_id}", highlight=False)
    if wait and not all(_is_whole(standing) for standing in ended.values()):
        raise typer.Exit(1)


def _follow(requested: Sequence[Requested], services: Services, *, quiet: bool) -> Mapping[str, Standing]:
    """Ctrl-C stops the watching, not the work."""
    run_ids = [cast("str", one.run_id) for one in requested]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    pause = threading.Event()
    with Progress(*columns, console=screen, disable=quiet) as progress:
        bars = {one.run_id: progress.add_task(f"fiche {one.fiche_id}: waiting", total=None) for one in requested}
        while True:
            with services.database.reading() as session:
                now = {standing.run_id: standing for standing in standings(session, run_ids)}
                refused = refusals(session, [one.key for one in requested if one.key])
            for run_id, standing in now.items():
                label = f"fiche {standing.fiche_id}: {standing.status}"
                progress.update(bars[run_id], description=label, completed=standing.transcribed, total=standing.total)
            if refused:
                raise PermanentError(next(iter(refused.values())))
            if len(now) == len(run_ids) and all(one.status is not RunStatus.RUNNING for one in now.values()):
                return now
            pause.wait(POLL_SECONDS)


def _is_whole(standing: Standing) -> bool:
    return standing.status is RunStatus.COMPLETED and standing.failed == 0


def _document(one: Requested, standing: Standing | None) -> dict[str, object]:
    document: dict[str, object] = {"fiche_id": one.fiche_id, "run_id": one.run_id}
    if standing is not None:
        document |= {
            "status": standing.status,
            "recordings": standing.total,
            "transcribed": standing.transcribed,
            "failed": standing.failed,
        }
    return document
