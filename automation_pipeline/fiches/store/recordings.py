"""Writing recordings. The caller has written their fiches in the same transaction, and so holds the fiches' rows."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import case, func, select, update
from sqlalchemy.orm import Session

from automation_pipeline.fiches.domain.fiche import Recording
from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.storage.bulk import among, insert_into

_OVERWRITTEN = (
    "recording_date", "recording_time", "start_time", "duration_seconds", "direction", "from_number", "to_number",
    "answered", "vanished_at",
)  # fmt: skip


def cache_ids(session: Session, fiche_ids: Iterable[str]) -> dict[str, int]:
    """The keys of the fiches' rows, by fiche id."""
    query = select(FicheCache.fiche_id, FicheCache.id).where(among(session, FicheCache.fiche_id, fiche_ids))
    return dict(session.execute(query).tuples().all())


def save_recordings(session: Session, recordings: Mapping[str, Sequence[Recording]]) -> None:
    """Insert or refresh the recordings of these fiches (by fiche id); those that are not named stay as they are.

    The CRM sometimes forgets a URL that it gave before: a URL is replaced by another one but never by none. Whatever
    is named has not vanished.
    """
    upsert_recordings(session, recordings, cache_ids(session, recordings))


def upsert_recordings(session: Session, recordings: Mapping[str, Sequence[Recording]], keys: Mapping[str, int]) -> None:
    """`save_recordings` for a caller who knows the keys of the fiches' rows."""
    rows = [_row(keys[fiche_id], call) for fiche_id in sorted(recordings) for call in recordings[fiche_id]]
    if not rows:
        return
    insert = insert_into(session, RecordingRow)
    given = insert.excluded
    changes = {
        **{field: given[field] for field in _OVERWRITTEN},
        "recording_url": case((given.recording_url == "", RecordingRow.recording_url), else_=given.recording_url),
        "uuid": func.coalesce(given.uuid, RecordingRow.uuid),
    }
    statement = insert.on_conflict_do_update(index_elements=["fiche_cache_id", "call_id"], set_=changes)
    session.connection().execute(statement, rows)


def mark_vanished(
    session: Session, recordings: Mapping[str, Sequence[Recording]], keys: Mapping[str, int], now: datetime
) -> None:
    """Mark the recordings of these fiches that are not among those named. They are kept: work may hang on them."""
    named = {(keys[fiche_id], call.call_id) for fiche_id, calls in recordings.items() for call in calls}
    present = session.execute(
        select(RecordingRow.id, RecordingRow.fiche_cache_id, RecordingRow.call_id).where(
            among(session, RecordingRow.fiche_cache_id, [keys[fiche_id] for fiche_id in recordings]),
            RecordingRow.vanished_at.is_(None),
        )
    ).tuples()
    vanished = [row_id for row_id, *place in present if tuple(place) not in named]
    if vanished:
        session.execute(
            update(RecordingRow)
            .where(among(session, RecordingRow.id, vanished))
            .values(vanished_at=now)
            .execution_options(synchronize_session=False)
        )


def _row(fiche_cache_id: int, call: Recording) -> dict[str, object]:
    return {
        "fiche_cache_id": fiche_cache_id,
        "call_id": call.call_id,
        "recording_url": call.url,
        "recording_date": call.recording_date,
        "recording_time": call.recording_time,
        "uuid": call.uuid,
        "start_time": call.started_at,
        "duration_seconds": call.duration_seconds,
        "direction": call.direction,
        "from_number": call.from_number,
        "to_number": call.to_number,
        "answered": call.answered,
        "vanished_at": None,
    }
