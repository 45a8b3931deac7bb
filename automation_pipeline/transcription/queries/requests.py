"""Queries of transcription requests: earlier requests of a day, and the outcomes of requests."""

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from typing import cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.run_requests import FiledRequest, RunRequestRow, refusals, taken
from automation_pipeline.storage.statements import among
from automation_pipeline.transcription.models import (
    RequestedTranscription,
    RequestHistory,
    TranscriptionStatus,
    TranscriptionSummary,
)
from automation_pipeline.transcription.queries.runs import last_runs_of, list_summaries
from automation_pipeline.transcription.tables import TranscriptionRunRow

TRANSCRIPTION_JOB = "transcribe_fiche"


def request_histories(
    session: Session, fiche_ids: Sequence[str], day: date
) -> dict[str, RequestHistory]:
    """The history of each fiche, with a constant number of statements."""
    marker = f"-{day.isoformat()}"
    keys = session.execute(
        select(RunRequestRow.request_key, RunRequestRow.state).where(
            RunRequestRow.job == TRANSCRIPTION_JOB, RunRequestRow.request_key.contains(marker)
        )
    ).tuples()
    states = [(key.removeprefix("transcribe-").partition(marker)[0], state) for key, state in keys]
    requests = Counter(fiche_id for fiche_id, _ in states)
    active = {fiche_id for fiche_id, state in states if state == "waiting"} | set(
        live_runs(session, fiche_ids)
    )
    lacking = _fiches_with_missing_transcripts(session, fiche_ids)
    mirrored = set(
        session.scalars(
            select(FicheCacheRow.fiche_id).where(among(session, FicheCacheRow.fiche_id, fiche_ids))
        )
    )
    return {
        fiche_id: RequestHistory(
            requests[fiche_id], fiche_id in active, fiche_id in mirrored - lacking
        )
        for fiche_id in fiche_ids
    }


def live_runs(session: Session, fiche_ids: Sequence[str]) -> dict[str, str]:
    """The live runs, by fiche."""
    live = TranscriptionRunRow.status == TranscriptionStatus.RUNNING
    query = select(TranscriptionRunRow.fiche_id, TranscriptionRunRow.id)
    chosen = among(session, TranscriptionRunRow.fiche_id, fiche_ids)
    return dict(session.execute(query.where(chosen, live)).tuples().all())


def _fiches_with_missing_transcripts(session: Session, fiche_ids: Sequence[str]) -> set[str]:
    untranscribed = (
        CallRecordingRow.vanished_at.is_(None),
        CallRecordingRow.has_transcription.is_(False),
    )
    query = (
        select(FicheCacheRow.fiche_id)
        .join(CallRecordingRow, CallRecordingRow.fiche_cache_id == FicheCacheRow.id)
        .distinct()
    )
    return set(
        session.scalars(
            query.where(among(session, FicheCacheRow.fiche_id, fiche_ids), *untranscribed)
        )
    )


def request_outcomes(
    session: Session, requested: Sequence[RequestedTranscription], asked_at: datetime
) -> dict[str, TranscriptionSummary | str]:
    """Return, by fiche, the runs that have started and the reasons of refused requests.

    A run is the request's own or, once Dagster has taken the request, the one that it joined.
    """
    keys = [request.key for request in requested if request.key]
    refused, started = refusals(session, keys), taken(session, keys)
    run_ids = [cast("str", request.run_id) for request in requested]
    own = {run.fiche_id: run for run in list_summaries(session, run_ids)}
    joining = [
        request.fiche_id
        for request in requested
        if request.key in started and request.fiche_id not in own
    ]
    joined = last_runs_of(session, joining, asked_at)
    reasons = {
        request.fiche_id: refused[request.key] for request in requested if request.key in refused
    }
    return {**reasons, **joined, **own}


def requested_transcriptions(
    session: Session, filed: Sequence[FiledRequest]
) -> list[RequestedTranscription]:
    """Restore what `request_transcriptions` returned. A fiche with a live run joins it."""
    fiches = {request.key: request.tags["automation/fiche_id"] for request in filed}
    live = live_runs(session, list(fiches.values()))
    return [
        RequestedTranscription(
            fiches[request.key],
            live.get(fiches[request.key], cast("str", request.config["run_id"])),
            request.key,
        )
        for request in filed
    ]
