"""Queries of fiches: visibility, one fiche with its sections and recordings, lists of days, status."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import ColumnElement, FromClause, RowMapping, false, func, select, true
from sqlalchemy.orm import Session

from automation_pipeline.core.access import Reach, Scope
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.models.days import crm_instant
from automation_pipeline.fiches.queries.details import NOT_FOUND
from automation_pipeline.fiches.tables import (
    SECTION_TABLES,
    SINGLE_SECTIONS,
    CallRecordingRow,
    FicheCacheRow,
    InformationRow,
)
from automation_pipeline.storage.statements import among

Document = dict[str, object]


@dataclass(frozen=True)
class CallTranscription:
    """The number of a fiche's transcribed recordings. Vanished recordings do not count."""

    total: int
    transcribed: int
    last_at: datetime | None = None

    @property
    def pending(self) -> int:
        return self.total - self.transcribed

    @property
    def percentage(self) -> int:
        return round(100 * self.transcribed / self.total) if self.total else 100


def transcription_document(calls: CallTranscription) -> Document:
    return {
        "total": calls.total,
        "transcribed": calls.transcribed,
        "pending": calls.pending,
        "percentage": calls.percentage,
        "isComplete": calls.pending == 0,
        "lastTranscribedAt": calls.last_at and iso(calls.last_at),
    }


def unknown_transcription_document() -> Document:
    """The same document for a fiche that is not mirrored and for one that the caller may not see."""
    return {**transcription_document(CallTranscription(0, 0)), "percentage": 0, "isComplete": False}


def within(session: Session, reach: Reach) -> ColumnElement[bool]:
    """A condition on `FicheCacheRow`: the fiche is in reach."""
    if reach.scope is Scope.ALL:
        return true()
    # Correlated explicitly, because the enclosing query may join InformationRow too.
    details = (
        select(InformationRow)
        .where(InformationRow.fiche_cache_id == FicheCacheRow.id)
        .correlate(FicheCacheRow)
    )
    if reach.scope is Scope.SELF:
        if reach.crm_user_id is None:
            return false()
        return details.where(InformationRow.attribution_user_id == reach.crm_user_id).exists()
    named = details.with_only_columns(InformationRow.groupe).scalar_subquery()
    return among(session, func.coalesce(named, FicheCacheRow.groupe), sorted(reach.groupes))


def visible_fiches(session: Session, reach: Reach, fiche_ids: Iterable[str]) -> set[str]:
    """The fiches in reach. With full reach these are all, including fiches that are not mirrored."""
    requested = set(fiche_ids)
    if reach.is_whole:
        return requested
    wanted = (among(session, FicheCacheRow.fiche_id, sorted(requested)), within(session, reach))
    return set(session.scalars(select(FicheCacheRow.fiche_id).where(*wanted)))


def check_visible(session: Session, reach: Reach, fiche_ids: Iterable[str]) -> None:
    """Raise NotFoundError for the first fiche that is hidden or missing, without saying which."""
    requested = list(fiche_ids)
    visible = visible_fiches(session, reach, requested)
    hidden = next((fiche_id for fiche_id in requested if fiche_id not in visible), None)
    if hidden is not None:
        raise NotFoundError(f"Fiche {hidden} not found")


def check_mirrored(session: Session, fiche_id: str) -> None:
    if session.scalar(select(FicheCacheRow.id).where(FicheCacheRow.fiche_id == fiche_id)) is None:
        raise NotFoundError(f"Fiche {fiche_id} not found")


_HIDDEN = {"id", "fiche_cache_id"}


def fiche_document(session: Session, fiche_id: str) -> Document:
    """All stored data of a fiche. Raises NotFoundError."""
    table = FicheCacheRow.__table__
    fiche = session.execute(select(table).where(table.c.fiche_id == fiche_id)).mappings().first()
    if fiche is None:
        raise NotFoundError(f"Fiche {fiche_id} not found: `automation fiches sync` fetches it.")
    if fiche["details_message"] == NOT_FOUND:
        state = "not found"
    else:
        state = "full details" if fiche["details_fetched_at"] else "sales list only"
    sections: Document = {}
    for name, section in SECTION_TABLES.items():
        rows = _stored_rows(session, section, fiche["id"])
        sections[name] = next(iter(rows), None) if name in SINGLE_SECTIONS else rows
    recordings = _stored_rows(session, CallRecordingRow.__table__, fiche["id"])
    recordings.sort(key=lambda recording: str(recording["start_time"]))
    return {**_stored_document(fiche), "state": state, **sections, "recordings": recordings}


def _stored_rows(session: Session, table: FromClause, fiche_cache_id: int) -> list[Document]:
    query = select(table).where(table.c.fiche_cache_id == fiche_cache_id)
    rows = session.execute(query.order_by(*table.primary_key)).mappings()
    return [_stored_document(row) for row in rows]


def _stored_document(row: RowMapping) -> Document:
    return {
        str(name): iso(value) if isinstance(value, datetime) else value
        for name, value in row.items()
        if name not in _HIDDEN
    }


def recordings_of(session: Session, fiche_id: str, reach: Reach) -> list[Document]:
    """The fiche's recordings, including vanished ones. Raises NotFoundError."""
    fiche = session.scalar(
        select(FicheCacheRow.id).where(FicheCacheRow.fiche_id == fiche_id, within(session, reach))
    )
    if fiche is None:
        raise NotFoundError(f"Fiche {fiche_id} not found")
    query = select(CallRecordingRow).where(CallRecordingRow.fiche_cache_id == fiche)
    rows = session.scalars(query.order_by(CallRecordingRow.start_time, CallRecordingRow.call_id))
    return [_recording_document(row, fiche_id) for row in rows]


def _recording_document(row: CallRecordingRow, fiche_id: str) -> Document:
    return {
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


@dataclass(frozen=True)
class FichePage:
    limit: int
    offset: int = 0


def statuses_of(session: Session, fiche_ids: Iterable[str], reach: Reach) -> dict[str, Document]:
    """One status per fiche. A hidden or missing fiche has the empty status."""
    requested = list(dict.fromkeys(fiche_ids))
    wanted = (among(session, FicheCacheRow.fiche_id, requested), within(session, reach))
    keys = {
        fiche_id: key
        for key, fiche_id in session.execute(
            select(FicheCacheRow.id, FicheCacheRow.fiche_id).where(*wanted)
        ).tuples()
    }
    calls = _calls(session, keys.values())
    return {fiche_id: _status(fiche_id, keys.get(fiche_id), calls) for fiche_id in requested}


def fiches_sold(
    session: Session, days: Sequence[date], reach: Reach, page: FichePage
) -> tuple[list[Document], int]:
    """A page of the fiches sold on these consecutive days, with their recordings, and the total."""
    if not days:
        return [], 0
    sold = _sold(session, days, reach)
    total = session.scalar(select(func.count()).select_from(FicheCacheRow).where(*sold)) or 0
    rows = _rows(session, sold, page)
    calls = _calls(session, [row.key for row in rows])
    return [_listed_fiche_document(row, calls.get(row.key, ())) for row in rows], total


def fiches_in_short(
    session: Session, days: Iterable[date], reach: Reach, page: FichePage
) -> tuple[list[Document], int]:
    """A page of the fiches sold on these days, with their number of calls, and the total."""
    sold = (
        among(session, FicheCacheRow.sales_date, [day.isoformat() for day in days]),
        within(session, reach),
    )
    total = session.scalar(select(func.count()).select_from(FicheCacheRow).where(*sold)) or 0
    rows = _rows(session, sold, page)
    counts = _counts(session, [row.key for row in rows])
    return [_short_document(row, counts.get(row.key, 0)) for row in rows], total


def fiches_by_day(session: Session, days: Iterable[date], reach: Reach) -> dict[date, int]:
    """The number of fiches sold per day. Days without fiches are left out."""
    sold = (
        among(session, FicheCacheRow.sales_date, [day.isoformat() for day in days]),
        within(session, reach),
    )
    query = (
        select(FicheCacheRow.sales_date, func.count())
        .where(*sold)
        .group_by(FicheCacheRow.sales_date)
    )
    return {date.fromisoformat(day): count for day, count in session.execute(query).tuples() if day}


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
    return FicheCacheRow.sales_date.between(days[0].isoformat(), days[-1].isoformat()), within(
        session, reach
    )


def _rows(session: Session, wanted: Sequence[ColumnElement[bool]], page: FichePage) -> list[_Row]:
    fiche = FicheCacheRow
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
    found: dict[int, list[_Call]] = {}
    for row in session.execute(query).tuples():
        recording = _Call(*row)
        found.setdefault(recording.fiche, []).append(recording)
    return found


def _counts(session: Session, keys: Sequence[int]) -> dict[int, int]:
    query = (
        select(CallRecordingRow.fiche_cache_id, func.count())
        .where(
            among(session, CallRecordingRow.fiche_cache_id, keys),
            CallRecordingRow.vanished_at.is_(None),
        )
        .group_by(CallRecordingRow.fiche_cache_id)
    )
    return dict(session.execute(query).tuples().all())


def _status(fiche_id: str, key: int | None, calls: Mapping[int, Sequence[_Call]]) -> Document:
    transcription = (
        unknown_transcription_document()
        if key is None
        else transcription_document(_count_transcribed(calls.get(key, ())))
    )
    return {"ficheId": fiche_id, "hasData": key is not None, "transcription": transcription}


def _count_transcribed(calls: Sequence[_Call]) -> CallTranscription:
    moments = [
        call.transcribed_at for call in calls if call.done and call.transcribed_at is not None
    ]
    return CallTranscription(
        len(calls), sum(call.done for call in calls), max(moments, default=None)
    )


def _listed_fiche_document(row: _Row, calls: Sequence[_Call]) -> Document:
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
        "transcription": transcription_document(_count_transcribed(calls)),
        "recordings": [_call_document(call) for call in calls],
    }


def _short_document(row: _Row, recordings: int) -> Document:
    return {
        "ficheId": row.fiche_id,
        "groupe": row.groupe,
        "prospectNom": row.prospect_nom,
        "prospectPrenom": row.prospect_prenom,
        "recordingsCount": recordings,
        "createdAt": _created_at(row),
    }


def _call_document(call: _Call) -> Document:
    return {
        "id": str(call.id),
        "callId": call.call_id,
        "hasTranscription": call.done,
        "transcribedAt": call.transcribed_at and iso(call.transcribed_at),
        "startTime": iso(call.start_time),
        "durationSeconds": call.seconds,
    }


def _created_at(row: _Row) -> str | None:
    """When the fiche was created in the CRM, from its details or else the sales list; None if the date
    cannot be parsed."""
    for text in filter(None, (row.inserted_at, row.listed_at)):
        try:
            return iso(crm_instant(text))
        except ValueError:
            continue
    return None
