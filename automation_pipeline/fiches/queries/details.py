"""Queries of details: store a fiche's details, sections and recordings, and find the fresh ones."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import TypeAlias

from sqlalchemy import and_, case, delete, exists, func, insert, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.fiches.models.days import DayCoverage, crm_day
from automation_pipeline.fiches.models.fiches import (
    CrmFiche,
    DetailsFetched,
    DetailsKnown,
    FetchOutcome,
    FicheNotFound,
    Recording,
)
from automation_pipeline.fiches.models.sections import (
    AncienContrat,
    Compte,
    Paiement,
    Produit,
    Section,
)
from automation_pipeline.fiches.tables import SECTION_TABLES, CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.statements import among, insert_into

_OVERWRITTEN = (
    "recording_date", "recording_time", "start_time", "duration_seconds", "direction", "from_number", "to_number",
    "answered", "vanished_at",
)  # fmt: skip


def cache_ids(session: Session, fiche_ids: Iterable[str]) -> dict[str, int]:
    """The keys of the fiches' rows, by fiche id."""
    query = select(FicheCacheRow.fiche_id, FicheCacheRow.id).where(
        among(session, FicheCacheRow.fiche_id, fiche_ids)
    )
    return dict(session.execute(query).tuples().all())


def save_recordings(session: Session, recordings: Mapping[str, Sequence[Recording]]) -> None:
    """Insert or update these recordings, by fiche id. Other recordings of the fiches stay.

    The CRM sometimes omits a URL that it sent before: a URL is replaced by another one, but never
    removed. A recording that is sent again is no longer vanished.
    """
    upsert_recordings(session, recordings, cache_ids(session, recordings))


def upsert_recordings(
    session: Session, recordings: Mapping[str, Sequence[Recording]], keys: Mapping[str, int]
) -> None:
    """`save_recordings` for a caller that has the primary keys of the fiches' rows."""
    rows = [
        _recording_row(keys[fiche_id], call)
        for fiche_id in sorted(recordings)
        for call in recordings[fiche_id]
    ]
    if not rows:
        return
    insert = insert_into(session, CallRecordingRow)
    given = insert.excluded
    changes = {
        **{field: given[field] for field in _OVERWRITTEN},
        "recording_url": case(
            (given.recording_url == "", CallRecordingRow.recording_url), else_=given.recording_url
        ),
        "uuid": func.coalesce(given.uuid, CallRecordingRow.uuid),
    }
    statement = insert.on_conflict_do_update(
        index_elements=["fiche_cache_id", "call_id"], set_=changes
    )
    session.connection().execute(statement, rows)


def mark_vanished(
    session: Session,
    recordings: Mapping[str, Sequence[Recording]],
    keys: Mapping[str, int],
    now: datetime,
) -> None:
    """Mark the recordings of these fiches that the CRM no longer sends. The rows stay: transcripts and
    tasks refer to them."""
    named = {
        (keys[fiche_id], call.call_id) for fiche_id, calls in recordings.items() for call in calls
    }
    present = session.execute(
        select(
            CallRecordingRow.id, CallRecordingRow.fiche_cache_id, CallRecordingRow.call_id
        ).where(
            among(
                session,
                CallRecordingRow.fiche_cache_id,
                [keys[fiche_id] for fiche_id in recordings],
            ),
            CallRecordingRow.vanished_at.is_(None),
        )
    ).tuples()
    vanished = [row_id for row_id, *place in present if tuple(place) not in named]
    if vanished:
        session.execute(
            update(CallRecordingRow)
            .where(among(session, CallRecordingRow.id, vanished))
            .values(vanished_at=now)
            .execution_options(synchronize_session=False)
        )


def _recording_row(fiche_cache_id: int, call: Recording) -> dict[str, object]:
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


Row: TypeAlias = dict[str, object]
RowsOf: TypeAlias = Callable[[CrmFiche], Sequence[Row]]


def _replace_sections(
    session: Session, details: Mapping[int, CrmFiche], stored: Collection[str]
) -> None:
    """Replace the sections, by primary key of the fiche's row. The caller has locked these rows.
    `stored` names the sections that have rows to delete."""
    connection = session.connection()
    for name, rows_of in _SECTIONS.items():
        table = SECTION_TABLES[name]
        if name in stored:
            keys = table.c.fiche_cache_id
            connection.execute(delete(table).where(among(session, keys, details)))
        rows = [
            {"fiche_cache_id": key, **row}
            for key, fiche in details.items()
            for row in rows_of(fiche)
        ]
        if rows:
            connection.execute(insert(table), rows)


def _keys_and_stored_sections(
    session: Session, fiche_ids: Iterable[str]
) -> tuple[dict[str, int], set[str]]:
    """The keys of the fiches' rows, and the names of the sections that any of the fiches has."""
    has = [
        exists().where(table.c.fiche_cache_id == FicheCacheRow.id)
        for table in SECTION_TABLES.values()
    ]
    rows = session.execute(
        select(FicheCacheRow.fiche_id, FicheCacheRow.id, *has).where(
            among(session, FicheCacheRow.fiche_id, fiche_ids)
        )
    ).all()
    stored = {
        name
        for _, _, *present in rows
        for name, is_there in zip(SECTION_TABLES, present, strict=True)
        if is_there
    }
    return {fiche_id: key for fiche_id, key, *_ in rows}, stored


def _numbered(sections: Sequence[Section], *unwanted: str, index: str = "row_index") -> list[Row]:
    return [
        {index: place, **_fields(section, *unwanted)}
        for place, section in enumerate(sections, start=1)
    ]


def _fields(section: Section, *unwanted: str) -> Row:
    row = dict(vars(section))  # only the modelled fields: `model_extra` has the others
    for name in unwanted:
        del row[name]
    return row


def _single(section: Section | None, *unwanted: str) -> list[Row]:
    return [] if section is None else [_fields(section, *unwanted)]


def _souscription(details: CrmFiche) -> list[Row]:
    whole = details.elements_souscription
    if whole is None:
        return []
    paiement = whole.paiement
    flat = {
        **_flat("ancien_", AncienContrat, whole.ancien_contrat),
        **_flat("produit_", Produit, whole.produit),
        **_flat("paiement_", Paiement, paiement, "compte_prelevement", "compte_virement"),
        **_flat("prelevement_", Compte, paiement and paiement.compte_prelevement),
        **_flat("virement_", Compte, paiement and paiement.compte_virement),
    }
    return [_fields(whole, "ancien_contrat", "produit", "paiement") | flat]


def _flat(prefix: str, kind: type[Section], section: Section | None, *unwanted: str) -> Row:
    names = [name for name in kind.model_fields if name not in unwanted]
    return {prefix + name: None if section is None else getattr(section, name) for name in names}


def _gammes(details: CrmFiche) -> list[Row]:
    return [
        {"row_index": row_index, **row}
        for row_index, tarification in enumerate(details.tarification, start=1)
        for row in _numbered(tarification.gammes, "formules", index="gamme_index")
    ]


def _formules(details: CrmFiche) -> list[Row]:
    return [
        {"row_index": row_index, "gamme_index": gamme_index, **row}
        for row_index, tarification in enumerate(details.tarification, start=1)
        for gamme_index, gamme in enumerate(tarification.gammes, start=1)
        for row in _numbered(gamme.formules, "details", index="formule_index")
    ]


def _formule_details(details: CrmFiche) -> list[Row]:
    return [
        {
            "row_index": row_index,
            "gamme_index": gamme_index,
            "formule_index": formule_index,
            "detail_key": key,
            "detail_value": value,
        }
        for row_index, tarification in enumerate(details.tarification, start=1)
        for gamme_index, gamme in enumerate(tarification.gammes, start=1)
        for formule_index, formule in enumerate(gamme.formules, start=1)
        for key, value in formule.details.items()
    ]


_SECTIONS: Mapping[str, RowsOf] = {
    "information": lambda details: _single(details.information, "fiche_id", "etiquettes"),
    "etiquettes": lambda details: _numbered(
        details.information.etiquettes, index="etiquette_index"
    ),
    "prospect": lambda details: _single(details.prospect),
    "conjoint": lambda details: _single(details.conjoint),
    "enfants": lambda details: _numbered(details.enfants),
    "mails": lambda details: _numbered(details.mails),
    "rendez_vous": lambda details: _numbered(details.rendez_vous),
    "commentaires": lambda details: _numbered(details.commentaires),
    "reclamations": lambda details: _numbered(details.reclamations),
    "documents": lambda details: _numbered(details.documents),
    "alertes": lambda details: _numbered(details.alertes),
    "raw_sections": lambda details: [
        {"section_key": key, "content": text} for key, text in details.raw_sections.items()
    ],
    "elements_souscription": _souscription,
    "autres_contrats": lambda details: _numbered(details.autres_contrats),
    "tarification": lambda details: _numbered(details.tarification, "gammes"),
    "tarification_gammes": _gammes,
    "tarification_formules": _formules,
    "tarification_formule_details": _formule_details,
}


DETAILS_LIVE_FOR = timedelta(hours=240)
NOT_FOUND_LIVES_FOR = timedelta(minutes=5)
NOT_FOUND = "NOT_FOUND"

_DETAIL_FIELDS = (
    "groupe", "agence_nom", "prospect_nom", "prospect_prenom", "prospect_email", "prospect_tel", "cle", "raw_data",
    "fetched_at", "details_fetched_at", "expires_at",
)  # fmt: skip
_STATE_FIELDS = ("details_success", "details_message", "not_found_until")


def save_outcomes(session: Session, outcomes: Sequence[FetchOutcome], now: datetime) -> None:
    """Store outcomes: details replace details, a not-found marker keeps them, others change nothing.

    The number of statements does not grow with the number of fiches. The rows are locked first, in
    the order of the fiche ids, so that two writers of the same fiches do not deadlock.
    """
    answered = {o.fiche_id: o for o in outcomes if isinstance(o, DetailsFetched | FicheNotFound)}
    in_order = [answered[fiche_id] for fiche_id in sorted(answered)]
    if not in_order:
        return
    _upsert_fiches(session, [_fiche_row(outcome, now) for outcome in in_order])
    found = {o.fiche_id: o.details for o in in_order if isinstance(o, DetailsFetched)}
    if not found:
        return
    keys, stored = _keys_and_stored_sections(session, found)
    recordings = {fiche_id: details.recordings for fiche_id, details in found.items()}
    by_key = {keys[fiche_id]: details for fiche_id, details in found.items()}
    _replace_sections(session, by_key, stored)
    mark_vanished(session, recordings, keys, now)
    upsert_recordings(session, recordings, keys)


def _upsert_fiches(session: Session, rows: Sequence[dict[str, object]]) -> None:
    """One statement for details and not-found markers keeps the order in which rows are locked."""
    insert = insert_into(session, FicheCacheRow)
    given = insert.excluded
    changes = {
        **{field: given[field] for field in _STATE_FIELDS},
        **{
            field: case((given.details_success, given[field]), else_=getattr(FicheCacheRow, field))
            for field in _DETAIL_FIELDS
        },
        "sales_date": func.coalesce(FicheCacheRow.sales_date, given.sales_date),
    }
    session.connection().execute(
        insert.on_conflict_do_update(index_elements=["fiche_id"], set_=changes), rows
    )


def _fiche_row(outcome: DetailsFetched | FicheNotFound, now: datetime) -> dict[str, object]:
    match outcome:
        case DetailsFetched(fiche_id, details, asked_at):
            return {
                "fiche_id": fiche_id,
                **_details_row(details, now),
                "details_fetched_at": asked_at or now,
            }
        case FicheNotFound(fiche_id):
            until = now + NOT_FOUND_LIVES_FOR
            verdict = {
                "details_success": False,
                "details_message": NOT_FOUND,
                "not_found_until": until,
            }
            unknown = dict.fromkeys((*_DETAIL_FIELDS, "sales_date"))
            return {
                "fiche_id": fiche_id,
                **unknown,
                **verdict,
                "raw_data": {},
                "fetched_at": now,
                "expires_at": until,
            }


def _details_row(details: CrmFiche, now: datetime) -> dict[str, object]:
    information, prospect = details.information, details.prospect
    try:
        sales_date = crm_day(information.date_insertion).isoformat()
    except ValueError:
        sales_date = None
    return {
        "groupe": information.groupe,
        "agence_nom": information.agence_nom,
        "prospect_nom": prospect and prospect.nom,
        "prospect_prenom": prospect and prospect.prenom,
        "prospect_email": prospect and prospect.mail,
        "prospect_tel": prospect and prospect.telephone,
        "cle": information.cle,
        "sales_date": sales_date,
        "raw_data": dict(details.rest),
        "fetched_at": now,
        "expires_at": now + DETAILS_LIVE_FOR,
        "details_success": True,
        "details_message": None,
        "not_found_until": None,
    }


_IS_NOT_FOUND = and_(
    FicheCacheRow.details_success.is_(False), FicheCacheRow.details_message == NOT_FOUND
)
_HAS_DETAILS = and_(
    FicheCacheRow.details_success.is_(True), FicheCacheRow.details_fetched_at.is_not(None)
)


def known_since(
    session: Session, fiche_ids: Sequence[str], since: datetime, now: datetime
) -> list[DetailsKnown | FicheNotFound]:
    """The fiches whose details or absence are known since then. Absence expires within minutes."""
    recordings = (
        select(func.count())
        .where(
            CallRecordingRow.fiche_cache_id == FicheCacheRow.id,
            CallRecordingRow.vanished_at.is_(None),
        )
        .scalar_subquery()
    )
    marked_since = max(since + NOT_FOUND_LIVES_FOR, now)
    known = and_(_HAS_DETAILS, FicheCacheRow.details_fetched_at >= since)
    absent = and_(_IS_NOT_FOUND, FicheCacheRow.not_found_until >= marked_since)
    query = select(FicheCacheRow.fiche_id, _HAS_DETAILS, recordings).where(
        among(session, FicheCacheRow.fiche_id, fiche_ids), or_(known, absent)
    )
    return [
        DetailsKnown(fiche_id, count) if details else FicheNotFound(fiche_id)
        for fiche_id, details, count in session.execute(query).tuples()
    ]


def coverage_of(session: Session, day: date) -> DayCoverage:
    fiches, with_details, not_found = (
        session.execute(
            select(
                func.count(),
                func.count().filter(_HAS_DETAILS),
                func.count().filter(_IS_NOT_FOUND),
            ).where(FicheCacheRow.sales_date == day.isoformat())
        )
        .tuples()
        .one()
    )
    return DayCoverage(fiches, with_details, not_found)
