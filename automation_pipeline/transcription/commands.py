"""`automation transcribe`: request transcripts and follow them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.operations import operation
from automation_pipeline.cli.output import AsJson, check_fiche_ids, print_json, print_table, say
from automation_pipeline.cli.progress import (
    FollowedRequest,
    Here,
    Timeout,
    follow_requests,
    follows,
    waiting,
)
from automation_pipeline.core.errors import RequestFailedError
from automation_pipeline.storage.run_requests import filed_requests
from automation_pipeline.transcription.models import (
    TranscriptionPriority,
    TranscriptionStatus,
    TranscriptionSummary,
)
from automation_pipeline.transcription.requests import (
    request_outcomes,
    request_transcriptions,
    requested_transcriptions,
)

EndedTranscription: TypeAlias = FollowedRequest[TranscriptionSummary]


@dataclass(frozen=True)
class FiledTranscription:
    """`event_id` is the key of the run request."""

    fiche_id: str
    run_id: str | None
    event_id: str


@operation("POST /api/transcriptions/{fiche_id}", query=["priority"])
def request_transcription(
    services: Services, fiche_id: str, priority: TranscriptionPriority
) -> FiledTranscription:
    [filed] = request_transcriptions(
        [fiche_id],
        priority=priority,
        batch=False,
        database=services.database,
        clock=services.clock,
    )
    return FiledTranscription(fiche_id, filed.run_id, str(filed.key))


@operation("GET /api/requests/transcriptions")
def transcription_requests(services: Services, key: Sequence[str]) -> Sequence[EndedTranscription]:
    with services.database.reading() as session:
        filed = filed_requests(session, key)
        requested = requested_transcriptions(session, filed)
        since = min((one.created_at for one in filed), default=services.clock.now())
        found = request_outcomes(session, requested, since)
    return [
        EndedTranscription.of(request.key, one.fiche_id, found.get(one.fiche_id))
        for request, one in zip(filed, requested, strict=True)
    ]


def transcribe(
    fiche_ids: Annotated[list[str], typer.Argument(help="The fiches' ids in the CRM.")],
    *,
    priority: Annotated[
        TranscriptionPriority, typer.Option(help="The priority among waiting recordings.")
    ] = TranscriptionPriority.NORMAL,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Follow the work to its end; exit 1 unless every recording is transcribed.",
        ),
    ] = False,
    timeout: Timeout = None,
    here: Here = False,
    as_json: AsJson = False,
) -> None:
    """Transcribe the recordings of fiches that have no transcript yet. Dagster's daemon starts the
    work within seconds.

    The work continues without this command. `automation fiches show FICHE_ID` shows its status.
    """
    check_fiche_ids(fiche_ids)
    wait = follows("transcribe", wait=wait, timeout=timeout, here=here)
    requested = [request_transcription(one, priority) for one in dict.fromkeys(fiche_ids)]
    ended: Sequence[EndedTranscription] = ()

    def bar(run: TranscriptionSummary) -> tuple[str, int, int, bool]:
        is_over = run.status is not TranscriptionStatus.RUNNING
        return run.status, run.transcribed, run.total, is_over

    if wait:
        fiches = {one.event_id: one.fiche_id for one in requested}
        with waiting(list(fiches), timeout=timeout, here=here) as waits:
            ended = follow_requests(
                fiches,
                transcription_requests,
                bar,
                on_interrupt="The transcription continues. "
                "`automation fiches show FICHE_ID` shows its status.",
                quiet=as_json,
                waits=waits,
            )
    _print_transcriptions(requested, ended, as_json=as_json)
    for one in ended:
        run = one.standing
        if run is None or run.status is not TranscriptionStatus.COMPLETED or run.failed:
            raise typer.Exit(1)


def _print_transcriptions(
    requested: Sequence[FiledTranscription],
    ended: Sequence[EndedTranscription],
    *,
    as_json: bool,
) -> None:
    """The error of a single transcription becomes the command's error."""
    outcomes = [_outcome(one) for one in ended] or [{} for _ in requested]
    if as_json:
        documents = [
            {"fiche_id": one.fiche_id, "run_id": one.run_id, **outcome}
            for one, outcome in zip(requested, outcomes, strict=True)
        ]
        print_json({"transcriptions": documents})
    if len(ended) == 1 and outcomes[0]["error"] is not None:
        raise RequestFailedError(str(outcomes[0]["error"]))
    if as_json:
        return
    if ended:
        rows = [
            (one.fiche_id, *outcome.values()) for one, outcome in zip(ended, outcomes, strict=True)
        ]
        print_table(("fiche", "status", "recordings", "transcribed", "failed", "error"), rows)
        return
    for one in requested:
        say(f"Fiche {one.fiche_id}: run {one.run_id}")


def _outcome(one: EndedTranscription) -> dict[str, object]:
    """The same fields for every transcription, even if it never started."""
    run = one.standing
    return {
        "status": run.status if run else TranscriptionStatus.FAILED,
        "recordings": run and run.total,
        "transcribed": run and run.transcribed,
        "failed": run and run.failed,
        "error": run.error if run else one.refused,
    }
