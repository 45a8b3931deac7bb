"""Writing details: what replaces what. The sections are in `sections`, the recordings in `recordings` beside it."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import case, func
from sqlalchemy.orm import Session

from automation_pipeline.fiches.domain.fiche import DetailsFetched, FetchOutcome, FicheDetails, FicheNotFound
from automation_pipeline.fiches.store.recordings import cache_ids, mark_vanished, upsert_recordings
from automation_pipeline.fiches.store.sections import replace_sections
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.bulk import insert_into

DETAILS_LIVE_FOR = timedelta(hours=240)
NOT_FOUND_LIVES_FOR = timedelta(minutes=5)
NOT_FOUND = "NOT_FOUND"

_DETAIL_FIELDS = (
    "groupe", "agence_nom", "prospect_nom", "prospect_prenom", "prospect_email", "prospect_tel", "cle", "raw_data",
    "fetched_at", "details_fetched_at", "expires_at",
)  # fmt: skip
_VERDICT_FIELDS = ("details_success", "details_message", "not_found_until")


def save_outcomes(session: Session, outcomes: Sequence[FetchOutcome], now: datetime) -> None:
    """Details replace details; a not-found marker leaves what was known in place; other outcomes change nothing.

    The number of statements does not follow the number of fiches. Their rows are taken first, in the order of the
    fiche ids: two writers of the same fiches wait for each other instead of locking crosswise.
    """
    told = {o.fiche_id: o for o in outcomes if isinstance(o, DetailsFetched | FicheNotFound)}
    in_order = [told[fiche_id] for fiche_id in sorted(told)]
    if not in_order:
        return
    _upsert_fiches(session, [_row(outcome, now) for outcome in in_order])
    found = {o.fiche_id: o.details for o in in_order if isinstance(o, DetailsFetched)}
    if not found:
        return
    keys = cache_ids(session, found)
    recordings = {fiche_id: details.recordings for fiche_id, details in found.items()}
    replace_sections(session, {keys[fiche_id]: details for fiche_id, details in found.items()})
    mark_vanished(session, recordings, keys, now)
    upsert_recordings(session, recordings, keys)


def _upsert_fiches(session: Session, rows: Sequence[dict[str, object]]) -> None:
    """One pass for both verdicts: rows taken in two passes would be taken in no order."""
    insert = insert_into(session, FicheCache)
    given = insert.excluded
    changes = {
        **{field: given[field] for field in _VERDICT_FIELDS},
        **{
            field: case((given.details_success, given[field]), else_=getattr(FicheCache, field))
            for field in _DETAIL_FIELDS
        },
        "sales_date": func.coalesce(FicheCache.sales_date, given.sales_date),
    }
    session.connection().execute(insert.on_conflict_do_update(index_elements=["fiche_id"], set_=changes), rows)


def _row(outcome: DetailsFetched | FicheNotFound, now: datetime) -> dict[str, object]:
    match outcome:
        case DetailsFetched(fiche_id, details, asked_at):
            return {"fiche_id": fiche_id, **_details_row(details, now), "details_fetched_at": asked_at or now}
        case FicheNotFound(fiche_id):
            until = now + NOT_FOUND_LIVES_FOR
            verdict = {"details_success": False, "details_message": NOT_FOUND, "not_found_until": until}
            unknown = dict.fromkeys((*_DETAIL_FIELDS, "sales_date"))
            return {"fiche_id": fiche_id, **unknown, **verdict, "raw_data": {}, "fetched_at": now, "expires_at": until}


def _details_row(details: FicheDetails, now: datetime) -> dict[str, object]:
    return {
        "groupe": details.groupe,
        "agence_nom": details.agence_nom,
        "prospect_nom": details.prospect_nom,
        "prospect_prenom": details.prospect_prenom,
        "prospect_email": details.prospect_email,
        "prospect_tel": details.prospect_tel,
        "cle": details.cle,
        "sales_date": details.inserted_on and details.inserted_on.isoformat(),
        "raw_data": dict(details.rest),
        "fetched_at": now,
        "expires_at": now + DETAILS_LIVE_FOR,
        "details_success": True,
        "details_message": None,
        "not_found_until": None,
    }
