"""`automation transcribe`: request transcripts and follow them."""

import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

import typer

from automation_pipeline.cli.client.base import open_client
from automation_pipeline.cli.client.ports import NeverStarted
from automation_pipeline.cli.output import AsJson, check_fiche_ids, print_json, print_table, screen
from automation_pipeline.cli.progress import Here, Timeout, follow_transcriptions, follows, waiting
from automation_pipeline.core.errors import RequestFailedError
from automation_pipeline.transcription.models import (
    RequestedTranscription,
    TranscriptionPriority,
    TranscriptionStatus,
    TranscriptionSummary,
)

EndedTranscription: TypeAlias = TranscriptionSummary | NeverStarted


def transcribe(
    fiche_ids: Annotated[list[str], typer.Argument(help="The fiches' ids in the CRM.")],
    *,
    priority: Annotated[
        TranscriptionPriority, typer.Option(help="Who goes first among waiting recordings.")
    ] = TranscriptionPriority.NORMAL,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow to the end; exit 1 unless all is transcribed.")
    ] = False,
    timeout: Timeout = None,
    here: Here = False,
    as_json: AsJson = False,
) -> None:
    """Transcribe the recordings of fiches that have no transcript yet. Dagster's daemon starts it
    within seconds.

    What is asked for goes on without this command. `automation fiches show FICHE_ID` tells how its
    calls stand.
    """
    check_fiche_ids(fiche_ids)
    wait = follows("transcribe", wait=wait, timeout=timeout, here=here)
    client = open_client()
    requested = client.transcriptions.request(fiche_ids, priority)
    ended: Mapping[str, EndedTranscription] = {}
    if wait:
        keys = [request.key for request in requested if request.key]
        with waiting(client, keys, timeout=timeout, here=here) as waits:
            ended = follow_transcriptions(
                requested, client, pause=threading.Event(), quiet=as_json, waits=waits
            )
    if as_json:
        print_json(
            {
                "transcriptions": [
                    _document(request, ended.get(request.fiche_id)) for request in requested
                ]
            }
        )
        _raise_single_error(list(ended.values()))
    elif ended:
        _print_ended(list(ended.values()))
    else:
        for request in requested:
            screen.print(f"Fiche {request.fiche_id}: run {request.run_id}", highlight=False)
    if not all(map(_is_complete, ended.values())):
        raise typer.Exit(1)


def _is_complete(run: EndedTranscription) -> bool:
    return (
        isinstance(run, TranscriptionSummary)
        and run.status is TranscriptionStatus.COMPLETED
        and run.failed == 0
    )


def _print_ended(ended: Sequence[EndedTranscription]) -> None:
    _raise_single_error(ended)
    print_table(
        ("fiche", "status", "recordings", "transcribed", "failed", "error"), map(_row, ended)
    )


def _raise_single_error(ended: Sequence[EndedTranscription]) -> None:
    """Report the error of a single transcription as the command's error."""
    if len(ended) == 1 and ended[0].error is not None:
        raise RequestFailedError(ended[0].error)


def _row(run: EndedTranscription) -> Sequence[object]:
    if isinstance(run, NeverStarted):
        return run.fiche_id, TranscriptionStatus.FAILED, None, None, None, run.error
    return run.fiche_id, run.status, run.total, run.transcribed, run.failed, run.error


def _document(
    request: RequestedTranscription, ended: EndedTranscription | None
) -> dict[str, object]:
    """With `--wait`, every transcription has the same fields, also one that never started."""
    document: dict[str, object] = {"fiche_id": request.fiche_id, "run_id": request.run_id}
    if ended is None:
        return document
    run = ended if isinstance(ended, TranscriptionSummary) else None
    return document | {
        "status": run.status if run else TranscriptionStatus.FAILED,
        "recordings": run and run.total,
        "transcribed": run and run.transcribed,
        "failed": run and run.failed,
        "error": ended.error,
    }
