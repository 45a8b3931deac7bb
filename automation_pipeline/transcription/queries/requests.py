"""Queries of requested transcriptions: what was requested before, and what became of it."""

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
    """Four queries, however many fiches."""
    marker = f"-{day.isoformat()}"
    keys = session.execute(
        select(RunRequestRow.request_key, RunRequestRow.state).where(
            RunRequestRow.job == TRANSCRIPTION_JOB, RunRequestRow.request_key.contains(marker)
        )
    ).tuples()
    states = [(key.removeprefix("transcribe-").partition(marker)[0], state) for key, state in keys]
    requests = Counter(fiche_id for fiche_id, _ in states)
    under_way = {fiche_id for fiche_id, state in states if state == "waiting"} | set(
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
            requests[fiche_id], fiche_id in under_way, fiche_id in mirrored - lacking
        )
        for fiche_id in fiche_ids
    }


def live_runs(session: Session, fiche_ids: Sequence[str]) -> dict[str, str]:
    """The runs under way, by fiche."""
    live = TranscriptionRunRow.status == TranscriptionStatus.RUNNING
    query = select(TranscriptionRunRow.fiche_id, TranscriptionRunRow.id)
    chosen = among(session, TranscriptionRunRow.fiche_id, fiche_ids)
    return dict(session.execute(query.where(chosen, live)).tuples().all())


def _fiches_with_missing_transcripts(session: Session, fiche_ids: Sequence[str]) -> set[str]:
    lacks = (CallRecordingRow.vanished_at.is_(None), CallRecordingRow.has_transcription.is_(False))
    query = (
        select(FicheCacheRow.fiche_id)
        .join(CallRecordingRow, CallRecordingRow.fiche_cache_id == FicheCacheRow.id)
        .distinct()
    )
    return set(
        session.scalars(query.where(among(session, FicheCacheRow.fiche_id, fiche_ids), *lacks))
    )


def request_outcomes(
    session: Session, requested: Sequence[RequestedTranscription], asked_at: datetime
) -> dict[str, TranscriptionSummary | str]:
    """By fiche, of those that have begun or never will: the run promised, or, once Dagster has
    taken the wish, the one that it joined; without a run, why it was refused."""
    keys = [one.key for one in requested if one.key]
    refused, begun = refusals(session, keys), taken(session, keys)
    promised = {
        one.fiche_id: one
        for one in list_summaries(session, [cast("str", one.run_id) for one in requested])
    }
    joining = [
        one.fiche_id for one in requested if one.key in begun and one.fiche_id not in promised
    ]
    joined = last_runs_of(session, joining, asked_at)
    reasons = {one.fiche_id: refused[one.key] for one in requested if one.key in refused}
    return {**reasons, **joined, **promised}


def requested_transcriptions(
    session: Session, filed: Sequence[FiledRequest]
) -> list[RequestedTranscription]:
    """As `request_transcriptions` told it: a fiche that a run works on is joined."""
    fiches = {one.key: one.tags["automation/fiche_id"] for one in filed}
    live = live_runs(session, list(fiches.values()))
    return [
        RequestedTranscription(
            fiches[one.key], live.get(fiches[one.key], cast("str", one.config["run_id"])), one.key
        )
        for one in filed
    ]
