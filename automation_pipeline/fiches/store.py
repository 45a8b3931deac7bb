"""Queries of the CRM mirror, each named after its question."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import case, select
from sqlalchemy.orm import Session

from automation_pipeline.fiches.domain.fiche import DetailsFetched, FetchOutcome, FicheNotFound
from automation_pipeline.fiches.tables import FicheCache, RecordingRow
from automation_pipeline.storage.bulk import insert_into, upsert

DETAILS_LIVE_FOR = timedelta(hours=240)
NOT_FOUND_LIVES_FOR = timedelta(minutes=5)
NOT_FOUND = "NOT_FOUND"

_DETAIL_FIELDS = (
    "groupe", "agence_nom", "prospect_nom", "prospect_prenom", "prospect_email", "prospect_tel", "cle",
    "details_success", "details_message", "raw_data", "fetched_at", "details_fetched_at", "expires_at",
)  # fmt: skip
_RECORDING_FIELDS = ("start_time", "duration_seconds", "direction", "from_number", "to_number", "answered")


def save_outcomes(session: Session, outcomes: Sequence[FetchOutcome], now: datetime) -> None:
    """Details replace details; a not-found marker leaves what was known in place; a failed fetch changes nothing."""
    found = [outcome for outcome in outcomes if isinstance(outcome, DetailsFetched)]
    missing = [outcome for outcome in outcomes if isinstance(outcome, FicheNotFound)]
    upsert(
        session,
        FicheCache,
        [_details_row(outcome, now) for outcome in found],
        key=("fiche_id",),
        fields=_DETAIL_FIELDS,
    )
    upsert(
        session,
        FicheCache,
        [_not_found_row(outcome, now) for outcome in missing],
        key=("fiche_id",),
        fields=("details_success", "details_message", "fetched_at", "expires_at"),
    )
    _save_recordings(session, found)


def _save_recordings(session: Session, found: Sequence[DetailsFetched]) -> None:
    ids = dict(
        session.execute(
            select(FicheCache.fiche_id, FicheCache.id).where(FicheCache.fiche_id.in_([f.fiche_id for f in found]))
        )
        .tuples()
        .all()
    )
    rows = [
        {
            "fiche_cache_id": ids[outcome.fiche_id],
            "call_id": recording.call_id,
            "recording_url": recording.url,
            "start_time": recording.started_at,
            "duration_seconds": recording.duration_seconds,
            "direction": recording.direction,
            "from_number": recording.from_number,
            "to_number": recording.to_number,
            "answered": recording.answered,
        }
        for outcome in found
        for recording in outcome.details.recordings
    ]
    if not rows:
        return
    insert = insert_into(session, RecordingRow)
    # The CRM sometimes forgets a URL that it gave before.
    kept_url = case(
        (insert.excluded.recording_url == "", RecordingRow.recording_url), else_=insert.excluded.recording_url
    )
    changes = {field: insert.excluded[field] for field in _RECORDING_FIELDS}
    session.connection().execute(
        insert.on_conflict_do_update(
            index_elements=["fiche_cache_id", "call_id"], set_={**changes, "recording_url": kept_url}
        ),
        rows,
    )


def _details_row(outcome: DetailsFetched, now: datetime) -> dict[str, object]:
    details = outcome.details
    return {
        "fiche_id": details.fiche_id,
        "groupe": details.groupe,
        "agence_nom": details.agence_nom,
        "prospect_nom": details.prospect_nom,
        "prospect_prenom": details.prospect_prenom,
        "prospect_email": details.prospect_email,
        "prospect_tel": details.prospect_tel,
        "cle": details.cle,
        "details_success": True,
        "details_message": None,
        "raw_data": details.payload,
        "fetched_at": now,
        "details_fetched_at": now,
        "expires_at": now + DETAILS_LIVE_FOR,
    }


def _not_found_row(outcome: FicheNotFound, now: datetime) -> dict[str, object]:
    return {
        "fiche_id": outcome.fiche_id,
        "details_success": False,
        "details_message": NOT_FOUND,
        "raw_data": {},
        "fetched_at": now,
        "expires_at": now + NOT_FOUND_LIVES_FOR,
    }
