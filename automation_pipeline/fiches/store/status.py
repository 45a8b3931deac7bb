"""How fiches stand, many at once: the rows of date lists, and the status of some. The part about audits is in the room
above."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from automation_pipeline.core.access import Reach
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.instants import iso
from automation_pipeline.fiches.domain.fiche_status import (
    Document,
    Transcribed,
    transcription_part,
    unknown_transcription,
)
from automation_pipeline.fiches.domain.times import crm_instant
from automation_pipeline.fiches.store.visibility import within
from automation_pipeline.fiches.tables import FicheCache, InformationRow, RecordingRow
from automation_pipeline.storage.bulk import among


@dataclass(frozen=True)
class Page:
    limit: int
    offset: int = 0


def statuses_of(session: Session, fiche_ids: Iterable[str], reach: Reach) -> dict[str, Document]:
    """One for each of the fiches; what is hidden or missing has the empty one."""
    asked = list(dict.fromkeys(fiche_ids))
    wanted = (among(session, FicheCache.fiche_id, asked), within(session, reach))
    keys = {
        fiche_id: key
        for key, fiche_id in session.execute(select(FicheCache.id, FicheCache.fiche_id).where(*wanted)).tuples()
    }
    calls = _calls(session, keys.values())
    return {fiche_id: _status(fiche_id, keys.get(fiche_id), calls) for fiche_id in asked}


def fiches_sold(session: Session, days: Sequence[date], reach: Reach, page: Page) -> tuple[list[Document], int]:
    """The rows of a date list, with their recordings; and how many there are on all pages. `days` are in a row."""
    if not days:
        return [], 0
    sold = _sold(session, days, reach)
    total = session.scalar(select(func.count()).select_from(FicheCache).where(*sold)) or 0
    rows = _rows(session, sold, page)
    calls = _calls(session, [row.key for row in rows])
    return [_fiche(row, calls.get(row.key, ())) for row in rows], total


def fiches_in_short(session: Session, days: Iterable[date], reach: Reach, page: Page) -> tuple[list[Document], int]:
    """Who was sold to on these days, and how many calls there are; and how many fiches on all pages."""
    sold = (among(session, FicheCache.sales_date, [day.isoformat() for day in days]), within(session, reach))
    total = session.scalar(select(func.count()).select_from(FicheCache).where(*sold)) or 0
    rows = _rows(session, sold, page)
    counts = _counts(session, [row.key for row in rows])
    return [_in_short(row, counts.get(row.key, 0)) for row in rows], total


def fiches_by_day(session: Session, days: Iterable[date], reach: Reach) -> dict[date, int]:
    """How many were sold on these days; what there are none of is left out."""
    sold = (among(session, FicheCache.sales_date, [day.isoformat() for day in days]), within(session, reach))
    query = select(FicheCache.sales_date, func.count()).where(*sold).group_by(FicheCache.sales_date)
    return {date.fromisoformat(day): count for day, count in session.execute(query).tuples() if day}


def cache_row(session: Session, fiche_id: str, reach: Reach) -> Document:
    wanted = (FicheCache.fiche_id == fiche_id, within(session, reach))
    fiche = session.scalar(select(FicheCache).where(*wanted))
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


@dataclass(frozen=True)
class _Call:
    fiche: int
    id: int
    call_id: str
    done: bool
    transcribed_at: datetime | None
    start_time: datetime
    seconds: int


@dataclass(frozen=True)
class _Row:
    key: int
    fiche_id: str
    groupe: str | None
    agence_nom: str | None
    prospect_nom: str | None
    prospect_prenom: str | None
    prospect_email: str | None
    prospect_tel: str | None
    fetched_at: datetime
    inserted_at: str | None
    listed_at: str | None


def _sold(session: Session, days: Sequence[date], reach: Reach) -> tuple[ColumnElement[bool], ...]:
    return FicheCache.sales_date.between(days[0].isoformat(), days[-1].isoformat()), within(session, reach)


def _rows(session: Session, wanted: Sequence[ColumnElement[bool]], page: Page) -> list[_Row]:
    fiche = FicheCache
    query = (
        select(
            fiche.id, fiche.fiche_id, func.coalesce(InformationRow.groupe, fiche.groupe), fiche.agence_nom,
            fiche.prospect_nom, fiche.prospect_prenom, fiche.prospect_email, fiche.prospect_tel, fiche.fetched_at,
            InformationRow.date_insertion, fiche.raw_data["date_insertion"].as_string(),
        )
        .outerjoin(InformationRow, InformationRow.fiche_cache_id == fiche.id)
        .where(*wanted)
        .order_by(fiche.sales_date, fiche.fiche_id)
        .limit(page.limit)
        .offset(page.offset)
    )  # fmt: skip
    return [_Row(*row) for row in session.execute(query).tuples()]


def _calls(session: Session, keys: Iterable[int]) -> dict[int, list[_Call]]:
    """Those of each fiche that the CRM still names, the oldest first."""
    call = RecordingRow
    query = (
        select(
            call.fiche_cache_id, call.id, call.call_id, call.has_transcription, call.transcribed_at, call.start_time,
            call.duration_seconds,
        )
        .where(among(session, call.fiche_cache_id, list(keys)), call.vanished_at.is_(None))
        .order_by(call.start_time, call.call_id)
    )  # fmt: skip
    found: dict[int, list[_Call]] = {}
    for row in session.execute(query).tuples():
        one = _Call(*row)
        found.setdefault(one.fiche, []).append(one)
    return found


def _counts(session: Session, keys: Sequence[int]) -> dict[int, int]:
    query = (
        select(RecordingRow.fiche_cache_id, func.count())
        .where(among(session, RecordingRow.fiche_cache_id, keys), RecordingRow.vanished_at.is_(None))
        .group_by(RecordingRow.fiche_cache_id)
    )
    return dict(session.execute(query).tuples().all())


def _status(fiche_id: str, key: int | None, calls: Mapping[int, Sequence[_Call]]) -> Document:
    told = unknown_transcription() if key is None else transcription_part(_transcribed(calls.get(key, ())))
    return {"ficheId": fiche_id, "hasData": key is not None, "transcription": told}


def _transcribed(calls: Sequence[_Call]) -> Transcribed:
    moments = [call.transcribed_at for call in calls if call.done and call.transcribed_at is not None]
    return Transcribed(len(calls), sum(call.done for call in calls), max(moments, default=None))


def _fiche(row: _Row, calls: Sequence[_Call]) -> Document:
    return {
        "ficheId": row.fiche_id,
        "groupe": row.groupe,
        "agenceNom": row.agence_nom,
        "prospectNom": row.prospect_nom,
        "prospectPrenom": row.prospect_prenom,
        "prospectEmail": row.prospect_email,
        "prospectTel": row.prospect_tel,
        "fetchedAt": iso(row.fetched_at),
        "createdAt": _created_at(row),
        "transcription": transcription_part(_transcribed(calls)),
        "recordings": [_recording(call) for call in calls],
    }


def _in_short(row: _Row, recordings: int) -> Document:
    return {
        "ficheId": row.fiche_id,
        "groupe": row.groupe,
        "prospectNom": row.prospect_nom,
        "prospectPrenom": row.prospect_prenom,
        "recordingsCount": recordings,
        "createdAt": _created_at(row),
    }


def _recording(call: _Call) -> Document:
    return {
        "id": str(call.id),
        "callId": call.call_id,
        "hasTranscription": call.done,
        "transcribedAt": call.transcribed_at and iso(call.transcribed_at),
        "startTime": iso(call.start_time),
        "durationSeconds": call.seconds,
    }


def _created_at(row: _Row) -> str | None:
    """When the fiche was made in the CRM, as its details say it, else the sales list; None if nobody can read it."""
    for text in filter(None, (row.inserted_at, row.listed_at)):
        try:
            return iso(crm_instant(text))
        except ValueError:
            continue
    return None
