"""Queries of the CRM mirror: store sales lists, details and recordings, and find what is stored and visible."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta

from sqlalchemy import (
    ColumnElement,
    and_,
    case,
    delete,
    exists,
    false,
    func,
    insert,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.orm import Session

from automation_pipeline.core.access import Reach, Scope
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.models.days import DayCoverage, SalesDay, crm_day
from automation_pipeline.fiches.models.fiches import (
    CrmFiche,
    DetailsFetched,
    DetailsKnown,
    FetchOutcome,
    FicheNotFound,
    Recording,
    SalesList,
)
from automation_pipeline.fiches.models.sections import (
    AncienContrat,
    Compte,
    ElementsSouscription,
    Paiement,
    Produit,
    Section,
)
from automation_pipeline.fiches.tables import (
    INFORMATION,
    LIST_SECTIONS,
    SECTION_TABLES,
    CallRecordingRow,
    FicheCacheRow,
    SalesDayRow,
)
from automation_pipeline.storage.statements import among, insert_into, upsert

Row = dict[str, object]

DETAILS_LIVE_FOR = timedelta(hours=240)
NOT_FOUND_LIVES_FOR = timedelta(minutes=5)
NOT_FOUND = "NOT_FOUND"

_OVERWRITTEN = (
    "recording_date", "recording_time", "start_time", "duration_seconds", "direction", "from_number", "to_number",
    "answered", "vanished_at",
)  # fmt: skip


def save_recordings(
    session: Session,
    recordings: Mapping[str, Sequence[Recording]],
    keys: Mapping[str, int] | None = None,
) -> None:
    """Insert or update these recordings, given by fiche id. Other recordings of the fiches stay.

    The CRM sometimes omits a URL that it sent before, so a URL may be replaced but is never removed. A
    recording that is sent again is no longer vanished. `keys` are the primary keys of the fiches, if
    the caller knows them.
    """
    if keys is None:
        known = among(session, FicheCacheRow.fiche_id, recordings)
        keys = dict(
            session.execute(select(FicheCacheRow.fiche_id, FicheCacheRow.id).where(known))
            .tuples()
            .all()
        )
    rows = [
        {
            "fiche_cache_id": keys[fiche_id],
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


def _mark_vanished(
    session: Session,
    recordings: Mapping[str, Sequence[Recording]],
    keys: Mapping[str, int],
    now: datetime,
) -> None:
    """Mark the recordings of these fiches that the CRM no longer sends. Their rows stay, because transcripts and
    tasks refer to them."""
    call = CallRecordingRow
    sent = {
        (keys[fiche_id], one.call_id) for fiche_id, calls in recordings.items() for one in calls
    }
    present = select(call.id, call.fiche_cache_id, call.call_id).where(
        among(session, call.fiche_cache_id, [keys[fiche_id] for fiche_id in recordings]),
        call.vanished_at.is_(None),
    )
    vanished = [
        row_id for row_id, key, call_id in session.execute(present) if (key, call_id) not in sent
    ]
    if vanished:
        session.execute(
            update(call)
            .where(among(session, call.id, vanished))
            .values(vanished_at=now)
            .execution_options(synchronize_session=False)
        )


def _section_rows(fiche: CrmFiche) -> dict[str, list[Row]]:
    """The rows of one fiche, by section."""
    rows = {name: _numbered(getattr(fiche, name)) for name in LIST_SECTIONS}
    rows["information"] = [_fields(fiche.information, "fiche_id", "etiquettes")]
    rows["etiquettes"] = _numbered(fiche.information.etiquettes, index="etiquette_index")
    rows["prospect"] = [] if fiche.prospect is None else [_fields(fiche.prospect)]
    rows["conjoint"] = [] if fiche.conjoint is None else [_fields(fiche.conjoint)]
    whole = fiche.elements_souscription
    rows["elements_souscription"] = [] if whole is None else [_souscription(whole)]
    rows["raw_sections"] = [
        {"section_key": key, "content": text} for key, text in fiche.raw_sections.items()
    ]
    rows["tarification"] = _numbered(fiche.tarification, "gammes")
    gammes: list[Row] = []
    formules: list[Row] = []
    details: list[Row] = []
    for row_index, tarification in enumerate(fiche.tarification, start=1):
        gammes += _numbered(
            tarification.gammes, "formules", index="gamme_index", row_index=row_index
        )
        for gamme_index, gamme in enumerate(tarification.gammes, start=1):
            position: Row = {"row_index": row_index, "gamme_index": gamme_index}
            formules += _numbered(gamme.formules, "details", index="formule_index", **position)
            details += [
                {**position, "formule_index": index, "detail_key": key, "detail_value": value}
                for index, formule in enumerate(gamme.formules, start=1)
                for key, value in formule.details.items()
            ]
    return rows | {
        "tarification_gammes": gammes,
        "tarification_formules": formules,
        "tarification_formule_details": details,
    }


def _numbered(
    sections: Sequence[Section], *excluded: str, index: str = "row_index", **parents: object
) -> list[Row]:
    """The rows of the sections, with their positions in the column `index` and those of their parents."""
    return [
        {**parents, index: number, **_fields(section, *excluded)}
        for number, section in enumerate(sections, start=1)
    ]


def _fields(section: Section, *excluded: str) -> Row:
    # `vars` contains only the fields of the model; `model_extra` contains the others.
    return {name: value for name, value in vars(section).items() if name not in excluded}


def _souscription(whole: ElementsSouscription) -> Row:
    """One flat row. The columns of an object that is missing are null."""

    def flat(prefix: str, kind: type[Section], section: Section | None, *excluded: str) -> Row:
        names = [name for name in kind.model_fields if name not in excluded]
        return {prefix + name: getattr(section, name, None) for name in names}

    paiement = whole.paiement
    return {
        **_fields(whole, "ancien_contrat", "produit", "paiement"),
        **flat("ancien_", AncienContrat, whole.ancien_contrat),
        **flat("produit_", Produit, whole.produit),
        **flat("paiement_", Paiement, paiement, "compte_prelevement", "compte_virement"),
        **flat("prelevement_", Compte, paiement and paiement.compte_prelevement),
        **flat("virement_", Compte, paiement and paiement.compte_virement),
    }


def _replace_sections(
    session: Session, details: Mapping[int, CrmFiche], stored: Collection[str]
) -> None:
    """Replace the sections of the fiches, given by primary key. The caller has locked the fiches. `stored` names the
    sections that have rows to delete."""
    connection = session.connection()
    rows = {key: _section_rows(fiche) for key, fiche in details.items()}
    for name, table in SECTION_TABLES.items():
        if name in stored:
            connection.execute(delete(table).where(among(session, table.c.fiche_cache_id, details)))
        new = [{"fiche_cache_id": key, **row} for key, found in rows.items() for row in found[name]]
        if new:
            connection.execute(insert(table), new)


def _keys_and_stored_sections(
    session: Session, fiche_ids: Iterable[str]
) -> tuple[dict[str, int], set[str]]:
    """Return the primary keys by fiche id, and the names of the sections that any of the fiches has."""
    has = [
        exists().where(table.c.fiche_cache_id == FicheCacheRow.id)
        for table in SECTION_TABLES.values()
    ]
    query = select(FicheCacheRow.fiche_id, FicheCacheRow.id, *has).where(
        among(session, FicheCacheRow.fiche_id, fiche_ids)
    )
    rows = session.execute(query).all()
    stored = {
        name
        for _, _, *present in rows
        for name, has_rows in zip(SECTION_TABLES, present, strict=True)
        if has_rows
    }
    return {fiche_id: key for fiche_id, key, *_ in rows}, stored


_DETAIL_FIELDS = (
    "groupe", "agence_nom", "prospect_nom", "prospect_prenom", "prospect_email", "prospect_tel", "cle", "raw_data",
    "fetched_at", "details_fetched_at", "expires_at",
)  # fmt: skip
_STATE_FIELDS = ("details_success", "details_message", "not_found_until")


def save_outcomes(session: Session, outcomes: Sequence[FetchOutcome], now: datetime) -> None:
    """Store the outcomes: details replace stored details, a not-found marker keeps them, and other outcomes
    change nothing.

    The number of statements does not depend on the number of fiches. The rows are locked first, in
    the order of the fiche ids, so that concurrent writers of the same fiches do not deadlock.
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
    _mark_vanished(session, recordings, keys, now)
    save_recordings(session, recordings, keys)


def _upsert_fiches(session: Session, rows: Sequence[dict[str, object]]) -> None:
    """Insert or update the fiches. A single statement locks them in their order."""
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


def _fiche_row(outcome: DetailsFetched | FicheNotFound, now: datetime) -> Row:
    if isinstance(outcome, FicheNotFound):
        until = now + NOT_FOUND_LIVES_FOR
        return {
            **dict.fromkeys((*_DETAIL_FIELDS, "sales_date")),
            "fiche_id": outcome.fiche_id,
            "details_success": False,
            "details_message": NOT_FOUND,
            "not_found_until": until,
            "raw_data": {},
            "fetched_at": now,
            "expires_at": until,
        }
    information, prospect = outcome.details.information, outcome.details.prospect
    try:
        sales_date = crm_day(information.date_insertion).isoformat()
    except ValueError:
        sales_date = None
    return {
        "fiche_id": outcome.fiche_id,
        "groupe": information.groupe,
        "agence_nom": information.agence_nom,
        "prospect_nom": prospect and prospect.nom,
        "prospect_prenom": prospect and prospect.prenom,
        "prospect_email": prospect and prospect.mail,
        "prospect_tel": prospect and prospect.telephone,
        "cle": information.cle,
        "sales_date": sales_date,
        "raw_data": dict(outcome.details.rest),
        "fetched_at": now,
        "details_fetched_at": outcome.requested_at or now,
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
    """Return the fiches whose details were fetched, or that were not found, since then. A not-found marker expires
    within minutes."""
    recordings = (
        select(func.count())
        .where(
            CallRecordingRow.fiche_cache_id == FicheCacheRow.id,
            CallRecordingRow.vanished_at.is_(None),
        )
        .scalar_subquery()
    )
    marked_since = max(since + NOT_FOUND_LIVES_FOR, now)
    query = select(FicheCacheRow.fiche_id, _HAS_DETAILS, recordings).where(
        among(session, FicheCacheRow.fiche_id, fiche_ids),
        or_(
            and_(_HAS_DETAILS, FicheCacheRow.details_fetched_at >= since),
            and_(_IS_NOT_FOUND, FicheCacheRow.not_found_until >= marked_since),
        ),
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


_SCALARS = (
    "cle", "prospect_nom", "prospect_prenom", "prospect_email", "prospect_tel", "sales_date",
)  # fmt: skip
_DAY_FIELDS = (
    "revalidated_at", "listed", "duplicates", "new", "changed", "missing_cle", "without_recordings",
)  # fmt: skip


def save_sales_list(session: Session, sales: SalesList, now: datetime) -> SalesDay:
    """Store the list with a constant number of statements, and return its counts."""
    rows: list[Row] = [
        {
            "fiche_id": fiche.fiche_id,
            "cle": fiche.cle,
            "prospect_nom": fiche.nom,
            "prospect_prenom": fiche.prenom,
            "prospect_email": fiche.email,
            "prospect_tel": fiche.telephone,
            "sales_date": sales.day.isoformat(),
            "raw_data": {
                "_salesListOnly": True,
                "telephone_2": fiche.telephone_2,
                "statut": fiche.statut,
                "date_insertion": fiche.inserted_at and fiche.inserted_at.isoformat(),
                "date_modification": fiche.modified_at and fiche.modified_at.isoformat(),
            },
            "fetched_at": now,
            "expires_at": now + DETAILS_LIVE_FOR,
            "last_revalidated_at": now,
        }
        for fiche in sorted(sales.fiches, key=lambda fiche: fiche.fiche_id)
    ]
    columns = [getattr(FicheCacheRow, name) for name in _SCALARS]
    known = among(session, FicheCacheRow.fiche_id, [fiche.fiche_id for fiche in sales.fiches])
    before = {
        row["fiche_id"]: row
        for row in session.execute(select(FicheCacheRow.fiche_id, *columns).where(known)).mappings()
    }
    known_rows = [row for row in rows if row["fiche_id"] in before]
    changed = [
        any(row[name] not in {None, before[row["fiche_id"]][name]} for name in _SCALARS)
        for row in known_rows
    ]
    _upsert_summaries(session, rows)
    save_recordings(
        session, {fiche.fiche_id: fiche.recordings for fiche in sales.fiches if fiche.recordings}
    )
    day = SalesDay(
        day=sales.day,
        revalidated_at=now,
        listed=sales.listed,
        duplicates=sales.duplicates,
        new=len(rows) - len(known_rows),
        changed=sum(changed),
        missing_cle=sum(not fiche.cle for fiche in sales.fiches),
        without_recordings=sum(not fiche.recordings for fiche in sales.fiches),
    )
    row = {**vars(day), "day": day.day.isoformat()}
    upsert(session, SalesDayRow, [row], key=("day",), fields=_DAY_FIELDS)
    return day


def _upsert_summaries(session: Session, rows: Sequence[Row]) -> None:
    """Insert or update the fiches of a list. The list does not remove a cle, and does not replace the raw data of
    details."""
    if not rows:
        return
    insert = insert_into(session, FicheCacheRow)
    given = insert.excluded
    changes = {
        **{
            name: given[name]
            for name in (*_SCALARS, "fetched_at", "expires_at", "last_revalidated_at")
        },
        "cle": func.coalesce(given.cle, FicheCacheRow.cle),
        "raw_data": case(
            (FicheCacheRow.details_fetched_at.is_(None), given.raw_data),
            else_=FicheCacheRow.raw_data,
        ),
    }
    session.connection().execute(
        insert.on_conflict_do_update(index_elements=["fiche_id"], set_=changes), rows
    )


def sales_day(session: Session, day: date) -> SalesDay | None:
    row = session.get(SalesDayRow, day.isoformat())
    return row and SalesDay(day=day, **{field: getattr(row, field) for field in _DAY_FIELDS})


def volumes_of(session: Session, days: Sequence[date]) -> list[int]:
    """Return the number of fiches of each day that has a list."""
    chosen = among(session, SalesDayRow.day, [day.isoformat() for day in days])
    return list(session.scalars(select(SalesDayRow.listed - SalesDayRow.duplicates).where(chosen)))


def revalidated_since(session: Session, first: date) -> dict[date, datetime]:
    """Return when the list of each day from `first` on was last fetched."""
    query = select(SalesDayRow.day, SalesDayRow.revalidated_at).where(
        SalesDayRow.day >= first.isoformat()
    )
    return {date.fromisoformat(day): at for day, at in session.execute(query).tuples()}


def fiches_sold_on(session: Session, days: Sequence[date]) -> list[str]:
    sold = among(session, FicheCacheRow.sales_date, [day.isoformat() for day in days])
    return list(
        session.scalars(select(FicheCacheRow.fiche_id).where(sold).order_by(FicheCacheRow.fiche_id))
    )


def within(session: Session, reach: Reach) -> ColumnElement[bool]:
    """A condition on `FicheCacheRow`: the fiche is in reach."""
    if reach.scope is Scope.ALL:
        return true()
    # Correlated explicitly, because the enclosing query may join the same table.
    columns = INFORMATION.c
    details = (
        select(columns.groupe)
        .where(columns.fiche_cache_id == FicheCacheRow.id)
        .correlate(FicheCacheRow)
    )
    if reach.scope is Scope.SELF:
        if reach.crm_user_id is None:
            return false()
        return details.where(columns.attribution_user_id == reach.crm_user_id).exists()
    groupe = func.coalesce(details.scalar_subquery(), FicheCacheRow.groupe)
    return among(session, groupe, sorted(reach.groupes))


def visible_fiches(session: Session, reach: Reach, fiche_ids: Iterable[str]) -> set[str]:
    """Return the fiches in reach. Full reach includes fiches that are not mirrored."""
    requested = set(fiche_ids)
    if reach.is_whole:
        return requested
    wanted = (among(session, FicheCacheRow.fiche_id, sorted(requested)), within(session, reach))
    return set(session.scalars(select(FicheCacheRow.fiche_id).where(*wanted)))


def check_visible(session: Session, reach: Reach, fiche_ids: Iterable[str]) -> None:
    """Raise NotFoundError for the first fiche that is out of reach or missing. The error is the same for both."""
    requested = list(fiche_ids)
    visible = visible_fiches(session, reach, requested)
    hidden = next((fiche_id for fiche_id in requested if fiche_id not in visible), None)
    if hidden is not None:
        raise NotFoundError(f"Fiche {hidden} not found")


def check_mirrored(session: Session, fiche_id: str) -> None:
    if session.scalar(select(FicheCacheRow.id).where(FicheCacheRow.fiche_id == fiche_id)) is None:
        raise NotFoundError(f"Fiche {fiche_id} not found")
