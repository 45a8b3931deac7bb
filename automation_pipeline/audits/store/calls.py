"""What was said in a fiche's calls, as audits read it, and how many of them are transcribed."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Session

from automation_pipeline.audits.domain.coverage import Call, Coverage, coverage_of
from automation_pipeline.audits.domain.findings import UNKNOWN
from automation_pipeline.audits.domain.timeline import Timeline, TimelineChunk, TimelineRecording
from automation_pipeline.fiches.tables import ElementsSouscriptionRow, FicheCache, RecordingRow
from automation_pipeline.storage.bulk import among_given
from automation_pipeline.storage.prepared import execute
from automation_pipeline.transcription.tables import ChunkRow, TranscriptionTaskRow

_CALLS = (
    select(
        RecordingRow.id,
        RecordingRow.call_id,
        RecordingRow.recording_date,
        RecordingRow.recording_time,
        RecordingRow.recording_url,
        RecordingRow.duration_seconds,
        RecordingRow.from_number,
        RecordingRow.to_number,
        RecordingRow.has_transcription,
    )
    .join(FicheCache, FicheCache.id == RecordingRow.fiche_cache_id)
    .where(FicheCache.fiche_id == bindparam("fiche"), RecordingRow.vanished_at.is_(None))
    .order_by(RecordingRow.start_time, RecordingRow.call_id)
)
_SOLD = (
    select(
        ElementsSouscriptionRow.produit_groupe_nom,
        ElementsSouscriptionRow.produit_gamme_nom,
        ElementsSouscriptionRow.produit_formule_nom,
        ElementsSouscriptionRow.produit_formule,
        ElementsSouscriptionRow.produit_cotisation,
        ElementsSouscriptionRow.produit_date_effet,
        ElementsSouscriptionRow.produit_type_contrat,
        ElementsSouscriptionRow.produit_type_client,
    )
    .join(FicheCache, FicheCache.id == ElementsSouscriptionRow.fiche_cache_id)
    .where(FicheCache.fiche_id == bindparam("fiche"))
)


def _chunks_of(postgres: bool) -> Select[tuple[object, ...]]:
    heard = among_given(ChunkRow.recording_id, "recordings", postgres=postgres)
    return select(ChunkRow.__table__).where(heard).order_by(ChunkRow.chunk_index)


@dataclass(frozen=True)
class Heard:
    """`timeline`: recordings with a transcript in which something was said, in the order of the calls. `coverage`:
    which recordings the audit needs, and which of them have a transcript. `product`: what the CRM says was sold."""

    timeline: Timeline
    coverage: Coverage
    product: str | None

    @property
    def fingerprint(self) -> str:
        """The same for the same calls in the same words: what was judged on one timeline holds for no other."""
        said = [(call.call_id, [chunk.full_text for chunk in call.chunks]) for call in self.timeline.recordings]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def heard_of(session: Session, fiche_id: str) -> Heard:
    rows = _recordings(session, fiche_id)
    heard = [row for row in rows if row.has_transcription and row.recording_url.strip()]
    chunks = _chunks(session, [row.id for row in heard])
    spoken = [row for row in heard if chunks[row.id]]
    timeline = Timeline(tuple(_recording(index, row, tuple(chunks[row.id])) for index, row in enumerate(spoken)))
    return Heard(
        timeline,
        coverage_of([Call(row.call_id, bool(row.recording_url.strip()), row.has_transcription) for row in rows]),
        product=_product_of(session, fiche_id),
    )


def why_missing(session: Session, fiche_id: str) -> str | None:
    """What the last recording of the fiche that could not be transcribed was given up for."""
    given_up = select(TranscriptionTaskRow.error).where(
        TranscriptionTaskRow.fiche_id == fiche_id, TranscriptionTaskRow.error.is_not(None)
    )
    return session.scalar(given_up.order_by(TranscriptionTaskRow.id.desc()).limit(1))


def _recordings(session: Session, fiche_id: str) -> Sequence[RecordingRow]:
    found = execute(session, _CALLS, {"fiche": fiche_id}).rows
    return cast("Sequence[RecordingRow]", found)  # plain rows, which have the columns' names


def _chunks(session: Session, recording_ids: Sequence[int]) -> dict[int, list[TimelineChunk]]:
    found: dict[int, list[TimelineChunk]] = defaultdict(list)
    for row in execute(session, _chunks_of, {"recordings": recording_ids}):
        speakers = tuple(row.speakers)
        chunk = TimelineChunk(
            row.chunk_index, row.start_timestamp, row.end_timestamp, row.message_count, speakers, row.full_text
        )
        found[row.recording_id].append(chunk)
    return found


def _recording(index: int, row: RecordingRow, chunks: tuple[TimelineChunk, ...]) -> TimelineRecording:
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


def _product_of(session: Session, fiche_id: str) -> str | None:
    """What the CRM says was sold, for steps that verify the product; None when it says nothing of it."""
    row = execute(session, _SOLD, {"fiche": fiche_id}).first()
    if row is None:
        return None
    told = {
        "Assureur": row.produit_groupe_nom,
        "Gamme": row.produit_gamme_nom,
        "Formule": row.produit_formule_nom or row.produit_formule,
        "Cotisation": row.produit_cotisation,
        "Date d'effet": row.produit_date_effet,
        "Type de contrat": row.produit_type_contrat,
        "Type de client": row.produit_type_client,
    }
    return "\n".join(f"{name} : {value}" for name, value in told.items() if value) or None
