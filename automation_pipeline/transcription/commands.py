"""`automation transcribe`: request transcripts and follow them."""

import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

import typer

from automation_pipeline.cli.client.base import client
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
    our = client()
    requested = our.transcriptions.request(fiche_ids, priority)
    ended: Mapping[str, EndedTranscription] = {}
    if wait:
        keys = [one.key for one in requested if one.key]
        with waiting(our, keys, timeout=timeout, here=here) as waits:
            ended = follow_transcriptions(
                requested, our, pause=threading.Event(), quiet=as_json, waits=waits
            )
    if as_json:
        print_json(
            {"transcriptions": [_document(one, ended.get(one.fiche_id)) for one in requested]}
        )
        _raise_single_error(list(ended.values()))
    elif ended:
        _print_ended(list(ended.values()))
    else:
        for one in requested:
            screen.print(f"Fiche {one.fiche_id}: run {one.run_id}", highlight=False)
    if not all(map(_is_complete, ended.values())):
        raise typer.Exit(1)


def _is_complete(one: EndedTranscription) -> bool:
    return (
        isinstance(one, TranscriptionSummary)
        and one.status is TranscriptionStatus.COMPLETED
        and one.failed == 0
    )


def _print_ended(ended: Sequence[EndedTranscription]) -> None:
    _raise_single_error(ended)
    print_table(
        ("fiche", "status", "recordings", "transcribed", "failed", "error"), map(_row, ended)
    )


def _raise_single_error(ended: Sequence[EndedTranscription]) -> None:
    """One alone that came to nothing is the sentence that says why."""
    if len(ended) == 1 and ended[0].error is not None:
        raise RequestFailedError(ended[0].error)


def _row(one: EndedTranscription) -> Sequence[object]:
    if isinstance(one, NeverStarted):
        return one.fiche_id, TranscriptionStatus.FAILED, None, None, None, one.error
    return one.fiche_id, one.status, one.total, one.transcribed, one.failed, one.error


def _document(one: RequestedTranscription, ended: EndedTranscription | None) -> dict[str, object]:
    """Whatever became of them, transcriptions that were followed have the same fields."""
    document: dict[str, object] = {"fiche_id": one.fiche_id, "run_id": one.run_id}
    if ended is None:
        return document
    begun = ended if isinstance(ended, TranscriptionSummary) else None
    return document | {
        "status": begun.status if begun else TranscriptionStatus.FAILED,
        "recordings": begun and begun.total,
        "transcribed": begun and begun.transcribed,
        "failed": begun and begun.failed,
        "error": ended.error,
    }
