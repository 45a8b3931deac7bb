"""Queries of sales days: store a list, and read the known data of a day."""

from collections.abc import Sequence
from datetime import date, datetime

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from automation_pipeline.fiches.models.days import SalesDay
from automation_pipeline.fiches.models.fiches import SalesList, SalesListEntry
from automation_pipeline.fiches.queries.details import DETAILS_LIVE_FOR, save_recordings
from automation_pipeline.fiches.tables import FicheCacheRow, SalesDayRow
from automation_pipeline.storage.statements import among, insert_into, upsert

_SCALARS = (
    "cle",
    "prospect_nom",
    "prospect_prenom",
    "prospect_email",
    "prospect_tel",
    "sales_date",
)
_DAY_FIELDS = (
    "revalidated_at",
    "listed",
    "duplicates",
    "new",
    "changed",
    "missing_cle",
    "without_recordings",
)


def save_sales_list(session: Session, sales: SalesList, now: datetime) -> SalesDay:
    """Store the list with a constant number of statements."""
    before = _known_scalars(session, [fiche.fiche_id for fiche in sales.fiches])
    rows = [_summary_row(fiche, sales.day, now) for fiche in sales.fiches]
    _upsert_summaries(session, rows)
    save_recordings(
        session, {fiche.fiche_id: fiche.recordings for fiche in sales.fiches if fiche.recordings}
    )
    day = SalesDay(
        day=sales.day,
        revalidated_at=now,
        listed=sales.listed,
        duplicates=sales.duplicates,
        new=sum(row["fiche_id"] not in before for row in rows),
        changed=sum(_differs(before.get(str(row["fiche_id"])), row) for row in rows),
        missing_cle=sum(not fiche.cle for fiche in sales.fiches),
        without_recordings=sum(not fiche.recordings for fiche in sales.fiches),
    )
    upsert(
        session,
        SalesDayRow,
        [{**vars(day), "day": day.day.isoformat()}],
        key=("day",),
        fields=_DAY_FIELDS,
    )
    return day


def sales_day(session: Session, day: date) -> SalesDay | None:
    row = session.get(SalesDayRow, day.isoformat())
    return row and SalesDay(day=day, **{field: getattr(row, field) for field in _DAY_FIELDS})


def volumes_of(session: Session, days: Sequence[date]) -> list[int]:
    """The number of fiches on each of the days that has a list."""
    chosen = among(session, SalesDayRow.day, [day.isoformat() for day in days])
    return list(session.scalars(select(SalesDayRow.listed - SalesDayRow.duplicates).where(chosen)))


def revalidated_since(session: Session, first: date) -> dict[date, datetime]:
    """When the list of each day from `first` on was last fetched."""
    query = select(SalesDayRow.day, SalesDayRow.revalidated_at).where(
        SalesDayRow.day >= first.isoformat()
    )
    return {date.fromisoformat(day): at for day, at in session.execute(query).tuples()}


def fiches_sold_on(session: Session, days: Sequence[date]) -> list[str]:
    sold = among(session, FicheCacheRow.sales_date, [day.isoformat() for day in days])
    return list(
        session.scalars(select(FicheCacheRow.fiche_id).where(sold).order_by(FicheCacheRow.fiche_id))
    )


def _known_scalars(session: Session, fiche_ids: Sequence[str]) -> dict[str, dict[str, object]]:
    columns = [getattr(FicheCacheRow, name) for name in _SCALARS]
    known = among(session, FicheCacheRow.fiche_id, fiche_ids)
    rows = session.execute(select(FicheCacheRow.fiche_id, *columns).where(known))
    return {row.fiche_id: dict(zip(_SCALARS, row[1:], strict=True)) for row in rows}


def _upsert_summaries(session: Session, rows: Sequence[dict[str, object]]) -> None:
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
    in_order = sorted(rows, key=lambda row: str(row["fiche_id"]))
    session.connection().execute(
        insert.on_conflict_do_update(index_elements=["fiche_id"], set_=changes), in_order
    )


def _summary_row(fiche: SalesListEntry, day: date, now: datetime) -> dict[str, object]:
    return {
        "fiche_id": fiche.fiche_id,
        "cle": fiche.cle,
        "prospect_nom": fiche.nom,
        "prospect_prenom": fiche.prenom,
        "prospect_email": fiche.email,
        "prospect_tel": fiche.telephone,
        "sales_date": day.isoformat(),
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


def _differs(before: dict[str, object] | None, row: dict[str, object]) -> bool:
    return before is not None and any(
        before[name] != row[name] for name in _SCALARS if row[name] is not None
    )
