"""Lists of audits, and of the fiches that were audited: filtered, sorted and paged by the database."""

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from automation_pipeline.audits.domain.audit_filter import AuditFilter, SortBy, SortOrder
from automation_pipeline.audits.store.conditions import COMPLETED, EVERYBODY, GROUPE, HUNDREDTHS, View, conditions
from automation_pipeline.audits.store.documents import Document, audit_row_document, audits_where
from automation_pipeline.audits.tables import AuditConfigRow, AuditRow
from automation_pipeline.core.instants import iso
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.bulk import among

_SORTED: Mapping[SortBy, InstrumentedAttribute[Any]] = {
    SortBy.CREATED_AT: AuditRow.created_at,
    SortBy.COMPLETED_AT: AuditRow.completed_at,
    SortBy.SCORE_PERCENTAGE: AuditRow.score_percentage,
    SortBy.DURATION_MS: AuditRow.duration_ms,
}


def list_audits(session: Session, chosen: AuditFilter, view: View = EVERYBODY) -> tuple[list[Document], int]:
    """A page of them, without steps; and how many there are without `limit` and `offset`. Two queries."""
    wanted = conditions(session, chosen, view)
    page = audits_where(*wanted).order_by(*_order(chosen)).limit(chosen.limit).offset(chosen.offset)
    total = session.scalar(joined(func.count()).where(*wanted)) or 0
    return [audit_row_document(row) for row in session.execute(page).tuples()], total


def list_by_fiche(session: Session, chosen: AuditFilter, view: View = EVERYBODY) -> tuple[list[Document], int]:
    """A page of fiches with their audits, that with the newest audit first, and how many fiches there are. Three
    queries. Averages are of completed audits."""
    wanted = conditions(session, chosen, view)
    newest = func.max(AuditRow.created_at)
    in_order = (
        (newest.asc(), FicheCache.id) if chosen.sort_order is SortOrder.ASC else (newest.desc(), FicheCache.id.desc())
    )
    of_fiche = joined(FicheCache, GROUPE, func.count(), *scores(), newest).where(*wanted).group_by(FicheCache.id)
    page = session.execute(of_fiche.order_by(*in_order).limit(chosen.limit).offset(chosen.offset)).tuples().all()
    shown = among(session, AuditRow.fiche_cache_id, [row[0].id for row in page])
    audits: dict[object, list[Document]] = defaultdict(list)
    for row in session.execute(audits_where(*wanted, shown).order_by(*_order(chosen))).tuples():
        audits[row[1]].append(audit_row_document(row))
    total = session.scalar(joined(func.count(AuditRow.fiche_cache_id.distinct())).where(*wanted)) or 0
    return [_fiche(row, audits[row[0].fiche_id]) for row in page], total


def joined(*columns: ColumnElement[Any] | type[FicheCache]) -> Select[Any]:
    """Of audits, as the conditions want them."""
    return (
        select(*columns)
        .select_from(AuditRow)
        .join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
        .join(AuditConfigRow, AuditConfigRow.id == AuditRow.audit_config_id)
    )


def scores() -> tuple[ColumnElement[Any], ...]:
    """Of the completed: how many, how many of them compliant, and the sum of their scores in hundredths."""
    compliant = func.sum(case((COMPLETED & AuditRow.is_compliant.is_(True), 1), else_=0))
    return func.sum(case((COMPLETED, 1), else_=0)), compliant, func.sum(case((COMPLETED, HUNDREDTHS)))


def average(hundredths: int | None, count: int) -> float | None:
    """Rounded as people round, and the same on both databases."""
    return None if not count else float(round(Decimal(int(hundredths or 0)) / count / 100, 2))


def _order(chosen: AuditFilter) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """What has no value comes last, whichever way round."""
    column = _SORTED[chosen.sort_by]
    if chosen.sort_order is SortOrder.ASC:
        return column.asc().nulls_last(), AuditRow.id.asc()
    return column.desc().nulls_last(), AuditRow.id.desc()


def _fiche(row: tuple[Any, ...], audits: list[Document]) -> Document:
    fiche, groupe, count, completed, compliant, hundredths, newest = row
    return {
        "fiche": {
            "ficheId": fiche.fiche_id,
            "groupe": groupe,
            "agenceNom": fiche.agence_nom,
            "prospectNom": fiche.prospect_nom,
            "prospectPrenom": fiche.prospect_prenom,
            "salesDate": fiche.sales_date,
        },
        "audits": audits,
        "summary": {
            "totalAudits": count,
            "compliantCount": compliant,
            "averageScore": average(hundredths, completed),
            "latestAuditDate": iso(newest),
        },
    }
