"""The transcripts of a fiche's calls as audits read them."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.models.audits import (
    CallRecording,
    Timeline,
    TimelineChunk,
    TimelineRecording,
    TranscriptCoverage,
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


def _chunks_of(postgres: bool) -> Select[tuple[object, ...]]:
    snapshot = among_given(ChunkRow.recording_id, "recordings", postgres=postgres)
    return select(ChunkRow.__table__).where(snapshot).order_by(ChunkRow.chunk_index)


@dataclass(frozen=True)
class TranscriptSnapshot:
    """`timeline`: recordings with a transcript in which something was said, in the order of the
    calls. `coverage`: which recordings the audit needs, and which of them have a transcript.
    `product`: what the CRM says was sold."""

    timeline: Timeline
    coverage: TranscriptCoverage
    product: str | None

    @property
    def fingerprint(self) -> str:
        """The same for the same calls in the same words: what was judged on one timeline holds for
        no other."""
        said = [
            (call.call_id, [chunk.full_text for chunk in call.chunks])
            for call in self.timeline.recordings
        ]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def get_transcript_snapshot(session: Session, fiche_id: str) -> TranscriptSnapshot:
    rows = _recordings(session, fiche_id)
    snapshot = [row for row in rows if row.has_transcription and row.recording_url.strip()]
    chunks = _chunks(session, [row.id for row in snapshot])
    spoken = [row for row in snapshot if chunks[row.id]]
    timeline = Timeline(
        tuple(_recording(index, row, tuple(chunks[row.id])) for index, row in enumerate(spoken))
    )
    return TranscriptSnapshot(
        timeline,
        coverage_of(
            [
                CallRecording(row.call_id, bool(row.recording_url.strip()), row.has_transcription)
                for row in rows
            ]
        ),
        product=_product_text(session, fiche_id),
    )


def last_transcription_error(session: Session, fiche_id: str) -> str | None:
    """What the last recording of the fiche that could not be transcribed was given up for."""
    given_up = select(TranscriptionTaskRow.error).where(
        TranscriptionTaskRow.fiche_id == fiche_id, TranscriptionTaskRow.error.is_not(None)
    )
    return session.scalar(given_up.order_by(TranscriptionTaskRow.id.desc()).limit(1))


def _recordings(session: Session, fiche_id: str) -> Sequence[CallRecordingRow]:
    found = execute(session, _CALLS, {"fiche": fiche_id}).rows
    return cast("Sequence[CallRecordingRow]", found)  # plain rows, which have the columns' names


def _chunks(session: Session, recording_ids: Sequence[int]) -> dict[int, list[TimelineChunk]]:
    found: dict[int, list[TimelineChunk]] = defaultdict(list)
    for row in execute(session, _chunks_of, {"recordings": recording_ids}):
        speakers = tuple(row.speakers)
        chunk = TimelineChunk(
            row.chunk_index,
            row.start_timestamp,
            row.end_timestamp,
            row.message_count,
            speakers,
            row.full_text,
        )
        found[row.recording_id].append(chunk)
    return found


def _recording(
    index: int, row: CallRecordingRow, chunks: tuple[TimelineChunk, ...]
) -> TimelineRecording:
    return TimelineRecording(
        index=index,
        call_id=row.call_id,
        date=row.recording_date or UNKNOWN,
        time=row.recording_time or UNKNOWN,
        url=row.recording_url,
        duration_seconds=row.duration_seconds,
        from_number=row.from_number,
        to_number=row.to_number,
        chunks=chunks,
    )


def _product_text(session: Session, fiche_id: str) -> str | None:
    """What the CRM says was sold, for steps that verify the product; None when it says nothing of
    it."""
    row = execute(session, _PRODUCT, {"fiche": fiche_id}).first()
    if row is None:
        return None
    payload = {
        "Assureur": row.produit_groupe_nom,
        "Gamme": row.produit_gamme_nom,
        "Formule": row.produit_formule_nom or row.produit_formule,
        "Cotisation": row.produit_cotisation,
        "Date d'effet": row.produit_date_effet,
        "Type de contrat": row.produit_type_contrat,
        "Type de client": row.produit_type_client,
    }
    return "\n".join(f"{name} : {value}" for name, value in payload.items() if value) or None
