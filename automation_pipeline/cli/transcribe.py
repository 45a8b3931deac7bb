"""`automation transcribe`: ask for transcripts, and watch them come."""

import threading
from collections.abc import Mapping
from typing import Annotated

import typer

from automation_pipeline import bootstrap
from automation_pipeline.cli.arguments import check_fiche_ids
from automation_pipeline.cli.following import follow_transcriptions
from automation_pipeline.cli.output import AsJson, print_json, screen
from automation_pipeline.transcription.domain.requests import Requested
from automation_pipeline.transcription.domain.run import Priority, RunStatus, Standing
from automation_pipeline.transcription.stages.request_transcriptions import request_transcriptions


def transcribe(
    fiche_ids: Annotated[list[str], typer.Argument(help="The fiches' ids in the CRM.")],
    *,
    priority: Annotated[Priority, typer.Option(help="Who goes first among waiting recordings.")] = Priority.NORMAL,
    wait: Annotated[bool, typer.Option("--wait", help="Follow to the end; exit 1 unless all is transcribed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Transcribe the recordings of fiches that have no transcript yet. Dagster's daemon starts it within seconds."""
    check_fiche_ids(fiche_ids)
    services = bootstrap.services()
    requested = request_transcriptions(
        fiche_ids, priority=priority, batch=False, database=services.database, clock=services.clock
    )
    ended: Mapping[str, Standing] = {}
    if wait:
        ended = follow_transcriptions(requested, services, pause=threading.Event(), quiet=as_json)
    if as_json:
        print_json({"transcriptions": [_document(one, ended.get(one.fiche_id)) for one in requested]})
    elif not wait:
        for one in requested:
            screen.print(f"Fiche {one.fiche_id}: run {one.run_id}", highlight=False)
    if wait and not all(_is_whole(standing) for standing in ended.values()):
        raise typer.Exit(1)


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
