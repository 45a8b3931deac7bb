"""Queries about fiches: one fiche with its sections and recordings, the fiches of a day, and their status."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Row, RowMapping, func, select
from sqlalchemy.orm import Session

from automation_pipeline.core.access import Reach
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.models.days import crm_instant
from automation_pipeline.fiches.queries.mirror import NOT_FOUND, within
from automation_pipeline.fiches.tables import (
    INFORMATION,
    SECTION_TABLES,
    SINGLE_SECTIONS,
    CallRecordingRow,
    FicheCacheRow,
)
from automation_pipeline.storage.statements import among

Document = dict[str, object]


def transcription_document(
    total: int, transcribed: int, last_at: datetime | None = None
) -> Document:
    """The numbers of a fiche's recordings and transcripts. A fiche without recordings is complete."""
    return {
        "total": total,
        "transcribed": transcribed,
        "pending": total - transcribed,
        "percentage": round(100 * transcribed / total) if total else 100,
        "isComplete": transcribed == total,
        "lastTranscribedAt": last_at and iso(last_at),
    }


# The document for a fiche that is not mirrored, and for one that the caller may not see.
UNKNOWN_TRANSCRIPTION: Document = {
    **transcription_document(0, 0),
    "percentage": 0,
    "isComplete": False,
}


def fiche_document(session: Session, fiche_id: str) -> Document:
    """Return all stored data of a fiche. Raises NotFoundError."""
    table = FicheCacheRow.__table__
    fiche = session.execute(select(table).where(table.c.fiche_id == fiche_id)).mappings().first()
    if fiche is None:
        raise NotFoundError(f"Fiche {fiche_id} not found: `automation fiches sync` fetches it.")
    if fiche["details_message"] == NOT_FOUND:
        state = "not found"
    else:
        state = "full details" if fiche["details_fetched_at"] else "sales list only"

    def stored_rows(section: FromClause) -> list[Document]:
        rows = session.execute(
            select(section)
            .where(section.c.fiche_cache_id == fiche["id"])
            .order_by(*section.primary_key)
        ).mappings()
        return [_stored_document(row) for row in rows]

    sections: Document = {}
    for name, section in SECTION_TABLES.items():
        rows = stored_rows(section)
        sections[name] = next(iter(rows), None) if name in SINGLE_SECTIONS else rows
    recordings = stored_rows(CallRecordingRow.__table__)
    recordings.sort(key=lambda recording: str(recording["start_time"]))
    return {**_stored_document(fiche), "state": state, **sections, "recordings": recordings}


def _stored_document(row: RowMapping) -> Document:
    return {
        str(name): iso(value) if isinstance(value, datetime) else value
        for name, value in row.items()
        if name not in {"id", "fiche_cache_id"}
    }


def recordings_of(session: Session, fiche_id: str, reach: Reach) -> list[Document]:
    """Return the fiche's recordings, including vanished ones. Raises NotFoundError."""
    fiche = session.scalar(
        select(FicheCacheRow.id).where(FicheCacheRow.fiche_id == fiche_id, within(session, reach))
    )
    if fiche is None:
        raise NotFoundError(f"Fiche {fiche_id} not found")
    rows = session.scalars(
        select(CallRecordingRow)
        .where(CallRecordingRow.fiche_cache_id == fiche)
        .order_by(CallRecordingRow.start_time, CallRecordingRow.call_id)
    )
    return [
        {
            "id": str(row.id),
            "ficheId": fiche_id,
            "callId": row.call_id,
            "recordingUrl": row.recording_url or None,
            "recordingDate": row.recording_date,
            "recordingTime": row.recording_time,
            "uuid": row.uuid,
            "startTime": iso(row.start_time),
            "durationSeconds": row.duration_seconds,
            "direction": row.direction,
            "fromNumber": row.from_number,
            "toNumber": row.to_number,
            "answered": row.answered,
            "vanishedAt": row.vanished_at and iso(row.vanished_at),
            "hasTranscription": row.has_transcription,
            "transcriptionId": row.transcription_id,
            "transcriptionText": row.transcription_text,
            "transcriptionLanguageCode": row.transcription_language_code,
            "transcriptionLanguageProbability": row.transcription_language_probability,
            "transcribedAt": row.transcribed_at and iso(row.transcribed_at),
        }
        for row in rows
    ]


@dataclass(frozen=True)
class FichePage:
    limit: int
    offset: int = 0


def statuses_of(session: Session, fiche_ids: Iterable[str], reach: Reach) -> dict[str, Document]:
    """Return one status per fiche. A fiche that is hidden or missing has an empty status."""
    requested = list(dict.fromkeys(fiche_ids))
    query = select(FicheCacheRow.fiche_id, FicheCacheRow.id).where(
        among(session, FicheCacheRow.fiche_id, requested), within(session, reach)
    )
    keys = dict(session.execute(query).tuples().all())
    calls = _calls(session, keys.values())
    return {
        fiche_id: {
            "ficheId": fiche_id,
            "hasData": fiche_id in keys,
            "transcription": _transcription_of(calls.get(keys[fiche_id], ()))
            if fiche_id in keys
            else UNKNOWN_TRANSCRIPTION,
        }
        for fiche_id in requested
    }


def fiches_sold(
    session: Session, days: Iterable[date], reach: Reach, page: FichePage
) -> tuple[list[Document], int]:
    """Return a page of the fiches sold on these days, with their recordings, and the total."""
    rows, total = _rows(session, days, reach, page)
    calls = _calls(session, [row.id for row in rows])
    documents: list[Document] = [
        {
            "ficheId": row.fiche_id,
            "groupe": row.groupe,
            "agenceNom": row.agence_nom,
            "prospectNom": row.prospect_nom,
            "prospectPrenom": row.prospect_prenom,
            "prospectEmail": row.prospect_email,
            "prospectTel": row.prospect_tel,
            "fetchedAt": iso(row.fetched_at),
            "createdAt": _created_at(row),
            "transcription": _transcription_of(calls.get(row.id, ())),
            "recordings": [
                {
                    "id": str(call.id),
                    "callId": call.call_id,
                    "hasTranscription": call.has_transcription,
                    "transcribedAt": call.transcribed_at and iso(call.transcribed_at),
                    "startTime": iso(call.start_time),
                    "durationSeconds": call.duration_seconds,
                }
                for call in calls.get(row.id, ())
            ],
        }
        for row in rows
    ]
    return documents, total


def fiches_in_short(
    session: Session, days: Iterable[date], reach: Reach, page: FichePage
) -> tuple[list[Document], int]:
    """Return a page of the fiches sold on these days, with their numbers of calls, and the total."""
    rows, total = _rows(session, days, reach, page)
    counts = _counts(session, [row.id for row in rows])
    documents: list[Document] = [
        {
            "ficheId": row.fiche_id,
            "groupe": row.groupe,
            "prospectNom": row.prospect_nom,
            "prospectPrenom": row.prospect_prenom,
            "recordingsCount": counts.get(row.id, 0),
            "createdAt": _created_at(row),
        }
        for row in rows
    ]
    return documents, total


def fiches_by_day(session: Session, days: Iterable[date], reach: Reach) -> dict[date, int]:
    """Return the number of fiches sold per day. Days without fiches are omitted."""
    rows = session.execute(
        select(FicheCacheRow.sales_date, func.count())
        .where(*_sold(session, days, reach))
        .group_by(FicheCacheRow.sales_date)
    ).tuples()
    return {date.fromisoformat(day): count for day, count in rows if day}


def cache_row(session: Session, fiche_id: str, reach: Reach) -> Document:
    wanted = (FicheCacheRow.fiche_id == fiche_id, within(session, reach))
    fiche = session.scalar(select(FicheCacheRow).where(*wanted))
    if fiche is None:
        raise NotFoundError("Fiche not cached")
    return {
        "ficheId": fiche.fiche_id,
        "groupe": fiche.groupe,
        "prospectNom": fiche.prospect_nom,
        "prospectPrenom": fiche.prospect_prenom,
        "recordingsCount": _counts(session, [fiche.id]).get(fiche.id, 0),
        "fetchedAt": iso(fiche.fetched_at),
        "expiresAt": iso(fiche.expires_at),
    }


def _sold(
    session: Session, days: Iterable[date], reach: Reach
) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    on_days = among(session, FicheCacheRow.sales_date, [day.isoformat() for day in days])
    return on_days, within(session, reach)


def _rows(
    session: Session, days: Iterable[date], reach: Reach, page: FichePage
) -> tuple[Sequence[Row[Any]], int]:
    """Return the rows of a page of fiches, and the number of all fiches sold."""
    fiche, sold = FicheCacheRow, _sold(session, days, reach)
    total = session.scalar(select(func.count()).select_from(fiche).where(*sold)) or 0
    query = (
        select(
            fiche.id, fiche.fiche_id, func.coalesce(INFORMATION.c.groupe, fiche.groupe).label("groupe"),
            fiche.agence_nom, fiche.prospect_nom, fiche.prospect_prenom, fiche.prospect_email, fiche.prospect_tel,
            fiche.fetched_at, INFORMATION.c.date_insertion.label("inserted_at"),
            fiche.raw_data["date_insertion"].as_string().label("listed_at"),
        )
        .outerjoin(INFORMATION, INFORMATION.c.fiche_cache_id == fiche.id)
        .where(*sold)
        .order_by(fiche.sales_date, fiche.fiche_id)
        .limit(page.limit)
        .offset(page.offset)
    )  # fmt: skip
    return session.execute(query).all(), total


def _calls(session: Session, keys: Iterable[int]) -> dict[int, list[Row[Any]]]:
    """The calls of each fiche, oldest first, without vanished ones."""
    call = CallRecordingRow
    query = (
        select(
            call.fiche_cache_id, call.id, call.call_id, call.has_transcription, call.transcribed_at, call.start_time,
            call.duration_seconds,
        )
        .where(among(session, call.fiche_cache_id, list(keys)), call.vanished_at.is_(None))
        .order_by(call.start_time, call.call_id)
    )  # fmt: skip
    found = defaultdict[int, list[Row[Any]]](list)
    for row in session.execute(query):
        found[row.fiche_cache_id].append(row)
    return found


def _counts(session: Session, keys: Sequence[int]) -> dict[int, int]:
    call = CallRecordingRow
    query = (
        select(call.fiche_cache_id, func.count())
        .where(among(session, call.fiche_cache_id, keys), call.vanished_at.is_(None))
        .group_by(call.fiche_cache_id)
    )
    return dict(session.execute(query).tuples().all())


def _transcription_of(calls: Sequence[Row[Any]]) -> Document:
    done = [call for call in calls if call.has_transcription]
    moments = [call.transcribed_at for call in done if call.transcribed_at is not None]
    return transcription_document(len(calls), len(done), max(moments, default=None))


def _created_at(row: Row[Any]) -> str | None:
    """When the fiche was created in the CRM, according to its details or else to the sales list. None if no date
    can be parsed."""
    for text in filter(None, (row.inserted_at, row.listed_at)):
        try:
            return iso(crm_instant(text))
        except ValueError:
            continue
    return None
