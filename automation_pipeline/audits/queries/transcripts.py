"""Queries of transcripts: what audits read of the calls of a fiche."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import cast

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.models.audits import (
    CallRecording,
    Timeline,
    TimelineChunk,
    TimelineRecording,
    TranscriptSnapshot,
    coverage_of,
)
from automation_pipeline.audits.models.findings import UNKNOWN
from automation_pipeline.fiches.tables import SECTION_TABLES, CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.prepared import execute
from automation_pipeline.storage.statements import among_given
from automation_pipeline.transcription.tables import ChunkRow, TranscriptionTaskRow

_CALLS = (
    select(
        CallRecordingRow.id,
        CallRecordingRow.call_id,
        CallRecordingRow.recording_date,
        CallRecordingRow.recording_time,
        CallRecordingRow.recording_url,
        CallRecordingRow.duration_seconds,
        CallRecordingRow.from_number,
        CallRecordingRow.to_number,
        CallRecordingRow.has_transcription,
    )
    .join(FicheCacheRow, FicheCacheRow.id == CallRecordingRow.fiche_cache_id)
    .where(FicheCacheRow.fiche_id == bindparam("fiche"), CallRecordingRow.vanished_at.is_(None))
    .order_by(CallRecordingRow.start_time, CallRecordingRow.call_id)
)
_SOUSCRIPTION = SECTION_TABLES["elements_souscription"].c
_PRODUCT = (
    select(
        _SOUSCRIPTION.produit_groupe_nom,
        _SOUSCRIPTION.produit_gamme_nom,
        _SOUSCRIPTION.produit_formule_nom,
        _SOUSCRIPTION.produit_formule,
        _SOUSCRIPTION.produit_cotisation,
        _SOUSCRIPTION.produit_date_effet,
        _SOUSCRIPTION.produit_type_contrat,
        _SOUSCRIPTION.produit_type_client,
    )
    .join(FicheCacheRow, FicheCacheRow.id == _SOUSCRIPTION.fiche_cache_id)
    .where(FicheCacheRow.fiche_id == bindparam("fiche"))
)


def _chunks(postgres: bool) -> Select[tuple[object, ...]]:
    of_recordings = among_given(ChunkRow.recording_id, "recordings", postgres=postgres)
    return select(ChunkRow.__table__).where(of_recordings).order_by(ChunkRow.chunk_index)


def get_transcript_snapshot(session: Session, fiche_id: str) -> TranscriptSnapshot:
    # Plain rows with the names of the columns.
    calls = cast("Sequence[CallRecordingRow]", execute(session, _CALLS, {"fiche": fiche_id}).rows)
    usable = [row for row in calls if row.has_transcription and row.recording_url.strip()]
    chunks: dict[int, list[TimelineChunk]] = defaultdict(list)
    for row in execute(session, _chunks, {"recordings": [call.id for call in usable]}):
        chunks[row.recording_id].append(
            TimelineChunk(
                index=row.chunk_index,
                start=row.start_timestamp,
                end=row.end_timestamp,
                message_count=row.message_count,
                speakers=tuple(row.speakers),
                full_text=row.full_text,
            )
        )
    timeline = Timeline(
        tuple(
            TimelineRecording(
                index=index,
                call_id=row.call_id,
                date=row.recording_date or UNKNOWN,
                time=row.recording_time or UNKNOWN,
                url=row.recording_url,
                duration_seconds=row.duration_seconds,
                from_number=row.from_number,
                to_number=row.to_number,
                chunks=tuple(chunks[row.id]),
            )
            for index, row in enumerate(row for row in usable if chunks[row.id])
        )
    )
    said = [
        (call.call_id, [part.full_text for part in call.chunks]) for call in timeline.recordings
    ]
    return TranscriptSnapshot(
        timeline,
        coverage_of(
            [
                CallRecording(row.call_id, bool(row.recording_url.strip()), row.has_transcription)
                for row in calls
            ]
        ),
        product=_product_text(session, fiche_id),
        fingerprint=hashlib.sha256(json.dumps(said).encode()).hexdigest(),
    )


def _product_text(session: Session, fiche_id: str) -> str | None:
    """What was sold according to the CRM, for steps that verify the product."""
    row = execute(session, _PRODUCT, {"fiche": fiche_id}).first()
    if row is None:
        return None
    facts = {
        "Assureur": row.produit_groupe_nom,
        "Gamme": row.produit_gamme_nom,
        "Formule": row.produit_formule_nom or row.produit_formule,
        "Cotisation": row.produit_cotisation,
        "Date d'effet": row.produit_date_effet,
        "Type de contrat": row.produit_type_contrat,
        "Type de client": row.produit_type_client,
    }
    return "\n".join(f"{name} : {value}" for name, value in facts.items() if value) or None


def last_transcription_error(session: Session, fiche_id: str) -> str | None:
    """Why the last recording of the fiche that could not be transcribed was given up."""
    given_up = select(TranscriptionTaskRow.error).where(
        TranscriptionTaskRow.fiche_id == fiche_id, TranscriptionTaskRow.error.is_not(None)
    )
    return session.scalar(given_up.order_by(TranscriptionTaskRow.id.desc()).limit(1))
