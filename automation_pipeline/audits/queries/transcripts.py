"""Queries of the transcripts that audits read."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.models.audits import (
    UNKNOWN,
    CallRecording,
    Timeline,
    TimelineChunk,
    TimelineRecording,
    TranscriptSnapshot,
    coverage_of,
)
from automation_pipeline.fiches.tables import SECTION_TABLES, CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.statements import among
from automation_pipeline.transcription.tables import ChunkRow, TranscriptionTaskRow

_CALLS = (
    select(
        FicheCacheRow.fiche_id,
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
    .where(CallRecordingRow.vanished_at.is_(None))
    .order_by(CallRecordingRow.start_time, CallRecordingRow.call_id)
)
_SOUSCRIPTION = SECTION_TABLES["elements_souscription"].c
_PRODUCTS = select(
    FicheCacheRow.fiche_id,
    _SOUSCRIPTION.produit_groupe_nom,
    _SOUSCRIPTION.produit_gamme_nom,
    _SOUSCRIPTION.produit_formule_nom,
    _SOUSCRIPTION.produit_formule,
    _SOUSCRIPTION.produit_cotisation,
    _SOUSCRIPTION.produit_date_effet,
    _SOUSCRIPTION.produit_type_contrat,
    _SOUSCRIPTION.produit_type_client,
).join(FicheCacheRow, FicheCacheRow.id == _SOUSCRIPTION.fiche_cache_id)


def get_transcript_snapshot(session: Session, fiche_id: str) -> TranscriptSnapshot:
    return transcript_snapshots(session, [fiche_id])[fiche_id]


def transcript_snapshots(
    session: Session, fiche_ids: Collection[str]
) -> dict[str, TranscriptSnapshot]:
    """By fiche, also for a fiche without recordings. The number of queries is constant."""
    of_fiches = among(session, FicheCacheRow.fiche_id, fiche_ids)
    # Plain rows with the names of the columns.
    calls: dict[str, list[CallRecordingRow]] = {fiche_id: [] for fiche_id in fiche_ids}
    for row in session.execute(_CALLS.where(of_fiches)):
        calls[row.fiche_id].append(cast("CallRecordingRow", row))
    usable = [
        row.id
        for rows in calls.values()
        for row in rows
        if row.has_transcription and row.recording_url.strip()
    ]
    chunks: dict[int, list[TimelineChunk]] = {recording_id: [] for recording_id in usable}
    for row in session.execute(
        select(ChunkRow.__table__)
        .where(among(session, ChunkRow.recording_id, usable))
        .order_by(ChunkRow.chunk_index)
    ):
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
    products = {
        row.fiche_id: _product_text(row) for row in session.execute(_PRODUCTS.where(of_fiches))
    }
    return {
        fiche_id: _snapshot(rows, chunks, products.get(fiche_id))
        for fiche_id, rows in calls.items()
    }


def _snapshot(
    calls: Sequence[CallRecordingRow],
    chunks: Mapping[int, Sequence[TimelineChunk]],
    product: str | None,
) -> TranscriptSnapshot:
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
            for index, row in enumerate(row for row in calls if chunks.get(row.id))
        )
    )
    return TranscriptSnapshot(
        timeline,
        coverage_of(
            [
                CallRecording(row.call_id, bool(row.recording_url.strip()), row.has_transcription)
                for row in calls
            ]
        ),
        product=product,
        fingerprint=hashlib.sha256(
            json.dumps(
                [
                    (call.call_id, [part.full_text for part in call.chunks])
                    for call in timeline.recordings
                ]
            ).encode()
        ).hexdigest(),
    )


def _product_text(row: Row[Any]) -> str | None:  # the columns of _PRODUCTS
    """The sold product according to the CRM, for steps that verify it."""
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
    """Why the transcription of the fiche's last failed recording failed."""
    return session.scalar(
        select(TranscriptionTaskRow.error)
        .where(TranscriptionTaskRow.fiche_id == fiche_id, TranscriptionTaskRow.error.is_not(None))
        .order_by(TranscriptionTaskRow.id.desc())
        .limit(1)
    )
